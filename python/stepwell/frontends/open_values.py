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
    """The names of the integer arguments that results without a static shape depend on."""
    block = main.regions[0].blocks[0]
    arguments = list(block.arguments)
    pending: list[ir.Value] = []
    for op in nested_operations(main):
        if any(_is_open(result) for result in op.results):
            pending.extend(value for value in op.operands if _may_be_sizes(value))
    seen: set[ir.Value] = set()
    while pending:
        value = pending.pop()
        if value in seen:
            continue
        seen.add(value)
        if isinstance(value, ir.OpResult):
            pending.extend(v for v in value.owner.operation.operands if _may_be_sizes(v))
    return tuple(f"arg{n}" for n, argument in enumerate(arguments) if argument in seen)


def _is_open(value: ir.Value) -> bool:
    return isinstance(value.type, ir.RankedTensorType) and not value.type.has_static_shape


def _may_be_sizes(value: ir.Value) -> bool:
    """Whether `value` is a small tensor of integers."""
    kind = value.type
    if not isinstance(kind, ir.RankedTensorType) or not kind.has_static_shape:
        return False
    is_integral = isinstance(kind.element_type, (ir.IntegerType, ir.IndexType))
    return is_integral and int(np.prod(kind.shape)) <= _SIZES
