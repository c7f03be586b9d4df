"""The sums of a warp's matrix instructions on their way to the outputs.

Thread t of a warp has the sums of row t / 4 of 8, and of every 8 columns the two at 2 (t mod 4): 8
bytes of 32 that lie together. Four threads of a row exchange theirs over 4 such groups of columns,
so that each has 8 neighbours, which the epilogue works on as a vector:

    group        0       1       2       3                 0 .. 7   8 .. 15  16 .. 23  24 .. 31
    thread 0     0 1     8 9     16 17   24 25      ->     thread 0
    thread 1     2 3     10 11   18 19   26 27                      thread 1
    ...
"""

from __future__ import annotations

from stepwell.kernels.builder import arith, vector
from stepwell.kernels.gpu.grid import GridBuilder
from stepwell.kernels.gpu.tile_space import TileSpace
from stepwell.kernels.index import Index
from stepwell.mlir import ir

GROUPS = 4
"""Groups of 8 columns that are exchanged: as many as threads have a part of a row."""

_GROUP = 8

Pair = tuple[ir.Value, ir.Value]


def exchange(nest: GridBuilder, lane: Index, pairs: list[Pair]) -> list[Pair]:
    """The pairs of group `lane` mod 4, in order, of four threads that each have their pair of
    groups 0 to 3: a transposition in two rounds, each of which swaps half of them."""
    moved = [list(pair) for pair in pairs]
    for bit in (1, 2):
        low = nest.below([(lane.mod(2 * bit), bit)])
        for group in range(GROUPS):
            if group & bit:
                continue
            for number in range(2):
                own, other = moved[group][number], moved[group | bit][number]
                given = arith.SelectOp(low, other, own).result
                taken = nest.shuffle_xor(given, bit)
                moved[group][number] = arith.SelectOp(low, own, taken).result
                moved[group | bit][number] = arith.SelectOp(low, taken, other).result
    return [(first, second) for first, second in moved]


def write_row(
    space: TileSpace,
    dims: list[Index],
    row: Index,
    column: Index,
    lane: Index,
    pairs: list[Pair],
    *,
    ordered: bool = False,
) -> None:
    """Write the outputs of one row from `column` on; `pairs` are this thread's, one of every 8
    columns, a multiple of `GROUPS`. With `ordered`, columns were multiplied in an order that gives
    each thread neighbours already. All threads of the warp take part."""
    nest = space.nest
    first = column + nest.named("part", lane.mod(GROUPS)) * _GROUP
    for start in range(0, len(pairs), GROUPS):
        some = pairs[start : start + GROUPS]
        numbers = [n for pair in (some if ordered else exchange(nest, lane, some)) for n in pair]
        total = vector.FromElementsOp(ir.VectorType.get([_GROUP], numbers[0].type), numbers).result
        space.finish(dims, row, first + start * _GROUP, total)
