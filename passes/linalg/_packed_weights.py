"""Weights of kernels in packed form: where they come from, and the arguments that pass them."""

from __future__ import annotations

import json

from stepwell.kernels.structured import Structured, defining_op
from stepwell.mlir import ir
from stepwell.packing import Packing, WinogradPacking, packing_to_dict
from stepwell.passes.base import State
from stepwell.passes.linalg.hoist_constants import (
    DERIVED,
    PARAMETER,
    WEIGHT,
    add_argument,
    has_attribute,
    weight_name,
)

PACKED = "_packed"
"""In the names of packed weights, behind that of the weight."""

Weight = str | int
"""A constant by name, or a parameter by the number of its argument."""


def weight_of(host: ir.Operation, call: ir.Operation, number: int | None) -> Weight | None:
    if number is None:
        return None
    value = call.operands[number]
    if defining_op(value) is not None or value.owner != host.regions[0].blocks[0]:
        return None
    argument = ir.BlockArgument(value).arg_number
    if has_attribute(host, argument, PARAMETER):
        return argument
    return weight_name(host, argument)


def replace_operand(op: Structured, number: int, value: ir.Value) -> None:
    """Read `value`, and forget the reshapes that nobody reads any more."""
    old = op.op.operands[number]
    op.op.operands[number] = value
    erase_unread(old)


def erase_unread(value: ir.Value) -> None:
    """Erase reshapes that lead to `value` alone."""
    while (reshape := defining_op(value)) is not None and not list(value.uses):
        value = reshape.operands[0]
        reshape.erase()


def retype_argument(kernel: ir.Operation, number: int, kind: ir.Type) -> None:
    entry = kernel.regions[0].blocks[0]
    entry.arguments[number].set_type(kind)
    old = ir.FunctionType(ir.TypeAttr(kernel.attributes["function_type"]).value)
    inputs = [argument.type for argument in entry.arguments]
    kernel.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(inputs, old.results))


def add_packed(
    host: ir.Operation, weight: Weight, packing: Packing, kind: ir.Type, state: State
) -> ir.Value:
    """The argument of `host` that is the packed form of a constant or of a parameter. The runtime
    makes that of a parameter, and transformed filters, which are up to four times as large."""
    if isinstance(weight, str) and not isinstance(packing, WinogradPacking):
        name = state.weights.add(f"{weight}{PACKED}", packing.apply(state.weights[weight]))
        return add_argument(host, kind, WEIGHT, name)
    source = "weight" if isinstance(weight, str) else "input"
    data = {source: weight, "packing": packing_to_dict(packing)}
    return add_argument(host, kind, DERIVED, json.dumps(data))
