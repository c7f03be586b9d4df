"""Arguments of StableHLO programs that are sizes: which they are, and programs with those known.

    func.func @main(%n: tensor<i64>, %x: tensor<?xf32>) {
      %shape = stablehlo.reshape %n ...
      %y = stablehlo.dynamic_broadcast_in_dim %x, %shape ... : tensor<?x?xf32>

has a shape only when the value of `%n` is known.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.mlir import ir, nested_operations

_SIZES = 1024
"""Arguments of more elements are data."""

_SHAPE_OPERANDS = {
    "stablehlo.dynamic_broadcast_in_dim": (1,),
    "stablehlo.dynamic_conv": (2,),
    "stablehlo.dynamic_gather": (2,),
    "stablehlo.dynamic_iota": (0,),
    "stablehlo.dynamic_pad": (2, 3, 4),
    "stablehlo.dynamic_reshape": (1,),
    "stablehlo.real_dynamic_slice": (1, 2, 3),
    "stablehlo.rng": (2,),
}
"""The operands that tell the shape of the result. Without one, an op has its shape from operands
that are open themselves, or, as custom calls and loops do, from any."""

_SHAPE_OF_DATA = frozenset(f"stablehlo.{name}" for name in ("case", "custom_call", "if", "while"))


def make_known(main: ir.Operation, values: Mapping[str, np.ndarray]) -> None:
    """Read constants in place of the arguments (arg0, arg1, ...) that `values` has."""
    block = main.regions[0].blocks[0]
    for number, argument in enumerate(block.arguments):
        if f"arg{number}" in values:
            with ir.InsertionPoint.at_block_begin(block):
                array = np.ascontiguousarray(values[f"arg{number}"])
                constant = hlo.constant_of(ir.DenseElementsAttr.get(array, type=argument.type))
            argument.replace_all_uses_with(constant)


def needed(main: ir.Operation) -> tuple[str, ...]:
    """The names of the integer arguments that shapes depend on, or bounds of slices and pads that
    only constants can tell."""
    block = main.regions[0].blocks[0]
    arguments = list(block.arguments)
    pending: list[ir.Value] = []
    for op in nested_operations(main):
        if op.name in _SHAPE_OPERANDS or any(_is_open(result) for result in op.results):
            pending.extend(value for value in _shape_operands(op) if _may_be_sizes(value))
    seen: set[ir.Value] = set()
    while pending:
        value = pending.pop()
        if value in seen:
            continue
        seen.add(value)
        if isinstance(value, ir.OpResult):
            pending.extend(v for v in value.owner.operation.operands if _may_be_sizes(v))
    return tuple(f"arg{n}" for n, argument in enumerate(arguments) if argument in seen)


def _shape_operands(op: ir.Operation) -> list[ir.Value]:
    """The operands that the shapes of the results depend on. A slice of known size that begins
    anywhere, `real_dynamic_slice(x, start, start + size, 1)`, depends on its size alone."""
    operands = list(op.operands)
    if op.name in _SHAPE_OF_DATA:
        return operands
    found = [operands[number] for number in _SHAPE_OPERANDS.get(op.name, ())]
    if op.name != "stablehlo.real_dynamic_slice" or not isinstance(found[1], ir.OpResult):
        return found
    end = found[1].owner.operation
    if end.name != "stablehlo.add" or found[0] not in list(end.operands):
        return found
    return [*(value for value in end.operands if value != found[0]), found[2]]


def _is_open(value: ir.Value) -> bool:
    return isinstance(value.type, ir.RankedTensorType) and not value.type.has_static_shape


def _may_be_sizes(value: ir.Value) -> bool:
    """Whether `value` is a small tensor of integers."""
    kind = value.type
    if not isinstance(kind, ir.RankedTensorType) or not kind.has_static_shape:
        return False
    is_integral = isinstance(kind.element_type, (ir.IntegerType, ir.IndexType))
    return is_integral and int(np.prod(kind.shape)) <= _SIZES
