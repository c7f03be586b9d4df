"""Which operations of StableHLO compute every element of a batch, one dimension of what they write,
by itself, and along which dimensions of their operands it lies."""

from __future__ import annotations

import math
from collections.abc import Callable

from stepwell.dialects import stablehlo as hlo
from stepwell.mlir import ir
from stepwell.mlir import stablehlo as bindings
from stepwell.passes.stablehlo._values import (
    ELEMENTWISE,
    i64s,
    integer,
    integers,
    optional_integers,
    padding,
    rebuild,
)

Dimensions = list[int | None]
"""For each operand, the dimension along which it holds the batch; None where it is read whole."""


def operand_dimensions(op: ir.Operation, dimension: int) -> Dimensions | None:
    """Where the batch lies in the operands of `op`, whose result has it along `dimension`: element
    i of these alone is read for element i of the result. None where `op` is no such operation."""
    rule = _RULES.get(op.name.removeprefix("stablehlo."))
    if rule is None or len(op.results) != 1:
        return None
    found = rule(op, dimension)
    batch = hlo.shape(op.results[0])[dimension]
    if found is None or any(
        number is not None and not _holds(operand, number, batch)
        for operand, number in zip(op.operands, found, strict=True)
    ):
        return None
    return found


def batched_operands(op: ir.Operation, batch: int) -> list[int]:
    """Numbers of the operands that hold the batch of the result, along dimension 0 as it does; none
    where `op` is no such operation of a network on images."""
    if op.name in _OF_STEPS or len(op.results) != 1 or not _holds(op.results[0], 0, batch):
        return []
    found = operand_dimensions(op, 0)
    if found is None or not {*found} <= {0, None}:
        return []
    if op.name == "stablehlo.dot_general" and len(_numbers(op).lhs_batching_dimensions):
        return []  # of attention, most often, whose kernel keeps what it makes in the cache itself
    return [number for number, dimension in enumerate(found) if dimension == 0]


def on_part(op: ir.Operation, operands: list[ir.Value], count: int, dimension: int = 0) -> ir.Value:
    """`op` on `count` elements of the batch, which `operands` are of; the result has it along
    `dimension`."""
    changed: dict[str, ir.Attribute | None] = {}
    attribute = {"stablehlo.slice": "limit_indices", "stablehlo.dynamic_slice": "slice_sizes"}
    if name := attribute.get(op.name):
        sizes = integers(op, name)
        changed[name] = i64s([*sizes[:dimension], count, *sizes[dimension + 1 :]])
    shape = hlo.shape(op.results[0])
    return rebuild(op, operands, (*shape[:dimension], count, *shape[dimension + 1 :]), changed)


def _holds(value: ir.Value, dimension: int, batch: int) -> bool:
    if not isinstance(value.type, ir.RankedTensorType):
        return False
    kind = ir.RankedTensorType(value.type)
    return kind.has_static_shape and kind.rank > dimension and kind.shape[dimension] == batch


def _elementwise(op: ir.Operation, dimension: int) -> Dimensions:
    return [dimension if hlo.shape(operand) else None for operand in op.operands]


def _first(op: ir.Operation, dimension: int) -> Dimensions:
    """The first operand as the result; the others are whole."""
    return [dimension, *[None] * (len(op.operands) - 1)]


def _convolution(op: ir.Operation, dimension: int) -> Dimensions | None:
    numbers = bindings.ConvDimensionNumbers(op.attributes["dimension_numbers"])
    if numbers.output_batch_dimension != dimension or integer(op, "batch_group_count", 1) != 1:
        return None
    return [numbers.input_batch_dimension, None]


def _numbers(op: ir.Operation) -> bindings.DotDimensionNumbers:
    return bindings.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])


def _dot_general(op: ir.Operation, dimension: int) -> Dimensions:
    numbers = _numbers(op)
    lhs_batches = list(numbers.lhs_batching_dimensions)
    rhs_batches = list(numbers.rhs_batching_dimensions)
    if dimension < len(lhs_batches):
        return [lhs_batches[dimension], rhs_batches[dimension]]
    left = _others(op.operands[0], [*lhs_batches, *numbers.lhs_contracting_dimensions])
    right = _others(op.operands[1], [*rhs_batches, *numbers.rhs_contracting_dimensions])
    place = dimension - len(lhs_batches)
    return [left[place], None] if place < len(left) else [None, right[place - len(left)]]


def _others(value: ir.Value, dimensions: list[int]) -> list[int]:
    return [d for d in range(len(hlo.shape(value))) if d not in dimensions]


def _reduce(op: ir.Operation, dimension: int) -> Dimensions:
    return [_others(op.operands[0], list(integers(op, "dimensions")))[dimension], None]


def _reduce_window(op: ir.Operation, dimension: int) -> Dimensions | None:
    rank = len(hlo.shape(op.operands[0]))
    names = ("window_dimensions", "window_strides", "base_dilations", "window_dilations")
    steps = [optional_integers(op, name, rank, 1)[dimension] for name in names]
    alone = steps == [1] * 4 and padding(op, rank)[dimension] == (0, 0)
    return _first(op, dimension) if alone else None


def _transpose(op: ir.Operation, dimension: int) -> Dimensions:
    return [integers(op, "permutation")[dimension]]


def _pad(op: ir.Operation, dimension: int) -> Dimensions | None:
    names = ("edge_padding_low", "edge_padding_high", "interior_padding")
    padded = any(integers(op, name)[dimension] for name in names)
    return None if padded else _first(op, dimension)


def _concatenate(op: ir.Operation, dimension: int) -> Dimensions | None:
    return None if integer(op, "dimension") == dimension else [dimension for _ in op.operands]


def _reshape(op: ir.Operation, dimension: int) -> Dimensions | None:
    """Rows of the batch stay rows of the batch where as much stands before them."""
    before, after = (hlo.shape(value) for value in (op.operands[0], op.results[0]))
    outside = math.prod(after[:dimension])
    for number, size in enumerate(before):
        if size == after[dimension] and math.prod(before[:number]) == outside:
            return [number]
    return None


def _broadcast_in_dim(op: ir.Operation, dimension: int) -> Dimensions:
    dimensions = list(integers(op, "broadcast_dimensions"))
    if dimension not in dimensions:
        return [None]
    number = dimensions.index(dimension)
    return [number if hlo.shape(op.operands[0])[number] > 1 else None]


def _update(op: ir.Operation, dimension: int) -> Dimensions:
    return [dimension, dimension, *[None] * (len(op.operands) - 2)]


_RULES: dict[str, Callable[[ir.Operation, int], Dimensions | None]] = {
    **dict.fromkeys(ELEMENTWISE, _elementwise),
    "convolution": _convolution,
    "dot_general": _dot_general,
    "reduce": _reduce,
    "reduce_window": _reduce_window,
    "transpose": _transpose,
    "pad": _pad,
    "concatenate": _concatenate,
    "slice": _first,  # of as many elements as the operand has
    "dynamic_slice": _first,
    "dynamic_update_slice": _update,
    "reshape": _reshape,
    "broadcast_in_dim": _broadcast_in_dim,
}

_OF_STEPS = ("stablehlo.dynamic_slice", "stablehlo.dynamic_update_slice")
"""Operations of loops, of which the batches of a network's images have none."""
