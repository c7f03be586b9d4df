"""Sums whose parts are the elements of a vector each: these are added up, four sums at a time.

    a0 a1 a2 a3    b0 b1 b2 b3    c0 c1 c2 c3    d0 d1 d2 d3
    a0+a2 b0+b2 a1+a3 b1+b3                      c0+c2 d0+d2 c1+c3 d1+d3
    a     b     c     d

Longer vectors do so by fours, which are added in halves.
"""

from __future__ import annotations

from collections.abc import Sequence

from stepwell.kernels.builder import arith, vector
from stepwell.mlir import ir

_FOUR = 4


def add_parts(sums: Sequence[ir.Value], columns: int) -> list[ir.Value]:
    """Of each row of `columns` sums, at most eight, a vector of them; a number where it is one."""
    if columns <= _FOUR // 2:
        rows_at_once = _FOUR // columns
        found = []
        for start in range(0, len(sums), _FOUR):
            four = _four(sums[start : start + _FOUR])
            rows = min(rows_at_once, (len(sums) - start) // columns)
            found += [_taken(four, row * columns, columns) for row in range(rows)]
        return found
    return [_row(sums[start : start + columns]) for start in range(0, len(sums), columns)]


def _row(sums: Sequence[ir.Value]) -> ir.Value:
    first = _four(sums[:_FOUR])
    if len(sums) <= _FOUR:
        return _taken(first, 0, len(sums))
    return _shuffled(first, _four(sums[_FOUR:]), range(len(sums)))


def _four(sums: Sequence[ir.Value]) -> ir.Value:
    """A vector of four sums; the last one again for those that lack."""
    a, b, c, d = [*sums, *[sums[-1]] * (_FOUR - len(sums))]
    count = a.type.shape[0]
    fours = range(0, count, _FOUR)

    def shuffled(x: ir.Value, y: ir.Value, places: Sequence[int]) -> ir.Value:
        """Of each four, these places of the eight that x and y have."""
        both = [place % _FOUR + place // _FOUR * count for place in places]
        return _shuffled(x, y, [four + place for four in fours for place in both])

    def joined(x: ir.Value, y: ir.Value, low: Sequence[int], high: Sequence[int]) -> ir.Value:
        return _added(shuffled(x, y, low), shuffled(x, y, high))

    ab, cd = (joined(x, y, (0, 4, 1, 5), (2, 6, 3, 7)) for x, y in ((a, b), (c, d)))
    total = joined(ab, cd, (0, 1, 4, 5), (2, 3, 6, 7))
    while count > _FOUR:
        count //= 2
        total = _added(_taken(total, 0, count), _taken(total, count, count))
    return total


def _added(x: ir.Value, y: ir.Value) -> ir.Value:
    return arith.AddFOp(x, y).result


def _shuffled(x: ir.Value, y: ir.Value, places: Sequence[int]) -> ir.Value:
    return vector.ShuffleOp(x, y, list(places)).result


def _taken(value: ir.Value, begin: int, count: int) -> ir.Value:
    """`count` elements from `begin` on; a number where that is one."""
    if count == 1:
        return vector.ExtractOp(value, [], [begin]).result
    if count == value.type.shape[0]:
        return value
    kind = ir.VectorType.get([count], value.type.element_type)
    return vector.ExtractStridedSliceOp(kind, value, [begin], [count], [1]).result
