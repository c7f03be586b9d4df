"""narrow-integer-products: products of 32-bit integers that are numbers of 8 bits and an offset
take those of 8 bits, where the target multiplies them.

    %a = stablehlo.convert %x : (tensor<8x64xui8>) -> tensor<8x64xi32>
    %b = stablehlo.subtract %a, (dense<100>) : tensor<8x64xi32>
    %z = stablehlo.dot_general %b, %w : (tensor<8x64xi32>, tensor<64x4xi32>) -> tensor<8x4xi32>
      ->
    %s = stablehlo.convert (%a - 128) : (tensor<8x64xi32>) -> tensor<8x64xi8>
    %p = stablehlo.dot_general %s, %w : (tensor<8x64xi8>, tensor<64x4xi8>) -> tensor<8x4xi32>
    %z = stablehlo.add %p, (28 * sums of %w's columns) : tensor<8x4xi32>

So ONNX writes its quantised layers, with weights that are constants here: run fold-constants first.
Tensor cores multiply signed numbers of 8 bits. CPUs that have an instruction multiply unsigned by
signed ones, four at a time: sums get so many terms, of zeros, and since StableHLO has no product of
two types, its operands stay converted ones, which `narrow-operands` looks through:

    %p = stablehlo.dot_general (convert %a : tensor<8x64xui8>), (convert %w : tensor<64x4xi8>)

An offset, which may be known at run time alone, is multiplied by sums of the other operand. Where
that is no constant, they are taken at run time, too, of products that are no convolutions. What
pads a convolution's image is the number that stands for 0. Everything is exact, modulo 2^32 as it
was.

CPUs whose instruction adds two products in 16 bits multiply so by constants of small numbers; for
others, see `pair-integer-products`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.kernels.cpu.contraction_strategy import BYTES, LARGEST_SMALL
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
    padded_dimension,
    padding,
    producer,
    rebuild,
    resource_name,
    splat,
)
from stepwell.targets.nvidia import NvidiaTarget
from stepwell.weights import WeightTable

RULES, CPU_RULES, SMALL_RULES = Rules(), Rules(), Rules()

_BYTES = ("i8", "ui8")
_KINDS = (np.uint8, np.int8), (np.int8, np.uint8)
_SIGN = 128

MOST_STEPS = 8
"""Operations between bytes and an operand that are looked through at most."""


@dataclass(frozen=True)
class NarrowIntegerProducts(Pass):
    """Run on a module; nothing on machines that do not multiply bytes."""

    name: ClassVar[str] = "narrow-integer-products"

    def run(self, op: ir.Operation, state: State) -> None:
        if isinstance(state.target, NvidiaTarget):
            RULES.apply(op, state.weights)
        elif state.target.byte_dot:
            CPU_RULES.apply(op, state.weights)
        elif state.target.pair_dot:
            SMALL_RULES.apply(op, state.weights)


@dataclass(frozen=True)
class _Bytes:
    """32-bit integers as ones of 8 bits, which `make` writes, plus `offset`, and plus or (with
    True) minus `scalars`, values of one element; `array` are the 8 bits of a constant. Integers
    that are `plain` are those already."""

    make: Callable[[], ir.Value]
    offset: int = 0
    scalars: tuple[tuple[ir.Value, bool], ...] = ()
    array: np.ndarray | None = None
    plain: bool = False

    @property
    def is_small(self) -> bool:
        """Whether it is a constant of numbers of which two products fit 16 bits."""
        if self.array is None or not self.array.size:
            return False
        return -LARGEST_SMALL <= self.array.min() and self.array.max() <= LARGEST_SMALL

    @property
    def has_offset(self) -> bool:
        return self.offset != 0 or len(self.scalars) > 0


@RULES.on("dot_general")
def dot(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """Both operands have 8 bits."""
    found = _operands(op, weights, np.int8, np.int8) if _is_of_words(op) else None
    if found is None:
        return None
    operands = [own.make() for own in found]
    offsets = _offsets(op, found, operands, weights)
    return _sum(_product(op, *operands), *offsets)


@CPU_RULES.on("dot_general")
def dot_of_words(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """The same; either operand is unsigned, such that fewer sums are taken at run time."""
    ways = [way for pair in _KINDS if (way := _operands(op, weights, *pair)) is not None]
    found = min(ways, key=_run_time_sums, default=None)
    return None if found is None else _dot_of_words(op, found, weights)


@SMALL_RULES.on("dot_general")
def dot_of_small_words(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """The same; the signed operand is a constant of small numbers."""
    found = _small_operands(op, weights)
    return None if found is None else _dot_of_words(op, found, weights)


def _dot_of_words(
    op: ir.Operation, found: tuple[_Bytes, _Bytes], weights: WeightTable
) -> ir.Value | None:
    numbers = bindings.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
    contracted = numbers.lhs_contracting_dimensions, numbers.rhs_contracting_dimensions
    if not contracted[0]:
        return None
    missing = -hlo.shape(op.operands[0])[contracted[0][-1]] % BYTES
    if not missing and all(own.plain for own in found):
        return None
    operands = [own.make() for own in found]
    offsets = _offsets(op, found, operands, weights)
    words = (
        _wide(padded_dimension(bytes, dims[-1], missing))
        for bytes, dims in zip(operands, contracted, strict=True)
    )
    return _sum(_product(op, *words), *offsets)


def _small_operands(op: ir.Operation, weights: WeightTable) -> tuple[_Bytes, _Bytes] | None:
    for number, pair in enumerate(_KINDS):
        found = _operands(op, weights, *pair)
        if found is not None and found[1 - number].is_small:
            return found
    return None


def are_small_bytes(op: ir.Operation, weights: WeightTable) -> bool:
    """Whether `op` multiplies bytes, widened, by a constant of small ones."""
    found = _small_operands(op, weights)
    return found is not None and all(own.plain for own in found)


def _run_time_sums(found: tuple[_Bytes, _Bytes]) -> int:
    """How many operands have to be summed where the model runs."""
    return sum(
        own.has_offset and other.array is None for own, other in (found, (found[1], found[0]))
    )


def _offsets(
    op: ir.Operation,
    found: tuple[_Bytes, _Bytes],
    operands: Sequence[ir.Value],
    weights: WeightTable,
) -> list[ir.Value]:
    """What the offsets of a dot_general's `operands` add to its result."""
    shape = hlo.shape(op.results[0])
    offsets = []
    for number, own in enumerate(found):
        if not own.has_offset:
            continue
        other = found[1 - number]
        if other.array is not None:
            sums = _sums_of_product(op, other.array, of_rhs=number == 0)
            offsets.append(_offset(own, sums, shape, weights))
        else:
            sums = _sums_at_run_time(op, operands[1 - number], of_rhs=number == 0)
            offsets.append(hlo.multiply(sums, hlo.broadcast_in_dim(_total(own), shape, [])))
    if all(own.has_offset for own in found):
        numbers = bindings.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
        sizes = hlo.shape(op.operands[0])
        terms = math.prod(sizes[d] for d in numbers.lhs_contracting_dimensions)
        both = hlo.multiply(*(_total(own) for own in found))
        both = hlo.multiply(both, hlo.full(terms, [], np.int32))
        offsets.append(hlo.broadcast_in_dim(both, shape, []))
    return offsets


@RULES.on("convolution")
def convolution(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """The same; a padded image has an offset that is known, since the padding becomes another."""
    found = _image_and_kernel(op, weights, np.int8) if _is_of_words(op) else None
    if found is None:
        return None
    image, kernel = found
    if not image.has_offset:
        return _product(op, image.make(), kernel.make())
    return _padded_convolution(op, image, kernel, np.int8, weights)


@CPU_RULES.on("convolution")
def convolution_of_words(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """The same; the image is unsigned."""
    found = _image_and_kernel(op, weights, np.uint8)
    return None if found is None else _convolution_of_words(op, found, weights)


@SMALL_RULES.on("convolution")
def convolution_of_small_words(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """The same; the kernel is a constant of small numbers."""
    found = _image_and_kernel(op, weights, np.uint8)
    return _convolution_of_words(op, found, weights) if found and found[1].is_small else None


def _convolution_of_words(
    op: ir.Operation, found: tuple[_Bytes, _Bytes], weights: WeightTable
) -> ir.Value | None:
    image, kernel = found
    numbers = bindings.ConvDimensionNumbers(op.attributes["dimension_numbers"])
    pads = padding(op, len(numbers.input_spatial_dimensions))
    channels = hlo.shape(op.operands[0])[numbers.input_feature_dimension]
    if image.plain and kernel.plain and channels % BYTES == 0 and not any(map(any, pads)):
        return None
    return _padded_convolution(op, image, kernel, np.uint8, weights)


def _image_and_kernel(
    op: ir.Operation, weights: WeightTable, of_image: type
) -> tuple[_Bytes, _Bytes] | None:
    """The operands of a convolution without groups whose kernel has no offset, and is a constant
    where the image has one."""
    if integer(op, "feature_group_count", 1) != 1 or integer(op, "batch_group_count", 1) != 1:
        return None
    found = _operands(op, weights, of_image, np.int8)
    if found is None or found[1].has_offset or _run_time_sums(found):
        return None
    return found


def _padded_convolution(
    op: ir.Operation, image: _Bytes, kernel: _Bytes, kind: type, weights: WeightTable
) -> ir.Value | None:
    """The convolution of an image that is padded beforehand, by numbers that stand for 0; on CPUs,
    also to whole words of channels."""
    numbers = bindings.ConvDimensionNumbers(op.attributes["dimension_numbers"])
    rank = len(numbers.input_spatial_dimensions)
    pads = padding(op, rank)
    if any(n != 1 for n in optional_integers(op, "lhs_dilation", rank, 1)):
        return None
    padded = any(low or high for low, high in pads)
    limits = np.iinfo(kind)
    if padded and (image.scalars or not limits.min <= -image.offset <= limits.max):
        return None
    offsets = []
    if image.has_offset:
        assert kernel.array is not None
        kept = numbers.kernel_output_feature_dimension
        sums = _summed(kernel.array, [d for d in range(rank + 2) if d != kept])
        result = hlo.shape(op.results[0])
        shape = [1] * len(result)
        shape[numbers.output_feature_dimension] = sums.size
        offsets.append(_offset(image, sums.reshape(shape), result, weights))
    lows, highs = [0] * (rank + 2), [0] * (rank + 2)
    for axis, (low, high) in zip(numbers.input_spatial_dimensions, pads, strict=True):
        lows[axis], highs[axis] = low, high
    source, filters, missing = image.make(), kernel.make(), 0
    if kind is np.uint8:
        missing = -hlo.shape(source)[numbers.input_feature_dimension] % BYTES
    highs[numbers.input_feature_dimension] = missing
    if padded or missing:
        source = hlo.pad(source, hlo.full(-image.offset if padded else 0, [], kind), lows, highs)
    filters = padded_dimension(filters, numbers.kernel_input_feature_dimension, missing)
    if kind is np.uint8:
        source, filters = _wide(source), _wide(filters)
    unpadded = {"padding": i64_pairs([(0, 0)] * rank)}
    return _sum(_product(op, source, filters, unpadded if padded else None), *offsets)


def _wide(value: ir.Value) -> ir.Value:
    return hlo.convert(value, np.int32)


def _operands(
    op: ir.Operation, weights: WeightTable, of_lhs: type, of_rhs: type
) -> tuple[_Bytes, _Bytes] | None:
    """Those of a product that is summed in 32 bits, in the types asked for; None where they have
    more than 8 bits."""
    if str(hlo.element_type(op.results[0])) != "i32":
        return None
    kinds = of_lhs, of_rhs
    lhs, rhs = (_bytes_of(v, weights, kind) for v, kind in zip(op.operands, kinds, strict=True))
    return None if lhs is None or rhs is None else (lhs, rhs)


def _is_of_words(op: ir.Operation) -> bool:
    """Whether the operands of a product have 32 bits."""
    return all(str(hlo.element_type(value)) == "i32" for value in op.operands)


def _bytes_of(
    value: ir.Value, weights: WeightTable, kind: type, steps: int = MOST_STEPS
) -> _Bytes | None:
    array = constant_array(value, weights)
    if array is not None:
        return _constant(array.astype(np.int64), weights, resource_name(value), kind)
    if str(hlo.element_type(value)) in _BYTES:
        return _converted(value, weights, kind)
    op = producer(value, "convert", "add", "subtract", "transpose", "reshape")
    if op is None or not steps:
        return None
    if op.name == "stablehlo.convert":
        return _converted(op.operands[0], weights, kind)
    inner = _bytes_of(op.operands[0], weights, kind, steps - 1)
    if inner is None:
        return None
    if op.name == "stablehlo.transpose":
        order = integers(op, "permutation")
        return _moved(inner, lambda bytes: hlo.transpose(bytes, order))
    if op.name == "stablehlo.reshape":
        return _moved(inner, lambda bytes: hlo.reshape(bytes, hlo.shape(value)))
    return _shifted(inner, op.operands[1], negative=op.name == "stablehlo.subtract")


def _constant(array: np.ndarray, weights: WeightTable, name: str, kind: type) -> _Bytes | None:
    low, high = (int(n) for n in (array.min(), array.max())) if array.size else (0, 0)
    limits = np.iinfo(kind)
    offset = 0 if low >= limits.min and high <= limits.max else low - limits.min
    if high - offset > limits.max:
        return None
    bytes = (array - offset).astype(kind)
    return _Bytes(lambda: hlo.constant(bytes, weights, name), offset, (), bytes, offset == 0)


def _converted(source: ir.Value, weights: WeightTable, kind: type) -> _Bytes | None:
    known = str(hlo.element_type(source))
    if known not in _BYTES:
        return None
    if known == ("ui8" if kind is np.uint8 else "i8"):
        return _Bytes(lambda: source, array=constant_array(source, weights), plain=True)
    shift = _SIGN if kind is np.uint8 else -_SIGN

    def make() -> ir.Value:
        wide = _wide(source)
        return hlo.convert(hlo.add(wide, hlo.full_like(wide, shift)), kind)

    return _Bytes(make, -shift)


def _moved(inner: _Bytes, move: Callable[[ir.Value], ir.Value]) -> _Bytes:
    return replace(inner, make=lambda: move(inner.make()), array=None, plain=False)


def _shifted(inner: _Bytes, shift: ir.Value, *, negative: bool) -> _Bytes | None:
    """`inner` plus or minus a number that is the same for all elements."""
    number = splat(shift)
    if number is not None:
        shifted = inner.offset - int(number) if negative else inner.offset + int(number)
        return replace(inner, offset=shifted, array=None, plain=False)
    op = producer(shift, "broadcast_in_dim")
    if op is None or math.prod(hlo.shape(op.operands[0])) != 1:
        return None
    scalars = (*inner.scalars, (op.operands[0], negative))
    return replace(inner, scalars=scalars, array=None, plain=False)


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


def _sums_at_run_time(op: ir.Operation, bytes: ir.Value, *, of_rhs: bool) -> ir.Value:
    """The same of an operand that is no constant, for every element of the result."""
    numbers = bindings.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
    lhs = numbers.lhs_batching_dimensions, numbers.lhs_contracting_dimensions
    rhs = numbers.rhs_batching_dimensions, numbers.rhs_contracting_dimensions
    batch, contracted = (list(dims) for dims in (rhs if of_rhs else lhs))
    shape = hlo.shape(op.results[0])
    kept = [d for d in range(len(hlo.shape(bytes))) if d not in contracted]
    free = [d for d in kept if d not in batch]
    first = len(shape) - len(free) if of_rhs else len(batch)
    places = [batch.index(d) if d in batch else first + free.index(d) for d in kept]
    sums = hlo.reduce(_wide(bytes), hlo.full(0, [], np.int32), contracted, "add")
    return hlo.broadcast_in_dim(sums, shape, places)


def _offset(own: _Bytes, sums: np.ndarray, shape: Sequence[int], weights: WeightTable) -> ir.Value:
    """The offset of an operand times `sums` of the other one. What is added to a product stands
    before it, so that it becomes a part of the product's epilogue."""
    if not own.scalars:
        total = (sums * own.offset).astype(np.int32)
        return broadcast_constant(total, shape, weights, "offset")
    factors = broadcast_constant(sums.astype(np.int32), shape, weights, "sums")
    return hlo.multiply(factors, hlo.broadcast_in_dim(_total(own), shape, []))


def _total(own: _Bytes) -> ir.Value:
    """The offset of an operand, with its scalars."""
    offset = hlo.full(own.offset, [], np.int32)
    for scalar, negative in own.scalars:
        scalar = hlo.reshape(scalar, [])
        offset = hlo.subtract(offset, scalar) if negative else hlo.add(offset, scalar)
    return offset


def _sum(product: ir.Value, *offsets: ir.Value) -> ir.Value:
    for offset in offsets:
        product = hlo.add(product, offset)
    return product
