"""`legalize-library-calls`: a custom call of a library function becomes a kernel and its call.

    %lu, %pivots, %info = stablehlo.custom_call @stepwell.library_call(%a)
        {kernel.library_call = {function = "lapack.sgetrf", ...}}

becomes, with the address of the function as an argument of the host,

    func.func private @library_call_0(%f, %lu, %pivots, %info) -> (..)
        attributes {kernel.kind = "library-call", kernel.library_call = {..}}
    func.func @main(..., %f: tensor<1xi8> {stepwell.function = "lapack.sgetrf"}) {
      %lu, %pivots, %info = call @library_call_0(%f, %a, %empty, %empty)

What a function updates is the destination of its result. Calls whose results nothing reads go.
For a GPU, the host's runtime looks the function up: it is no argument.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from stepwell.errors import LoweringError
from stepwell.kernels.library_call import ATTRIBUTE, FUNCTION, KIND, LibraryCall, is_library_call
from stepwell.kernels.structured import source_name
from stepwell.mlir import dialect, ir, nested_operations
from stepwell.passes.base import Pass, State
from stepwell.passes.linalg._fusion_graph import is_host_block
from stepwell.passes.linalg.hoist_constants import add_argument, marked_arguments
from stepwell.targets.nvidia import NvidiaTarget

func = dialect("func")
tensor = dialect("tensor")


@dataclass(frozen=True)
class LegalizeLibraryCalls(Pass):
    """Rewrite the library calls of every function with a body; equal ones share a kernel."""

    name: ClassVar[str] = "legalize-library-calls"

    def run(self, op: ir.Operation, state: State) -> None:
        """Raises LoweringError for a call that does not stand in the host program."""
        body = op.regions[0].blocks[0]
        known: dict[str, str] = {}
        for child in list(body.operations):
            host = child.operation
            if host.name == "func.func" and len(host.regions[0].blocks):
                for call in [inner for inner in nested_operations(host) if is_library_call(inner)]:
                    _rewrite(call, host, body, known, isinstance(state.target, NvidiaTarget))


def _rewrite(
    op: ir.Operation, host: ir.Operation, body: ir.Block, known: dict[str, str], on_gpu: bool
) -> None:
    if not any(True for result in op.results for _ in result.uses):
        op.erase()
        return
    call = LibraryCall.from_attribute(op.attributes[ATTRIBUTE])
    if not is_host_block(op.block):
        raise LoweringError(
            f"{source_name(op)}: {call.function} cannot be called inside a kernel; it can stand in "
            "a function, or in a loop or branch of it"
        )
    inputs = len(op.operands) - len(call.updated)
    updated = dict(zip(call.updated, list(op.operands)[inputs:], strict=True))
    with ir.InsertionPoint(op), op.location:
        destinations = [
            updated[number]
            if number in updated
            else tensor.EmptyOp(list(result.type.shape), result.type.element_type).result
            for number, result in enumerate(op.results)
        ]
        function = [] if on_gpu else [_address(host, call.function)]
        arguments = [*list(op.operands)[:inputs], *function, *destinations]
        types = [result.type for result in op.results]
        kind = ir.FunctionType.get([value.type for value in arguments], types)
        symbol = _kernel(body, kind, op.attributes[ATTRIBUTE], known)
        new = func.CallOp(types, ir.FlatSymbolRefAttr.get(symbol), arguments)
    for result, value in zip(op.results, new.results, strict=True):
        result.replace_all_uses_with(value)
    op.erase()


def _address(host: ir.Operation, function: str) -> ir.Value:
    """The argument of `host` that is the address of `function`."""
    for number, name in marked_arguments(host, FUNCTION).items():
        if name == function:
            return host.regions[0].blocks[0].arguments[number]
    byte = ir.RankedTensorType.get([1], ir.IntegerType.get_signless(8))
    return add_argument(host, byte, FUNCTION, function)


def _kernel(
    body: ir.Block, kind: ir.FunctionType, description: ir.Attribute, known: dict[str, str]
) -> str:
    key = f"{kind} {description}"
    if key not in known:
        known[key] = f"library_call_{len(known)}"
        with ir.InsertionPoint(body), ir.Location.unknown():
            kernel = func.FuncOp(known[key], kind, visibility="private").operation
        kernel.attributes["kernel.kind"] = ir.StringAttr.get(KIND)
        kernel.attributes[ATTRIBUTE] = description
    return known[key]
