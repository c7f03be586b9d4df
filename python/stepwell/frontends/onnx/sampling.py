"""Reading tensors between their elements: interpolation at computed coordinates."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.frontends.onnx.shaping import reduce
from stepwell.mlir import ir


@dataclass(frozen=True)
class Tap:
    """One neighbour of every point along one dimension: its index and its weight.

    The index is an integral float, perhaps out of bounds; all are of one shape [batch, points].
    """

    index: ir.Value
    weight: ir.Value


Pad = Callable[[ir.Value, int], tuple[ir.Value, ir.Value | None]]
"""`pad(index, size)`: the index moved into bounds, and where it counts (None: everywhere)."""


def nearest_taps(position: ir.Value) -> list[Tap]:
    """The nearest element, ties to even."""
    return [Tap(hlo.round_nearest_even(position), hlo.full_like(position, 1))]


def linear_taps(position: ir.Value) -> list[Tap]:
    """The two elements around the position."""
    low = hlo.floor(position)
    fraction = hlo.subtract(position, low)
    one = hlo.full_like(fraction, 1)
    return [Tap(low, hlo.subtract(one, fraction)), Tap(hlo.add(low, one), fraction)]


def cubic_taps(position: ir.Value, a: float = -0.75) -> list[Tap]:
    """Four elements, weighted by Keys's cubic convolution (IEEE Trans. ASSP 29, 1981)."""
    low = hlo.floor(position)
    fraction = hlo.subtract(position, low)

    def polynomial(x: ir.Value, *coefficients: float) -> ir.Value:
        total = hlo.full_like(x, coefficients[0])
        for c in coefficients[1:]:
            total = hlo.add(hlo.multiply(total, x), hlo.full_like(x, c))
        return total

    taps: list[Tap] = []
    for offset in (-1, 0, 1, 2):
        distance = hlo.abs(hlo.subtract(fraction, hlo.full_like(fraction, offset)))
        if offset in (0, 1):
            weight = polynomial(distance, a + 2, -(a + 3), 0, 1)
        else:
            weight = polynomial(distance, a, -5 * a, 8 * a, -4 * a)
        taps.append(Tap(hlo.add(low, hlo.full_like(low, offset)), weight))
    return taps


def clamp(x: ir.Value, low: float, high: float) -> ir.Value:
    """x limited to [low, high]."""
    return hlo.maximum(hlo.minimum(x, hlo.full_like(x, high)), hlo.full_like(x, low))


def pad_with_zeros(index: ir.Value, size: int) -> tuple[ir.Value, ir.Value | None]:
    """Elements out of bounds count as zero."""
    inside = hlo.and_(
        hlo.compare(index, hlo.full_like(index, 0), "GE"),
        hlo.compare(index, hlo.full_like(index, size - 1), "LE"),
    )
    return clamp(index, 0, size - 1), inside


def pad_with_border(index: ir.Value, size: int) -> tuple[ir.Value, ir.Value | None]:
    """Elements out of bounds are those of the border."""
    return clamp(index, 0, size - 1), None


def reflect(x: ir.Value, low: float, high: float) -> ir.Value:
    """x mirrored at both bounds until it lies between them; itself where it does already."""
    if high <= low:
        return hlo.full_like(x, low)
    span = hlo.full_like(x, high - low)
    distance = hlo.abs(hlo.subtract(x, hlo.full_like(x, low)))
    flips = hlo.floor(hlo.divide(distance, span))
    rest = hlo.subtract(distance, hlo.multiply(flips, span))
    half = hlo.multiply(flips, hlo.full_like(flips, 0.5))
    even = hlo.compare(half, hlo.floor(half), "EQ")
    mirrored = hlo.select(
        even,
        hlo.add(hlo.full_like(x, low), rest),
        hlo.subtract(hlo.full_like(x, high), rest),
    )
    inside = hlo.and_(
        hlo.compare(x, hlo.full_like(x, low), "GE"), hlo.compare(x, hlo.full_like(x, high), "LE")
    )
    return hlo.select(inside, x, mirrored)


def interpolate(
    x: ir.Value, sizes: Sequence[int], taps: Sequence[Sequence[Tap]], pad: Pad
) -> ir.Value:
    """x [batch, prod(sizes), channels] at the points of `taps`: [batch, points, channels].

    One gather of rows for all combinations of taps, then their weighted sum.
    """
    values, weights = combinations(x, sizes, taps, pad)
    shape = hlo.shape(values)
    return reduce(
        hlo.multiply(values, hlo.broadcast_in_dim(weights, shape, [0, 1, 2])), [2], "add", False
    )


def combinations(
    x: ir.Value, sizes: Sequence[int], taps: Sequence[Sequence[Tap]], pad: Pad
) -> tuple[ir.Value, ir.Value]:
    """What `interpolate` adds up: values [batch, points, taps, channels], weights without the
    channels."""
    batch, points = hlo.shape(taps[0][0].index)
    placed = [
        [_place(tap, pad, size) for tap in row] for row, size in zip(taps, sizes, strict=True)
    ]
    positions: list[ir.Value] = []
    factors: list[ir.Value] = []
    for chosen in itertools.product(*placed):
        flat = chosen[0][0]
        for (index, _), size in zip(chosen[1:], sizes[1:], strict=True):
            flat = hlo.add(hlo.multiply(flat, hlo.full_like(flat, size)), index)
        positions.append(hlo.reshape(flat, [batch, points, 1]))
        weight = functools.reduce(hlo.multiply, [weight for _, weight in chosen])
        factors.append(hlo.reshape(weight, [batch, points, 1]))
    count, channels = len(positions), hlo.shape(x)[2]
    index = hlo.reshape(_joined(positions), [batch, points, count, 1])
    dimensions = hlo.GatherDimensions([3], [1], [1], 3, [0], [0])
    return hlo.gather(x, index, dimensions, [1, 1, channels]), _joined(factors)


def _place(tap: Tap, pad: Pad, size: int) -> tuple[ir.Value, ir.Value]:
    index, counts = pad(tap.index, size)
    weight = tap.weight
    if counts is not None:
        weight = hlo.select(counts, weight, hlo.full_like(weight, 0))
    return hlo.convert(index, np.int64), weight


def _joined(parts: list[ir.Value]) -> ir.Value:
    return parts[0] if len(parts) == 1 else hlo.concatenate(parts, 2)
