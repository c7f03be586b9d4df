"""Attention by the warpgroups of sm_90a: keys and values that the GPU copies by itself, `wgmma` on
them (J. Shah et al., "FlashAttention-3", 2024).

One warpgroup of a block copies, as boxes of the operands: 64 queries for each of the others, and
tile by tile keys and values, into rings of stages in shared memory. The others multiply:

    wait for the queries and the keys; scores = queries * keys; weights of them, in registers
    for each further tile of keys:
        ask for   scores = queries * keys          of this tile
        ask for   output += weights * values       of the tile before
        wait for the scores; their keys are free;  maximum, sum and weights of them
        wait for the output; the values are free;  output = output * change
    output += weights * values                     of the last tile

so that exponentials are taken while the tensor cores multiply. Weights are the left operand from
registers: the sums of the first product lie in them as the second one wants it. A multiprocessor
has one block, which walks blocks of queries; the rings go on, so that the next one's first tiles
are copied while outputs are written.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

from stepwell.kernels.builder import Lanes, arith, vector
from stepwell.kernels.gpu import hopper, tensor_map
from stepwell.kernels.gpu.accumulators import GROUPS, write_row
from stepwell.kernels.gpu.approximate_math import power_of_two
from stepwell.kernels.gpu.attention import (
    LOG2_E,
    AttentionParts,
    Scores,
    maximum,
    normalized,
    shift_of,
)
from stepwell.kernels.gpu.attention_walk import Walk
from stepwell.kernels.gpu.attention_wgmma_tile import QUERY_STAGES, WarpgroupTile
from stepwell.kernels.gpu.grid import GridBuilder
from stepwell.kernels.gpu.hopper import ATOM_BYTES, LINE_BYTES, ROWS, STEP_BYTES, WARPGROUP
from stepwell.kernels.gpu.linear_scores import LinearScores
from stepwell.kernels.gpu.tensor_core import COLUMNS, MatrixType
from stepwell.kernels.gpu.tensor_map import TensorMap
from stepwell.kernels.gpu.tile_space import TileSpace
from stepwell.kernels.gpu.tile_store import TileStore
from stepwell.kernels.gpu.used_tiles import tile_is_needed
from stepwell.kernels.gpu.wgmma_tile import BLOCKS, OUTPUT_BYTES
from stepwell.kernels.group import KernelGroup
from stepwell.kernels.index import Index, Variable, constant
from stepwell.mlir import ir
from stepwell.targets.nvidia import WARP

_BARRIER_BYTES = 8
_COPYING = 0
"""The warpgroup that copies; the others multiply."""

_WARPS = WARPGROUP // WARP
_CHAINS = 4
"""Sums and maxima of a row that are taken side by side."""

_MOST_GROWTH = 8.0
"""Weights are at most 2 to the power of it: they stay scaled by a maximum that has grown by less,
and fit f16; outputs are rarely scaled anew."""

_GREATER = 2
"""The predicate of `arith.cmpf`: both are numbers, the first is greater."""


def find_maps(
    group: KernelGroup, nest: GridBuilder, parts: AttentionParts, tile: WarpgroupTile
) -> list[TensorMap] | None:
    """Queries, keys and values as arrays of which boxes are copied: the first two in lines of
    features, and values, whose lines are features too. None where one is not such an array."""
    kind = parts.kind
    assert kind is not None
    first = TileSpace(group, nest, parts.scores, parts.scores_shape)
    second = TileSpace(group, nest, parts.values, parts.values_shape)
    shape = parts.scores_shape
    query = tensor_map.find(first, kind, shape.lhs, tile.queries)
    key = tensor_map.find(first, kind, shape.rhs, tile.keys)
    value = tensor_map.find(second, kind, parts.values_shape.rhs, tile.keys)
    if query is None or key is None or value is None or query.window is not None:
        return None
    if not query.along_k or not key.along_k or value.along_k:
        return None
    held, _, *batch = value.box
    return [query, key, dataclasses.replace(value, box=(held, tile.keys, *batch))]


class WarpgroupAttention:
    """One attention in tiles of `tile`; `maps` are what `find_maps` gives."""

    walk: Walk
    """That of the place which is being written."""

    def __init__(
        self,
        group: KernelGroup,
        nest: GridBuilder,
        parts: AttentionParts,
        tile: WarpgroupTile,
        maps: list[TensorMap],
    ) -> None:
        assert parts.kind is not None
        self.nest = nest
        self.evaluator = group.evaluator
        self.parts = parts
        self.tile = tile
        self.maps = maps
        self.kind: MatrixType = parts.kind
        self.first = TileSpace(group, nest, parts.scores, parts.scores_shape)
        self.second = TileSpace(group, nest, parts.values, parts.values_shape)
        self.score = Scores(group, nest, parts)
        self.linear = LinearScores.of(group.operations, parts)
        self.scale = LOG2_E if self.linear is None else self.linear.factor * LOG2_E
        """What scores are multiplied by for powers of two of them."""
        self.lanes = Lanes.of(2 if parts.keys % 2 == 0 else 1)
        self.held = LINE_BYTES // self.kind.bytes
        """Features of a line."""
        self.steps = -(-parts.scores_shape.k // self.kind.step)
        """Instructions along the features of queries and keys."""
        whole = COLUMNS * GROUPS
        self.columns = -(-parts.values_shape.n // whole) * whole
        """Features of values that are multiplied."""
        output = tensor_map.find_output(self.second)
        self.output = output if output and self.columns % output.box[0] == 0 else None
        """The array that outputs are copied to as boxes, if they are one."""
        self.places = parts.batch * parts.blocks_of(tile.queries)
        self.tiles = -(-parts.keys // tile.keys)

    def emit(self) -> None:
        """Write the kernel."""
        nest, tile = self.nest, self.tile
        nest.states_alignment = True
        arrays = [*self.maps, *([self.output] if self.output is not None else [])]
        self.map_count = len(arrays)
        nest.tensor_maps += [found.to_attribute() for found in arrays]
        nest.dynamic_shared_bytes = tile.shared_bytes
        nest.resident_blocks = BLOCKS
        threads = (tile.consumers + 1) * WARPGROUP
        with nest.grid(self.places, threads) as (block, thread), self.evaluator.scope():
            self._block(block, thread)

    def _block(self, block: Index, thread: Index) -> None:
        self.shared = hopper.shared_memory()
        self.descriptions = [hopper.tensor_map(number) for number in range(self.map_count)]
        readers = self.tile.consumers * _WARPS
        with hopper.when(hopper.is_equal(self._word(thread), 0)):
            for stage in range(self.tile.stages):
                place = hopper.word(stage)
                for ring in range(2):
                    hopper.init_barrier(self._full(ring, place), 1)
                    hopper.init_barrier(self._empty(ring, place), readers)
            for stage in range(QUERY_STAGES):
                place = hopper.word(stage)
                hopper.init_barrier(self._query_full(place), 1)
                hopper.init_barrier(self._query_empty(place), readers)
            hopper.show_barriers()
            for pointer in self.descriptions:
                hopper.prefetch_map(pointer)
        self.nest.barrier()
        which = hopper.uniform(self._word(thread.floordiv(WARPGROUP)))
        warp = hopper.uniform(self._word(thread.floordiv(WARP)))
        hopper.either(
            hopper.is_equal(which, _COPYING),
            lambda: self._copy_all(block, warp),
            lambda: self._multiply_all(block, thread, which),
        )

    def _word(self, index: Index) -> ir.Value:
        return hopper.as_word(self.nest.index_value(index, Lanes.of(1)))

    # Shared memory: barriers; the queries; the stages of the keys (ring 0) and of the values (1).

    def _barrier(self, first: int, stage: ir.Value) -> ir.Value:
        places = hopper.plus(hopper.times(stage, _BARRIER_BYTES), first * _BARRIER_BYTES)
        return hopper.at(self.shared, places)

    def _full(self, ring: int, stage: ir.Value) -> ir.Value:
        return self._barrier(2 * ring * self.tile.stages, stage)

    def _empty(self, ring: int, stage: ir.Value) -> ir.Value:
        return self._barrier((2 * ring + 1) * self.tile.stages, stage)

    def _query_full(self, stage: ir.Value) -> ir.Value:
        return self._barrier(4 * self.tile.stages, stage)

    def _query_empty(self, stage: ir.Value) -> ir.Value:
        return self._barrier(4 * self.tile.stages + QUERY_STAGES, stage)

    def _queries_at(self, stage: ir.Value) -> ir.Value:
        """Where a stage of the queries begins, in bytes."""
        return hopper.plus(hopper.times(stage, self.tile.query_bytes), ATOM_BYTES)

    def _tile_at(self, ring: int, stage: ir.Value) -> ir.Value:
        """Where a stage of a ring begins, in bytes."""
        tile = self.tile
        start = ATOM_BYTES + QUERY_STAGES * tile.query_bytes + ring * tile.stages * tile.key_bytes
        size = tile.value_bytes if ring else tile.key_bytes
        return hopper.plus(hopper.times(stage, size), start)

    # Copies

    def _copy_all(self, block: Index, warp: ir.Value) -> None:
        hopper.fewer_registers(self.tile.registers[1])
        initial = [hopper.word(0), hopper.word(1)] * 2
        with hopper.when(hopper.is_equal(warp, _COPYING)), hopper.when(hopper.elected()):
            self._walk(block, initial, self._copy_place)

    def _walk(
        self,
        block: Index,
        initial: list[ir.Value],
        body: Callable[[list[ir.Value]], list[ir.Value]],
    ) -> None:
        """Do `body(carried)` for the places of a block, which `self.walk` tells."""
        turning = self.parts.diagonal is not None

        def do(place: Index, carried: list[ir.Value]) -> list[ir.Value]:
            with self.evaluator.scope():
                self.walk = walk = Walk.of(self.nest, self.parts, self.tile, place)
                dims = self.second.batch_dims(walk.which)
                extents = self.tile.queries, self.parts.values_shape.n
                needed = tile_is_needed(self.second, dims, (walk.start, constant(0)), extents)
                if needed is None:
                    return body(carried)
                return hopper.changed(needed, carried, lambda: body(carried))

        self.nest.walk_places(block, self.places, initial, do, turning=turning)

    def _copy_place(self, carried: list[ir.Value]) -> list[ir.Value]:
        """Copy the queries at a place, and the keys and values that they see; carries the next
        stage and its phase of the rings, and of the queries."""
        tile = self.tile
        ring, (query, query_phase) = carried[:2], carried[2:]
        walk = self.walk
        dims = [self.first.batch_dims(walk.which), self.second.batch_dims(walk.which)]
        batches = [
            [self._word(dims[number // 2][d]) for d in found.batch]
            for number, found in enumerate(self.maps)
        ]
        hopper.wait(self._query_empty(query), query_phase)
        full = self._query_full(query)
        hopper.expect_bytes(full, tile.query_bytes)
        self._copy(0, self._word(walk.start), batches[0], self._queries_at(query), full)

        def copy(which: int, state: list[ir.Value]) -> None:
            at, stage, phase = state
            full = self._full(which, stage)
            hopper.wait(self._empty(which, stage), phase)
            hopper.expect_bytes(full, (tile.key_bytes, tile.value_bytes)[which])
            to = self._tile_at(which, stage)
            self._copy(1 + which, at, batches[1 + which], to, full)

        def step(_: Variable, carried: list[ir.Value]) -> list[ir.Value]:
            before, own = carried[:3], carried[3:]
            copy(0, own)
            copy(1, before)
            at, *ring = own
            return [*own, hopper.plus(at, tile.keys), *self._following(ring)]

        # Keys are needed, and their stages free, before the values of the tile before.
        first = [hopper.word(0), *ring]
        copy(0, first)
        state = [*first, hopper.word(tile.keys), *self._following(ring)]
        state = self._over_further(state, step)
        copy(1, state[:3])
        return [*state[4:], *hopper.following(query, query_phase, QUERY_STAGES)]

    def _following(self, ring: list[ir.Value]) -> tuple[ir.Value, ir.Value]:
        """The stage and phase of the rings that follow those."""
        stage, phase = ring
        return hopper.following(stage, phase, self.tile.stages)

    def _over_further(
        self,
        state: list[ir.Value],
        step: Callable[[Variable, list[ir.Value]], list[ir.Value]],
    ) -> list[ir.Value]:
        """A loop over the tiles of keys behind the first one, numbered from 0."""
        ends = [self.walk.seen + (-1), self.walk.used + (-1), constant(self.tiles - 1)]
        return self.nest.reduce_until("tile", ends, self.tiles - 1, state, step)

    def _copy(
        self, number: int, first: ir.Value, batch: list[ir.Value], at: ir.Value, full: ir.Value
    ) -> None:
        """Begin to copy the tile of operand `number` that begins at query or key `first`: a box for
        every 128 bytes of features."""
        tile = self.tile
        lines = tile.keys if number else tile.queries
        for line in range(tile.value_lines if number == 2 else tile.feature_lines):
            to = hopper.at(self.shared, hopper.plus(at, line * lines * LINE_BYTES))
            place = [hopper.word(line * self.held), first, *batch]
            hopper.copy_box(self.descriptions[number], place, to, full)

    # Products

    def _multiply_all(self, block: Index, thread: Index, which: ir.Value) -> None:
        hopper.more_registers(self.tile.registers[0])
        nest = self.nest
        self.lane = nest.named("lane", thread.mod(WARP))
        self.pair = nest.named("pair", self.lane.mod(4))
        number = nest.index_value(thread.floordiv(WARPGROUP) + (-1), Lanes.of(1))
        group = Index.of(Variable("group", 0, self.tile.consumers - 1, number))
        warp = nest.named("warp", thread.floordiv(WARP).mod(_WARPS))
        self.group_start = group * ROWS
        self.own = self.group_start + warp * (ROWS // _WARPS) + self.lane.floordiv(4)
        self.leads = hopper.is_below(self._word(self.lane), 1)
        self.base = hopper.address_of(self.shared)
        self.first_query = hopper.times(hopper.plus(which, -1), ROWS * LINE_BYTES)
        self.turn = which
        is_last = hopper.is_equal(which, self.tile.consumers)
        self.next_turn = hopper.choose(is_last, hopper.word(1), hopper.plus(which, 1))
        if self.tiles > 1:
            with hopper.when(is_last):
                self._pass_turn()
        self.store = self._store(thread, which)
        self._walk(block, [hopper.word(0)] * 4, self._multiply_place)
        if self.store is not None:
            self.store.finish()

    def _store(self, thread: Index, which: ir.Value) -> TileStore | None:
        """The way of outputs through shared memory, where they are an array. Barriers of turns are
        followed by those of the warpgroups' outputs."""
        if self.output is None:
            return None
        store = TileStore(self.second, self.output, self.descriptions[-1], self.columns)
        start = hopper.times(hopper.plus(which, -1), OUTPUT_BYTES)
        shared = hopper.at(self.shared, hopper.plus(start, self.tile.output_start))
        store.prepare(shared, hopper.plus(which, self.tile.consumers), thread)
        return store

    def _await_turn(self) -> None:
        """Wait at the warpgroup's own barrier until the one before it has asked for its products,
        so that one takes exponentials while another one multiplies."""
        hopper.group_barrier(self.turn, 2 * WARPGROUP)

    def _pass_turn(self) -> None:
        hopper.arrive_at_group_barrier(self.next_turn, 2 * WARPGROUP)

    def _multiply_place(self, carried: list[ir.Value]) -> list[ir.Value]:
        """The outputs of a block of queries; carries what `_copy_place` does."""
        nest, tile = self.nest, self.tile
        stage, phase, query, query_phase = carried
        walk = self.walk
        self.row = nest.named("row", walk.start + self.own)
        at = hopper.plus(self._queries_at(query), self.first_query)
        self.query = hopper.descriptor(hopper.plus(self.base, at), 0)
        hopper.wait(self._query_full(query), query_phase)
        hopper.wait(self._full(0, stage), phase)
        hopper.begin_products()
        raw = self._multiply_keys(stage)
        hopper.commit_products()
        raw = hopper.wait_for(raw, 0)
        self._release(self._empty(0, stage))
        low, zero = (
            nest.float_constant(number, ir.F32Type.get()) for number in (float("-inf"), 0.0)
        )
        rows = self._rows(constant(0), self._hidden(constant(0), raw))
        tops = self._maxima(rows, [low] * 2)
        totals, weights = self._weigh(rows, tops, [zero] * 2)
        hopper.wait(self._full(1, stage), phase)
        sums = [zero] * (self.columns // 2)
        following = hopper.following(stage, phase, tile.stages)
        state = [*tops, *totals, stage, *following, *self._packed(weights), *sums]
        state = self._over_further(state, self._step)
        self._release(self._query_empty(query))
        tops, totals, (before,), following, weights, sums = self._split(state)
        hopper.begin_products()
        sums = self._add_values(before, sums, weights)
        hopper.commit_products()
        sums = hopper.wait_for(sums, 0)
        self._release(self._empty(1, before))
        self._finish(totals, sums)
        return [*following, *hopper.following(query, query_phase, QUERY_STAGES)]

    def _split(self, state: list[ir.Value]) -> tuple[list[ir.Value], ...]:
        """What the walk over the keys carries: for each of a thread's two rows the maximum and the
        sum of its weights; the stage of the tile before; stage and phase of this one; the weights
        of the tile before, packed; the outputs."""
        found, start = [], 0
        for count in (2, 2, 1, 2, self.tile.keys // 4, self.columns // 2):
            found.append(state[start : start + count])
            start += count
        return tuple(found)

    def _step(self, further: Variable, state: list[ir.Value]) -> list[ir.Value]:
        """A tile of keys, and the values of the one before."""
        tops, totals, (before,), (stage, phase), weights, sums = self._split(state)
        number = Index.of(further) + 1
        hopper.wait(self._full(0, stage), phase)
        self._await_turn()
        hopper.begin_products()
        raw = self._multiply_keys(stage)
        hopper.commit_products()
        sums = self._add_values(before, sums, weights)
        hopper.commit_products()
        self._pass_turn()
        raw = hopper.wait_for(raw, 1)
        self._release(self._empty(0, stage))
        rows = self._rows(number, self._hidden(number, raw))
        new = self._maxima(rows, tops)
        grows, tops, changes = self._grown(tops, new)
        totals = [arith.MulFOp(n, change).result for n, change in zip(totals, changes, strict=True)]
        totals, weights = self._weigh(rows, tops, totals)
        # Values come before the last products are waited for: ptxas moves exponentials down past
        # that wait, but not past this one. Registers that products read must not change before.
        *weights, low, high = hopper.computed([*weights, *totals])
        hopper.wait(self._full(1, stage), phase)
        sums = hopper.wait_for(sums, 0)
        self._release(self._empty(1, before))
        packed = self._packed(weights)
        sums = hopper.changed(
            grows,
            sums,
            lambda: [arith.MulFOp(n, changes[i // 2 % 2]).result for i, n in enumerate(sums)],
        )
        following = hopper.following(stage, phase, self.tile.stages)
        return [*tops, low, high, stage, *following, *packed, *sums]

    def _release(self, barrier: ir.Value) -> None:
        """This warp has no more use for what a barrier stands for."""
        with hopper.when(self.leads):
            hopper.arrive(barrier)

    def _multiply_keys(self, stage: ir.Value) -> list[ir.Value]:
        """Ask for the products of the queries and a tile of keys."""
        tile = self.tile
        right = hopper.descriptor(hopper.plus(self.base, self._tile_at(0, stage)), 0)
        steps_of_line = LINE_BYTES // STEP_BYTES
        sums: list[ir.Value] | None = None
        for step in range(self.steps):
            line, within = divmod(step, steps_of_line)
            sums = hopper.multiply_into(
                sums,
                hopper.further(self.query, line * tile.queries * LINE_BYTES + within * STEP_BYTES),
                hopper.further(right, line * tile.keys * LINE_BYTES + within * STEP_BYTES),
                tile.keys,
                self.kind,
            )
        assert sums is not None
        return sums

    def _add_values(
        self, stage: ir.Value, sums: list[ir.Value], weights: list[ir.Value]
    ) -> list[ir.Value]:
        """Ask for the products of the weights and a tile of values, beside `sums`."""
        lines = self.tile.keys * LINE_BYTES
        right = hopper.descriptor(hopper.plus(self.base, self._tile_at(1, stage)), lines)
        depth = self.kind.step
        for step in range(self.tile.keys // depth):
            values = hopper.further(right, step * depth * LINE_BYTES)
            own = weights[4 * step : 4 * step + 4]
            sums = hopper.multiply_into(sums, own, values, self.columns, self.kind, True)
        return sums

    # Weights

    def _hidden(self, number: Index, raw: list[ir.Value]) -> list[ir.Value]:
        """The products of tile `number`, -inf for keys that a row of linear scores does not see: a
        branch, since most tiles are seen by all rows."""
        linear, nest = self.linear, self.nest
        if linear is None:
            return raw
        bounds = self.walk.sees_all(number, self.parts, self.tile, linear.diagonal)
        if all(index.high < size for index, size in bounds):
            return raw

        def hide() -> list[ir.Value]:
            start = self._word(number * self.tile.keys + self.pair * 2)
            lefts = [hopper.minus(self._keys_of(high), start) for high in range(2)]
            low = nest.float_constant(float("-inf"), ir.F32Type.get())
            return [
                hopper.choose(
                    hopper.is_above(lefts[i // 2 % 2], i // 4 * COLUMNS + i % 2), value, low
                )
                for i, value in enumerate(raw)
            ]

        whole = nest.below(bounds)
        assert whole is not None
        return hopper.changed(hopper.is_false(whole), raw, hide)

    def _keys_of(self, high: int) -> ir.Value:
        """The number of keys that one of the thread's rows sees, if scores are linear (a word)."""
        assert self.linear is not None
        used = self.parts.used_keys
        keys = hopper.word(self.parts.keys) if used is None else self._word(used.count)
        if self.linear.diagonal is None:
            return keys
        offset, period = self.linear.diagonal
        row = self.row + high * COLUMNS
        return hopper.least(self._word(row.mod(period) + (offset + 1)), keys)

    def _rows(self, number: Index, raw: list[ir.Value]) -> list[list[ir.Value]]:
        """The thread's scores of a tile in its two rows, without the factor of linear ones."""
        if self.linear is None:
            return [self._scores(number, high, raw) for high in range(2)]
        pairs = range(0, len(raw), 4)
        return [[n for i in pairs for n in raw[i + 2 * high :][:2]] for high in range(2)]

    def _maxima(self, rows: list[list[ir.Value]], tops: list[ir.Value]) -> list[ir.Value]:
        """The maximum of each row, with those of the tiles before."""
        found = []
        for top, row in zip(tops, rows, strict=True):
            new = _reduced(maximum, row)
            for offset in (1, 2):
                new = maximum(new, self.nest.shuffle_xor(new, offset))
            found.append(maximum(top, new))
        return found

    def _grown(
        self, tops: list[ir.Value], new: list[ir.Value]
    ) -> tuple[ir.Value, list[ir.Value], list[ir.Value]]:
        """What weights are scaled by from here on: the new maxima, where one has grown much in a
        row of the warp (a condition), else those of before; and what each row's weights so far
        change by then."""
        most = self.nest.float_constant(_MOST_GROWTH / self.scale, ir.F32Type.get())
        grown = [
            arith.CmpFOp(_GREATER, n, _add(top, most)).result
            for top, n in zip(tops, new, strict=True)
        ]
        grows = hopper.any_of_warp(arith.OrIOp(*grown).result)
        new = [hopper.choose(grows, n, top) for top, n in zip(tops, new, strict=True)]
        changes = [self._power(top, self._shift(n)) for top, n in zip(tops, new, strict=True)]
        one = self.nest.float_constant(1.0, ir.F32Type.get())
        return grows, new, [hopper.choose(grows, change, one) for change in changes]

    def _shift(self, top: ir.Value) -> ir.Value:
        """What is added to a row's scores, times `scale`."""
        return self.nest.scaled(shift_of(self.nest, top), -self.scale)

    def _weigh(
        self, rows: list[list[ir.Value]], tops: list[ir.Value], totals: list[ir.Value]
    ) -> tuple[list[ir.Value], list[ir.Value]]:
        """The new sum of each row's weights, and the weights, in the order of their products."""
        found, weights = [], []
        for row, top, total in zip(rows, tops, totals, strict=True):
            shift = self._shift(top)
            weights.append([self._power(score, shift) for score in row])
            found.append(_add(total, _reduced(_add, weights[-1])))
        pairs = range(0, self.tile.keys // 4, 2)
        return found, [n for at in pairs for row in weights for n in row[at : at + 2]]

    def _packed(self, weights: list[ir.Value]) -> list[ir.Value]:
        """Weights as registers of a left operand."""
        return [hopper.packed(weights[i : i + 2], self.kind) for i in range(0, len(weights), 2)]

    def _power(self, score: ir.Value, shift: ir.Value) -> ir.Value:
        """exp(score - m) of scalars, where `shift` is -m times `scale`. Its rounding is the same in
        all of a row's weights, and leaves their ratios as they are."""
        factor = self.nest.splat_like(score, self.scale)
        return power_of_two(self.nest.fma(score, factor, shift))

    def _scores(self, number: Index, high: int, raw: list[ir.Value]) -> list[ir.Value]:
        """The thread's scores of a tile in one of its rows: two keys of every 8."""
        found: list[ir.Value] = []
        row = self.row + high * COLUMNS
        for at in range(self.tile.keys // COLUMNS):
            first = 4 * at + 2 * high
            start = number * self.tile.keys + at * COLUMNS + self.pair * 2
            pair = raw[first : first + 2]
            if self.lanes.count == 2:
                two = vector.FromElementsOp(ir.VectorType.get([2], ir.F32Type.get()), pair).result
                score = self.score.at(self.walk.which, row, start, two, self.lanes)
                found += [vector.ExtractOp(score, [], [i]).result for i in range(2)]
                continue
            found += [
                self.score.at(self.walk.which, row, start + i, value, self.lanes)
                for i, value in enumerate(pair)
            ]
        return found

    def _finish(self, totals: list[ir.Value], sums: list[ir.Value]) -> None:
        """Write the outputs of the thread's two rows."""
        nest = self.nest
        dims = self.second.batch_dims(self.walk.which)
        rows = []
        for high, total in enumerate(totals):
            for offset in (1, 2):
                total = _add(total, nest.shuffle_xor(total, offset))
            own = [n for i in range(2 * high, len(sums), 4) for n in sums[i : i + 2]]
            rows.append(normalized(nest, own, total, self.parts.zero_where))
        if self.store is not None:
            firsts = range(0, len(rows[0]), 2)
            outputs = [n for i in firsts for row in rows for n in row[i : i + 2]]
            start = self.walk.start + self.group_start
            self.store.begin(dims, start, constant(0))
            self.store.write(outputs)
            return
        for high, own in enumerate(rows):
            pairs = list(zip(own[::2], own[1::2], strict=True))
            row = self.row + high * COLUMNS
            write_row(self.second, dims, row, constant(0), self.lane, pairs)


def _reduced(combine: Callable[[ir.Value, ir.Value], ir.Value], values: list[ir.Value]) -> ir.Value:
    """All of `values` combined, in chains side by side."""
    chains = [functools.reduce(combine, values[i::_CHAINS]) for i in range(_CHAINS)]
    return functools.reduce(combine, chains)


def _add(a: ir.Value, b: ir.Value) -> ir.Value:
    return arith.AddFOp(a, b).result
