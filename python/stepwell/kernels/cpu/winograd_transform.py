"""The one-dimensional transforms of Winograd convolution, by Toom-Cook interpolation.

A row of `tile` results of a filter of r terms takes tile + r - 1 products: one for each finite
interpolation point, and one at infinity. Where the stride is 2, a filter is one of its even terms
on the even inputs and one of its odd terms on the odd ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from stepwell.kernels.builder import NestBuilder
from stepwell.mlir import ir

POINTS: dict[int, tuple[float, ...]] = {
    0: (),
    2: (1.0,),
    3: (1.0,),
    4: (0.4375, 1.375),
    5: (0.6875, 1.5),
    6: (0.3125, 0.8125, 1.875),
    7: (0.5, 1.0, 2.0),
}
"""By the number of finite points, the positive ones of the symmetric points; where the number is
odd, 0 is one more."""


@dataclass(frozen=True)
class Row:
    """`tile` results in a row, of a filter of `filter` terms."""

    tile: int
    filter: int
    stride: int = 1

    @property
    def terms(self) -> int:
        """Terms of the filter's even part, or of all of it."""
        return -(-self.filter // self.stride)

    @property
    def window(self) -> int:
        """Interpolation points, infinity with them: inputs of a tile, of each phase."""
        return self.tile + self.terms - 1

    @property
    def has_points(self) -> bool:
        """Whether there are points for it."""
        return self.window - 1 in POINTS

    @property
    def points(self) -> tuple[float, ...]:
        """The positive ones of the symmetric points."""
        return POINTS[self.window - 1]

    @property
    def has_zero(self) -> bool:
        """Whether 0 is one of the points."""
        return self.window % 2 == 0

    def matrices(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(A^T, G, B^T) in float64, infinity last."""
        zero = [0.0] if self.has_zero else []
        points = [*zero, *(s * p for p in self.points for s in (1, -1))]
        scale = [
            math.prod(a - b for j, b in enumerate(points) if j != i) for i, a in enumerate(points)
        ]
        output = np.array(
            [[p**i for p in points] + [float(i == self.tile - 1)] for i in range(self.tile)],
            np.float64,
        )
        weights = np.array(
            [[p**j / f for j in range(self.terms)] for p, f in zip(points, scale, strict=True)]
            + [[0.0] * (self.terms - 1) + [1.0]]
        )
        rows = []
        for i in range(len(points)):
            others = [p for j, p in enumerate(points) if j != i]
            rows.append([*_polynomial(others), 0.0])
        rows.append(_polynomial(points))
        return output, weights, np.array(rows)


class Transform:
    """Writes the transforms of a row; even and odd parts serve both points of a pair."""

    def __init__(self, nest: NestBuilder, row: Row) -> None:
        self.nest = nest
        self.tile = row.tile
        self.filter = row.filter
        self.window = row.window
        self.points = row.points
        self.has_zero = row.has_zero
        self.filter_rows = row.matrices()[1].tolist()

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
            for column in range(self.filter)
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
        if self.window == 1:
            return m
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


def _polynomial(roots: Sequence[float]) -> list[float]:
    """Coefficients of the product of (x - root), lowest power first."""
    return [float(c) for c in np.atleast_1d(np.poly(roots))[::-1]]


def _even_polynomial(points: Sequence[float]) -> list[float]:
    """Coefficients of the product of (y - p^2), a polynomial in y = x^2."""
    return _polynomial([p * p for p in points])
