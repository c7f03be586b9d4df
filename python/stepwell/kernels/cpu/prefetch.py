"""What a contraction asks for before it needs it: its results, and what comes next of its rhs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from stepwell.kernels.builder import NestBuilder
from stepwell.kernels.cpu.contraction_strategy import (
    TURN,
    ContractionShape,
    ContractionStrategy,
    steps_at_once,
)
from stepwell.kernels.cpu.register_tile import RegisterTile
from stepwell.kernels.group import KernelGroup, accesses
from stepwell.kernels.index import Index, apply_map, linearize
from stepwell.kernels.structured import Structured, element_type, shape_of
from stepwell.kernels.widened_weights import WidenedWeights
from stepwell.mlir import ir
from stepwell.packing import WORD_CODES

_LINE_BYTES, _WORD_BYTES = 64, 4
"""Of what the cache fetches at a time; of a word of codes, and of a number of f32."""

_LINE = _LINE_BYTES // _WORD_BYTES
"""Numbers of f32, or words, of a line."""

_BYTES_AHEAD = 8192
"""How far ahead narrow weights are asked for: less comes too late, more falls out of the caches."""

_ASKED_AT_ONCE = 16
"""Most lines of results that are asked for in front of a sum."""


@dataclass(frozen=True)
class _Line:
    """A place in a flat buffer, in the first row of a tile, and how far apart its rows are: those
    of later tiles lie as far apart, so that no quotients have to be worked out to find them."""

    buffer: ir.Value
    first: Index
    stride: int
    write: bool

    def ask(self, nest: NestBuilder, row: Index | int, column: Index | int) -> None:
        """Prefetch what lies so many rows and elements further on."""
        nest.prefetch(self.buffer, [self.first + row * self.stride + column], write=self.write)


def _line_of(
    nest: NestBuilder,
    buffer: ir.Value,
    at: list[Index],
    below: list[Index],
    *,
    write: bool = False,
) -> list[_Line]:
    """The line at `at`, if the one at `below`, a row further on, is always as far away."""
    first, second = (linearize(place, buffer.type.shape) for place in (at, below))
    stride = second - first
    if not stride.is_constant:
        return []
    return [_Line(nest.flattened(buffer), first, stride.constant, write)]


class Prefetching:
    """The prefetches of the contraction `op`, whose panels are `width` columns."""

    def __init__(
        self,
        group: KernelGroup,
        op: Structured,
        shape: ContractionShape,
        strategy: ContractionStrategy,
        width: int,
    ) -> None:
        self.group, self.nest, self.evaluator = group, group.nest, group.evaluator
        self.op, self.shape, self.strategy = op, shape, strategy
        self.width, self.lanes = width, width // strategy.vectors
        self.reduced_sizes = [shape.sizes[d] for d in shape.reduced]
        self.line = min(_LINE, 8 * _LINE_BYTES // element_type(op.op.results[0]).width)

    def panel(
        self,
        tile: RegisterTile,
        number: Index,
        following: list[Index],
        steps: int,
        dims: list[Index] | None = None,
    ) -> Callable[[Index], None]:
        """What asks, in each iteration over `steps` steps of k, for lines of what comes next of the
        rhs: the panel `following[0]` from the reduced point that the rest is, if any, in the batch
        of `dims` or of the tile; `number` is the place of the tile in the block."""
        value = self.op.inputs[self.shape.rhs]
        unroll = steps_at_once(tile.rows * len(tile.vectors), self.shape.unfused)
        dims = list(tile.dims if dims is None else dims)
        dims[self.shape.column] = following[0] * self.width
        start = apply_map(self.op.maps[self.shape.rhs], dims)
        begin = linearize(following[1:], self.reduced_sizes) if following[1:] else Index()

        def ask(k: Index) -> None:
            tiles, numbers = self.strategy.row_tiles, steps * self.width
            for place in lines_ahead(k, number, tiles, steps, numbers, unroll, self.line):
                leaves = set(self.group.inputs)
                for leaf, indices in accesses(value, start, leaves, self.evaluator):
                    words = begin * self.width + place
                    at = [*indices[:-1], indices[-1] + words * self.shape.terms]
                    self.nest.prefetch(self.evaluator.buffers[leaf], at)

        return ask

    def rows(self, tile: RegisterTile) -> Callable[[Index], None] | None:
        """What asks, in each iteration over k, for a line of one of the rows that the tile at this
        place of the next block has: row after row, and of several lines of a row that as many
        iterations go along, another one with each panel. None where the kernel would not gain."""
        if not self.strategy.ask_rows:
            return None
        origin = [Index()] * len(self.reduced_sizes)
        point = apply_map(self.op.maps[self.shape.lhs], tile.place((0, 0), tile.start, origin))
        below = apply_map(self.op.maps[self.shape.lhs], tile.place((0, 1), tile.start, origin))
        found = self._lines(self.op.inputs[self.shape.lhs], point, below)
        read = [line for _, line in found if line.stride]
        unroll = steps_at_once(tile.rows * len(tile.vectors), self.shape.unfused)
        around = _power_of_two(tile.rows)
        lines = max(1, around * unroll // self.line)

        def ask(k: Index) -> None:
            row = k.floordiv(unroll).mod(around) + tile.rows * self.strategy.row_tiles
            for line in read:
                line.ask(self.nest, row, k + tile.panel.mod(lines) * self.line)

        return ask

    def results(self, tile: RegisterTile) -> Callable[[Index], None] | None:
        """What asks for one line of the tile's results, and of what the epilogue reads with them,
        at a step of k: one after the other, so that they do not hold up the loads of the sum. None
        where the kernel would not gain; few lines are asked for here, for the next tile."""
        padded = any(output.halo is not None for output in self.group.outputs)
        if not self.strategy.ask_results or padded:
            return None
        result = self.op.op.results[0]
        size = math.prod(shape_of(result))
        origin = [Index()] * len(self.shape.reduced)
        rows = [
            apply_map(self.op.output_map, tile.place((0, row), tile.start, origin))
            for row in range(2)
        ]
        lines: list[_Line] = []
        for output in self.group.outputs:
            there, below = (self.group.point_of(output, result, row) for row in rows)
            placed, next_placed = (
                [index + low for index, low in zip(at, output.low, strict=True)]
                for at in (there, below)
            )
            lines += _line_of(self.nest, output.buffer, placed, next_placed, write=True)
            lines += [
                line
                for value, line in self._lines(output.value, there, below)
                if math.prod(shape_of(value)) == size
            ]

        def prefetch(row: Index | int, column: Index | int) -> None:
            for line in lines:
                line.ask(self.nest, row, column)

        columns = range(0, self.width, self.line)
        if tile.rows * len(columns) <= _ASKED_AT_ONCE:
            for row in range(tile.rows, 2 * tile.rows):
                for column in columns:
                    prefetch(row, column)
            return None
        around, across = _power_of_two(tile.rows), _power_of_two(len(tile.vectors))

        def ask(k: Index) -> None:
            prefetch(k.mod(around), k.floordiv(around).mod(across) * self.lanes)

        return ask

    def _lines(
        self, value: ir.Value, point: list[Index], below: list[Index]
    ) -> list[tuple[ir.Value, _Line]]:
        """The group's inputs that `value` at `point` is computed from, and where that is; `below`
        is the point in the next row, and where that reads something else, nothing is asked for."""
        leaves = set(self.group.inputs)
        found = [list(accesses(value, at, leaves, self.evaluator)) for at in (point, below)]
        return [
            (leaf, line)
            for (leaf, at), (next_leaf, next_at) in zip(*found, strict=False)
            if leaf == next_leaf
            for line in _line_of(self.nest, self.evaluator.buffers[leaf], at, next_at)
        ]

    def narrow_weights(self, tile: RegisterTile) -> Callable[[Index], None] | None:
        """What asks, before a round of turns from row `k` on, for as many weights that are widened,
        some way further on: they stream from memory, panel after panel. None where they do not."""
        weights = WidenedWeights.of(self.op.inputs[self.shape.rhs])
        if weights is None or not self.strategy.ask_panels:
            return None
        in_words = weights.bytes < 1
        number = _WORD_BYTES if in_words else int(weights.bytes)
        count = int(TURN * self.strategy.chains * weights.bytes * self.width)

        def ask(k: Index) -> None:
            place = tile.place((0, 0), tile.start, [k])
            panel, row, column = apply_map(self.op.maps[self.shape.rhs], place)
            if in_words:
                row = row.floordiv(WORD_CODES)
            for byte in range(_BYTES_AHEAD, _BYTES_AHEAD + count, _LINE_BYTES):
                at = [panel, row, column + byte // number]
                self.nest.prefetch(self.evaluator.buffers[weights.codes], at)

        return ask


def lines_ahead(
    k: Index, tile: Index, tiles: int, steps: int, numbers: int, unroll: int, line: int = _LINE
) -> list[Index]:
    """What an iteration of `unroll` steps of `steps`, the first of them `k`, asks for of the
    `numbers` that come next: places of lines of `line` among them. Tile number `tile` of `tiles`
    has its share of the lines, and asks slowly, so that few are asked for twice."""
    share = math.ceil(numbers / line / tiles)
    iterations = max(1, steps // unroll)
    iteration = k.floordiv(unroll)
    if share < iterations:
        slowness = 1 << ((iterations // share).bit_length() - 1)
        if line % (slowness * unroll) == 0:  # any place in a line will do
            return [tile * share * line + k * (line // (slowness * unroll))]
        return [(tile * share + iteration.floordiv(slowness)) * line]
    at_once = math.ceil(share / iterations)
    return [(tile * share + iteration * at_once + number) * line for number in range(at_once)]


def _power_of_two(count: int) -> int:
    """The least power of two that is not below `count`."""
    return 1 << (count - 1).bit_length()
