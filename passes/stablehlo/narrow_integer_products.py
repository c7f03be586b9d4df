"""narrow-integer-products: on GPUs, products of 32-bit integers that are numbers of 8 bits and an
offset take those of 8 bits.

    %a = stablehlo.convert %x : (tensor<8x64xui8>) -> tensor<8x64xi32>
    %b = stablehlo.subtract %a, (dense<100>) : tensor<8x64xi32>
    %z = stablehlo.dot_general %b, %w : (tensor<8x64xi32>, tensor<64x4xi32>) -> tensor<8x4xi32>
      ->
    %s = stablehlo.convert (%a - 128) : (tensor<8x64xi32>) -> tensor<8x64xi8>
    %p = stablehlo.dot_general %s, %w : (tensor<8x64xi8>, tensor<64x4xi8>) -> tensor<8x4xi32>
    %z = stablehlo.add %p, (28 * sums of %w's columns) : tensor<8x4xi32>

So ONNX writes its quantised layers, with weights that are constants here: run fold-constants first.
Tensor cores multiply signed numbers of 8 bits. An offset, which may be known at run time alone, is
multiplied by sums of the other operand, a constant; what pads a convolution's image is the number
that stands for 0. Everything is exact, modulo 2^32 as it was.
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
from stepwell.passes.stablehlo._rules import Rules
from stepwell.passes.stablehlo._values import (
    broadcast_constant,
    constant_array,
    i64_pairs,
    integer,
    integers,
    optional_integers,
    padding,
    producer,
    rebuild,
    resource_name,
    splat,
)
from stepwell.targets.nvidia import NvidiaTarget
from stepwell.weights import WeightTable

RULES = Rules()

_LEAST, _MOST, _SIGN = -128, 127, 128


@dataclass(frozen=True)
class NarrowIntegerProducts(Pass):
    """Run on a module; nothing on CPUs."""

    name: ClassVar[str] = "narrow-integer-products"

    def run(self, op: ir.Operation, state: State) -> None:
        if isinstance(state.target, NvidiaTarget):
            RULES.apply(op, state.weights)


@dataclass(frozen=True)
class _Bytes:
    """32-bit integers as signed ones of 8 bits, which `make` writes, plus `offset`, and plus or
    (with True) minus `scalars`, values of one element; `array` are the 8 bits of a constant."""

    make: Callable[[], ir.Value]
    offset: int = 0
    scalars: tuple[tuple[ir.Value, bool], ...] = ()
    array: np.ndarray | None = None

    @property
    def has_offset(self) -> bool:
        return self.offset != 0 or len(self.scalars) > 0


@RULES.on("dot_general")
def dot(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """Both operands have 8 bits; the one that goes with an offset is a constant."""
    found = _operands(op, weights)
    if found is None:
        return None
    lhs, rhs = found
    offsets = []
    for number, (own, other) in enumerate(((lhs, rhs), (rhs, lhs))):
        if own.has_offset:
            assert other.array is not None
            sums = _sums_of_product(op, other.array, of_rhs=number == 0)
            offsets.append(_offset(own, sums, hlo.shape(op.results[0]), weights))
    return _sum(_product(op, lhs.make(), rhs.make()), *offsets)


@RULES.on("convolution")
def convolution(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """The same; a padded image has an offset that is known, since the padding becomes another."""
    if integer(op, "feature_group_count", 1) != 1 or integer(op, "batch_group_count", 1) != 1:
        return None
    found = _operands(op, weights)
    if found is None or found[1].has_offset:
        return None
    image, kernel = found
    numbers = bindings.ConvDimensionNumbers(op.attributes["dimension_numbers"])
    rank = len(numbers.input_spatial_dimensions)
    pads = padding(op, rank)
    if not image.has_offset:
        return _product(op, image.make(), kernel.make())
    assert kernel.array is not None
    if any(n != 1 for n in optional_integers(op, "lhs_dilation", rank, 1)):
        return None
    padded = any(low or high for low, high in pads)
    if padded and (image.scalars or not _LEAST <= -image.offset <= _MOST):
        return None
    kept = numbers.kernel_output_feature_dimension
    sums = _summed(kernel.array, [d for d in range(rank + 2) if d != kept])
    result = hlo.shape(op.results[0])
    shape = [1] * len(result)
    shape[numbers.output_feature_dimension] = sums.size
    offset = _offset(image, sums.reshape(shape), result, weights)
    source = image.make()
    if padded:
        lows, highs = [0] * (rank + 2), [0] * (rank + 2)
        for axis, (low, high) in zip(numbers.input_spatial_dimensions, pads, strict=True):
            lows[axis], highs[axis] = low, high
        source = hlo.pad(source, hlo.full(-image.offset, [], np.int8), lows, highs)
    unpadded = {"padding": i64_pairs([(0, 0)] * rank)}
    return _sum(_product(op, source, kernel.make(), unpadded if padded else None), offset)


def _operands(op: ir.Operation, weights: WeightTable) -> tuple[_Bytes, _Bytes] | None:
    """Those of a product of 32-bit integers; None where they have more than 8 bits, or an offset
    meets what is no constant or has one too."""
    values = (*op.operands, op.results[0])
    if any(str(hlo.element_type(value)) != "i32" for value in values):
        return None
    lhs, rhs = (_bytes_of(operand, weights) for operand in op.operands)
    if lhs is None or rhs is None:
        return None
    for own, other in ((lhs, rhs), (rhs, lhs)):
        if own.has_offset and (other.has_offset or other.array is None):
            return None
    return lhs, rhs


def _bytes_of(value: ir.Value, weights: WeightTable) -> _Bytes | None:
    array = constant_array(value, weights)
    if array is not None:
        return _constant(array, weights, resource_name(value))
    op = producer(value, "convert", "add", "subtract", "transpose", "reshape")
    if op is None:
        return None
    if op.name == "stablehlo.convert":
        return _converted(op.operands[0])
    inner = _bytes_of(op.operands[0], weights)
    if inner is None:
        return None
    if op.name == "stablehlo.transpose":
        order = integers(op, "permutation")
        return _moved(inner, lambda bytes: hlo.transpose(bytes, order))
    if op.name == "stablehlo.reshape":
        return _moved(inner, lambda bytes: hlo.reshape(bytes, hlo.shape(value)))
    return _shifted(inner, op.operands[1], negative=op.name == "stablehlo.subtract")


def _constant(array: np.ndarray, weights: WeightTable, name: str) -> _Bytes | None:
    low, high = (int(n) for n in (array.min(), array.max())) if array.size else (0, 0)
    offset = 0 if low >= _LEAST and high <= _MOST else low + _SIGN
    if high - offset > _MOST:
        return None
    bytes = (array - offset).astype(np.int8)
    return _Bytes(lambda: hlo.constant(bytes, weights, name), offset, (), bytes)


def _converted(source: ir.Value) -> _Bytes | None:
    kind = str(hlo.element_type(source))
    if kind == "i8":
        return _Bytes(lambda: source)
    if kind != "ui8":
        return None

    def make() -> ir.Value:
        wide = hlo.convert(source, np.int32)
        return hlo.convert(hlo.add(wide, hlo.full_like(wide, -_SIGN)), np.int8)

    return _Bytes(make, _SIGN)


def _moved(inner: _Bytes, move: Callable[[ir.Value], ir.Value]) -> _Bytes:
    return replace(inner, make=lambda: move(inner.make()), array=None)


def _shifted(inner: _Bytes, shift: ir.Value, *, negative: bool) -> _Bytes | None:
    """`inner` plus or minus a number that is the same for all elements."""
    number = splat(shift)
    if number is not None:
        shifted = inner.offset - int(number) if negative else inner.offset + int(number)
        return replace(inner, offset=shifted, array=None)
    op = producer(shift, "broadcast_in_dim")
    if op is None or math.prod(hlo.shape(op.operands[0])) != 1:
        return None
    return replace(inner, scalars=(*inner.scalars, (op.operands[0], negative)), array=None)


def _product(
    op: ir.Operation,
    lhs: ir.Value,
    rhs: ir.Value,
    changes: Mapping[str, ir.Attribute | None] | None = None,
) -> ir.Value:
    return rebuild(op, [lhs, rhs], hlo.shape(op.results[0]), changes)


def _summed(array: np.ndarray, dimensions: Sequence[int]) -> np.ndarray:
    return array.sum(axis=tuple(dimensions), dtype=np.int64)


def _sums_of_product(op: ir.Operation, array: np.ndarray, *, of_rhs: bool) -> np.ndarray:
    """The sums of an operand of a dot_general over what is contracted, with the dimensions of the
    result: size 1 where only the other operand has one."""
    numbers = bindings.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
    lhs = numbers.lhs_batching_dimensions, numbers.lhs_contracting_dimensions
    rhs = numbers.rhs_batching_dimensions, numbers.rhs_contracting_dimensions
    batch, contracted = (list(dims) for dims in (rhs if of_rhs else lhs))
    free = [d for d in range(array.ndim) if d not in (*batch, *contracted)]
    summed = array.transpose([*batch, *free, *contracted])
    summed = _summed(summed, range(len(batch) + len(free), array.ndim))
    others = [1] * (len(hlo.shape(op.results[0])) - summed.ndim)
    sizes = list(summed.shape)
    split = len(batch) if of_rhs else len(sizes)
    return summed.reshape([*sizes[:split], *others, *sizes[split:]])


def _offset(own: _Bytes, sums: np.ndarray, shape: Sequence[int], weights: WeightTable) -> ir.Value:
    """The offset of an operand times `sums` of the other one. What is added to a product stands
    before it, so that it becomes a part of the product's epilogue."""
    if not own.scalars:
        total = (sums * own.offset).astype(np.int32)
        return broadcast_constant(total, shape, weights, "offset")
    offset = hlo.full(own.offset, [], np.int32)
    for scalar, negative in own.scalars:
        scalar = hlo.reshape(scalar, [])
        offset = hlo.subtract(offset, scalar) if negative else hlo.add(offset, scalar)
    factors = broadcast_constant(sums.astype(np.int32), shape, weights, "sums")
    return hlo.multiply(factors, hlo.broadcast_in_dim(offset, shape, []))


def _sum(product: ir.Value, *offsets: ir.Value) -> ir.Value:
    for offset in offsets:
        product = hlo.add(product, offset)
    return product
