"""Stream-K: the blocks of a grid share the tiles of its last rounds by equal numbers of steps.

With n blocks and t tiles of s steps each, whole rounds give every block one tile, as long as n
tiles or more are left behind them. Then come the t' tiles that are left, at most 2 n - 1 (all of
them where there are fewer than n): their t' s steps are cut in n shares, and the one of number i
begins with step floor(i t' s / n). Four blocks, and three tiles for them:

    tiles      |       0       |       1       |       2       |
    shares     |     0     |     1     |     2     |     3     |

Who has a tile's first step writes its outputs, and adds what others have of its sums before
(`partial_sums`): of tile 0, share 1 has the rest. Each begins with what it hands over and waits
behind all it has to do, so that nobody waits for one that waits. n is known at the launch, which
makes as many blocks as the GPU runs at a time; besides, shares are given out in reverse, so that
blocks wait for those of lower numbers, which the GPU starts first. With clusters, what is said here
of blocks and tiles is true of clusters, and of tiles below one another; each block hands over to
the one of its rank.

M. Osama, D. Merrill, C. Cecka, M. Garland, J. D. Owens: "Stream-K: Work-centric Parallel
Decomposition for Dense Matrix-Matrix Multiplication on the GPU", 2023.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stepwell.kernels.builder import Lanes, affine, arith
from stepwell.kernels.gpu import hopper
from stepwell.kernels.gpu.grid import GridBuilder, special_register
from stepwell.kernels.index import Index, Variable
from stepwell.mlir import ir

_BEYOND = 1 << 40
"""More than the steps of any contraction."""

_MORE, _AT_LEAST = 4, 5
"""Predicates of `arith.cmpi` on signed numbers."""


@dataclass(frozen=True)
class Share:
    """What a block does of the tile at `place`: the steps from the greater of `start` and 0 to the
    lesser of `stop` and all. The tile's other steps are those of the next `others` shares (a value
    of type index), or of some before (`is_begun`, a condition)."""

    place: Index
    start: Index
    stop: Index
    is_begun: ir.Value
    others: ir.Value


class StepShares:
    """The shares of the blocks of `nest` in `tiles` tiles of `steps` steps. There are as many steps
    at least as blocks; clusters divide both numbers."""

    def __init__(self, nest: GridBuilder, tiles: int, steps: int) -> None:
        self.nest = nest
        self.tiles = tiles = tiles // nest.cluster
        self.steps = steps
        with nest.at_top():
            one, self.length, size = (hopper.word(n) for n in (1, steps, nest.cluster))
            self.blocks = _quotient(special_register("nctaid"), size)
            place = _quotient(special_register("ctaid"), size)
            self.own = _minus(_minus(self.blocks, one), place)
            rounds = _minus(_most(_quotient(hopper.word(tiles), self.blocks), one), one)
            before = _times(rounds, self.blocks)
            self.shared = _times(_minus(hopper.word(tiles), before), self.length)
            self.skipped = _times(before, self.length)
            start, stop = (
                _quotient(_times(which, self.shared), self.blocks)
                for which in (self.own, _plus(self.own, one))
            )
            first = _plus(before, _quotient(start, self.length))
            last = _plus(before, _quotient(_minus(stop, one), self.length))
            start, stop = (_plus(step, self.skipped) for step in (start, stop))
            self.blocks_index, self.own_index = map(_as_index, (self.blocks, self.own))
            self.rounds = _variable("rounds", tiles, rounds)
            self.before = _variable("before", tiles, before)
            self.first = _variable("first_tile", tiles, first)
            self.last = _variable("last_tile", tiles, last)
            self.start = _variable("start", tiles * steps, start)
            self.stop = _variable("stop", tiles * steps, stop)

    def walk(
        self,
        block: Index,
        initial: Sequence[ir.Value],
        body: Callable[[Share, list[ir.Value]], Sequence[ir.Value]],
    ) -> None:
        """Do `body(share, carried)` for what the block does of each tile."""
        rank = block.mod(self.nest.cluster)

        def round_of_tiles(number: Variable, carried: list[ir.Value]) -> list[ir.Value]:
            place = affine.AffineLinearizeIndexOp(
                ir.IndexType.get(),
                [number.value, self.own_index],
                [self.blocks_index],
                [ir.ShapedType.get_dynamic_size()],
                disjoint=True,
            ).result
            whole = Index.of(Variable("whole_tile", 0, _BEYOND - 1, place))
            is_last = (Index.of(number) - self.rounds).floordiv(_BEYOND) + 1
            starts = [whole - is_last * _BEYOND, self.first + (is_last + (-1)) * _BEYOND]
            stops = [whole + 1 + is_last * _BEYOND, self.last + 1 + (is_last * -1 + 1) * _BEYOND]

            def do(tile: Variable, carried: list[ir.Value]) -> Sequence[ir.Value]:
                return body(self._share(tile, rank), carried)

            return self.nest.reduce_within("tile", starts, stops, self.tiles, carried, do)

        limit = self.tiles + 1
        self.nest.reduce_within(
            "round", [Index()], [self.rounds + 1], limit, initial, round_of_tiles
        )

    def _share(self, tile: Variable, rank: Index) -> Share:
        place = Index.of(tile)
        is_whole = (place - self.before).floordiv(_BEYOND) * -1
        start = self.start - place * self.steps - is_whole * _BEYOND
        stop = self.stop - place * self.steps + is_whole * _BEYOND
        begun = _compare(_MORE, self._value(start), 0)
        left = _compare(_AT_LEAST, self._value(stop), self.steps)
        # Of t' s steps, the one before `end` is in share ceil(end n / (t' s)) - 1.
        end = hopper.as_word(self._value((place + 1) * self.steps))
        ended = _minus(_times(_minus(end, self.skipped), self.blocks), hopper.word(1))
        others = _minus(_quotient(ended, self.shared), self.own)
        others = hopper.choose(left, hopper.word(0), others)
        return Share(place * self.nest.cluster + rank, start, stop, begun, _as_index(others))

    def _value(self, index: Index) -> ir.Value:
        return self.nest.index_value(index, Lanes.of(1))


def _variable(name: str, high: int, word: ir.Value) -> Index:
    return Index.of(Variable(name, 0, high, _as_index(word)))


def _as_index(word: ir.Value) -> ir.Value:
    return arith.IndexCastUIOp(ir.IndexType.get(), word).result


def _compare(predicate: int, value: ir.Value, other: int) -> ir.Value:
    limit = arith.ConstantOp(ir.IndexType.get(), other).result
    return arith.CmpIOp(predicate, value, limit).result


def _plus(one: ir.Value, other: ir.Value) -> ir.Value:
    return arith.AddIOp(one, other).result


def _minus(one: ir.Value, other: ir.Value) -> ir.Value:
    return arith.SubIOp(one, other).result


def _times(one: ir.Value, other: ir.Value) -> ir.Value:
    return arith.MulIOp(one, other).result


def _most(one: ir.Value, other: ir.Value) -> ir.Value:
    return arith.MaxUIOp(one, other).result


def _quotient(one: ir.Value, other: ir.Value) -> ir.Value:
    return arith.DivUIOp(one, other).result
