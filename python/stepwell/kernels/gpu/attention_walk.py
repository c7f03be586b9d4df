"""Which tiles of keys a block of an attention walks over: not those that its queries do not see,
and only its own where the keys are split into parts, whose outputs another kernel joins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from stepwell.kernels.builder import Lanes, vector
from stepwell.kernels.gpu.attention import AttentionParts, BlockTile, lane_count
from stepwell.kernels.gpu.grid import GridBuilder
from stepwell.kernels.group import KernelGroup
from stepwell.kernels.index import Index, Variable, constant
from stepwell.mlir import ir


@dataclass(frozen=True)
class Walk:
    """What a block is given: queries of matrix `which` from `start` on, and of the tiles of keys,
    which are `tiles`, those of `part` from `first` on: `count` of them, and those before `seen`
    that are in use, before `used`. With a `window`, no query sees a key of the tiles before it (it
    may be negative)."""

    which: Index
    start: Index
    part: Index
    first: Index
    count: int
    seen: Index
    used: Index
    tiles: int
    window: Index | None = None

    @staticmethod
    def of(nest: GridBuilder, parts: AttentionParts, tile: BlockTile, block: Index) -> Walk:
        """That of block number `block`. Queries that see most keys come first, of all matrices: the
        GPU begins blocks in order, and is to end with short ones."""
        tiles = -(-parts.keys // tile.keys)
        count = parts.tiles_of_part(tile.keys)
        down = parts.blocks_of(tile.queries)
        part = nest.named("part", block.mod(parts.key_parts))
        block = block.floordiv(parts.key_parts)
        number, which = block.mod(down), block.floordiv(down)
        if parts.diagonal is not None:
            number = block.floordiv(parts.batch) * -1 + (down - 1)
            which = block.mod(parts.batch)
        start = nest.named("start", number * tile.queries)
        seen = constant(tiles)
        if parts.diagonal is not None:
            offset, period = parts.diagonal
            last = start.mod(period) + max(tile.queries - 1 + offset, 0)
            seen = nest.named("seen", last.floordiv(tile.keys) + 1)
        used = constant(tiles)
        if parts.used_keys is not None:
            last = parts.used_keys.count + (tile.keys - 1)
            used = nest.named("used", last.floordiv(tile.keys))
        which = nest.named("which", which)
        window = _window(parts, tile, start)
        return Walk(which, start, part, part * count, count, seen, used, tiles, window)

    @contextmanager
    def begun(self, nest: GridBuilder) -> Iterator[Walk]:
        """The walk from the first tile on of which a query may see a key."""
        if self.window is None:
            yield self
            return
        with nest.once("first", self.window, self.tiles) as first:
            yield replace(self, first=Index.of(first))

    def over(
        self,
        nest: GridBuilder,
        initial: list[ir.Value],
        body: Callable[[Index, list[ir.Value]], list[ir.Value]],
    ) -> list[ir.Value]:
        """A loop over the tiles that carries values: `body(tile, carried)` returns the next
        ones."""

        def step(number: Variable, carried: list[ir.Value]) -> list[ir.Value]:
            return body(self.first + Index.of(number), carried)

        ends = [end - self.first for end in (self.seen, self.used, constant(self.tiles))]
        return nest.reduce_until("tile", ends, self.count, initial, step)

    def sees_all(
        self,
        number: Index,
        parts: AttentionParts,
        tile: BlockTile,
        diagonal: tuple[int, int] | None,
    ) -> list[tuple[Index, int]]:
        """The bounds, for `GridBuilder.below`, of a tile whose keys are all there, and seen by all
        queries of the block, where those see what `LinearScores.diagonal` says."""
        keys = constant(parts.keys) if parts.used_keys is None else parts.used_keys.count
        ends = [keys.floordiv(tile.keys)]
        if diagonal is not None:
            offset, period = diagonal
            in_order = period == parts.queries or period % tile.queries == 0
            first = self.start.mod(period) if in_order else constant(0)
            ends.append((first + (offset + 1)).floordiv(tile.keys))
        return [(number - end + max(end.high, 0), max(end.high, 0)) for end in ends]

    def has(self, number: Index) -> list[tuple[Index, int]]:
        """The bounds, for `GridBuilder.where`, of a tile that the loop comes to, in front of which
        it has come to another one."""
        bounds = [(number, self.tiles), (number - self.first, self.count)]
        for end in (self.seen, self.used):
            if not end.is_constant:
                bounds.append((number - end + self.tiles, self.tiles))
        return bounds


def _window(parts: AttentionParts, tile: BlockTile, start: Index) -> Index | None:
    """The first tile of which a query of the block at `start` may see a key; None where blocks have
    parts of the keys, or queries of two masks."""
    if parts.window is None or parts.key_parts > 1:
        return None
    offset, period = parts.window
    if period != parts.queries and period % tile.queries:
        return None
    return (start.mod(period) + offset).floordiv(tile.keys)


class PartOutputs:
    """The outputs of a kernel that sees parts of the keys (`PARTS`)."""

    def __init__(self, group: KernelGroup, nest: GridBuilder, parts: AttentionParts) -> None:
        self.nest, self.parts = nest, parts
        self.values, *self.softmax = (output.buffer for output in group.outputs)

    def write(self, walk: Walk, row: Index, column: Index, value: ir.Value) -> None:
        """Write neighbouring columns of a row's output."""
        count, n = lane_count(value), self.parts.values_shape.n
        lanes = Lanes.of(count if n % count == 0 else 1)
        for start in range(0, count, lanes.count):
            bounds = [(row, self.parts.queries), (column + start, n)]
            with self.nest.where(bounds):
                piece = value if lanes.count > 1 else vector.ExtractOp(value, [], [start]).result
                at = [walk.part, self._row(walk, row), column + start + lanes.index]
                self.nest.store(piece, self.values, at, lanes)

    def write_softmax(self, walk: Walk, row: Index, column: Index, found: list[ir.Value]) -> None:
        """Let the thread of column 0 write a row's maximum and the sum of its weights."""
        with self.nest.where([(row, self.parts.queries), (column, 1)]):
            for value, buffer in zip(found, self.softmax, strict=True):
                self.nest.store(value, buffer, [walk.part, self._row(walk, row)], Lanes.of(1))

    def _row(self, walk: Walk, row: Index) -> Index:
        return walk.which * self.parts.queries + row
