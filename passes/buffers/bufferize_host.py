"""`bufferize-host`: one-shot bufferization of the host program, results written to out parameters.

Kernels are memref functions already, so that only views, control flow and the function boundary are
left to upstream's one-shot bufferization; no copies arise. A result that is a view of a buffer
gives the buffer its place: the kernel that fills it writes into the out parameter.

    func.func @main(%x: tensor<..>) -> tensor<..>   ->   func.func @main(%x: memref<..>, %out:
    memref<..>)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from stepwell.errors import LoweringError
from stepwell.kernels.structured import defining_op, location_names
from stepwell.mlir import dialect, ir, nested_operations, run_upstream
from stepwell.passes.base import Pass, State
from stepwell.passes.buffers.plan_arena import VIEWS

memref = dialect("memref")

CARRIED = "stepwell.carried"
"""Marks the copies that loops and branches of the host need."""

_PIPELINE = (
    "one-shot-bufferize{bufferize-function-boundaries=true "
    "function-boundary-type-conversion=identity-layout-map},"
    "canonicalize"
)


@dataclass(frozen=True)
class BufferizeHost(Pass):
    """Run upstream bufferization; raises LoweringError if a copy of a buffer is left over."""

    name: ClassVar[str] = "bufferize-host"

    def run(self, op: ir.Operation, state: State) -> None:
        run_upstream(op, _PIPELINE)
        for function in op.regions[0].blocks[0].operations:
            if "kernel.kind" not in function.operation.attributes:
                _results_to_parameters(function.operation)
        copies = [
            inner
            for function in op.regions[0].blocks[0].operations
            if "kernel.kind" not in function.operation.attributes
            for inner in nested_operations(function.operation)
            if inner.name == "memref.copy" and CARRIED not in inner.attributes
        ]
        if copies:
            names = ", ".join(location_names(copies[0].location)) or "a result"
            raise LoweringError(f"{names}: bufferization left {len(copies)} copies in the host")


def _results_to_parameters(function: ir.Operation) -> None:
    """Return nothing: each returned buffer becomes an argument, in the place of its allocation."""
    if not len(function.regions[0].blocks):
        return
    entry = function.regions[0].blocks[0]
    terminator = list(entry.operations)[-1].operation
    results = list(terminator.operands)
    with ir.InsertionPoint(terminator):
        ir.Operation.create("func.return", operands=[])
    terminator.erase()
    for value in results:
        argument = entry.add_argument(value.type, ir.Location.unknown())
        allocation = _allocation(value)
        if allocation is None:
            raise LoweringError("a result is not a buffer of its own")
        with ir.InsertionPoint.at_block_begin(entry):
            place = reinterpreted(argument, allocation.results[0].type)
        allocation.results[0].replace_all_uses_with(place)
        allocation.erase()
    inputs = [argument.type for argument in entry.arguments]
    function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(inputs, []))
    if "arg_attrs" in function.attributes:
        known = list(function.attributes["arg_attrs"])
        known += [ir.DictAttr.get({})] * (len(inputs) - len(known))
        function.attributes["arg_attrs"] = ir.ArrayAttr.get(known)


def _allocation(value: ir.Value) -> ir.Operation | None:
    """The `memref.alloc` that `value` is a view of."""
    op = defining_op(value)
    while op is not None and op.name in VIEWS:
        op = defining_op(op.operands[0])
    return op if op is not None and op.name == "memref.alloc" else None


def reinterpreted(buffer: ir.Value, kind: ir.Type) -> ir.Value:
    """The dense buffer with another shape of as many elements."""
    if buffer.type == kind:
        return buffer
    shape = list(ir.MemRefType(kind).shape)
    strides = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    return memref.ReinterpretCastOp(kind, buffer, [], [], [], [0], shape, strides).result
