"""Sizes that strides divide, and paddings up to multiples: how much is in use of what convolutions,
windows, slices and paddings give.

    %y = stablehlo.convolution(%x, %w) window = {stride = [2], pad = [[1, 1]]}

of `s0` elements and a filter of 3 gives `(s0 - 1) floordiv 2 + 1`; padding `s0` elements to a
multiple of 32, `32*((s0 + 31) floordiv 32)`. What is computed here is not looked for among
functions that have the sizes of a few programs: many would.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.errors import ModelError
from stepwell.extents import Extent, Points, has
from stepwell.kernels.structured import source_name
from stepwell.mlir import ir, nested_operations
from stepwell.mlir import stablehlo as bindings

_LEAST_SEEN = 2
"""So many sizes below a limit are looked at."""


class UntoldSizesError(ModelError):
    """The sizes that were looked at do not tell those of others: `wanted` ones are missing."""

    def __init__(self, message: str, wanted: Callable[[Sequence[int]], bool]) -> None:
        super().__init__(message)
        self.wanted = wanted


@dataclass(frozen=True)
class _Axis:
    """A dimension along which windows move: of `size` elements, with `dilation - 1` between each
    two, there are `(last + rest) floordiv stride + 1` windows, `last` being the place of the last
    element. `rests` has one number for each program, which differ where padding does."""

    operand: int
    result: int
    stride: int
    dilation: int
    rests: tuple[int, ...]


def moved(
    ops: Sequence[ir.Operation], operand: Sequence[Extent], points: Points
) -> dict[int, Extent]:
    """The extents of the dimensions of the result in which `ops`, one operation in programs for the
    sizes `points`, take steps or pad as many elements as the size asks for; `operand` has those of
    the operand. Raises ModelError where there is no one function of the sizes."""
    if ops[0].name == "stablehlo.pad":
        return _padded(ops, operand, points)
    return _strided(ops, operand, points)


def _padded(
    ops: Sequence[ir.Operation], operand: Sequence[Extent], points: Points
) -> dict[int, Extent]:
    """Paddings that differ, of which all are seen from the least to one less than the step."""
    low, high = (
        list(zip(*(ir.DenseI64ArrayAttr(op.attributes[name]) for op in ops), strict=True))
        for name in ("edge_padding_low", "edge_padding_high")
    )
    found = {}
    for d, pads in enumerate(high):
        sizes = [hlo.shape(op.results[0])[d] for op in ops]
        step = max(pads) - min(pads) + 1
        if step == 1 or len(set(low[d])) > 1 or any((n - sizes[0]) % step for n in sizes):
            continue
        steps = {step, math.gcd(*(n - sizes[0] for n in sizes))} - {0}
        first = operand[d].plus(Extent.of(low[d][0] + min(pads)))
        every = [_up_to_multiple(first, n, sizes[0] % n) for n in steps]
        fitting = [extent for extent in every if has(points, sizes, extent)]
        if len(fitting) > 1:
            one, other = fitting
            raise UntoldSizesError(
                f"{source_name(ops[0])}: whether it pads to {one} or {other} is not known",
                lambda point, one=one, other=other: one.at(point) != other.at(point),
            )
        if fitting:
            found[d] = fitting[0]
    return found


def _up_to_multiple(extent: Extent, step: int, rest: int) -> Extent:
    """The least number from `extent` on that leaves `rest` when `step` divides it."""
    multiples = extent.plus(Extent.of(step - 1 - rest)).floordiv(step)
    return multiples.times(Extent.of(step)).plus(Extent.of(rest))


def _strided(
    ops: Sequence[ir.Operation], operand: Sequence[Extent], points: Points
) -> dict[int, Extent]:
    """Steps of more than one, and those along dimensions between whose elements are others."""
    found = {}
    for axis in _axes(ops):
        extent = operand[axis.operand]
        if axis.stride == axis.dilation == 1 or extent.is_constant:
            continue
        values = [hlo.shape(op.results[0])[axis.result] for op in ops]
        try:
            found[axis.result] = _windows(axis, extent, points, values)
        except ModelError as error:
            error.args = (f"{source_name(ops[0])}: {error}",)
            raise
    return found


def _windows(axis: _Axis, extent: Extent, points: Points, values: Sequence[int]) -> Extent:
    """How many windows there are, of which `values` are known.

    What is padded may depend on the size: for a last window that elements do not fill, or for as
    many windows as elements. It cannot have stayed the same by chance when it was seen for two
    sizes of other rests by the stride, one of them such that any more would be another window.
    """
    stride = axis.stride
    last = extent.plus(Extent.of(1), -1).times(Extent.of(axis.dilation))
    fitting = set()
    for rest in range(max(axis.rests), min(axis.rests) + stride):
        windows = last.plus(Extent.of(rest)).floordiv(stride).plus(Extent.of(1))
        if has(points, values, windows):
            fitting.add(windows)
    lasts = {last.at(point) % stride for point in points}
    full = -1 - max(axis.rests)
    listed = ", ".join(map(str, values))
    if not fitting:
        raise ModelError(f"{listed} windows are no function of the sizes")
    if len(fitting) > 1 or (len(lasts) == 1 and _changes(last, stride)):
        missing = next(n % stride for n in (full, full + 1) if n % stride not in lasts)
        raise UntoldSizesError(
            f"{listed} windows tell no others", lambda point: last.at(point) % stride == missing
        )
    return fitting.pop()


def _changes(extent: Extent, divisor: int) -> bool:
    """Whether it is not always the same what is left of `extent` by `divisor`."""
    terms, _ = extent.split()
    return any(factor % divisor for _, factor in terms)


def first_few(
    op: ir.Operation,
    shapes: Sequence[Sequence[int]],
    operand: Sequence[Extent],
    points: Points,
) -> dict[int, Extent]:
    """The extents of the dimensions of the result along which a slice takes the first elements, so
    many at most; in programs for the sizes `points` it has `shapes`. Raises UntoldSizesError where
    too few of these were below that number."""
    starts, strides = (numbers(op.attributes[name]) for name in ("start_indices", "strides"))
    found = {}
    for d, values in enumerate(zip(*shapes, strict=True)):
        limit, sizes = max(values), [operand[d].at(point) for point in points]
        is_first = not (starts or [1])[d] and (strides or [0])[d] == 1
        is_limited = list(values) == [min(n, limit) for n in sizes] != sizes
        if min(values) == limit or not is_first or not is_limited:
            continue
        below = {n for n in sizes if n < limit}
        if len(below) < _LEAST_SEEN:
            raise UntoldSizesError(
                f"{source_name(op)}: whether it takes {limit} elements at most is not known",
                lambda point, whole=operand[d], limit=limit, below=below: (
                    whole.at(point) < limit and whole.at(point) not in below
                ),
            )
        found[d] = operand[d].limited(limit)
    return found


def moves(op: ir.Operation) -> bool:
    """Whether `op` is one of those that `moved` is for."""
    name = op.name.removeprefix("stablehlo.")
    return name in ("slice", "convolution", "reduce_window", "pad")


def takes_steps(program: ir.Operation) -> bool:
    """Whether an operation of `program` has strides of more than one."""
    names = ("window_strides", "strides")
    found = (op.attributes.get(name) for op in nested_operations(program) for name in names)
    return any(max(numbers(strides) or [1]) > 1 for strides in found)


def has_unlike_ends(ops: Sequence[ir.Operation]) -> bool:
    """Whether `ops` are strided windows that differ by the padding behind the elements alone.
    That of the largest size is right for all, since it stands beyond what is in use."""
    if ops[0].name not in ("stablehlo.convolution", "stablehlo.reduce_window"):
        return False
    strides = numbers(ops[0].attributes.get("window_strides")) or []
    edges = [numbers(op.attributes.get("padding")) or [0] * 2 * len(strides) for op in ops]
    columns = [set(column) for column in zip(*edges, strict=True)]
    unlike = [place for place, column in enumerate(columns) if len(column) > 1]
    return all(place % 2 == 1 and strides[place // 2 :][:1] > [1] for place in unlike)


def paddings(
    ops: Sequence[ir.Operation],
    operand: Sequence[Extent],
    result: Sequence[Extent],
    points: Points,
) -> list[Extent] | None:
    """What is padded in front of and behind each dimension of windows, for as many of them as there
    are elements by the stride: half of what they reach further than these. None where it is not."""
    edges = [numbers(op.attributes.get("padding")) or [] for op in ops]
    columns = list(zip(*edges, strict=False))
    found = [Extent.of(column[0]) for column in columns]
    for number, axis in enumerate(_axes(ops)):
        fronts, ends = columns[2 * number : 2 * number + 2]
        if len(set(fronts)) == 1:
            if len(set(ends)) > 1 and axis.stride == 1:
                return None
            continue
        last = operand[axis.operand].plus(Extent.of(1), -1).times(Extent.of(axis.dilation))
        reach = fronts[0] + ends[0] - axis.rests[0]
        begin = result[axis.result].plus(Extent.of(1), -1).times(Extent.of(axis.stride))
        total = begin.plus(Extent.of(reach)).plus(last, -1)
        halves = (total.floordiv(2), total.plus(Extent.of(1)).floordiv(2))
        front = next((half for half in halves if has(points, fronts, half)), None)
        if front is None:
            return None
        found[2 * number : 2 * number + 2] = front, total.plus(front, -1)
    return found


_ELEMENTWISE = (
    *("add", "subtract", "multiply", "divide", "maximum", "minimum", "power", "remainder"),
    *("and", "or", "xor", "not", "compare", "select", "clamp", "convert", "exponential", "log"),
    *("tanh", "logistic", "sqrt", "rsqrt", "negate", "abs", "sine", "cosine", "floor", "ceil"),
)
"""Common ones, whose sizes are those of what they are used with."""

_WITHOUT_SIZES = ("iota", "dynamic_iota", "constant", "broadcast_in_dim", "rng_bit_generator")


def has_free_sizes(ops: Sequence[ir.Operation]) -> bool:
    """Whether the operands of `ops` do not tell the sizes of their results."""
    name = ops[0].name.removeprefix("stablehlo.")
    if name in _WITHOUT_SIZES:
        return True
    if name == "slice":
        return any(len(set(axis.rests)) > 1 for axis in _slice(ops))
    names = ("padding", "slice_sizes", "edge_padding_low", "edge_padding_high")
    return any(len({str(op.attributes.get(name)) for op in ops}) > 1 for name in names)


def same_places(op: ir.Operation, rank: int) -> dict[int, int]:
    """Where the result of `op` has the dimensions of an operand of so many; empty where it may have
    others."""
    name = op.name.removeprefix("stablehlo.")
    if name in _ELEMENTWISE:
        return {d: d for d in range(rank)}
    if name == "concatenate":
        joined = ir.IntegerAttr(op.attributes["dimension"]).value
        return {d: d for d in range(rank) if d != joined}
    if name == "broadcast_in_dim":
        return dict(enumerate(numbers(op.attributes["broadcast_dimensions"]) or ()))
    return {}


def numbers(attribute: ir.Attribute | None) -> list[int] | None:
    """The elements of an array attribute in order; None for other attributes."""
    if attribute is not None and isinstance(attribute, ir.DenseI64ArrayAttr):
        return list(ir.DenseI64ArrayAttr(attribute))
    if isinstance(attribute, ir.DenseIntElementsAttr):
        return np.array(attribute).reshape(-1).tolist()
    return None


def _axes(ops: Sequence[ir.Operation]) -> Iterator[_Axis]:
    name = ops[0].name.removeprefix("stablehlo.")
    if name == "slice":
        yield from _slice(ops)
    elif name == "convolution":
        yield from _convolution(ops)
    elif name == "reduce_window" and len(ops[0].results) == 1:
        rank = len(hlo.shape(ops[0].results[0]))
        sizes = numbers(ops[0].attributes["window_dimensions"]) or []
        places = [(d, d) for d in range(rank)]
        yield from _moved(ops, places, sizes, ("base_dilations", "window_dilations"))


def _slice(ops: Sequence[ir.Operation]) -> Iterator[_Axis]:
    steps = numbers(ops[0].attributes["strides"]) or []
    for dimension, stride in enumerate(steps):
        rests = []
        for op in ops:
            start, limit = (
                ir.DenseI64ArrayAttr(op.attributes[f"{name}_indices"])[dimension]
                for name in ("start", "limit")
            )
            rests.append(limit - hlo.shape(op.operands[0])[dimension] - start)
        yield _Axis(dimension, dimension, stride, 1, tuple(rests))


def _convolution(ops: Sequence[ir.Operation]) -> Iterator[_Axis]:
    layout = bindings.ConvDimensionNumbers(ops[0].attributes["dimension_numbers"])
    spatial = zip(layout.input_spatial_dimensions, layout.output_spatial_dimensions, strict=True)
    filters = hlo.shape(ops[0].operands[1])
    sizes = [filters[d] for d in layout.kernel_spatial_dimensions]
    yield from _moved(ops, list(spatial), sizes, ("lhs_dilation", "rhs_dilation"))


def _moved(
    ops: Sequence[ir.Operation],
    places: Sequence[tuple[int, int]],
    sizes: Sequence[int],
    dilations: tuple[str, str],
) -> Iterator[_Axis]:
    """Windows of `sizes` along `places`: dimensions of the operand and of the result."""
    count = len(places)
    first = ops[0].attributes
    strides = numbers(first.get("window_strides")) or [1] * count
    inside, apart = (numbers(first.get(name)) or [1] * count for name in dilations)
    edges = [numbers(op.attributes.get("padding")) or [0] * 2 * count for op in ops]
    for d, (operand, result) in enumerate(places):
        reach = (sizes[d] - 1) * apart[d]
        rests = tuple(pads[2 * d] + pads[2 * d + 1] - reach for pads in edges)
        yield _Axis(operand, result, strides[d], inside[d], rests)
