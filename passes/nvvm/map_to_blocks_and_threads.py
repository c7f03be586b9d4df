"""`map-to-blocks-and-threads`: kernels' grids become the special registers of blocks and threads.

The one `affine.parallel (%block, %thread)` of a kernel is run once by every thread; its extents
become attributes. Barriers and shuffles become NVVM's, shared memory a global of address space 3
(one without a size, where the launch says how much there is: of more than a kernel may declare,
too); tensor maps become parameters.

    func.func @k(%x) {                                      func.func @k(%x) attributes
      affine.parallel (%b, %t) = (0, 0) to (12, 256) {  ->      {kernel.blocks = 12, kernel.threads = 256} {
        ...                                                   %b = nvvm.read.ptx.sreg.ctaid.x : i32
        gpu.barrier                                           %t = nvvm.read.ptx.sreg.tid.x : i32
                                                              ...
                                                              nvvm.barrier
"""  # noqa: E501

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from stepwell.attributes import i64
from stepwell.errors import LoweringError
from stepwell.kernels.gpu import hopper
from stepwell.kernels.gpu.grid import ACCESS_BYTES, DYNAMIC_SHARED, SHARED
from stepwell.kernels.gpu.hopper import MAP
from stepwell.kernels.gpu.hopper import SHARED as DYNAMIC
from stepwell.mlir import dialect, ir, nested_operations
from stepwell.passes.base import Pass, State
from stepwell.targets.nvidia import MAX_BLOCK_THREADS, STATIC_SHARED_BYTES

arith = dialect("arith")
llvm = dialect("llvm")
memref = dialect("memref")

BLOCKS, THREADS = "kernel.blocks", "kernel.threads"
_MOST_BLOCKS = (1 << 31) - 1
_SHARED_SPACE = 3
_DYNAMIC_ALIGNMENT = 1024
"""Of the shared memory that launches ask for: after so many bytes the widest swizzle repeats."""

_ALL_LANES = -1
_CLAMP = 31


@dataclass(frozen=True)
class MapToBlocksAndThreads(Pass):
    """Run on every kernel of the module; raises LoweringError for a grid that no GPU has."""

    name: ClassVar[str] = "map-to-blocks-and-threads"

    def run(self, op: ir.Operation, state: State) -> None:
        body = op.regions[0].blocks[0]
        for child in list(body.operations):
            if "kernel.kind" in child.operation.attributes:
                _map(child.operation, body)


def _map(kernel: ir.Operation, module: ir.Block) -> None:
    name = ir.StringAttr(kernel.attributes["sym_name"]).value
    entry = kernel.regions[0].blocks[0]
    grids = [c.operation for c in entry.operations if c.operation.name == "affine.parallel"]
    if len(grids) > 1:
        raise LoweringError(f"{name}: a kernel has one grid, this one {len(grids)}")
    extents = _extents(name, grids[0]) if grids else (1, 1)
    integer = ir.IntegerType.get_signless(64)
    for attribute, extent in zip((BLOCKS, THREADS), extents, strict=True):
        kernel.attributes[attribute] = ir.IntegerAttr.get(integer, extent)
    if grids:
        _replace_grid(grids[0])
    shared = []
    for op in nested_operations(kernel):
        if op.name == "gpu.barrier":
            _barrier(op)
        elif op.name == "gpu.shuffle":
            _shuffle(op)
        elif op.name == "memref.alloca" and _is_shared(op.results[0].type):
            shared.append(op)
        elif DYNAMIC in op.attributes:
            _share_dynamically(op, module, f"{name}_shared_by_launch")
        elif MAP in op.attributes:
            op.results[0].replace_all_uses_with(_parameter(kernel, op))
            op.erase()
    _share(kernel, shared, module)


def _share(kernel: ir.Operation, allocations: list[ir.Operation], module: ir.Block) -> None:
    """Make shared memory of what a kernel allocates: globals, or where those are more than it may
    declare, parts of what its launch asks for, behind what it uses there itself."""
    name, total = _symbol(kernel), sum(map(_bytes, allocations))
    if total <= STATIC_SHARED_BYTES:
        at = 0
        for op in allocations:
            size = _bytes(op)
            _declare(op, module, f"{name}_shared_{at}")
            at += size
        return
    asked = (
        ir.IntegerAttr(kernel.attributes[DYNAMIC_SHARED]).value
        if DYNAMIC_SHARED in kernel.attributes
        else 0
    )
    if asked < total:
        raise LoweringError(
            f"{name}: {total} bytes of shared memory, of which a kernel may declare "
            f"{STATIC_SHARED_BYTES}, and its launch asks for {asked}"
        )
    at = asked - total
    for op in allocations:
        size = _bytes(op)
        _place(op, module, f"{name}_shared_by_launch", at)
        at += size


def _extents(name: str, grid: ir.Operation) -> tuple[int, int]:
    bounds = list(ir.AffineMapAttr(grid.attributes["upperBoundsMap"]).value.results)
    if len(bounds) != 2 or not all(isinstance(b, ir.AffineConstantExpr) for b in bounds):
        raise LoweringError(f"{name}: a grid has two constant extents, of blocks and of threads")
    blocks, threads = (ir.AffineConstantExpr(bound).value for bound in bounds)
    if not 1 <= threads <= MAX_BLOCK_THREADS or not 1 <= blocks <= _MOST_BLOCKS:
        raise LoweringError(
            f"{name}: {blocks} blocks of {threads} threads; a block has up to "
            f"{MAX_BLOCK_THREADS} threads and a grid up to {_MOST_BLOCKS} blocks"
        )
    return blocks, threads


def _replace_grid(grid: ir.Operation) -> None:
    """Put the body in the grid's place."""
    body = grid.regions[0].blocks[0]
    word, index = ir.IntegerType.get_signless(32), ir.IndexType.get()
    with ir.InsertionPoint(grid), grid.location:
        for argument, register in zip(body.arguments, ("ctaid", "tid"), strict=True):
            number = ir.Operation.create(f"nvvm.read.ptx.sreg.{register}.x", results=[word])
            place = arith.IndexCastUIOp(index, number.results[0]).result
            argument.replace_all_uses_with(place)
        point = ir.InsertionPoint(grid)
        for child in list(body.operations)[:-1]:
            child.operation.detach_from_parent()
            point.insert(child)
    grid.erase()


def _barrier(op: ir.Operation) -> None:
    with ir.InsertionPoint(op), op.location:
        ir.Operation.create("nvvm.barrier")
    op.erase()


def _shuffle(op: ir.Operation) -> None:
    word = ir.IntegerType.get_signless(32)
    with ir.InsertionPoint(op), op.location:
        lanes, clamp = (arith.ConstantOp(word, v).result for v in (_ALL_LANES, _CLAMP))
        moved = ir.Operation.create(
            "nvvm.shfl.sync",
            results=[op.results[0].type],
            operands=[lanes, op.operands[0], op.operands[1], clamp],
            attributes={"kind": ir.Attribute.parse("#nvvm<shfl_kind bfly>")},
        )
    op.results[0].replace_all_uses_with(moved.results[0])
    op.erase()


def _is_shared(kind: ir.Type) -> bool:
    space = ir.MemRefType(kind).memory_space
    return space is not None and str(space) == SHARED


def _share_dynamically(op: ir.Operation, module: ir.Block, symbol: str) -> None:
    """Put the address of what the launch asks for in the placeholder's place."""
    with ir.InsertionPoint(op), op.location:
        address = _shared_by_launch(module, symbol)
    op.results[0].replace_all_uses_with(address)
    op.erase()


def _shared_by_launch(module: ir.Block, symbol: str) -> ir.Value:
    """The address of what the launch asks for."""
    if all(symbol != _symbol(child.operation) for child in module.operations):
        with ir.InsertionPoint.at_block_begin(module):
            integer = ir.IntegerType.get_signless
            ir.Operation.create(
                "llvm.mlir.global",
                attributes={
                    "sym_name": ir.StringAttr.get(symbol),
                    "global_type": ir.TypeAttr.get(ir.Type.parse("!llvm.array<0 x i8>")),
                    "linkage": ir.Attribute.parse("#llvm.linkage<external>"),
                    "addr_space": ir.IntegerAttr.get(integer(32), _SHARED_SPACE),
                    "alignment": ir.IntegerAttr.get(integer(64), _DYNAMIC_ALIGNMENT),
                },
                regions=1,
            )
    return ir.Operation.create(
        "llvm.mlir.addressof",
        results=[ir.Type.parse(f"!llvm.ptr<{_SHARED_SPACE}>")],
        attributes={"global_name": ir.FlatSymbolRefAttr.get(symbol)},
    ).results[0]


def _symbol(op: ir.Operation) -> str:
    return ir.StringAttr(op.attributes["sym_name"]).value if "sym_name" in op.attributes else ""


def _parameter(kernel: ir.Operation, op: ir.Operation) -> ir.Value:
    """The kernel's parameter that is the tensor map which the placeholder names."""
    entry = kernel.regions[0].blocks[0]
    function = ir.FunctionType(ir.TypeAttr(kernel.attributes["function_type"]).value)
    number = ir.IntegerAttr(op.attributes[MAP]).value
    buffers = sum(isinstance(a.type, ir.MemRefType) for a in entry.arguments)
    while len(entry.arguments) <= buffers + number:
        entry.add_argument(op.results[0].type, op.location)
    types = [argument.type for argument in entry.arguments]
    changed = ir.FunctionType.get(types, function.results)
    kernel.attributes["function_type"] = ir.TypeAttr.get(changed)
    return entry.arguments[buffers + number]


def _bytes(op: ir.Operation) -> int:
    """Of an allocation, rounded up to 16."""
    from stepwell.passes.buffers.plan_arena import element_bytes

    kind = ir.MemRefType(op.results[0].type)
    size = math.prod(kind.shape) * element_bytes(kind.element_type)
    return -(-size // ACCESS_BYTES) * ACCESS_BYTES


def _placed(kind: ir.MemRefType) -> ir.MemRefType:
    return ir.MemRefType.get(list(kind.shape), kind.element_type, memory_space=i64(_SHARED_SPACE))


def _declare(op: ir.Operation, module: ir.Block, symbol: str) -> None:
    """Make an allocation a global."""
    placed = _placed(ir.MemRefType(op.results[0].type))
    with ir.InsertionPoint.at_block_begin(module), op.location:
        memref.GlobalOp(
            symbol,
            ir.TypeAttr.get(placed),
            sym_visibility=ir.StringAttr.get("private"),
            initial_value=ir.UnitAttr.get(),
            alignment=i64(ACCESS_BYTES),
        )
    with ir.InsertionPoint(op), op.location:
        place = memref.GetGlobalOp(placed, symbol).result
    op.results[0].replace_all_uses_with(place)
    op.erase()


def _place(op: ir.Operation, module: ir.Block, symbol: str, first: int) -> None:
    """Make an allocation a part, from byte `first` on, of what the launch asks for."""
    placed = _placed(ir.MemRefType(op.results[0].type))
    with ir.InsertionPoint(op), op.location:
        begin = _shared_by_launch(module, symbol)
        buffer = _buffer_at(hopper.at(begin, first), placed)
    op.results[0].replace_all_uses_with(buffer)
    op.erase()


def _buffer_at(pointer: ir.Value, kind: ir.MemRefType) -> ir.Value:
    """What lies at an address, contiguously, as LLVM has a buffer: pointers, offset, sizes and
    strides."""
    rank = len(kind.shape)
    strides = [math.prod(kind.shape[axis + 1 :]) for axis in range(rank)]
    fields = f"{pointer.type}, {pointer.type}, i64, array<{rank} x i64>, array<{rank} x i64>"
    described = llvm.mlir_undef(ir.Type.parse(f"!llvm.struct<({fields})>"))
    parts = [((0,), pointer), ((1,), pointer), ((2,), _long(0))]
    for axis, (size, stride) in enumerate(zip(kind.shape, strides, strict=True)):
        parts += [((3, axis), _long(size)), ((4, axis), _long(stride))]
    for place, part in parts:
        described = llvm.insertvalue(described, part, ir.DenseI64ArrayAttr.get(list(place)))
    return ir.Operation.create(
        "builtin.unrealized_conversion_cast", results=[kind], operands=[described]
    ).results[0]


def _long(value: int) -> ir.Value:
    return arith.ConstantOp(ir.IntegerType.get_signless(64), value).result
