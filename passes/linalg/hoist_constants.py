"""`hoist-constants`: turn constant arrays of the host function into arguments that name a weight.

Constants become arguments before bufferization, so that weights never reach LLVM as globals; each
new argument carries `stepwell.weight`, its name in the weight table. Splats and scalars stay.

    %w = arith.constant dense_resource<w>   ->   func.func @main(..., %w {stepwell.weight = "w"})
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from stepwell.kernels.structured import RESHAPES, defining_op
from stepwell.mlir import ir
from stepwell.passes.base import Pass, State

WEIGHT = "stepwell.weight"
"""Argument attribute: the name of the constant that is passed."""

PARAMETER, DERIVED = "stepwell.parameter", "stepwell.derived"
"""Argument attributes: a weight that is an input of the model; a packed form that the runtime makes
of one, or of a constant, as JSON."""


@dataclass(frozen=True)
class HoistConstants(Pass):
    """Hoist the constant arrays of every public function with a body."""

    name: ClassVar[str] = "hoist-constants"
    anchor: ClassVar[str] = "func.func"

    def run(self, op: ir.Operation, state: State) -> None:
        if not len(op.regions[0].blocks):
            return
        entry = op.regions[0].blocks[0]
        by_name: dict[str, ir.Value] = {}
        added: list[str] = []
        for child in list(entry.operations):
            constant = child.operation
            if constant.name != "arith.constant" or not _is_array(constant):
                continue
            name = _weight_name(constant, state)
            if name not in by_name:
                by_name[name] = entry.add_argument(constant.results[0].type, constant.location)
                added.append(name)
            constant.results[0].replace_all_uses_with(by_name[name])
            constant.erase()
        if added:
            _extend_signature(op, entry, [_weight(name) for name in added])


def hoist(constant: ir.Operation, function: ir.Operation, state: State) -> ir.Value:
    """A new argument of `function` for the data of `constant`, whatever it is."""
    entry = function.regions[0].blocks[0]
    argument = entry.add_argument(constant.results[0].type, constant.location)
    _extend_signature(function, entry, [_weight(_weight_name(constant, state))])
    return argument


def _is_array(constant: ir.Operation) -> bool:
    if not isinstance(constant.results[0].type, ir.RankedTensorType):
        return False
    attribute = constant.attributes["value"]
    if isinstance(attribute, ir.DenseElementsAttr):
        return not attribute.is_splat
    return True


def _weight_name(constant: ir.Operation, state: State) -> str:
    attribute = constant.attributes["value"]
    name = state.weights.name_of(attribute)
    return (
        name if name is not None else state.weights.add("constant", state.weights.array(attribute))
    )


def _weight(name: str) -> dict[str, ir.Attribute]:
    return {WEIGHT: ir.StringAttr.get(name)}


def _extend_signature(
    op: ir.Operation, entry: ir.Block, added: list[dict[str, ir.Attribute]]
) -> None:
    """Let the type of a function follow its entry block; `added` are attributes of the last
    arguments."""
    kind = ir.FunctionType(ir.TypeAttr(op.attributes["function_type"]).value)
    inputs = [argument.type for argument in entry.arguments]
    op.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(inputs, kind.results))
    known = list(op.attributes["arg_attrs"]) if "arg_attrs" in op.attributes else []
    while len(known) < len(inputs) - len(added):
        known.append(ir.DictAttr.get({}))
    known += [ir.DictAttr.get(entries) for entries in added]
    op.attributes["arg_attrs"] = ir.ArrayAttr.get(known)


def add_argument(function: ir.Operation, kind: ir.Type, attribute: str, value: str) -> ir.Value:
    """A new last argument of `function`, which bears `attribute`."""
    entry = function.regions[0].blocks[0]
    argument = entry.add_argument(kind, ir.Location.unknown())
    _extend_signature(function, entry, [{attribute: ir.StringAttr.get(value)}])
    return argument


def marked_arguments(function: ir.Operation, attribute: str) -> dict[int, str]:
    """What `attribute`, a string, says of the arguments that bear it, by argument number."""
    if "arg_attrs" not in function.attributes:
        return {}
    return {
        number: ir.StringAttr(ir.DictAttr(attributes)[attribute]).value
        for number, attributes in enumerate(function.attributes["arg_attrs"])
        if attribute in ir.DictAttr(attributes)
    }


def weight_arguments(function: ir.Operation) -> dict[int, str]:
    """Weight name by argument number of a function."""
    return marked_arguments(function, WEIGHT)


def weight_argument(value: ir.Value, function: ir.Operation) -> int | None:
    """The argument of `function` that `value` is, or is a reshape of, where that is a weight or a
    parameter."""
    while (producer := defining_op(value)) is not None:
        if producer.name not in RESHAPES:
            return None
        value = producer.operands[0]
    argument = ir.BlockArgument(value)
    number, entry = argument.arg_number, function.regions[0].blocks[0]
    is_weight = any(has_attribute(function, number, name) for name in (WEIGHT, PARAMETER))
    return number if argument.owner == entry and is_weight else None


def bytes_of_weights(function: ir.Operation) -> int:
    """What the weights among a function's arguments take, parameters included, an element as much
    as one of f32; their packed forms are not counted."""
    types = ir.FunctionType(ir.TypeAttr(function.attributes["function_type"]).value).inputs
    return 4 * sum(
        math.prod(ir.ShapedType(kind).shape)
        for number, kind in enumerate(types)
        if has_attribute(function, number, WEIGHT) or has_attribute(function, number, PARAMETER)
    )


def weight_name(function: ir.Operation, number: int) -> str | None:
    """The weight that argument `number` of a function is, if it is one."""
    if not has_attribute(function, number, WEIGHT):
        return None
    return ir.StringAttr(ir.DictAttr(function.attributes["arg_attrs"][number])[WEIGHT]).value


def has_attribute(function: ir.Operation, number: int, name: str) -> bool:
    """Whether argument `number` of a function bears the attribute `name`."""
    known = function.attributes.get("arg_attrs", [])
    return number < len(known) and name in ir.DictAttr(known[number])


def derived_arguments(function: ir.Operation) -> dict[int, str]:
    """What the packed parameters among a function's arguments are, by argument number."""
    return marked_arguments(function, DERIVED)
