"""`lower-groups-to-affine`: replace each outlined group by a kernel of affine loops on memrefs.

The emitter is chosen by the group's kind (contraction, outer reduction, rows, elementwise,
concatenation). Calls in the host pass buffers: inputs through `bufferization.to_buffer`, results as
destinations that the kernel fills.

    func.func private @kernel_0(%x: tensor<..>, %w: tensor<..>, %out: tensor<..>) -> tensor<..>
      ->  func.func private @kernel_0(%x: memref<..>, %w: memref<..>, %out: memref<..>) {
            affine.parallel (%task) = (0) to (48) { ... vector.fma ... } }
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from stepwell.errors import LoweringError
from stepwell.kernels.builder import NestBuilder
from stepwell.kernels.cpu import (
    concatenate,
    contraction,
    contraction_strategy,
    elementwise,
    outer_reduction,
    row,
    transpose,
    winograd,
)
from stepwell.kernels.evaluate import storage_type
from stepwell.kernels.group import KernelGroup
from stepwell.kernels.structured import Structured, location_names
from stepwell.mlir import dialect, ir
from stepwell.passes.affine._scalar_fallback import emit_scalar
from stepwell.passes.base import Pass, State
from stepwell.passes.linalg._fusion_graph import contraction_operands
from stepwell.targets import Target

func = dialect("func")


@dataclass(frozen=True)
class LowerGroupsToAffine(Pass):
    """Emit every kernel of the module; a group that no emitter takes becomes scalar loops, with a
    remark."""

    name: ClassVar[str] = "lower-groups-to-affine"

    def run(self, op: ir.Operation, state: State) -> None:
        body = op.regions[0].blocks[0]
        functions = [c.operation for c in body.operations if c.operation.name == "func.func"]
        kernels = {
            f.attributes["sym_name"].value: f for f in functions if "kernel.kind" in f.attributes
        }
        scratch = {name: _lower(kernel, body, state) for name, kernel in kernels.items()}
        for function in functions:
            if function not in kernels.values() and len(function.regions[0].blocks):
                _rewrite_calls(function, scratch)
        for kernel in kernels.values():
            kernel.erase()
        for function in [c.operation for c in body.operations]:
            name = function.attributes["sym_name"].value
            if name.endswith(_NEW):
                function.attributes["sym_name"] = ir.StringAttr.get(name.removesuffix(_NEW))


_NEW = ".affine"


def _lower(kernel: ir.Operation, body: ir.Block, state: State) -> list[ir.MemRefType]:
    """Emit `kernel` beside the tensor function; returns the types of the scratch buffers that it
    takes after its results."""
    name = kernel.attributes["sym_name"].value
    try:
        _emit(kernel, body, state.target)
        return []
    except LoweringError as error:
        for child in list(body.operations):
            if child.operation.attributes["sym_name"].value == name + _NEW:
                child.operation.erase()
        try:
            scratch = emit_scalar(kernel, body, name + _NEW)
        except LoweringError as second:
            raise LoweringError(f"{error}; as scalar loops: {second}") from None
        state.remarks.append(f"{name}: scalar loops, since {error}")
        return scratch


def _emit(kernel: ir.Operation, body: ir.Block, target: Target) -> None:
    block = kernel.regions[0].blocks[0]
    types = [memref_type(argument.type) for argument in block.arguments]
    with ir.InsertionPoint(body):
        function = func.FuncOp(
            kernel.attributes["sym_name"].value + _NEW,
            ir.FunctionType.get(types, []),
            visibility="private",
            loc=kernel.location,
        )
    for name in ("kernel.kind", "kernel.strategy"):
        if name in kernel.attributes:
            function.attributes[name] = kernel.attributes[name]
    results = len(ir.FunctionType(ir.TypeAttr(kernel.attributes["function_type"]).value).results)
    function.attributes["kernel.results"] = ir.IntegerAttr.get(
        ir.IntegerType.get_signless(64), results
    )
    entry = function.add_entry_block()
    nest = NestBuilder()
    with ir.InsertionPoint(entry):
        buffers = [_as_bytes(argument) for argument in entry.arguments]
        nest.start(entry)
        group = KernelGroup(kernel, buffers, nest)
        emit_group(group, kernel, target)
        func.ReturnOp([])
    function.attributes["kernel.flops"] = ir.IntegerAttr.get(
        ir.IntegerType.get_signless(64), flops(group.operations)
    )


def flops(operations: list[ir.Operation]) -> int:
    """Arithmetic operations that a group asks for: loop iterations times the body's operations on
    floats (a multiply-add counts as two)."""
    total = 0
    for op in operations:
        structured = Structured.of(op)
        if structured is not None:
            names = [child.operation.name for child in structured.body.operations]
            work = sum(name.endswith("f") or name.startswith("math.") for name in names)
            total += math.prod(structured.loop_sizes()) * work
    return total


def emit_group(group: KernelGroup, kernel: ir.Operation, target: Target) -> None:
    """Call the emitter for the kind of `kernel`; results without elements need none."""
    if all(0 in output.buffer.type.shape for output in group.outputs):
        return
    kind = ir.StringAttr(kernel.attributes["kernel.kind"]).value
    lanes = target.vector_lanes
    if kind == "contraction":
        anchor = group.anchor()
        if winograd.ATTRIBUTE in anchor.op.attributes:
            chosen = kernel.attributes["kernel.strategy"]
            winograd.emit(group, winograd.WinogradStrategy.from_attribute(chosen), lanes)
            return
        operands = contraction_operands(anchor)
        assert operands is not None
        shape = contraction_strategy.ContractionShape.of(anchor, operands)
        strategy = (
            contraction_strategy.ContractionStrategy.from_attribute(
                kernel.attributes["kernel.strategy"]
            )
            if "kernel.strategy" in kernel.attributes
            else contraction_strategy.choose(anchor, shape, target, packed=False)
        )
        contraction.emit(group, strategy, operands, lanes)
    elif kind == "outer-reduction":
        outer_reduction.emit(group, lanes)
    elif kind == "concatenate":
        concatenate.emit(group, lanes)
    elif kind == "transpose":
        transpose.emit(group, lanes)
    elif kind in ("elementwise", "pad"):
        if group.reductions():
            row.check(group)
            row.emit(group, lanes)
        else:
            elementwise.emit(group, lanes)
    else:
        raise LoweringError(f"no emitter for a group of kind {kind}")


def memref_type(kind: ir.Type) -> ir.Type:
    """The memref of a tensor type, row-major; other types as they are."""
    if not isinstance(kind, ir.RankedTensorType):
        return kind
    return ir.MemRefType.get(list(kind.shape), kind.element_type)


def _as_bytes(buffer: ir.Value) -> ir.Value:
    """Booleans are bytes in memory; a vector of i1 would be read as packed bits."""
    kind = buffer.type
    if not isinstance(kind, ir.MemRefType) or str(kind.element_type) != "i1":
        return buffer
    stored = ir.MemRefType.get(list(kind.shape), storage_type(kind.element_type))
    return ir.Operation.create(
        "builtin.unrealized_conversion_cast", results=[stored], operands=[buffer]
    ).results[0]


def _rewrite_calls(host: ir.Operation, scratch: dict[str, list[ir.MemRefType]]) -> None:
    """Calls of kernels pass memrefs; results are read from the destinations."""
    for block in host.regions[0].blocks:
        for child in list(block.operations):
            call = child.operation
            if call.name != "func.call":
                continue
            callee = ir.FlatSymbolRefAttr(call.attributes["callee"]).value
            if callee not in scratch:
                continue
            with ir.InsertionPoint(call), call.location:
                _rewrite_call(call, callee, scratch[callee])
            call.erase()


def _rewrite_call(call: ir.Operation, callee: str, scratch: list[ir.MemRefType]) -> None:
    count = len(call.operands) - len(call.results)
    inputs = [_to_buffer(value) for value in list(call.operands)[:count]]
    destinations = [_allocate(memref_type(r.type)) for r in call.results]
    temporaries = [_allocate(kind) for kind in scratch]
    ir.Operation.create(
        "func.call",
        operands=[*inputs, *destinations, *temporaries],
        attributes={
            "callee": ir.FlatSymbolRefAttr.get(callee),
            "kernel.names": ir.ArrayAttr.get(
                [ir.StringAttr.get(n) for n in location_names(call.location)]
            ),
        },
    )
    for result, buffer in zip(call.results, destinations, strict=True):
        tensor = ir.Operation.create(
            "bufferization.to_tensor",
            results=[result.type],
            operands=[buffer],
            attributes={"restrict": ir.UnitAttr.get(), "writable": ir.UnitAttr.get()},
        ).results[0]
        result.replace_all_uses_with(tensor)


def _allocate(kind: ir.Type) -> ir.Value:
    return ir.Operation.create(
        "memref.alloc",
        results=[kind],
        attributes={"operandSegmentSizes": ir.DenseI32ArrayAttr.get([0, 0])},
    ).results[0]


def _to_buffer(value: ir.Value) -> ir.Value:
    if not isinstance(value.type, ir.RankedTensorType):
        return value
    return ir.Operation.create(
        "bufferization.to_buffer",
        results=[memref_type(value.type)],
        operands=[value],
        attributes={"read_only": ir.UnitAttr.get()},
    ).results[0]
