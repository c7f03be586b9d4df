"""narrow-quantized-products: where machines multiply bytes, products of floats that are bytes less
a zero point times a scale become products of integers, and the scales go behind their sums.

    %a = stablehlo.convert %x : (tensor<8x64xi8>) -> tensor<8x64xf32>
    %b = stablehlo.multiply %a, (broadcast of %s, one number) : tensor<8x64xf32>
    %c = stablehlo.convert (dense_resource<w>) : (tensor<64x4xi8>) -> tensor<64x4xf32>
    %d = stablehlo.multiply %c, (broadcast of %t, a number a column) : tensor<64x4xf32>
    %z = stablehlo.dot_general %b, %d : (tensor<8x64xf32>, tensor<64x4xf32>) -> tensor<8x4xf32>
      ->
    %p = stablehlo.dot_general (%x as i32), (w as i32) : .. -> tensor<8x4xi32>
    %z = stablehlo.convert %p * (broadcast of %s) * (broadcast of %t) : tensor<8x4xf32>

So ONNX writes layers between DequantizeLinear and QuantizeLinear (QDQ), and so PyTorch's quantisers
write theirs, whose zero points may be bytes that are found at run time. One operand is a constant:
run this before fold-constants, which makes floats of it, and narrow-integer-products afterwards,
which takes the bytes out of the integers. What it would not take stays as it is. The sums are
exact, so that results differ from those of f32 by rounding. Precision "strict" keeps the floats.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.mlir import ir
from stepwell.mlir import stablehlo as bindings
from stepwell.passes.base import Pass, State
from stepwell.passes.stablehlo._evaluate import is_constant, known_array
from stepwell.passes.stablehlo._rules import Rules
from stepwell.passes.stablehlo._values import (
    compact,
    constant_array,
    integer,
    integers,
    optional_integers,
    padding,
    producer,
)
from stepwell.weights import WeightTable

RULES = Rules()

_RANGES = {"i8": (-128, 127), "ui8": (0, 255)}
"""The least and the largest of what counts as a byte here."""

_LARGEST_SUM = (1 << 31) - 1


@dataclass(frozen=True)
class NarrowQuantizedProducts(Pass):
    """Run on a module; nothing where bytes have no instructions of their own."""

    name: ClassVar[str] = "narrow-quantized-products"

    def run(self, op: ir.Operation, state: State) -> None:
        if state.target.multiplies_bytes and state.precision != "strict":
            RULES.apply(op, state.weights)


@dataclass(frozen=True)
class _Quantized:
    """`bytes` less a zero point, which `zeros` writes where there is one, times `scale`, of which
    the dimensions of more than one element lie along those in `along` (a float is the same for
    all). `move` does to the bytes what was done to the floats; `low` and `high` is where the
    differences lie, with `one_zero` there is one zero point, and with `known_zero` a constant."""

    bytes: ir.Value
    low: int
    high: int
    zeros: Callable[[], ir.Value] | None = None
    one_zero: bool = True
    known_zero: bool = True
    scale: float | ir.Value = 1.0
    along: tuple[int, ...] = ()
    move: Callable[[ir.Value], ir.Value] = lambda value: value

    def integers(self) -> ir.Value:
        """The bytes less the zero point."""
        wide = hlo.convert(self.bytes, np.int32)
        if self.zeros is not None:
            wide = hlo.subtract(wide, hlo.convert(self.zeros(), np.int32))
        return self.move(wide)

    def scales(self, shape: Sequence[int], places: Mapping[int, int]) -> ir.Value:
        """For each element of a product of `shape`; dimension d of the operand is `places[d]`."""
        if isinstance(self.scale, float):
            return hlo.full(self.scale, shape, np.float32)
        source = hlo.reshape(self.scale, [n for n in hlo.shape(self.scale) if n != 1])
        return hlo.broadcast_in_dim(source, shape, [places[d] for d in self.along])

    def is_constant_of_bytes(self) -> bool:
        """Whether it is a constant, and the differences are signed bytes themselves."""
        low, high = _RANGES["i8"]
        return low <= self.low and self.high <= high and is_constant(self.bytes)


@RULES.on("dot_general")
def dot(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """Either operand is the constant; scales vary along dimensions that stay."""
    numbers = bindings.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
    lhs, rhs = (len(hlo.shape(operand)) for operand in op.operands)
    lhs_batch, rhs_batch = numbers.lhs_batching_dimensions, numbers.rhs_batching_dimensions
    lhs_summed, rhs_summed = numbers.lhs_contracting_dimensions, numbers.rhs_contracting_dimensions
    lhs_free = [d for d in range(lhs) if d not in (*lhs_batch, *lhs_summed)]
    rhs_free = [d for d in range(rhs) if d not in (*rhs_batch, *rhs_summed)]
    lhs_places = {d: i for i, d in enumerate((*lhs_batch, *lhs_free))}
    rhs_places = dict(zip(rhs_batch, range(len(rhs_batch)), strict=True))
    rhs_places |= {d: len(lhs_places) + i for i, d in enumerate(rhs_free)}
    terms = math.prod(hlo.shape(op.operands[0])[d] for d in lhs_summed)
    return _product(op, terms, (lhs_places, rhs_places), weights)


@RULES.on("convolution")
def convolution(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """The image has one scale, the constant kernel one, or one for each output channel. What pads
    the image is 0 among the integers too, which is a known byte."""
    if integer(op, "feature_group_count", 1) != 1 or integer(op, "batch_group_count", 1) != 1:
        return None
    numbers = bindings.ConvDimensionNumbers(op.attributes["dimension_numbers"])
    rank = len(numbers.input_spatial_dimensions)
    if any(n != 1 for n in optional_integers(op, "lhs_dilation", rank, 1)):
        return None
    kept = numbers.kernel_output_feature_dimension
    sizes = hlo.shape(op.operands[1])
    terms = math.prod(n for d, n in enumerate(sizes) if d != kept)
    places = ({}, {kept: numbers.output_feature_dimension})
    padded = any(map(any, padding(op, rank)))
    return _product(op, terms, places, weights, constants=(1,), padded=padded)


def _product(
    op: ir.Operation,
    terms: int,
    places: tuple[Mapping[int, int], Mapping[int, int]],
    weights: WeightTable,
    constants: tuple[int, ...] = (0, 1),
    padded: bool = False,
) -> ir.Value | None:
    """The product of the integers, of which each element sums `terms`, times the scales. `places`
    says where the dimensions of either operand that stay are in the result, `constants` which of
    them may be the constant one; what pads the image of a `padded` one stands for 0."""
    if "algorithm" in op.attributes or not isinstance(hlo.element_type(op.results[0]), ir.F32Type):
        return None
    found = [_quantized(operand, weights) for operand in op.operands]
    pair = [own for own in found if own is not None]
    if len(pair) < 2 or (padded and not all(own.known_zero for own in pair)):
        return None
    if not any(pair[i].is_constant_of_bytes() and pair[1 - i].one_zero for i in constants):
        return None
    if any(d not in place for own, place in zip(pair, places, strict=True) for d in own.along):
        return None
    if terms * math.prod(max(-own.low, own.high) for own in pair) > _LARGEST_SUM:
        return None
    shape = hlo.shape(op.results[0])
    kind = ir.RankedTensorType.get(list(shape), ir.IntegerType.get_signless(32))
    attributes = {name: op.attributes[name] for name in op.attributes}
    operands = [own.integers() for own in pair]
    product = ir.Operation.create(op.name, [kind], operands, attributes).results[0]
    scaled = hlo.convert(product, np.float32)
    for own, place in zip(pair, places, strict=True):
        scaled = hlo.multiply(scaled, own.scales(shape, place))
    return scaled


# --- Operands ------------------------------------------------------------------------------------


def _quantized(value: ir.Value, weights: WeightTable) -> _Quantized | None:
    """Scaled bytes, seen through transposes and, with one scale and zero point, reshapes."""
    op = producer(value, "multiply", "transpose", "reshape")
    if op is None:
        return None
    if op.name == "stablehlo.multiply":
        numbers = _numbers(op.operands[0], weights)
        return None if numbers is None else _scaled(numbers, op.operands[1], weights)
    inner = _quantized(op.operands[0], weights)
    if inner is None:
        return None
    if op.name == "stablehlo.transpose":
        order = integers(op, "permutation")
        along = tuple(order.index(d) for d in inner.along)
        return replace(
            inner, along=along, move=lambda bytes: hlo.transpose(inner.move(bytes), order)
        )
    if inner.along:
        return None
    return replace(inner, move=lambda bytes: hlo.reshape(inner.move(bytes), hlo.shape(value)))


def _scaled(numbers: _Quantized, factor: ir.Value, weights: WeightTable) -> _Quantized | None:
    """`numbers` times one number, or one along some of their dimensions."""
    number = _one_of(known_array(factor, weights))
    if number is not None:
        return replace(numbers, scale=number)
    op = producer(factor, "broadcast_in_dim")
    if op is None:
        return None
    sizes = hlo.shape(op.operands[0])
    along = [d for d, n in zip(integers(op, "broadcast_dimensions"), sizes, strict=True) if n != 1]
    return replace(numbers, scale=op.operands[0], along=tuple(along))


def _numbers(value: ir.Value, weights: WeightTable) -> _Quantized | None:
    """Bytes as f32 or i32, less a zero point in either."""
    op = producer(value, "convert", "subtract")
    if op is None:
        return None
    source = op.operands[0]
    kind = str(hlo.element_type(source))
    if op.name == "stablehlo.convert":
        if kind in _RANGES:
            return _Quantized(source, *_RANGES[kind])
        return _numbers(source, weights) if kind == "i32" else None
    inner = _numbers(source, weights)
    return None if inner is None or inner.zeros is not None else _shifted(inner, op, weights)


def _shifted(numbers: _Quantized, op: ir.Operation, weights: WeightTable) -> _Quantized | None:
    """`numbers` less what `op` subtracts: whole numbers that are known, or one byte."""
    zeros = op.operands[1]
    array = known_array(zeros, weights)
    if array is None:
        return _shifted_at_run_time(numbers, zeros, weights)
    if not array.size or (array != np.rint(array)).any():
        return None
    (distinct,) = compact(array)
    least, largest = int(distinct.min()), int(distinct.max())
    if least == largest == 0:
        return numbers
    low, high = numbers.low - largest, numbers.high - least
    data = constant_array(numbers.bytes, weights)
    if data is not None:
        differences = data.astype(np.int32) - array.astype(np.int32)
        low, high = int(differences.min()), int(differences.max())
    one = least == largest
    return replace(numbers, low=low, high=high, zeros=lambda: zeros, one_zero=one)


def _shifted_at_run_time(
    numbers: _Quantized, zeros: ir.Value, weights: WeightTable
) -> _Quantized | None:
    """`numbers` less one number that a clamp keeps among the bytes, as the quantisers of PyTorch
    make it of the tensor itself."""
    op = producer(zeros, "broadcast_in_dim")
    if op is None or math.prod(hlo.shape(op.operands[0])) != 1:
        return None
    zero = op.operands[0]
    is_whole = _is_integer(zero)
    while (inner := producer(zero, "convert", "reshape")) is not None:
        zero = inner.operands[0]
        is_whole = is_whole or _is_integer(zero)
    clamp = producer(zero, "clamp")
    if clamp is None or not is_whole:
        return None
    bounds = [_one_of(known_array(clamp.operands[i], weights)) for i in (0, 2)]
    kind = next((kind for kind, limits in _RANGES.items() if _lies_in(bounds, limits)), None)
    if kind is None:
        return None
    low, high = _RANGES[kind]
    byte, shape = np.int8 if kind == "i8" else np.uint8, hlo.shape(zeros)

    def make() -> ir.Value:
        whole = hlo.convert(hlo.convert(hlo.reshape(zero, []), byte), np.int32)
        return hlo.broadcast_in_dim(whole, shape, [])

    low, high = numbers.low - high, numbers.high - low
    return replace(numbers, low=low, high=high, zeros=make, known_zero=False)


def _is_integer(value: ir.Value) -> bool:
    return isinstance(hlo.element_type(value), ir.IntegerType)


def _lies_in(bounds: Sequence[float | None], limits: tuple[int, int]) -> bool:
    return all(bound is not None and limits[0] <= bound <= limits[1] for bound in bounds)


def _one_of(array: np.ndarray | None) -> float | None:
    """The number that all elements of `array` are."""
    if array is None or not array.size:
        return None
    (distinct,) = compact(array)
    first = distinct.flat[0]
    return float(first) if (distinct == first).all() else None
