"""Attention on tensor cores: a warp has 16 queries, a block the tiles of keys and values.

    copy queries, first keys
    for each tile of keys:
        wait for the keys; barrier          (the barrier also ends the reading of the last values)
        copy the values of these keys
        scores = queries * keys             mma.sync, sums in registers
        weights, maximum, sum               in registers; four threads share a row
        wait for the values; barrier        (the barrier also ends the reading of the keys)
        copy the keys of the next tile
        output = output * change + weights * values

The sums of the first product lie in registers as the left operand of the second wants them, so
that weights never leave the thread; only their type changes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

from stepwell.kernels.builder import Lanes, arith, vector
from stepwell.kernels.gpu import split_f32, tensor_core
from stepwell.kernels.gpu.attention import (
    AttentionParts,
    Scores,
    exponential,
    first_filling,
    maximum,
    normalized,
    shift_of,
)
from stepwell.kernels.gpu.attention_walk import PartOutputs, Walk
from stepwell.kernels.gpu.fragments import Fragments
from stepwell.kernels.gpu.grid import GridBuilder
from stepwell.kernels.gpu.mma_tile import MmaTile
from stepwell.kernels.gpu.operand_ring import OperandRing
from stepwell.kernels.gpu.split_f32 import Parts
from stepwell.kernels.gpu.tensor_core import CHUNK_BYTES, COLUMNS, ROWS, STEP_BYTES, MatrixType
from stepwell.kernels.gpu.tile_space import TileSpace
from stepwell.kernels.group import KernelGroup
from stepwell.kernels.index import Index, constant
from stepwell.mlir import ir
from stepwell.targets.nvidia import WARP, NvidiaTarget

_LINE_BYTES = 128
"""A longer line is a multiple of it, a shorter one a power of two of chunks, so that swizzled
chunks stay in their line."""

_MOST_GATHERED = 8
"""Chunks of keys, or of values, that a thread gathers at most where the features are no whole
chunks, so that none is copied asynchronously: registers hold them, and where they come from."""

_PRODUCTS_AT_A_TIME = 4
"""Products of parts that do not wait for one another."""

_MOST_VALUES = 256
"""Features of values: a thread has half as many sums, in registers."""


@dataclass(frozen=True)
class AttentionTile:
    """A block's `warps`, of 16 queries each, the keys of a tile, and the bytes of a line of queries
    and keys, and of values where they lie along the features."""

    warps: int
    keys: int
    feature_bytes: int
    value_bytes: int

    @property
    def queries(self) -> int:
        return self.warps * ROWS

    @property
    def shared_bytes(self) -> int:
        keys = self.keys * (self.feature_bytes + self.value_bytes)
        return self.queries * self.feature_bytes + keys

    @property
    def chunks(self) -> int:
        """Chunks of a tile's keys, or values, for each thread."""
        line = max(self.feature_bytes, self.value_bytes)
        return self.keys * line // (CHUNK_BYTES * self.warps * WARP)


def choose(parts: AttentionParts, target: NvidiaTarget) -> AttentionTile | None:
    """As many queries to a block as leave a block for every multiprocessor, and as many keys to a
    tile as shared memory takes; None where it takes none."""
    kind = parts.kind
    assert kind is not None
    if parts.values_shape.n > _MOST_VALUES:
        return None
    features = _line_bytes(parts.scores_shape.k * kind.bytes)
    values = _line_bytes(parts.values_shape.n * kind.bytes)
    least = max(ROWS, STEP_BYTES // kind.bytes)
    widths = parts.scores_shape.k, parts.values_shape.n
    gathers = any(width * kind.bytes % CHUNK_BYTES for width in widths)
    tiles = [
        AttentionTile(warps, keys, features, values)
        for warps in (8, 4, 2, 1)
        for keys in (64, 32, 16)
        if keys == least or keys < 2 * parts.keys
    ]
    if gathers:
        tiles = [tile for tile in tiles if tile.chunks <= _MOST_GATHERED] or tiles
    return first_filling(tiles, parts, target)


def _line_bytes(count: int) -> int:
    if count > _LINE_BYTES:
        return -(-count // _LINE_BYTES) * _LINE_BYTES
    size = STEP_BYTES
    while size < count:
        size *= 2
    return size


def emit(
    group: KernelGroup, nest: GridBuilder, parts: AttentionParts, target: NvidiaTarget
) -> None:
    """Write the attention of `group` in the tiles that `choose` gives."""
    tile = choose(parts, target)
    assert tile is not None
    assert parts.kind is not None
    _Attention(group, nest, parts, tile, parts.kind).emit()


class _KeyRing(OperandRing):
    """Keys in lines, in the order that makes the sums of their products a left operand: as they
    are in 16 bits; for tf32 a thread's two columns are keys c and c + 4 of 8."""

    def __init__(
        self, space: TileSpace, kind: MatrixType, operand: int, tile: MmaTile, extent: int
    ) -> None:
        super().__init__(space, kind, operand, tile, extent)
        if kind.bytes == 4 and not self.lines_along_k:
            self.is_async, self.lines_along_k = False, True
            self.lines, self.line = extent, self.depth
            self.chunks = self.line // kind.chunk

    def _column_of(self, line: Index) -> Index:
        if self.kind.bytes == 2:
            return line
        within = line.mod(COLUMNS)
        return line.floordiv(COLUMNS) * COLUMNS + within.floordiv(2) + within.mod(2) * 4


class _ValueRing(OperandRing):
    """Values, whose columns stay in their order."""

    def _column_of(self, line: Index) -> Index:
        return line


class _Attention:
    def __init__(
        self,
        group: KernelGroup,
        nest: GridBuilder,
        parts: AttentionParts,
        tile: AttentionTile,
        kind: MatrixType,
    ) -> None:
        self.nest = nest
        self.evaluator = group.evaluator
        self.parts = parts
        self.tile = tile
        self.kind = kind
        self.first = TileSpace(group, nest, parts.scores, parts.scores_shape)
        self.second = TileSpace(group, nest, parts.values, parts.values_shape)
        queries, keys, bytes_ = tile.queries, tile.keys, kind.bytes
        along = MmaTile(queries, keys, ROWS, keys, 1, tile.feature_bytes)
        across = MmaTile(queries, keys, ROWS, keys, 1, keys * bytes_)
        shape = parts.scores_shape
        self.query = OperandRing(self.first, kind, shape.lhs, along, queries)
        self.key = _KeyRing(self.first, kind, shape.rhs, along, keys)
        features = tile.value_bytes // bytes_
        self.value = _ValueRing(self.second, kind, parts.values_shape.rhs, across, features)
        self.score = Scores(group, nest, parts)
        self.lanes = Lanes.of(2 if parts.keys % 2 == 0 else 1)
        self.parted = PartOutputs(group, nest, parts) if parts.key_parts > 1 else None
        self.steps = -(-shape.k * bytes_ // STEP_BYTES)
        """Instructions along the features of queries and keys."""
        self.key_steps = keys * bytes_ // STEP_BYTES
        self.pairs = -(-parts.values_shape.n // ROWS)
        """Pairs of instructions along the features of values."""

    def emit(self) -> None:
        """Write the kernel."""
        nest, tile, parts = self.nest, self.tile, self.parts
        nest.states_alignment = True
        blocks = parts.batch * parts.blocks_of(tile.queries) * parts.key_parts
        threads = tile.warps * WARP
        with nest.grid(blocks, threads) as (block, thread), self.evaluator.scope():
            self.thread = thread
            self.walk = Walk.of(nest, parts, tile, block)
            self.which, start = self.walk.which, self.walk.start
            self.dims = self.first.batch_dims(self.which), self.second.batch_dims(self.which)
            lane = nest.named("lane", thread.mod(WARP))
            warp = nest.named("warp", thread.floordiv(WARP)) * ROWS
            self.row = nest.named("row", start + warp + lane.floordiv(4))
            self.pair = nest.named("pair", lane.mod(4))
            self.here = arith.ConstantOp(ir.IndexType.get(), 0).result
            self.query.prepare(self.dims[0], start, thread)
            self.query.end(self.query.begin(Index(), self.here), self.here)
            self.value.prepare(self.dims[1], Index(), thread)
            self.left = Fragments(self.query, warp, lane, left=True)
            self.left.prepare(1, self.steps)
            with self.walk.begun(nest) as self.walk:
                self.key.end(self._begin_keys(self.walk.first), self.here)
                tensor_core.commit()
                self.right = Fragments(self.key, Index(), lane, left=False)
                self.right.prepare(tile.keys // ROWS, self.steps)
                self.weighed = Fragments(self.value, Index(), lane, left=False)
                self.weighed.prepare(self.pairs, self.key_steps)
                self._finish(self._loop())

    def _begin_keys(self, number: Index) -> list[ir.Value]:
        """Begin the copies of tile `number` of the keys; returns what was read."""
        self.key.prepare(self.dims[0], number * self.tile.keys, self.thread)
        return self.key.begin(Index(), self.here)

    def _loop(self) -> list[ir.Value]:
        """The walk over the keys: for each of the thread's two rows the maximum, then the sums of
        the thread's own weights, then the outputs by instruction."""
        nest = self.nest
        low, zero = (
            nest.float_constant(number, ir.F32Type.get()) for number in (float("-inf"), 0.0)
        )
        sums = [tensor_core.no_sums(self.kind)] * (2 * self.pairs)

        def step(number: Index, carried: list[ir.Value]) -> list[ir.Value]:
            tops, totals, sums = carried[:2], carried[2:4], carried[4:]
            tensor_core.wait(0)
            nest.barrier()
            with self.evaluator.scope():
                pending = self.value.begin(number, self.here)
            tensor_core.commit()
            scores = self._scores(number, self._multiply())
            tops, changes, shifts = self._maxima(tops, scores)
            weights = [
                [exponential(nest, score, shift) for score in row]
                for row, shift in zip(scores, shifts, strict=True)
            ]
            totals = [
                functools.reduce(_add, [arith.MulFOp(total, change).result, *row])
                for total, change, row in zip(totals, changes, weights, strict=True)
            ]
            self.value.end(pending, self.here)
            tensor_core.wait(0)
            nest.barrier()
            following = self._begin_following(number + 1)
            tensor_core.commit()
            sums = self._add_values(self._changed(sums, changes), weights)
            self.key.end(following, self.here)
            return [*tops, *totals, *sums]

        initial = [low, low, zero, zero, *sums]
        return self.walk.over(nest, initial, step)

    def _begin_following(self, number: Index) -> list[ir.Value]:
        """Begin the copies of a tile of keys that there may not be."""
        if any(index.low >= size for index, size in self.walk.has(number)):
            return []
        if not self.key.is_async:
            with self.evaluator.scope():
                return self._begin_keys(number)
        with self.nest.where(self.walk.has(number)), self.evaluator.scope():
            return self._begin_keys(number)

    def _multiply(self) -> list[ir.Value]:
        """The products of the warp's queries and a tile of keys, 8 keys each."""
        sums = [tensor_core.no_sums(self.kind)] * (self.tile.keys // COLUMNS)
        if self.kind.split:
            return self._multiply_split(
                sums, self.steps, lambda step: self.left.load(0, step, self.here), self.right
            )
        for step in range(self.steps):
            rows = self.left.load(0, step, self.here)
            for pair in range(self.tile.keys // ROWS):
                loaded = self.right.load(pair, step, self.here)
                for number in range(2):
                    at = 2 * pair + number
                    columns = tensor_core.half(loaded, number)
                    sums[at] = tensor_core.multiply(rows, columns, sums[at], self.kind)
        return sums

    def _multiply_split(
        self,
        sums: list[ir.Value],
        count: int,
        left: Callable[[int], ir.Value],
        right: Fragments,
    ) -> list[ir.Value]:
        """`sums`, and products of parts of the fragments that `left` gives in each of `count` steps
        and those of `right`."""
        for first in range(0, count, split_f32.STEPS):
            steps = range(first, min(first + split_f32.STEPS, count))
            rows = [Parts.of(left(step)) for step in steps]
            found: list[ir.Value] = []
            for start in range(0, len(sums), _PRODUCTS_AT_A_TIME):
                own = sums[start : start + _PRODUCTS_AT_A_TIME]
                columns: list[list[Parts]] = []
                for pair in range(start // 2, (start + len(own)) // 2):
                    loaded = [Parts.of(right.load(pair, step, self.here)) for step in steps]
                    columns += [[part.half(number) for part in loaded] for number in range(2)]
                found += split_f32.multiply(rows, columns, own, self.kind)
            sums = found
        return sums

    def _scores(self, number: Index, products: list[ir.Value]) -> list[list[ir.Value]]:
        """The thread's scores of a tile: two rows of numbers, two keys of each product."""
        rows = []
        for high in range(2):
            found: list[ir.Value] = []
            for at, product in enumerate(products):
                raw = vector.ExtractOp(product, [], [high]).result
                found += self._pair(
                    self.row + high * COLUMNS, number * self.tile.keys + at * COLUMNS, raw
                )
            rows.append(found)
        return rows

    def _pair(self, row: Index, start: Index, raw: ir.Value) -> list[ir.Value]:
        """The scores of a thread's two keys of the 8 from `start` on."""
        if self.kind.bytes == 2 and self.lanes.count == 2:
            score = self.score.at(self.which, row, start + self.pair * 2, raw, self.lanes)
            return [vector.ExtractOp(score, [], [i]).result for i in range(2)]
        factor, step = (2, 1) if self.kind.bytes == 2 else (1, 4)
        return [
            self.score.at(
                self.which,
                row,
                start + self.pair * factor + i * step,
                vector.ExtractOp(raw, [], [i]).result,
                Lanes.of(1),
            )
            for i in range(2)
        ]

    def _maxima(
        self, tops: list[ir.Value], scores: list[list[ir.Value]]
    ) -> tuple[list[ir.Value], list[ir.Value], list[ir.Value]]:
        """The new maximum of each row, what its sums so far change by, and what is taken from its
        scores."""
        nest = self.nest
        found: list[tuple[ir.Value, ir.Value, ir.Value]] = []
        for top, row in zip(tops, scores, strict=True):
            new = functools.reduce(maximum, row)
            for offset in (1, 2):
                new = maximum(new, nest.shuffle_xor(new, offset))
            new = maximum(top, new)
            shift = shift_of(nest, new)
            found.append((new, exponential(nest, top, shift), shift))
        new_tops, changes, shifts = zip(*found, strict=True)
        return list(new_tops), list(changes), list(shifts)

    def _changed(self, sums: list[ir.Value], changes: list[ir.Value]) -> list[ir.Value]:
        factors = vector.FromElementsOp(
            ir.VectorType.get([2, 2], ir.F32Type.get()), [c for c in changes for _ in range(2)]
        ).result
        return [arith.MulFOp(total, factors).result for total in sums]

    def _add_values(self, sums: list[ir.Value], weights: list[list[ir.Value]]) -> list[ir.Value]:
        """Add the weighed values of a tile of keys."""
        if self.kind.split:
            return self._multiply_split(
                sums, self.key_steps, lambda step: self._weights(weights, step), self.weighed
            )
        for step in range(self.key_steps):
            rows = self._weights(weights, step)
            for pair in range(self.pairs):
                loaded = self.weighed.load(pair, step, self.here)
                for number in range(2):
                    at = 2 * pair + number
                    columns = tensor_core.half(loaded, number)
                    sums[at] = tensor_core.multiply(rows, columns, sums[at], self.kind)
        return sums

    def _weights(self, weights: list[list[ir.Value]], step: int) -> ir.Value:
        """The left operand: of each row the keys of `step`."""
        if self.kind.bytes == 4:
            numbers = [weights[high][2 * step + i] for i in range(2) for high in range(2)]
            return tensor_core.from_registers(numbers)
        element = ir.Type.parse(self.kind.element)
        pair = ir.VectorType.get([2], element)
        fragment = arith.ConstantOp(
            ir.VectorType.get([4, 2], element),
            ir.DenseElementsAttr.get_splat(
                ir.VectorType.get([4, 2], element), ir.FloatAttr.get(element, 0.0)
            ),
        ).result
        for half in range(2):
            for high in range(2):
                start = 2 * (2 * step + half)
                two = vector.FromElementsOp(
                    ir.VectorType.get([2], ir.F32Type.get()), weights[high][start : start + 2]
                ).result
                rounded = arith.TruncFOp(pair, two).result
                fragment = vector.InsertOp(rounded, fragment, [], [2 * half + high]).result
        return fragment

    def _finish(self, carried: list[ir.Value]) -> None:
        """Write the outputs: two columns of each instruction a row."""
        nest = self.nest
        totals, sums = carried[2:4], carried[4:]
        for high, total in enumerate(totals):
            row = self.row + high * COLUMNS
            for offset in (1, 2):
                total = _add(total, nest.shuffle_xor(total, offset))
            if self.parted is not None:
                self.parted.write_softmax(self.walk, row, self.pair, [carried[high], total])
            pairs = [vector.ExtractOp(part, [], [high]).result for part in sums]
            values = normalized(nest, pairs, total, self.parts.zero_where)
            for at, value in enumerate(values):
                column = constant(at * COLUMNS) + self.pair * 2
                if self.parted is None:
                    self.second.finish(self.dims[1], row, column, value)
                else:
                    self.parted.write(self.walk, row, column, value)


def _add(a: ir.Value, b: ir.Value) -> ir.Value:
    return arith.AddFOp(a, b).result
