"""fold-scale-into-contraction: per-channel factors go into constant weights, offsets into one add.

    %c = stablehlo.convolution(%x, %w) ... : tensor<1x8x4x4xf32>         // %w constant
    %m = stablehlo.subtract %c, (broadcast of %mean) : tensor<1x8x4x4xf32>
    %s = stablehlo.multiply %m, (broadcast of %scale) : tensor<1x8x4x4xf32>
    %y = stablehlo.add %s, (broadcast of %bias) : tensor<1x8x4x4xf32>

becomes

    %c = stablehlo.convolution(%x, %w * %scale) ... : tensor<1x8x4x4xf32>
    %y = stablehlo.add %c, (broadcast of %bias - %mean * %scale) : tensor<1x8x4x4xf32>

A batch normalisation that follows no contraction ends as one multiply and one add. A factor that is
the same everywhere passes reshapes and transposes on its way to the weights. The new
constants are computed in double precision and rounded once. Constants are recognised through
broadcasts and reshapes; run fold-constants and simplify-algebra first. Sums that are marked as
`ROUNDED` stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.kernels.evaluate import ROUNDED
from stepwell.mlir import ir
from stepwell.mlir import stablehlo as bindings
from stepwell.passes.base import Pass, State
from stepwell.passes.stablehlo._rules import Rules
from stepwell.passes.stablehlo._values import (
    broadcast_constant,
    compact,
    constant_array,
    constant_attribute,
    distinct,
    has_one_use,
    producer,
    readable,
    rebuild,
    resource_name,
    splat,
)
from stepwell.weights import WeightTable

RULES = Rules()


def _constant(value: ir.Value, weights: WeightTable) -> np.ndarray | None:
    """The data of a float constant of the shape of `value`, repetitions as stride 0."""
    if not isinstance(hlo.element_type(value), ir.FloatType):
        return None
    array = constant_array(value, weights)
    return None if array is None else _thinned(array)


def _thinned(array: np.ndarray) -> np.ndarray:
    """`array` with dimensions along which it does not vary as stride 0 (small arrays only)."""
    if distinct(array) > 1 << 16:
        return array
    for d, size in enumerate(array.shape):
        first = array[(slice(None),) * d + (slice(0, 1),)]
        if size > 1 and array.strides[d] and (array == first).all():
            array = np.broadcast_to(first, array.shape)
    return array


def _combined(
    function: Callable[..., np.ndarray],
    arrays: Sequence[np.ndarray],
    value: ir.Value,
    weights: WeightTable,
) -> ir.Value:
    """A constant of the type of `value`: `function` of `arrays` in double precision."""
    parts = compact(*arrays)
    result = function(*(part.astype(np.float64) for part in parts)).astype(hlo.dtype(value))
    # The count keeps names apart at once: there are thousands of these in a large network.
    return broadcast_constant(result, hlo.shape(value), weights, f"channel_{len(weights)}")


def _grows(*arrays: np.ndarray) -> bool:
    return compact(*arrays)[0].size > max(map(distinct, arrays))


# --- Chains of per-channel constants -------------------------------------------------------------


def _merging(value: ir.Value, *names: str) -> ir.Operation | None:
    """What makes `value`, if it is one of `names` and its result may change by a rounding."""
    inner = producer(value, *names)
    return None if inner is None or ROUNDED in inner.attributes else inner


@RULES.on("subtract")
def subtract_as_add(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """y - c is y + (-c)."""
    lhs, rhs = op.operands
    array = _constant(rhs, weights)
    if array is None or constant_attribute(lhs) is not None or ROUNDED in op.attributes:
        return None
    return hlo.add(lhs, _combined(np.negative, [array], rhs, weights))


@RULES.on("divide")
def divide_as_multiply(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """y / c is y * (1 / c) where the factor can be merged into what makes y."""
    lhs, rhs = op.operands
    inner = producer(lhs, "add", "multiply", "convolution", "dot_general")
    array = _constant(rhs, weights) if inner and has_one_use(lhs) else None
    if array is None or inner is None or not compact(array)[0].all():
        return None
    if all(_constant(value, weights) is None for value in inner.operands):
        return None
    return hlo.multiply(lhs, _combined(np.reciprocal, [array], rhs, weights))


@RULES.on("add", "multiply")
def merged_constants(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """(y + b) + c is y + (b + c), and (y * s) * t is y * (s * t)."""
    name = op.name[10:]
    inner = _merging(op.operands[0], name)
    outer_array = _constant(op.operands[1], weights) if inner else None
    if inner is None or outer_array is None or not has_one_use(op.operands[0]):
        return None
    inner_array = _constant(inner.operands[1], weights)
    if inner_array is None or _grows(inner_array, outer_array):
        return None
    function = np.add if name == "add" else np.multiply
    arrays = [inner_array, outer_array]
    with ir.Location.fused([inner.location, op.location]):
        constant = _combined(function, arrays, op.results[0], weights)
        return hlo.binary(name, inner.operands[0], constant)


@RULES.on("multiply")
def multiply_before_add(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """(y + b) * s is y * s + b * s."""
    inner = _merging(op.operands[0], "add")
    scale = _constant(op.operands[1], weights) if inner else None
    if inner is None or scale is None or not has_one_use(op.operands[0]):
        return None
    offset = _constant(inner.operands[1], weights)
    if offset is None or _grows(offset, scale):
        return None
    scaled = hlo.multiply(inner.operands[0], op.operands[1])
    with inner.location:
        constant = _combined(np.multiply, [offset, scale], op.results[0], weights)
        return hlo.add(scaled, constant)


# --- Into the weights ----------------------------------------------------------------------------


@RULES.on("multiply")
def scale_into_weights(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """conv(x, w) * s is conv(x, w * s) where s varies along the weights' own dimensions."""
    inner = producer(op.operands[0], "convolution", "dot_general")
    scale = _constant(op.operands[1], weights) if inner else None
    if inner is None or scale is None or not has_one_use(op.operands[0]):
        return None
    varying = [d for d, n in enumerate(scale.shape) if n > 1 and scale.strides[d]]
    for index, placement in _placements(inner).items():
        kernel = inner.operands[index]
        attribute = constant_attribute(kernel)
        if attribute is None or splat(kernel) is not None or not has_one_use(kernel):
            continue
        data = readable(attribute, weights) if all(d in placement for d in varying) else None
        if data is None:
            continue
        array = _scaled(data, scale, placement)
        operands = list(inner.operands)
        with ir.Location.fused([inner.location, op.location]):
            operands[index] = hlo.constant(array, weights, resource_name(kernel))
            return rebuild(inner, operands, hlo.shape(op.results[0]))
    return None


@RULES.on("multiply")
def scale_before_moves(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """transpose(y) * 0.125 is transpose(y * 0.125) where y can take the factor up: the scaling of
    queries and keys in attention."""
    move = producer(op.operands[0], *MOVES)
    number = splat(op.operands[1]) if move else None
    if move is None or number is None:
        return None
    if not isinstance(hlo.element_type(op.results[0]), ir.FloatType):
        return None
    value = op.operands[0]
    while (inner := producer(value, *MOVES)) is not None:
        if not has_one_use(value):
            return None
        value = inner.operands[0]
    if not _takes_scale(value, weights):
        return None
    source = move.operands[0]
    scaled = hlo.multiply(source, hlo.full_like(source, number))
    with move.location:
        return rebuild(move, [scaled], hlo.shape(op.results[0]))


@RULES.on("dot_general")
def scales_of_operands(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """(x * 0.5) . (y * 0.5) is (x * 0.25) . y where x has fewer elements than y: queries and keys
    that both take the root of attention's factor. Not in float16, where roots avoid overflow."""
    if str(hlo.element_type(op.results[0])) not in ("f32", "f64"):
        return None
    sizes = [prod(hlo.shape(value)) for value in op.operands]
    small, large = sorted((0, 1), key=lambda side: sizes[side])
    scale = _scale_of(op.operands[large])
    if scale is None:
        return None
    number, unscaled = scale
    operands = list(op.operands)
    operands[large] = unscaled()
    operands[small] = hlo.multiply(operands[small], hlo.full_like(operands[small], number))
    return rebuild(op, operands, hlo.shape(op.results[0]))


def _scale_of(value: ir.Value) -> tuple[float, Callable[[], ir.Value]] | None:
    """The factor that a value is scaled by, the same everywhere, and what makes it without."""
    if not has_one_use(value):
        return None
    move = producer(value, *MOVES)
    if move is not None:
        inner = _scale_of(move.operands[0])
        if inner is None:
            return None
        number, unscaled = inner
        return number, lambda: rebuild(move, [unscaled()], hlo.shape(value))
    scaled = producer(value, "multiply")
    number = splat(scaled.operands[1]) if scaled else None
    if scaled is None or number is None:
        return None
    return float(number), lambda: scaled.operands[0]


MOVES = ("reshape", "transpose")
"""Ops that a factor which is the same everywhere can pass."""


def _takes_scale(value: ir.Value, weights: WeightTable) -> bool:
    """Whether `value` is a contraction with constant weights, perhaps plus a constant."""
    while has_one_use(value) and (added := producer(value, "add")) is not None:
        if _constant(added.operands[1], weights) is None:
            return False
        value = added.operands[0]
    inner = producer(value, "convolution", "dot_general")
    if inner is None or not has_one_use(value):
        return False
    return any(
        constant_attribute(inner.operands[index]) is not None
        and has_one_use(inner.operands[index])
        and splat(inner.operands[index]) is None
        for index in _placements(inner)
    )


def _scaled(kernel: np.ndarray, scale: np.ndarray, placement: dict[int, int]) -> np.ndarray:
    """`kernel` times `scale`, whose dimension d lies along kernel dimension `placement[d]`."""
    (thin,) = compact(scale)
    shape = [1] * kernel.ndim
    order = sorted((d for d, n in enumerate(thin.shape) if n > 1), key=lambda d: placement[d])
    for d in order:
        shape[placement[d]] = thin.shape[d]
    factor = thin.transpose(order + [d for d in range(thin.ndim) if d not in order])
    return (kernel * factor.reshape(shape).astype(np.float64)).astype(kernel.dtype)


def _placements(contraction: ir.Operation) -> dict[int, dict[int, int]]:
    """By operand index: which of its dimensions each result dimension comes from."""
    if contraction.name == "stablehlo.convolution":
        numbers = bindings.ConvDimensionNumbers(contraction.attributes["dimension_numbers"])
        return {1: {numbers.output_feature_dimension: numbers.kernel_output_feature_dimension}}
    numbers = bindings.DotDimensionNumbers(contraction.attributes["dot_dimension_numbers"])
    lhs, rhs = contraction.operands
    batch = (list(numbers.lhs_batching_dimensions), list(numbers.rhs_batching_dimensions))
    summed = (list(numbers.lhs_contracting_dimensions), list(numbers.rhs_contracting_dimensions))
    free = [
        [d for d in range(len(hlo.shape(value))) if d not in (*batch[side], *summed[side])]
        for side, value in enumerate((lhs, rhs))
    ]
    shared = len(batch[0])
    return {
        1: dict(enumerate(batch[1]))
        | {shared + len(free[0]) + i: d for i, d in enumerate(free[1])},
        0: dict(enumerate(batch[0])) | {shared + i: d for i, d in enumerate(free[0])},
    }


@dataclass(frozen=True)
class FoldScaleIntoContraction(Pass):
    """Fold per-channel factors and batch normalisations into constant weights and one offset."""

    name: ClassVar[str] = "fold-scale-into-contraction"

    def run(self, op: ir.Operation, state: State) -> None:
        """Apply the rules until none matches."""
        RULES.apply(op, state.weights)
