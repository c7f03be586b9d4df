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

_DYNAMIC_GENERATOR = "stablehlo.dynamic_rng_bit_generator"

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


def fix_generators(main: ir.Operation) -> bool:
    """Give random generators whose shape is a constant that shape, which upstream's refinement does
    not do; returns whether there are any."""
    found = [
        op
        for op in nested_operations(main)
        if op.name == "stablehlo.custom_call" and _is_generator_of_known_shape(op)
    ]
    for op in found:
        shape = ir.DenseElementsAttr(op.operands[1].owner.operation.attributes["value"])
        state, bits = op.results
        sizes = [int(size) for size in np.array(shape).reshape(-1)]
        element = ir.RankedTensorType(bits.type).element_type
        with ir.InsertionPoint(op), op.location:
            static = ir.Operation.create(
                "stablehlo.rng_bit_generator",
                [state.type, ir.RankedTensorType.get(sizes, element)],
                [op.operands[0]],
                {"rng_algorithm": op.attributes["rng_algorithm"]},
            )
        for old, new in zip(op.results, static.results, strict=True):
            old.replace_all_uses_with(new)
        op.erase()
    if found:
        block = main.regions[0].blocks[0]
        end = list(block.operations)[-1]
        kinds = [argument.type for argument in block.arguments], [v.type for v in end.operands]
        main.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(*kinds))
    return bool(found)


def _is_generator_of_known_shape(op: ir.Operation) -> bool:
    if ir.StringAttr(op.attributes["call_target_name"]).value != _DYNAMIC_GENERATOR:
        return False
    shape = op.operands[1]
    return isinstance(shape, ir.OpResult) and shape.owner.operation.name == "stablehlo.constant"


def _is_open(value: ir.Value) -> bool:
    return isinstance(value.type, ir.RankedTensorType) and not value.type.has_static_shape


def _may_be_sizes(value: ir.Value) -> bool:
    """Whether `value` is a small tensor of integers."""
    kind = value.type
    if not isinstance(kind, ir.RankedTensorType) or not kind.has_static_shape:
        return False
    is_integral = isinstance(kind.element_type, (ir.IntegerType, ir.IndexType))
    return is_integral and int(np.prod(kind.shape)) <= _SIZES
