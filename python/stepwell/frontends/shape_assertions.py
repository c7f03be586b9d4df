"""What an exported JAX function says of the sizes of its inputs.

    %b = stablehlo.get_dimension_size %arg0, dim = 0
    stablehlo.custom_call @shape_assertion(%holds, %b, ..) {error_message = "..
        Obtained dimension variables: 'b' = {0} from specification 'b' for dimension
        args[0].shape[0] (= {0}), .."}

The module keeps no names of dimensions but in these messages (jax/_src/export/shape_poly.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from stepwell.mlir import ir, nested_operations

TARGET = "shape_assertion"
"""The custom call with which a polymorphic export says what sizes it takes."""

_LIMIT = re.compile(r"Expected '- (?:(\d+)\*)?(\w+) \+ (\d+)' to be greater or equal to 0")
"""What a constraint such as `2*b <= 17` says, as JAX has it whatever way it was written."""

_DIMENSIONS = (
    re.compile(r"from specification '(?P<name>[^']+)' for dimension .+? \(= \{(?P<place>\d+)\}\)"),
    re.compile(
        r"dimension size .+? \(= \{(?P<place>\d+)\}\) and the specification '(?P<name>[^']+)'"
    ),
)
"""Where a message has the name of a dimension, and the number of the operand that is its size."""


def limits(main: ir.Operation) -> dict[str, int]:
    """The largest that dimensions may be, by name."""
    found: dict[str, int] = {}
    for message, _ in _assertions(main):
        if match := _LIMIT.search(message):
            factor, name, most = int(match[1] or 1), match[2], int(match[3])
            found[name] = min(most // factor, found.get(name, most))
    return found


def names(main: ir.Operation) -> dict[tuple[int, int], str]:
    """What dimensions of inputs, by the numbers of both, are called: `b`, `2*b`, `n + 1`."""
    found: dict[tuple[int, int], str] = {}
    for message, sizes in _assertions(main):
        for pattern in _DIMENSIONS:
            for match in pattern.finditer(message):
                dimension = _dimension(sizes[int(match["place"])])
                if dimension is not None:
                    found[dimension] = match["name"]
    return found


def _assertions(main: ir.Operation) -> Iterator[tuple[str, list[ir.Value]]]:
    """The message of each assertion, and the values in it."""
    for op in nested_operations(main):
        if op.name != "stablehlo.custom_call" or "error_message" not in op.attributes:
            continue
        if ir.StringAttr(op.attributes["call_target_name"]).value == TARGET:
            yield ir.StringAttr(op.attributes["error_message"]).value, [*op.operands][1:]


def _dimension(size: ir.Value) -> tuple[int, int] | None:
    """The input and the dimension whose size `size` is; None if it is none."""
    if not isinstance(size, ir.OpResult):
        return None
    op = size.owner.operation
    if op.name == "stablehlo.convert":
        return _dimension(op.operands[0])
    if op.name != "stablehlo.get_dimension_size":
        return None
    (value,) = op.operands
    if not isinstance(value, ir.BlockArgument):
        return None
    return value.arg_number, ir.IntegerAttr(op.attributes["dimension"]).value
