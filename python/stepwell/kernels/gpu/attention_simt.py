"""Attention in f32 without tensor cores: tiles in shared memory, a part of each in registers.

    copy queries
    for each tile of keys:
        copy keys; barrier
        scores = queries * keys             a thread: some rows, every 16th key
        weights, maximum, sum               16 threads share a row; weights go to shared memory
        barrier; copy values to where the keys were; barrier
        output = output * change + weights * values

All tiles are lines along the features, so that a thread multiplies 4 at a time.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from stepwell.kernels.builder import Lanes, arith, vector
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
from stepwell.kernels.gpu.grid import GridBuilder
from stepwell.kernels.gpu.tile_space import TileSpace
from stepwell.kernels.group import KernelGroup
from stepwell.kernels.index import Index, Variable, delinearize
from stepwell.mlir import ir
from stepwell.targets.nvidia import NvidiaTarget

GROUP = 4
"""Elements of a vector access."""

ACROSS, DOWN = 16, 8
"""Threads that share a row, and rows of threads."""

_WIDEST = 256
"""Most features of a value: a thread's outputs have to stay in registers."""


@dataclass(frozen=True)
class AttentionTile:
    """A thread's `rows`, the `keys` of a tile, and the elements of a line of queries and keys, of
    keys or values, and of weights; lines are longer than what they hold, against bank conflicts."""

    rows: int
    keys: int
    feature_line: int
    shared_line: int
    key_line: int

    @property
    def queries(self) -> int:
        return self.rows * DOWN

    @property
    def shared_bytes(self) -> int:
        elements = self.queries * (self.feature_line + self.key_line) + self.keys * self.shared_line
        return 4 * elements


def choose(parts: AttentionParts, target: NvidiaTarget) -> AttentionTile | None:
    """As many queries to a block as leave a block for every multiprocessor, and as many keys to a
    tile as shared memory takes; None where it takes none."""
    if parts.values_shape.n > _WIDEST:
        return None
    features, values = parts.scores_shape.k, parts.values_shape.n
    tiles = [
        AttentionTile(
            rows,
            keys,
            _line(features),
            _line(max(features, -(-values // (ACROSS * GROUP)) * ACROSS * GROUP)),
            _line(keys),
        )
        for rows in (8, 4, 2, 1)
        for keys in (64, 32, 16)
        if keys == ACROSS or keys < 2 * parts.keys
    ]
    return first_filling(tiles, parts, target)


def _line(elements: int) -> int:
    return -(-elements // GROUP) * GROUP + GROUP


def emit(
    group: KernelGroup, nest: GridBuilder, parts: AttentionParts, target: NvidiaTarget
) -> None:
    """Write the attention of `group` in the tiles that `choose` gives."""
    tile = choose(parts, target)
    assert tile is not None
    _Attention(group, nest, parts, tile).emit()


class _Attention:
    def __init__(
        self, group: KernelGroup, nest: GridBuilder, parts: AttentionParts, tile: AttentionTile
    ) -> None:
        self.nest = nest
        self.evaluator = group.evaluator
        self.parts = parts
        self.tile = tile
        self.first = TileSpace(group, nest, parts.scores, parts.scores_shape)
        self.second = TileSpace(group, nest, parts.values, parts.values_shape)
        self.score = Scores(group, nest, parts)
        self.parted = PartOutputs(group, nest, parts) if parts.key_parts > 1 else None
        self.features, self.values = parts.scores_shape.k, parts.values_shape.n
        f32 = ir.F32Type.get()
        self.query = nest.shared([tile.queries, tile.feature_line], f32, 4)
        self.shared = nest.shared([tile.keys, tile.shared_line], f32, 4)
        self.weight = nest.shared([tile.queries, tile.key_line], f32, 4)
        self.lanes = Lanes.of(GROUP)
        self.groups = -(-self.values // (ACROSS * GROUP))
        """Vectors of outputs of a thread in each row."""

    def emit(self) -> None:
        """Write the kernel."""
        nest, tile, parts = self.nest, self.tile, self.parts
        blocks = parts.batch * parts.blocks_of(tile.queries) * parts.key_parts
        with nest.grid(blocks, ACROSS * DOWN) as (block, thread), self.evaluator.scope():
            self.thread = thread
            self.walk = Walk.of(nest, parts, tile, block)
            self.which, self.start = self.walk.which, self.walk.start
            self.dims = self.first.batch_dims(self.which), self.second.batch_dims(self.which)
            self.across = nest.named("tx", thread.mod(ACROSS))
            self.down = nest.named("ty", thread.floordiv(ACROSS)) * tile.rows
            self._copy(self.query, self.first, parts.scores_shape.lhs, self.start, tile.queries)
            with self.walk.begun(nest) as self.walk:
                self._finish(self._loop())

    def _copy(
        self, buffer: ir.Value, space: TileSpace, operand: int, first: Index, count: int
    ) -> None:
        """Copy `count` queries, keys or values to lines of shared memory, from number `first` on;
        zeros where there are none, and up to the end of the last group of features."""
        nest = self.nest
        by_value = space is self.second
        length = self.values if by_value else self.features
        limit = self.parts.queries if operand == space.shape.lhs else self.parts.keys
        whole = length % GROUP == 0
        lanes = self.lanes if whole else Lanes.of(1)
        zero = nest.zero(ir.F32Type.get(), lanes.count)
        dims = self.dims[int(by_value)]

        def read(number: Index, feature: Index) -> ir.Value:
            k, place = (number, feature) if by_value else (feature, number)
            with self.evaluator.scope():
                at = space.indices(dims, k, place, operand)
                return nest.as_vector(self.evaluator.at(space.op.inputs[operand], at, lanes), lanes)

        groups = -(-length // GROUP)
        threads = ACROSS * DOWN
        for copied in range(-(-count * groups // threads)):
            flat = nest.named("copied", self.thread + copied * threads)
            with nest.where([(flat, count * groups)]):
                line, group = delinearize(flat, [count, groups])
                line = nest.named("line", line)
                start = nest.named("group", group) * GROUP
                number = nest.named("number", first + line)
                for i in range(0, GROUP, lanes.count):
                    inside = nest.below([(number, limit), (start + i, length)])
                    feature = start + i + lanes.index
                    value = nest.choose(inside, functools.partial(read, number, feature), zero)
                    nest.store(value, buffer, [line, feature], lanes)

    def _loop(self) -> list[ir.Value]:
        """The walk over the keys: for each of the thread's rows the maximum, then the sum of the
        thread's own weights, then the outputs."""
        nest, tile, parts = self.nest, self.tile, self.parts
        rows = tile.rows
        low, zero = (
            nest.float_constant(number, ir.F32Type.get()) for number in (float("-inf"), 0.0)
        )
        nothing = nest.zero(ir.F32Type.get(), GROUP)

        def step(number: Index, carried: list[ir.Value]) -> list[ir.Value]:
            start = number * tile.keys
            tops, totals, sums = carried[:rows], carried[rows : 2 * rows], carried[2 * rows :]
            nest.barrier()
            self._copy(self.shared, self.first, parts.scores_shape.rhs, start, tile.keys)
            nest.barrier()
            products = self._multiply()
            changes: list[ir.Value] = []
            for row in range(rows):
                scores = self._scores(row, start, products[row])
                tops[row], change, weights = self._weights(tops[row], scores)
                changes.append(change)
                totals[row] = nest.fma(totals[row], change, _sum(weights))
                for i, weight in enumerate(weights):
                    at = [self.down + row, self.across + i * ACROSS]
                    nest.store(weight, self.weight, at, Lanes.of(1))
            nest.barrier()
            self._copy(self.shared, self.second, parts.values_shape.rhs, start, tile.keys)
            nest.barrier()
            return [*tops, *totals, *self._add_values(self._changed(sums, changes))]

        initial = [*[low] * rows, *[zero] * rows, *[nothing] * (rows * self.groups)]
        return self.walk.over(nest, initial, step)

    def _multiply(self) -> list[list[ir.Value]]:
        """The products of the thread's queries and keys, by row."""
        nest, tile = self.nest, self.tile
        across = tile.keys // ACROSS
        sums = [nest.zero(ir.F32Type.get(), GROUP)] * (tile.rows * across)

        def step(group: Variable, sums: list[ir.Value]) -> list[ir.Value]:
            feature = Index.of(group) * GROUP + self.lanes.index
            keys = [
                nest.load(self.shared, [self.across + i * ACROSS, feature], self.lanes)
                for i in range(across)
            ]
            queries = [
                nest.load(self.query, [self.down + row, feature], self.lanes)
                for row in range(tile.rows)
            ]
            pairs = [(query, key) for query in queries for key in keys]
            return [nest.fma(q, k, total) for (q, k), total in zip(pairs, sums, strict=True)]

        sums = nest.reduce_loop("group", 0, -(-self.features // GROUP), 1, sums, step)
        found = [_sum([vector.ExtractOp(t, [], [i]).result for i in range(GROUP)]) for t in sums]
        return [found[row * across :][:across] for row in range(tile.rows)]

    def _scores(self, row: int, start: Index, products: list[ir.Value]) -> list[ir.Value]:
        """The thread's scores in one of its rows."""
        query = self.start + self.down + row
        return [
            self.score.at(self.which, query, start + self.across + i * ACROSS, product, Lanes.of(1))
            for i, product in enumerate(products)
        ]

    def _weights(
        self, top: ir.Value, scores: list[ir.Value]
    ) -> tuple[ir.Value, ir.Value, list[ir.Value]]:
        """The new maximum of a row, what its sums so far change by, and the thread's weights."""
        nest = self.nest
        new = functools.reduce(maximum, scores)
        offset = ACROSS // 2
        while offset:
            new = maximum(new, nest.shuffle_xor(new, offset))
            offset //= 2
        new = maximum(top, new)
        shift = shift_of(nest, new)
        change = exponential(nest, top, shift)
        return new, change, [exponential(nest, score, shift) for score in scores]

    def _changed(self, sums: list[ir.Value], changes: list[ir.Value]) -> list[ir.Value]:
        nest = self.nest
        factors = [nest.as_vector(change, self.lanes) for change in changes]
        return [
            arith.MulFOp(total, factors[number // self.groups]).result
            for number, total in enumerate(sums)
        ]

    def _add_values(self, sums: list[ir.Value]) -> list[ir.Value]:
        """Add the weighed values of a tile of keys, a vector of keys at a time."""
        nest, tile, lanes = self.nest, self.tile, self.lanes

        def step(group: Variable, sums: list[ir.Value]) -> list[ir.Value]:
            key = Index.of(group) * GROUP
            weights = [
                nest.load(self.weight, [self.down + row, key + lanes.index], lanes)
                for row in range(tile.rows)
            ]
            for i in range(GROUP):
                values = [
                    nest.load(self.shared, [key + i, self._column(g) + lanes.index], lanes)
                    for g in range(self.groups)
                ]
                factors = [
                    nest.as_vector(vector.ExtractOp(weight, [], [i]).result, lanes)
                    for weight in weights
                ]
                pairs = [(factor, value) for factor in factors for value in values]
                sums = [nest.fma(w, v, total) for (w, v), total in zip(pairs, sums, strict=True)]
            return sums

        return nest.reduce_loop("group", 0, tile.keys // GROUP, 1, sums, step)

    def _column(self, group: int) -> Index:
        """The thread's first column in one of its groups of columns."""
        return self.across * GROUP + group * ACROSS * GROUP

    def _finish(self, carried: list[ir.Value]) -> None:
        """Write the outputs."""
        nest, rows = self.nest, self.tile.rows
        totals, sums = carried[rows : 2 * rows], carried[2 * rows :]
        for row, total in enumerate(totals):
            query = self.start + self.down + row
            offset = ACROSS // 2
            while offset:
                total = arith.AddFOp(total, nest.shuffle_xor(total, offset)).result
                offset //= 2
            if self.parted is not None:
                self.parted.write_softmax(self.walk, query, self.across, [carried[row], total])
            parts = sums[row * self.groups :][: self.groups]
            for group, value in enumerate(normalized(nest, parts, total, self.parts.zero_where)):
                if self.parted is None:
                    self.second.finish(self.dims[1], query, self._column(group), value)
                else:
                    self.parted.write(self.walk, query, self._column(group), value)


def _sum(values: list[ir.Value]) -> ir.Value:
    return functools.reduce(lambda a, b: arith.AddFOp(a, b).result, values)
