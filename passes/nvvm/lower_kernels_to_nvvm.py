"""`lower-kernels-to-nvvm`: kernels mapped to blocks and threads become `gpu.module`s with NVVM.

A kernel is lowered to the LLVM dialect, as an `nvvm.kernel` of bare pointers in a `gpu.module` of
its own, with its shared memory. The host's calls become `gpu.launch_func`: together, the launch
table.

    func.func @k(%x: memref<..>) attributes {kernel.blocks = 12, kernel.threads = 256}
    call @k(%x)
      ->  gpu.module @k { llvm.func @k(%x: !llvm.ptr) attributes {nvvm.kernel, nvvm.reqntid = 256} }
          gpu.launch_func @k::@k blocks in (12, 1, 1) threads in (256, 1, 1) args(%x : memref<..>)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from stepwell.errors import LoweringError
from stepwell.kernels.gpu.grid import (
    ACCESS_BYTES,
    CLUSTER,
    DYNAMIC_SHARED,
    RESIDENT,
    TENSOR_MAPS,
)
from stepwell.mlir import dialect, ir, nested_operations, run_upstream
from stepwell.passes.base import Pass, State
from stepwell.passes.buffers.plan_arena import VIEWS
from stepwell.passes.llvm.lower_kernels_to_llvm import (
    check_lowered,
    flatten_empty,
    mark_arguments,
)
from stepwell.passes.nvvm._product_loops import keep_rolled
from stepwell.passes.nvvm.map_to_blocks_and_threads import BLOCKS, THREADS

arith = dialect("arith")

RESIDENT_BLOCKS = 1
"""Blocks that have to fit a multiprocessor: left to itself, ptxas may spill to fit more."""

_MAP_BYTES, _MAP_ALIGNMENT = 128, 128
"""Of a tensor map."""

_PIPELINE = (
    "convert-nvgpu-to-nvvm,canonicalize,cse,func.func(convert-vector-to-scf),lower-affine,"
    "convert-scf-to-cf,expand-strided-metadata,lower-affine,canonicalize,cse,"
    "convert-vector-to-llvm,convert-math-to-llvm,finalize-memref-to-llvm,"
    "convert-func-to-llvm{use-bare-ptr-memref-call-conv=true},convert-arith-to-llvm,"
    "convert-cf-to-llvm,convert-index-to-llvm,convert-ub-to-llvm,reconcile-unrealized-casts,"
    "canonicalize,cse"
)

_VIEWS = (*VIEWS, "memref.subview", "memref.view")
_LOADS = ("memref.load", "affine.load", "affine.vector_load", "vector.load", "vector.maskedload")
_CHANGES = ("memref.atomic_rmw", "memref.generic_atomic_rmw", "memref.copy")

_KEPT = (
    "kernel.kind",
    "kernel.results",
    "kernel.flops",
    BLOCKS,
    THREADS,
    CLUSTER,
    DYNAMIC_SHARED,
    RESIDENT,
    TENSOR_MAPS,
)


@dataclass(frozen=True)
class LowerKernelsToNvvm(Pass):
    """Lower every kernel of the module; raises LoweringError that names a leftover operation."""

    name: ClassVar[str] = "lower-kernels-to-nvvm"

    def run(self, op: ir.Operation, state: State) -> None:
        body = op.regions[0].blocks[0]
        operations = [child.operation for child in body.operations]
        kernels = [f for f in operations if "kernel.kind" in f.attributes]
        hosts = [f for f in operations if f.name == "func.func" and f not in kernels]
        geometry = {_symbol(kernel): _geometry(kernel) for kernel in kernels}
        dynamic = {_symbol(kernel): _dynamic_bytes(kernel) for kernel in kernels}
        # Before the first is lowered: lowered ones are erased and cannot be asked their names.
        shared = [[g for g in operations if _is_shared_by(g, _symbol(k))] for k in kernels]
        for kernel, memory in zip(kernels, shared, strict=True):
            _lower(kernel, memory, body)
        launched = False
        for host in hosts:
            launched |= _launch(host, geometry, dynamic)
        if launched:
            op.attributes["gpu.container_module"] = ir.UnitAttr.get()


def _symbol(op: ir.Operation) -> str:
    return ir.StringAttr(op.attributes["sym_name"]).value


def _geometry(kernel: ir.Operation) -> tuple[int, int]:
    if BLOCKS not in kernel.attributes:
        raise LoweringError(f"{_symbol(kernel)}: a kernel that is not mapped to blocks and threads")
    blocks, threads = (ir.IntegerAttr(kernel.attributes[n]).value for n in (BLOCKS, THREADS))
    return blocks, threads


def _dynamic_bytes(kernel: ir.Operation) -> int:
    """The shared memory that a launch of it asks for."""
    if DYNAMIC_SHARED not in kernel.attributes:
        return 0
    return ir.IntegerAttr(kernel.attributes[DYNAMIC_SHARED]).value


def _is_shared_by(op: ir.Operation, kernel: str) -> bool:
    known = op.name in ("memref.global", "llvm.mlir.global")
    return known and _symbol(op).startswith(f"{kernel}_shared_")


def _lower(kernel: ir.Operation, shared: list[ir.Operation], body: ir.Block) -> None:
    """Put a `gpu.module` with the lowered kernel and its shared memory into the module's body."""
    name, threads = _symbol(kernel), _geometry(kernel)[1]
    kept = {key: kernel.attributes[key] for key in _KEPT if key in kernel.attributes}
    apart = ir.Module.create()
    flatten_empty(kernel)
    mark_arguments(kernel, _exchanged(kernel))
    for op in [*shared, kernel]:
        op.detach_from_parent()
        apart.body.append(op)
    run_upstream(apart.operation, _PIPELINE)
    check_lowered(apart)
    module = ir.Operation.create(
        "gpu.module", attributes={"sym_name": ir.StringAttr.get(name)}, regions=1
    )
    inside = module.regions[0].blocks.append()
    for child in list(apart.body.operations):
        child.operation.detach_from_parent()
        inside.append(child.operation)
    function = next(c.operation for c in inside.operations if c.operation.name == "llvm.func")
    keep_rolled(function)
    function.attributes["sym_visibility"] = ir.StringAttr.get("public")
    for marker in ("gpu.kernel", "nvvm.kernel"):
        function.attributes[marker] = ir.UnitAttr.get()
    function.attributes["nvvm.reqntid"] = ir.DenseI32ArrayAttr.get([threads])
    function.attributes["nvvm.minctasm"] = ir.IntegerAttr.get(
        ir.IntegerType.get_signless(32), RESIDENT_BLOCKS
    )
    if CLUSTER in kept:
        blocks = ir.IntegerAttr(kept[CLUSTER]).value
        function.attributes["nvvm.cluster_dim"] = ir.DenseI32ArrayAttr.get([blocks, 1, 1])
    for key, attribute in kept.items():
        function.attributes[key] = attribute
    _align_arguments(function)
    # Modules stand before the functions, in the order of the kernels.
    others = (o for o in body.operations if o.operation.name != "gpu.module")
    first = next(others, None)
    (ir.InsertionPoint(body) if first is None else ir.InsertionPoint(first)).insert(module)


def _exchanged(kernel: ir.Operation) -> set[int]:
    """The numbers of the buffers by which threads give each other values: those that a kernel with
    barriers reads and writes. LLVM takes a barrier to change no memory that only an argument's
    `noalias` pointer leads to."""
    found = list(nested_operations(kernel))
    if not any(op.name == "nvvm.barrier" for op in found):
        return set()
    arguments = list(kernel.regions[0].blocks[0].arguments)
    return {
        number
        for number, argument in enumerate(arguments)
        if isinstance(argument.type, ir.MemRefType) and _uses(argument) >= {"read", "written"}
    }


def _uses(buffer: ir.Value) -> set[str]:
    """Whether `buffer` is "read" and "written", also by way of its views. What is no load counts as
    written."""
    found: set[str] = set()
    for use in buffer.uses:
        op = use.owner.operation
        if op.name in _VIEWS:
            found |= _uses(op.results[0])
        elif op.name in _CHANGES:
            found |= {"read", "written"}
        else:
            found.add("read" if op.name in _LOADS else "written")
    return found


def _align_arguments(function: ir.Operation) -> None:
    """Tell LLVM how buffers are aligned: it makes vector accesses of it. What follows them are
    tensor maps, by value."""
    long = ir.IntegerType.get_signless(64)
    buffer = {"llvm.align": ir.IntegerAttr.get(long, ACCESS_BYTES)}
    tensor_map = {
        "llvm.byval": ir.TypeAttr.get(ir.Type.parse(f"!llvm.array<{_MAP_BYTES} x i8>")),
        "llvm.align": ir.IntegerAttr.get(long, _MAP_ALIGNMENT),
        "nvvm.grid_constant": ir.UnitAttr.get(),
    }
    known = list(function.attributes["arg_attrs"])
    maps = len(function.attributes[TENSOR_MAPS]) if TENSOR_MAPS in function.attributes else 0
    arguments = [
        ir.DictAttr.get({**{n.name: n.attr for n in attributes}, **added})
        for attributes, added in zip(
            known, [buffer] * (len(known) - maps) + [tensor_map] * maps, strict=True
        )
    ]
    function.attributes["arg_attrs"] = ir.ArrayAttr.get(arguments)


def _launch(
    host: ir.Operation, geometry: dict[str, tuple[int, int]], dynamic: dict[str, int]
) -> bool:
    """Replace the calls of kernels in `host` by launches; returns whether there are any. Calls of
    library functions stay."""
    calls = [op for op in nested_operations(host) if op.name == "func.call"]
    named = [(op, ir.FlatSymbolRefAttr(op.attributes["callee"]).value) for op in calls]
    launches = [(op, name) for op, name in named if name in geometry]
    for call, name in launches:
        with ir.InsertionPoint(call), call.location:
            index = ir.IndexType.get()
            one, blocks, threads = (arith.ConstantOp(index, n).result for n in (1, *geometry[name]))
            operands = list(call.operands)
            word = ir.IntegerType.get_signless(32)
            shared = [arith.ConstantOp(word, dynamic[name]).result] if dynamic[name] else []
            ir.Operation.create(
                "gpu.launch_func",
                operands=[blocks, one, one, threads, one, one, *shared, *operands],
                attributes={
                    "kernel": ir.SymbolRefAttr.get([name, name]),
                    "operandSegmentSizes": ir.DenseI32ArrayAttr.get(
                        [0, 1, 1, 1, 1, 1, 1, 0, 0, 0, len(shared), len(operands), 0]
                    ),
                    **{n: call.attributes[n] for n in call.attributes if n == "kernel.names"},
                },
            )
        call.erase()
    return bool(launches)
