"""The one-dimensional transforms of Winograd convolution, by Toom-Cook interpolation.

A row of `tile` results of a filter of r terms takes tile + r - 1 products: one for each finite
interpolation point, and one at infinity. r is 3; where the stride is 2, a filter is one of two
terms on the even inputs and one of a single term on the odd ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from stepwell.kernels.builder import NestBuilder
from stepwell.mlir import ir

FILTER = 3

POINTS: dict[int, dict[int, tuple[float, ...]]] = {
    1: {2: (1.0,), 4: (0.6875, 1.5)},
    2: {2: (1.0,), 4: (0.4375, 1.375)},
}
"""By stride and output tile, the positive ones of the symmetric points; where the number of finite
points is odd, 0 is one more."""

TILES = tuple(POINTS[1])


def terms(stride: int) -> int:
    """Terms of a filter's row, of each phase of the input."""
    return -(-FILTER // stride)


def window_of(tile: int, stride: int) -> int:
    """Interpolation points, infinity with them: inputs of a tile's row, of each phase."""
    return tile + terms(stride) - 1


def _has_zero(tile: int, stride: int) -> bool:
    return window_of(tile, stride) % 2 == 0


def transform_matrices(tile: int, stride: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(A^T, G, B^T) in float64, infinity last."""
    zero = [0.0] if _has_zero(tile, stride) else []
    points = [*zero, *(s * p for p in POINTS[stride][tile] for s in (1, -1))]
    count = terms(stride)
    scale = [math.prod(a - b for j, b in enumerate(points) if j != i) for i, a in enumerate(points)]
    output = np.array(
        [[p**i for p in points] + [float(i == tile - 1)] for i in range(tile)], np.float64
    )
    weights = np.array(
        [[p**j / f for j in range(count)] for p, f in zip(points, scale, strict=True)]
        + [[0.0] * (count - 1) + [1.0]]
    )
    rows = []
    for i in range(len(points)):
        others = [p for j, p in enumerate(points) if j != i]
        rows.append([*np.poly(others)[::-1], 0.0])
    rows.append(list(np.poly(points)[::-1]))
    return output, weights, np.array(rows)


class Transform:
    """Writes the transforms of a row; even and odd parts serve both points of a pair."""

    def __init__(self, nest: NestBuilder, tile: int, stride: int) -> None:
        self.nest = nest
        self.tile = tile
        self.points = POINTS[stride][tile]
        self.has_zero = _has_zero(tile, stride)
        self.filter_rows = transform_matrices(tile, stride)[1].tolist()

    def of_input(self, d: list[ir.Value], infinity: bool = True) -> list[ir.Value]:
        """B^T d; without `infinity`, d has an element less, and so has the result."""
        rows = []
        skip = int(self.has_zero)  # a point at 0 is a factor x of the other polynomials
        if self.has_zero:
            rows.append(self._combine(_even_polynomial(self.points), d[0::2]))
        for number, point in enumerate(self.points):
            others = _even_polynomial([p for i, p in enumerate(self.points) if i != number])
            factor = self._combine(others, d[skip::2])
            power = self._combine(others, d[skip + 1 :: 2])
            rows.append(self._scaled_sum(factor, point, power))
            rows.append(self._scaled_sum(factor, -point, power))
        if infinity:
            rows.append(self._combine(_even_polynomial(self.points), d[skip::2]))
        return rows

    def row_of_filter(self, row: int, w: Sequence[Sequence[ir.Value]]) -> list[ir.Value]:
        """One row of G w; `w` is a filter by rows."""
        factors = self.filter_rows[row]
        used = [i for i, factor in enumerate(factors) if factor != 0.0]
        return [
            self._combine([factors[i] for i in used], [w[i][column] for i in used])
            for column in range(FILTER)
        ]

    def of_filter(self, g: list[ir.Value]) -> Iterator[ir.Value]:
        """G g, element by element, with a stride of 1."""
        *finite, _ = self.filter_rows
        first = int(self.has_zero)
        for row in finite[:first]:
            yield self.nest.scaled(g[0], row[0])
        for plus, minus in zip(finite[first::2], finite[first + 1 :: 2], strict=True):
            even, odd = (self._combine(plus[i::2], g[i::2]) for i in (0, 1))
            yield self.nest.add(even, odd)
            opposite = minus[0] != plus[0]  # the scale has another sign at -p
            yield self.nest.subtract(*((odd, even) if opposite else (even, odd)))
        yield g[-1]

    def of_output(self, m: list[ir.Value]) -> list[ir.Value]:
        """A^T m."""
        first, last = int(self.has_zero), len(m) - 1
        pairs = [(m[i], m[i + 1]) for i in range(first, last, 2)]
        sums = [self.nest.add(a, b) for a, b in pairs]
        differences = [self.nest.subtract(a, b) for a, b in pairs]
        results = []
        for power in range(self.tile):
            parts = differences if power % 2 else sums
            total = self._combine([p**power for p in self.points], parts)
            if power == 0 and self.has_zero:
                total = self.nest.add(total, m[0])
            if power == self.tile - 1:
                total = self.nest.add(total, m[last])
            results.append(total)
        return results

    def _combine(self, factors: Sequence[float], values: Sequence[ir.Value]) -> ir.Value:
        """Sum of factor * value, a factor of one costing nothing."""
        order = sorted(zip(factors, values, strict=False), key=lambda pair: pair[0] != 1.0)
        factor, value = order[0]
        total = value if factor == 1.0 else self.nest.scaled(value, factor)
        for factor, value in order[1:]:
            total = self._scaled_sum(value, factor, total)
        return total

    def _scaled_sum(self, value: ir.Value, factor: float, addend: ir.Value) -> ir.Value:
        if factor == 1.0:
            return self.nest.add(addend, value)
        if factor == -1.0:
            return self.nest.subtract(addend, value)
        return self.nest.fma(value, self.nest.splat_like(value, factor), addend)


def _even_polynomial(points: Sequence[float]) -> list[float]:
    """Coefficients of the product of (y - p^2), lowest power first: a polynomial in y = x^2."""
    return [float(c) for c in np.atleast_1d(np.poly([p * p for p in points]))[::-1]]
