"""Maxima and minima of windows that move by one point: neighbours have most of their columns in
common, so each column is combined once for all of them, then the columns of each window.

Of 5x5 windows 8 neighbours have 12 columns, which take 48 steps, and 28 more by doubling: the
maximum of two columns is found once for all windows that hold both, and so is that of four. Each
window by itself takes 24, 192 together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stepwell.kernels.structured import Structured, defining_op
from stepwell.mlir import ir

_IDEMPOTENT = (
    "arith.maximumf",
    "arith.minimumf",
    "arith.maxsi",
    "arith.minsi",
    "arith.maxui",
    "arith.minui",
    "arith.andi",
    "arith.ori",
)
"""Combiners that may take an element twice."""

_LEAST_POINTS, _MOST_POINTS = 3, 24

_APART = 4
"""Vector registers that a tile leaves to what is loaded and to the steps at its end."""

Moves = Sequence[tuple[int, ...]]
Join = Callable[[ir.Value, ir.Value], ir.Value]


def shared_input(op: Structured, moves: Sequence[Moves], extents: Sequence[int]) -> int | None:
    """Which input `op` takes the largest of, say, in two-dimensional windows that have columns in
    common with those of the next point, one element further on; None where it does no such thing.
    """
    *inputs, accumulator = op.body.arguments
    body = [child.operation for child in op.body.operations]
    last = defining_op(body[-1].operands[0])
    if len(body) != 2 or last is None or last.name not in _IDEMPOTENT:
        return None
    read = [n for n, value in enumerate(inputs) if {*last.operands} == {value, accumulator}]
    if not read or len(extents) != 2 or extents[1] < _LEAST_POINTS:
        return None
    _, point, _, column = moves[read[0]]
    return read[0] if any(point) and point == column else None


def tile_points(points: int, extents: Sequence[int], registers: int) -> int:
    """How many of `points` neighbouring outputs a tile takes, so that all take the fewest steps;
    one where registers do not hold the columns of more."""

    def steps(count: int) -> int:
        rows, columns = extents
        return (count - 1 + columns) * rows + count * columns.bit_length()

    def total(count: int) -> int:
        rest = points % count
        return points // count * steps(count) + (steps(rest) if rest else 0)

    most = min(points, _MOST_POINTS, registers - _APART - extents[1] + 1)
    return min(range(max(1, most), 0, -1), key=total)


def join_columns(columns: list[ir.Value], count: int, join: Join) -> list[ir.Value]:
    """What each run of `count` columns gives, from the first column on."""
    known = columns
    width = 1
    while 2 * width <= count:
        known = [join(a, b) for a, b in zip(known, known[width:], strict=False)]
        width *= 2
    if width == count:
        return known
    ends = known[count - width :]
    return [join(a, b) for a, b in zip(known, ends, strict=False)]
