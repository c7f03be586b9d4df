"""decompose-for-linalg: ops that the linalg level has no good form for, in terms of others.

    %y = stablehlo.convolution(%x, %w) ... lhs_dilate = [2, 2]  // 2x2 kernel: tensor<1x4x4x8xf32>

becomes, for this transposed convolution of stride 2, one convolution at the input's resolution with
four times the channels, whose result is spread out over the pixels:

    %p = stablehlo.convolution(%x, %w') ...                     // 1x1 kernel: tensor<1x4x4x32xf32>
    %s = stablehlo.reshape %p                                   // tensor<1x4x4x2x2x8xf32>
    %t = stablehlo.transpose %s, dims = [0, 1, 3, 2, 4, 5]
    %y = stablehlo.reshape %t                                   // tensor<1x8x8x8xf32>

Where the phases of the pixels reach different inputs (a 4x4 kernel), each is a convolution of its
own taps. On CPUs, pixels of a row are concatenated, and then rows, so that each convolution writes
its pixels in place; on GPUs, the four are concatenated in the place of %p.

- A convolution of one element a channel becomes a multiplication.
- Of a grouped convolution that is not depthwise, neighbouring groups are joined, with zeros in the
  filters between them, until their results fill a vector; on GPUs, as many as the cost model says.
  With precision "strict" they are not, as infinities would spread. legalize-to-linalg takes what is
  left whole.
  One of unsigned or of complex numbers becomes one convolution a group.
- Windows that are read backwards are reversed kernels.
- Unsigned operands of a product with a wider result are converted to its type, and integers of a
  depthwise convolution.
- A dot_general with several contracting dimensions gets one; its batch dimensions come first.
- The indices of a gather with batch dimensions have their components last.
- Normal random numbers are made of uniform ones, integers of random bits.
- An einsum of one operand is a sum and a transpose.
- A logistic function is e / (1 + e) left of zero, e = exp(-|x|): upstream's 1 / (1 + exp(-x)) is
  zero where exp(-x) overflows.
- A power of integers is squared and multiplied for every bit of its exponent (upstream: for six).
- NaN is an infinity before its precision is reduced to no bits of a fraction.
- A sum of booleans is their disjunction, as the specification says (arith.addi would be xor).

Convolutions taken apart are first put into NHWC, as choose-layout does. fold-constants comes next.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import ClassVar

import numpy as np

from stepwell.attributes import i64
from stepwell.dialects import stablehlo as hlo
from stepwell.mlir import ir, nested_operations
from stepwell.mlir import stablehlo as bindings
from stepwell.passes.base import Pass, State
from stepwell.passes.linalg._grouped_convolution import is_grouped, is_taken_whole
from stepwell.passes.stablehlo import _joined_groups, _random_numbers, choose_layout
from stepwell.passes.stablehlo._rules import Rules
from stepwell.passes.stablehlo._values import (
    constant_attribute,
    i64_pairs,
    integer,
    is_depthwise,
    optional_integers,
    padding,
    rebuild,
    reverses_window,
)
from stepwell.targets.nvidia import NvidiaTarget
from stepwell.weights import WeightTable

RULES = Rules(_random_numbers.RULES)

_WITHOUT_NAN = "stepwell.without_nan"
"""Of a reduce_precision: its operand is never NaN."""


@RULES.on("add")
def sum_of_booleans(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """add of i1 is or."""
    kind = hlo.element_type(op.results[0])
    if not isinstance(kind, ir.IntegerType) or kind.width != 1:
        return None
    return hlo.or_(*op.operands)


@RULES.on("power")
def power_of_integers(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """x^y by squaring; of a negative y it is 1 / x^-y, which only 1 and -1 have in integers."""
    base, exponent = op.operands
    kind = hlo.element_type(base)
    if not isinstance(kind, ir.IntegerType) or kind.width < 8:
        return None
    if not hlo.tensor_type(base).has_static_shape:
        return None
    zero, one = hlo.full_like(base, 0), hlo.full_like(base, 1)
    result, square, rest = one, base, exponent
    bits = kind.width if kind.is_unsigned else kind.width - 1
    for bit in range(bits):
        odd = hlo.compare(hlo.and_(rest, one), one, "EQ")
        result = hlo.select(odd, hlo.multiply(result, square), result)
        if bit + 1 < bits:
            square = hlo.multiply(square, square)
            rest = hlo.shift_right_logical(rest, one)
    if kind.is_unsigned:
        return result
    minus_one = hlo.full_like(base, -1)
    odd = hlo.compare(hlo.and_(exponent, one), one, "EQ")
    sign = hlo.select(odd, minus_one, one)
    inverse = hlo.select(hlo.compare(base, minus_one, "EQ"), sign, zero)
    inverse = hlo.select(hlo.compare(base, one, "EQ"), one, inverse)
    return hlo.select(hlo.compare(exponent, zero, "LT"), inverse, result)


@RULES.on("logistic")
def logistic_without_overflow(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """1 / (1 + e) or e / (1 + e) with e = exp(-|x|), of narrow floats in f32."""
    kind = hlo.dtype(op.results[0])
    x = hlo.convert(op.operands[0], np.float32) if kind.itemsize == 2 else op.operands[0]
    e = hlo.exponential(hlo.negate(hlo.abs(x)))
    one = hlo.full_like(x, 1.0)
    above = hlo.select(hlo.compare(x, hlo.full_like(x, 0.0), "LT"), e, one)
    return hlo.convert(hlo.divide(above, hlo.add(e, one)), kind)


# --- Convolutions --------------------------------------------------------------------------------


@RULES.on("reduce_precision")
def nan_without_fraction(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """A type without bits of a fraction holds an infinity for NaN."""
    if ir.IntegerAttr(op.attributes["mantissa_bits"]).value or _WITHOUT_NAN in op.attributes:
        return None
    x = op.operands[0]
    infinity = hlo.full_like(x, float("inf"))
    number = hlo.select(hlo.compare(x, x, "NE"), infinity, x)
    return rebuild(op, [number], hlo.shape(x), {_WITHOUT_NAN: ir.UnitAttr.get()})


@RULES.on("convolution")
def scaled_channels(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """A window of one element for each channel: a multiplication."""
    (lhs, rhs), result = op.operands, op.results[0]
    if not all(hlo.tensor_type(value).has_static_shape for value in (lhs, rhs)):
        return None
    numbers = bindings.ConvDimensionNumbers(op.attributes["dimension_numbers"])
    source, spatial = hlo.shape(lhs), list(numbers.input_spatial_dimensions)
    channel, rank = numbers.input_feature_dimension, len(spatial)
    groups = integer(op, "feature_group_count", 1)
    if not source[channel] == groups == prod(hlo.shape(rhs)):
        return None
    kinds = {str(hlo.element_type(value)) for value in (lhs, rhs, result)}
    dilated = optional_integers(op, "lhs_dilation", rank, 1) != [1] * rank
    if len(kinds) > 1 or dilated or any(low or high for low, high in padding(op, rank)):
        return None
    if integer(op, "batch_group_count", 1) != 1:
        return None
    steps = [1] * len(source)
    for axis, step in zip(spatial, optional_integers(op, "window_strides", rank, 1), strict=True):
        steps[axis] = step
    taken = hlo.slice(lhs, [0] * len(source), source, steps)
    factors = hlo.broadcast_in_dim(hlo.reshape(rhs, [groups]), hlo.shape(taken), [channel])
    scaled = hlo.multiply(taken, factors)
    order = [0] * len(source)
    order[numbers.output_batch_dimension] = numbers.input_batch_dimension
    order[numbers.output_feature_dimension] = channel
    for to, axis in zip(numbers.output_spatial_dimensions, spatial, strict=True):
        order[to] = axis
    return hlo.transpose(scaled, order)


@dataclass(frozen=True)
class _Window:
    """One spatial dimension of a transposed convolution: see `_transposed_convolution`."""

    size: int
    kernel: int
    stride: int
    low: int
    result: int

    @property
    def kernel_low(self) -> int:
        """Zeros before the kernel, so that its taps fall into whole groups of `stride`."""
        return self.stride - 1 - self.low % self.stride

    @property
    def taps(self) -> int:
        """Taps of the convolution at input resolution."""
        return -(-(self.kernel + self.kernel_low) // self.stride)

    @property
    def padding(self) -> tuple[int, int]:
        """Padding of the convolution at input resolution; at least `result` pixels come out."""
        low = self.low // self.stride
        outputs = -(-self.result // self.stride)
        return low, max(0, outputs - self.size - low + self.taps - 1)

    @property
    def outputs(self) -> int:
        """Pixels of the convolution at input resolution."""
        return self.size + sum(self.padding) - self.taps + 1

    def of_phase(self, phase: int) -> _Phase:
        """The taps of the kernel that reach the pixels `phase`, `phase + stride`, ..."""
        first = (self.low - phase) % self.stride
        taps = -(-(self.kernel - first) // self.stride)
        low = (self.low - phase - first) // self.stride
        outputs = -(-self.result // self.stride)
        return _Phase(first, taps, (low, outputs - self.size - low + taps - 1))


@dataclass(frozen=True)
class _Phase:
    """Every stride-th tap of a kernel from `first` on, and the padding (or, negative, cropping) of
    the input for them."""

    first: int
    taps: int
    padding: tuple[int, int]


WASTE = 1.25
"""With so many products with zeros to one that counts, each phase is a convolution of its own."""


@RULES.on("convolution")
def reversed_window(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """A convolution that reads its kernel backwards, as one of the reversed kernel."""
    if not reverses_window(op):
        return None
    numbers = bindings.ConvDimensionNumbers(op.attributes["dimension_numbers"])
    flags = ir.DenseBoolArrayAttr(op.attributes["window_reversal"])
    spatial = list(numbers.kernel_spatial_dimensions)
    lhs, rhs = op.operands
    kernel = hlo.reverse(rhs, [d for d, flag in zip(spatial, flags, strict=True) if flag])
    return rebuild(op, [lhs, kernel], hlo.shape(op.results[0]), {"window_reversal": None})


def _transposed_convolution(
    op: ir.Operation, weights: WeightTable, *, in_place: bool
) -> ir.Value | None:
    """A convolution with input dilation s at the input's resolution (sub-pixel convolution).

    y[s*h + r] = sum over t of dilated(x)[s*h + r + t - low] * w[t], where only the taps
    t = s*j + low % s - r meet an element of x. So phase r of all pixels is one convolution with
    every s-th tap of w, and the s phases are channels of one (Shi et al. 2016, arXiv:1609.05158).

    Phases that are convolutions of their own are joined by the dimension, where concatenations are
    `in_place`; else all at once, and spread.
    """
    rank = len(hlo.shape(op.results[0])) - 2
    strides = optional_integers(op, "lhs_dilation", rank, 1)
    if strides == [1] * rank:
        return None
    canonical = choose_layout.convolution(op, weights)
    if canonical is not None:
        return canonical
    lhs, rhs = op.operands
    pads = padding(op, rank)
    moved = optional_integers(op, "window_strides", rank, 1) + optional_integers(
        op, "rhs_dilation", rank, 1
    )
    groups = integer(op, "feature_group_count") * integer(op, "batch_group_count")
    if set(moved) != {1} or groups != 1 or min(low for low, _ in pads) < 0:
        return _with_explicit_dilation(op, strides, pads)
    inputs, kernel, result = hlo.shape(lhs), hlo.shape(rhs), hlo.shape(op.results[0])
    windows = [
        _Window(inputs[1 + d], kernel[d], strides[d], pads[d][0], result[1 + d])
        for d in range(rank)
    ]
    wasted = prod(w.taps * w.stride for w in windows) / prod(w.kernel for w in windows)
    if wasted > WASTE and all(w.kernel >= w.stride for w in windows):
        apart = [_phase(op, windows, at) for at in product(*(range(s) for s in strides))]
        if in_place:
            spread = _join_phases(apart, strides)
        else:
            spread = _spread_phases(hlo.concatenate(apart, rank + 1), strides, kernel[-1])
        return hlo.slice(spread, [0] * (rank + 2), result)
    phases = rebuild(
        op,
        [lhs, _phase_kernel(rhs, windows)],
        [inputs[0], *(w.outputs for w in windows), kernel[-1] * prod(strides)],
        {"lhs_dilation": None, "padding": i64_pairs([w.padding for w in windows])},
    )
    spread = _spread_phases(phases, strides, kernel[-1])
    return hlo.slice(spread, [0] * (rank + 2), result)


def _phase(op: ir.Operation, windows: Sequence[_Window], at: Sequence[int]) -> ir.Value:
    """The pixels of one phase: [N, h.., O]."""
    lhs, rhs = op.operands
    phases = [window.of_phase(phase) for window, phase in zip(windows, at, strict=True)]
    *spatial, inputs, outputs = hlo.shape(rhs)
    steps = [*(w.stride for w in windows), 1, 1]
    taps = hlo.slice(rhs, [*(p.first for p in phases), 0, 0], [*spatial, inputs, outputs], steps)
    sizes = [-(-w.result // w.stride) for w in windows]
    attributes = {"lhs_dilation": None, "padding": i64_pairs([p.padding for p in phases])}
    return rebuild(op, [lhs, taps], [hlo.shape(lhs)[0], *sizes, outputs], attributes)


def _phase_kernel(kernel: ir.Value, windows: Sequence[_Window]) -> ir.Value:
    """[k.., I, O] as [taps.., I, phases * O]."""
    rank = len(windows)
    features = list(hlo.shape(kernel)[rank:])
    zero = hlo.full(0, [], hlo.dtype(kernel))
    low = [w.kernel_low for w in windows]
    high = [w.taps * w.stride - w.kernel - w.kernel_low for w in windows]
    padded = hlo.pad(kernel, zero, [*low, 0, 0], [*high, 0, 0])
    split = hlo.reshape(padded, [n for w in windows for n in (w.taps, w.stride)] + features)
    phase_dimensions = range(1, 2 * rank, 2)
    flipped = hlo.reverse(split, phase_dimensions)
    order = [*range(0, 2 * rank, 2), 2 * rank, *phase_dimensions, 2 * rank + 1]
    phases = prod(w.stride for w in windows)
    shape = [*(w.taps for w in windows), features[0], phases * features[1]]
    return hlo.reshape(hlo.transpose(flipped, order), shape)


def _join_phases(phases: Sequence[ir.Value], strides: Sequence[int]) -> ir.Value:
    """Phases [N, h.., O], those of the last dimension side by side, as [N, h * stride.., O]."""
    rank = len(strides)
    batch, *sizes, features = hlo.shape(phases[0])
    unit = [batch, *(n for size in sizes for n in (size, 1)), features]
    parts = [hlo.reshape(phase, unit) for phase in phases]
    for axis in reversed(range(rank)):
        rows = [parts[i : i + strides[axis]] for i in range(0, len(parts), strides[axis])]
        parts = [hlo.concatenate(row, 2 + 2 * axis) for row in rows]
    spread = [n * stride for n, stride in zip(sizes, strides, strict=True)]
    return hlo.reshape(parts[0], [batch, *spread, features])


def _spread_phases(value: ir.Value, strides: Sequence[int], features: int) -> ir.Value:
    """[N, h.., phases * O] as [N, h * stride.., O]."""
    rank = len(strides)
    batch, *sizes, _ = hlo.shape(value)
    order = [0, *(d for i in range(rank) for d in (1 + i, 1 + rank + i)), 2 * rank + 1]
    pixels = hlo.transpose(hlo.reshape(value, [batch, *sizes, *strides, features]), order)
    spread = [n * stride for n, stride in zip(sizes, strides, strict=True)]
    return hlo.reshape(pixels, [batch, *spread, features])


def _with_explicit_dilation(
    op: ir.Operation, strides: Sequence[int], pads: Sequence[tuple[int, int]]
) -> ir.Value:
    """The same convolution of an input with zeros between its elements."""
    lhs, rhs = op.operands
    zero = hlo.full(0, [], hlo.dtype(lhs))
    low, high = [0, *(p[0] for p in pads), 0], [0, *(p[1] for p in pads), 0]
    dilated = hlo.pad(lhs, zero, low, high, [0, *(s - 1 for s in strides), 0])
    rank = len(strides)
    plain = {"lhs_dilation": None, "padding": i64_pairs([(0, 0)] * rank)}
    return rebuild(op, [dilated, rhs], hlo.shape(op.results[0]), plain)


def group_by_group(op: ir.Operation) -> ir.Value:
    """One convolution a group."""
    groups = integer(op, "feature_group_count")
    lhs, rhs = op.operands
    *outer, features = hlo.shape(op.results[0])
    one = {"feature_group_count": i64(1)}
    parts = [
        rebuild(
            op,
            [_channels(lhs, group, groups), _channels(rhs, group, groups)],
            [*outer, features // groups],
            one,
        )
        for group in range(groups)
    ]
    return hlo.concatenate(parts, len(outer))


def _channels(value: ir.Value, group: int, groups: int) -> ir.Value:
    """Part `group` of `groups` along the last dimension."""
    *outer, last = hlo.shape(value)
    count, zeros = last // groups, [0] * len(outer)
    return hlo.slice(value, [*zeros, group * count], [*outer, (group + 1) * count])


# --- Products ------------------------------------------------------------------------------------


@RULES.on("unary_einsum")
def sum_of_letters(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """`ijk->ki` sums over j, then transposes; a letter twice, a diagonal, is left."""
    source, _, target = ir.StringAttr(op.attributes["einsum_config"]).value.partition("->")
    if len(set(source)) < len(source) or "." in source:
        return None
    summed = [number for number, letter in enumerate(source) if letter not in target]
    kept = [letter for letter in source if letter in target]
    x = op.operands[0]
    if summed:
        x = hlo.reduce(x, hlo.full(0, (), hlo.dtype(x)), summed, "add")
    return hlo.transpose(x, [kept.index(letter) for letter in target])


@RULES.on("dot_general", "convolution")
def widened_product(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """Integers have the type of the result where they are unsigned and narrower, since below they
    have no signs of their own, and in depthwise convolutions, which upstream has in one type."""
    result = hlo.element_type(op.results[0])
    kinds = [hlo.element_type(value) for value in op.operands]
    if not all(isinstance(kind, ir.IntegerType) for kind in kinds):
        return None
    most = result.width if isinstance(result, ir.IntegerType) else math.inf
    unsigned = any(kind.is_unsigned and kind.width < most for kind in kinds)
    if not unsigned and not (is_depthwise(op) and any(kind != result for kind in kinds)):
        return None
    operands = [hlo.convert(value, hlo.dtype(op.results[0])) for value in op.operands]
    return rebuild(op, operands, hlo.shape(op.results[0]))


@RULES.on("dot_general")
def canonical_dot(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """Batch dimensions first and in order, and one contracting dimension: in the order of several
    that the larger operand has, which may need no transposition then."""
    numbers = bindings.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
    batch = (list(numbers.lhs_batching_dimensions), list(numbers.rhs_batching_dimensions))
    summed = (list(numbers.lhs_contracting_dimensions), list(numbers.rhs_contracting_dimensions))
    leading = list(range(len(batch[0])))
    if len(summed[0]) <= 1 and batch[0] == leading and batch[1] == leading:
        return None
    sizes = [prod(hlo.shape(value)) for value in op.operands]
    larger = summed[sizes.index(max(sizes))]
    pairs = sorted(range(len(larger)), key=lambda number: larger[number])
    summed = tuple([axes[number] for number in pairs] for axes in summed)
    operands, dimensions = [], []
    for value, first, last in zip(op.operands, batch, summed, strict=True):
        canonical, dimension = _one_contraction(value, first, last)
        operands.append(canonical)
        dimensions.append([] if dimension is None else [dimension])
    attribute = bindings.DotDimensionNumbers.get(leading, leading, *dimensions)
    shape = hlo.shape(op.results[0])
    return rebuild(op, operands, shape, {"dot_dimension_numbers": attribute})


def _one_contraction(
    value: ir.Value, batch: list[int], summed: list[int]
) -> tuple[ir.Value, int | None]:
    """`value` as [batch.., free.., K] or [batch.., K, free..], and where K stands; without a
    transpose where one of the two orders is there already."""
    shape = hlo.shape(value)
    free = [d for d in range(len(shape)) if d not in (*batch, *summed)]
    identity = list(range(len(shape)))
    before = [*batch, *summed, *free] == identity and bool(free)
    order = identity if before else [*batch, *free, *summed]
    sizes, total = [shape[d] for d in batch], prod(shape[d] for d in summed)
    free_sizes = [shape[d] for d in free]
    merged = [total] if summed else []
    new_shape = [*sizes, *merged, *free_sizes] if before else [*sizes, *free_sizes, *merged]
    position = len(sizes) if before else len(sizes) + len(free)
    moved = hlo.reshape(hlo.transpose(value, order), new_shape)
    return moved, position if summed else None


# --- Data movement -------------------------------------------------------------------------------


@RULES.on("gather")
def repeated_elements(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """All elements along one dimension, each as many times, are a broadcast."""
    numbers = bindings.GatherDimensionNumbers(op.attributes["dimension_numbers"])
    operand, indices = op.operands
    places = constant_attribute(indices)
    shape, sizes = hlo.shape(operand), hlo.shape(op.results[0])
    along = list(numbers.start_index_map)
    if places is None or len(along) != 1 or list(numbers.collapsed_slice_dims) != along:
        return None
    (dim,) = along
    whole = [n for d, n in enumerate(shape) if d != dim]
    others = [d for d in range(len(sizes)) if d != dim]
    times, rest = divmod(sizes[dim], shape[dim]) if len(sizes) == len(shape) else (0, 0)
    in_place = list(numbers.offset_dims) == others and [sizes[d] for d in others] == whole
    if not in_place or rest or times < 1 or numbers.operand_batching_dims:
        return None
    if not np.array_equal(weights.array(places).ravel(), np.repeat(np.arange(shape[dim]), times)):
        return None
    spread = [*shape[: dim + 1], times, *shape[dim + 1 :]]
    kept = [d for d in range(len(spread)) if d != dim + 1]
    return hlo.reshape(hlo.broadcast_in_dim(operand, spread, kept), sizes)


@RULES.on("gather")
def components_last(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """The components of indices in the last dimension, behind all batch dimensions."""
    numbers = bindings.GatherDimensionNumbers(op.attributes["dimension_numbers"])
    batch, vector = list(numbers.start_indices_batching_dims), numbers.index_vector_dim
    operand, indices = op.operands
    rank = len(hlo.shape(indices))
    if not batch or vector >= rank - 1:
        return None
    order = [*(d for d in range(rank) if d != vector), vector]
    attribute = bindings.GatherDimensionNumbers.get(
        list(numbers.offset_dims),
        list(numbers.collapsed_slice_dims),
        list(numbers.operand_batching_dims),
        [order.index(d) for d in batch],
        list(numbers.start_index_map),
        rank - 1,
    )
    moved = hlo.transpose(indices, order)
    shape = hlo.shape(op.results[0])
    return rebuild(op, [operand, moved], shape, {"dimension_numbers": attribute})


@dataclass(frozen=True)
class DecomposeForLinalg(Pass):
    """Write ops that the linalg level has no good form for in terms of others."""

    name: ClassVar[str] = "decompose-for-linalg"

    def run(self, op: ir.Operation, state: State) -> None:
        """Apply the rules until none matches."""
        rules = Rules(RULES)
        in_place = not isinstance(state.target, NvidiaTarget)  # concatenate-in-place

        @rules.on("convolution")
        def phases(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
            return _transposed_convolution(op, weights, in_place=in_place)

        @rules.on("convolution")
        def groups(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
            if not is_grouped(op):
                return None
            canonical = choose_layout.convolution(op, weights)
            if canonical is not None:
                return canonical
            if not is_taken_whole(op):
                return group_by_group(op)
            return None

        rules.apply(op, state.weights)
        if state.precision != "strict":  # a zero times infinity is not zero
            _join_groups(op, state)


def _join_groups(module: ir.Operation, state: State) -> None:
    """Join the groups of convolutions, in their canonical form."""
    found = [op for op in nested_operations(module) if op.name == "stablehlo.convolution"]
    for op in found:
        if not is_grouped(op) or not hlo.tensor_type(op.results[0]).has_static_shape:
            continue
        count = _joined_groups.count_of(op, state.target, state.f32_products)
        if count > 1:
            with ir.InsertionPoint(op), op.location:
                joined = _joined_groups.join(op, count)
            op.results[0].replace_all_uses_with(joined)
            op.erase()
