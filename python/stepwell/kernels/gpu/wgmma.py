"""Contractions by the warpgroups of sm_90a: tiles that the GPU copies by itself, `wgmma` on them.

A block has three warpgroups. One copies: a single thread of it asks for the tiles of each step of
k, 128 bytes of every row and column, as boxes of the operands (tensor maps, which also fill what
lies outside of them with zeros). The other two multiply, 64 rows each. A ring of stages lies
between them, with two barriers a stage:

    copy:      for each step:  wait until the stage is empty;  copy both tiles (counted at `full`)
    multiply:  for each step:  wait until the stage is full;   ask for its products;
                               wait for those of the step before; its stage is empty

A multiprocessor has one block, which walks the tiles of the output; the ring goes on from tile to
tile, so that the next one's first steps are copied during the epilogue. Sums stay in registers, of
which the warpgroups that multiply take most, and go through the epilogue there; outputs that are an
array are written as boxes of it (`tile_store`), others 8 neighbours at a time. Where tiles would
leave the last round of blocks empty, blocks share them by steps of k (`step_shares`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

from stepwell.kernels.builder import Lanes, arith
from stepwell.kernels.cpu.contraction_strategy import ContractionShape
from stepwell.kernels.gpu import hopper, tensor_map
from stepwell.kernels.gpu.accumulators import write_row
from stepwell.kernels.gpu.elementwise import fill_halos
from stepwell.kernels.gpu.hopper import LINE_BYTES, ROWS, STEP_BYTES, WARPGROUP
from stepwell.kernels.gpu.image_window import ImageWindow
from stepwell.kernels.gpu.partial_sums import PartialSums
from stepwell.kernels.gpu.step_shares import Share, StepShares
from stepwell.kernels.gpu.tensor_core import MatrixType
from stepwell.kernels.gpu.tensor_map import TensorMap
from stepwell.kernels.gpu.tile_order import TileOrder
from stepwell.kernels.gpu.tile_space import TileSpace
from stepwell.kernels.gpu.tile_store import TileStore
from stepwell.kernels.gpu.used_tiles import tile_is_needed
from stepwell.kernels.gpu.wgmma_split import SplitProducts
from stepwell.kernels.gpu.wgmma_tile import (
    BLOCKS,
    CONSUMER_REGISTERS,
    OUTPUT_BYTES,
    PRODUCER_REGISTERS,
    WgmmaTile,
)
from stepwell.kernels.index import Index, Variable
from stepwell.mlir import ir
from stepwell.targets.nvidia import WARP

_BARRIER_BYTES = 8
_WARPS = WARPGROUP // WARP
_COPYING = 0
"""The warpgroup that copies; the others multiply."""


@dataclass(frozen=True)
class _Tile:
    """A tile of a block: the dimensions of the batch, its first row and column, and the block's
    share in it, where that is not all of it."""

    dims: list[Index]
    row: Index
    column: Index
    share: Share | None


class WgmmaKernel:
    """One contraction in tiles of `tile`; `maps` are those of lhs and rhs, as `find_maps` gives
    them."""

    def __init__(
        self,
        space: TileSpace,
        tile: WgmmaTile,
        kind: MatrixType,
        maps: tuple[TensorMap, TensorMap],
        *,
        overlaps: bool,
    ) -> None:
        self.space = space
        self.nest = space.nest
        self.shape = space.shape
        self.tile = tile
        self.kind = kind
        self.maps = maps
        self.depth = LINE_BYTES // kind.bytes
        self.overlaps = overlaps
        self.copies_ahead = overlaps and not tile.sharing and self._is_constant(maps[1])
        """Whether first copies of the rhs begin while the kernel before this one ends."""
        window = maps[0].window
        self.steps = -(-self.shape.k // self.depth) if window is None else window.count

    def _is_constant(self, array: TensorMap) -> bool:
        """Whether an array is a weight of the artifact, and numbers in memory do not tell where."""
        constants = {value.arg_number for value in self.space.group.constants}
        return not array.slices and array.argument in constants

    def emit(self) -> None:
        """Write the kernel."""
        shape, tile, nest = self.shape, self.tile, self.nest
        group = self.space.group
        nest.states_alignment = True
        self.output = tensor_map.find_output(self.space)
        arrays = [*self.maps, *([self.output] if self.output is not None else [])]
        nest.tensor_maps += [array.to_attribute() for array in arrays]
        nest.dynamic_shared_bytes = tile.shared_bytes
        nest.resident_blocks = BLOCKS
        nest.cluster = tile.cluster
        down, across = tile.down(shape.m), -(-shape.n // tile.columns)
        self.order = TileOrder.of(self.space, down, across, tile.cluster)
        places = self.order.count
        count = tile.sharing or places
        self.shares = self.partial = None
        if tile.sharing:
            element = ir.Type.parse(self.kind.sum)
            self.shares = StepShares(nest, places, self.steps)
            self.partial = PartialSums(
                self.shares, tile.sharing, tile.consumers, tile.columns // 2, element
            )
        with nest.grid(count, tile.threads) as (block, thread), self.space.evaluator.scope():
            if any(output.halo is not None for output in group.outputs):

                def fill(place: Index, carried: list[ir.Value]) -> list[ir.Value]:
                    worker = place * tile.threads + thread
                    fill_halos(group, nest, worker, count * tile.threads)
                    return carried

                if self.overlaps:
                    hopper.wait_for_kernel()
                nest.walk_places(block, count, [], fill)
            self._block(block, thread)

    def _walk_tiles(
        self,
        block: Index,
        initial: list[ir.Value],
        body: Callable[[_Tile, list[ir.Value]], list[ir.Value]],
    ) -> None:
        """Do `body(tile, carried)` for the tiles of a block. Those of a panel follow one
        another."""
        nest, tile = self.nest, self.tile

        def walk(
            place: Index, carried: list[ir.Value], share: Share | None = None
        ) -> list[ir.Value]:
            which, row, column = self.order.at(nest, place)
            column = nest.named("column", column) * tile.columns
            with self.space.evaluator.scope():
                dims = self.space.batch_dims(which)
                needed = self._is_needed(dims, row, column)

                def do() -> list[ir.Value]:
                    return body(_Tile(dims, row * tile.rows, column, share), carried)

                return do() if needed is None else hopper.changed(needed, carried, do)

        if self.shares is not None:
            self.shares.walk(
                block, initial, lambda share, carried: walk(share.place, carried, share)
            )
        else:
            nest.walk_places(block, self.order.count, initial, walk)

    def _is_needed(self, dims: list[Index], row: Index, column: Index) -> ir.Value | None:
        """Whether one of the tiles of a cluster, that of place `row` down among them, is needed."""
        tile, together = self.tile, self.tile.cluster
        first = row.floordiv(together) * together * tile.rows
        return tile_is_needed(
            self.space, dims, (first, column), (together * tile.rows, tile.columns)
        )

    def _walk_steps(
        self,
        tile: _Tile,
        initial: list[ir.Value],
        body: Callable[[Variable, list[ir.Value]], list[ir.Value]],
    ) -> list[ir.Value]:
        """Do `body(k, carried)` for the steps that the block does of a tile."""
        nest, share = self.nest, tile.share
        if share is None:
            return nest.reduce_loop("k", 0, self.steps, 1, initial, body)
        return nest.reduce_between("k", share.start, share.stop, self.steps, 1, initial, body)

    def _block(self, block: Index, thread: Index) -> None:
        self.shared = hopper.shared_memory()
        count = len(self.maps) + (self.output is not None)
        self.descriptions = [hopper.tensor_map(number) for number in range(count)]
        number = hopper.as_word(self._value(thread))
        with hopper.when(hopper.is_equal(number, 0)):
            for stage in range(self.tile.stages):
                place = hopper.word(stage)
                hopper.init_barrier(self._full(place), 1)
                arrivals = self.tile.consumers * _WARPS * self.tile.cluster
                hopper.init_barrier(self._empty(place), arrivals)
            hopper.show_barriers()
            for pointer in self.descriptions:
                hopper.prefetch_map(pointer)
        self._meet()
        which = hopper.uniform(hopper.as_word(self._value(thread.floordiv(WARPGROUP))))
        warp = hopper.uniform(hopper.as_word(self._value(thread.floordiv(WARP))))
        hopper.either(
            hopper.is_equal(which, _COPYING),
            lambda: self._copy_all(block, warp),
            lambda: self._multiply_all(block, thread, which),
        )
        if self.tile.cluster > 1:
            # Others may still arrive at this block's barriers.
            self._meet()

    def _meet(self) -> None:
        """Wait for all threads that use the block's barriers."""
        if self.tile.cluster > 1:
            hopper.cluster_barrier()
        else:
            self.nest.barrier()

    def _release(self, lane: ir.Value, stage: ir.Value) -> None:
        """A warp's products of a stage are done: it is empty, in every block that fills it; a
        thread says so to each of them."""
        if self.tile.cluster > 1:
            hopper.arrive_at(self._empty(stage), lane)
        else:
            hopper.arrive(self._empty(stage))

    def _value(self, index: Index) -> ir.Value:
        return self.nest.index_value(index, Lanes.of(1))

    def _narrow(self, index: Index) -> Index:
        """A form of which 32 bits are known to be all: it is divided in fewer registers then."""
        value = arith.IndexCastUIOp(ir.IndexType.get(), self._word(index)).result
        return Index.of(Variable("narrow", index.low, index.high, value))

    def _word(self, index: Index) -> ir.Value:
        return hopper.as_word(self._value(index))

    def _full(self, stage: ir.Value) -> ir.Value:
        return hopper.at(self.shared, hopper.times(stage, _BARRIER_BYTES))

    def _empty(self, stage: ir.Value) -> ir.Value:
        first = self.tile.stages * _BARRIER_BYTES
        return hopper.at(self.shared, hopper.plus(hopper.times(stage, _BARRIER_BYTES), first))

    def _tile_at(self, stage: ir.Value) -> ir.Value:
        """Where the tiles of a stage begin, in bytes: that of the lhs, then that of the rhs."""
        size = self.tile.parts * self.tile.stage_bytes
        return hopper.plus(hopper.times(stage, size), hopper.ATOM_BYTES)

    # Copies

    def _copy_all(self, block: Index, warp: ir.Value) -> None:
        hopper.fewer_registers(PRODUCER_REGISTERS)
        self.rank = self._word(block.mod(self.tile.cluster))
        with hopper.when(hopper.is_equal(warp, _COPYING)), hopper.when(hopper.elected()):
            ahead = [self._copy_ahead(block)] if self.copies_ahead else []
            if self.overlaps:
                hopper.wait_for_kernel()
            initial = [hopper.word(0), hopper.word(1), *ahead]
            self._walk_tiles(block, initial, self._copy_tile)

    def _copy_ahead(self, block: Index) -> ir.Value:
        """Begin to copy what the ring has room for of the rhs of the block's first tile; returns
        how many steps that is, as a word."""
        which, row, column = self.order.at(self.nest, block)
        dims = self.space.batch_dims(which)
        column = self.nest.named("column", column) * self.tile.columns
        needed = self._is_needed(dims, row, column)
        places = [self._word(i) for i in (column, *(dims[d] for d in self.maps[1].batch))]
        steps = min(self.tile.stages, self.steps)

        def copy() -> list[ir.Value]:
            for number in range(steps):
                stage = hopper.word(number)
                hopper.expect_bytes(self._full(stage), self.tile.stage_bytes)
                self._copy_right(Index((), number), places, stage)
            return [hopper.word(steps)]

        (begun,) = copy() if needed is None else hopper.changed(needed, [hopper.word(0)], copy)
        return begun

    def _copy_tile(self, tile: _Tile, carried: list[ir.Value]) -> list[ir.Value]:
        window = self.maps[0].window
        places, right = (
            [self._word(i) for i in (first, *(tile.dims[d] for d in m.batch), *slices)]
            for m, first, slices in zip(
                self.maps, (tile.row, tile.column), self._slice_numbers(tile.dims), strict=True
            )
        )
        pixel = [] if window is None else [self._word(i) for i in window.first_pixel(tile.row)]

        def step(k: Variable, carried: list[ir.Value]) -> list[ir.Value]:
            stage, phase, *ahead = carried
            full, index = self._full(stage), Index.of(k)
            hopper.wait(self._empty(stage), phase)

            def copy_right() -> None:
                hopper.expect_bytes(full, self.tile.stage_bytes)
                self._copy_right(index, right, stage)

            if ahead:
                # The first steps' have begun.
                begun = hopper.is_above(ahead[0], 0)
                hopper.either(begun, lambda: None, copy_right)
                ahead = [hopper.choose(begun, hopper.plus(ahead[0], -1), ahead[0])]
            else:
                copy_right()
            at = self._tile_at(stage)
            if window is not None:
                self._copy_image(window, tile, self._seen(window, index), at, pixel, full)
            else:
                first, *batch = places
                at_k = self._word(index * self.depth)
                self._copy(0, self.tile.rows, at, at_k, [first, *batch], full)
            return [*hopper.following(stage, phase, self.tile.stages), *ahead]

        return self._walk_steps(tile, carried, step)

    def _seen(self, window: ImageWindow, k: Index) -> tuple[Index, Index]:
        """The place of the window and the first channel of step `k`."""
        tap, channel = window.place(k if k.is_constant else self._narrow(k))
        return self.nest.named("tap", tap), channel

    def _copy_right(self, k: Index, places: list[ir.Value], stage: ir.Value) -> None:
        """Begin to copy the rhs of step `k`; `places` are its first column and its batch."""
        window, (first, *batch), start = self.maps[0].window, places, k * self.depth
        if window is not None and self.maps[1].taps:
            tap, start = self._seen(window, k)
            batch = [self._word(tap), *batch]
        at = hopper.plus(self._tile_at(stage), self.tile.rows * LINE_BYTES)
        place = [first, *batch]
        self._copy(1, self.tile.columns, at, self._word(start), place, self._full(stage))

    def _copy_image(
        self,
        window: ImageWindow,
        tile: _Tile,
        seen: tuple[Index, Index],
        target: ir.Value,
        pixel: list[ir.Value],
        full: ir.Value,
    ) -> None:
        """Begin to copy what the rows of a tile, the first of which has its first pixel at `pixel`,
        have at the window's place and the first channel `seen`."""
        tap, channel = seen
        hopper.copy_window(
            self.descriptions[0],
            [self._word(channel + window.first_channel(tile.dims)), *reversed(pixel)],
            [self._word(offset) for offset in reversed(window.offsets(tap))],
            hopper.at(self.shared, target),
            full,
        )

    def _slice_numbers(self, dims: list[Index]) -> list[list[Index]]:
        """Of lhs and rhs: which slice of its array a tile's operand is, where numbers tell."""
        operands = (self.shape.lhs, self.shape.rhs)
        return [
            self.space.slice_numbers(operand, dims) if m.slices else []
            for operand, m in zip(operands, self.maps, strict=True)
        ]

    def _copy(
        self,
        number: int,
        lines: int,
        target: ir.Value,
        k: ir.Value,
        places: list[ir.Value],
        full: ir.Value,
    ) -> None:
        """Begin to copy a tile of operand `number`: one box, or one for every 128 bytes of rows or
        columns. Blocks of a cluster copy a part of each box that they share."""
        pointer, (first, *batch) = self.descriptions[number], places
        along_k = self.maps[number].along_k
        blocks = self.tile.cluster if number else 1
        if blocks > 1:
            share = (lines if along_k else self.depth) // blocks
            own = hopper.times(self.rank, share)
            first, k = (hopper.plus(first, own), k) if along_k else (first, hopper.plus(k, own))
            target = hopper.plus(target, hopper.times(self.rank, share * LINE_BYTES))
        if along_k:
            at = hopper.at(self.shared, target)
            hopper.copy_box(pointer, [k, first, *batch], at, full, blocks)
            return
        for part in range(lines // self.depth):
            place = hopper.plus(first, part * self.depth)
            to = hopper.at(self.shared, hopper.plus(target, part * self.depth * LINE_BYTES))
            hopper.copy_box(pointer, [place, k, *batch], to, full, blocks)

    # Products

    def _multiply_all(self, block: Index, thread: Index, which: ir.Value) -> None:
        hopper.more_registers(CONSUMER_REGISTERS)
        if self.overlaps:
            hopper.wait_for_kernel()
        lane = self.nest.named("lane", thread.mod(WARP))
        number = self._word(lane)
        own = hopper.times(hopper.plus(which, -1), ROWS * LINE_BYTES)
        self.split = None
        if self.kind.split:
            within = self._word(thread.mod(WARPGROUP))
            group = hopper.plus(which, -1)
            self.split = SplitProducts(self.tile, self.kind, self.shared, group, within)
        number_of_group = self._value(thread.floordiv(WARPGROUP) + (-1))
        group = Index.of(Variable("group", 0, self.tile.consumers - 1, number_of_group))
        warp = self.nest.named("warp", thread.floordiv(WARP).mod(_WARPS))
        first = group * ROWS + warp * (ROWS // _WARPS)

        store = self._store(thread, which)
        partial = self.partial
        if partial is not None:
            among = block.mod(self.tile.cluster) * self.tile.consumers + group
            partial.prepare(among, thread, which)

        def begin(tile: _Tile) -> None:
            if store is not None:
                store.begin(tile.dims, tile.row + group * ROWS, tile.column)

        def write(tile: _Tile, numbers: list[ir.Value]) -> None:
            if store is None:
                self._finish(tile.dims, tile.row + first, tile.column, lane, numbers)
            else:
                store.write(numbers)

        def multiply(tile: _Tile, carried: list[ir.Value]) -> list[ir.Value]:
            if partial is None:
                begin(tile)
            numbers, carried = self._multiply_tile(tile, own, number, carried)
            if partial is None or tile.share is None:
                write(tile, numbers)
            else:
                with partial.all_of(tile.share, numbers) as total, self.space.evaluator.scope():
                    begin(tile)
                    write(tile, total)
            return carried

        self._walk_tiles(block, [hopper.word(0), hopper.word(0)], multiply)
        if store is not None:
            store.finish()

    def _store(self, thread: Index, which: ir.Value) -> TileStore | None:
        """The way of outputs through shared memory, where they are an array."""
        if self.output is None:
            return None
        store = TileStore(self.space, self.output, self.descriptions[-1], self.tile.columns)
        start = hopper.times(hopper.plus(which, -1), OUTPUT_BYTES)
        shared = hopper.at(self.shared, hopper.plus(start, self.tile.output_start))
        store.prepare(shared, which, thread)
        return store

    def _multiply_tile(
        self, tile: _Tile, own: ir.Value, lane: ir.Value, carried: list[ir.Value]
    ) -> tuple[list[ir.Value], list[ir.Value]]:
        """The sums of a tile, one by one, and the ring's next stage and its phase; `lane` is this
        thread's number in its warp."""
        base = hopper.address_of(self.shared)
        leads = hopper.is_below(lane, self.tile.cluster)
        share, split = tile.share, self.split
        start = None if share is None else self._first_step(share)

        def step(k: Variable, carried: list[ir.Value]) -> list[ir.Value]:
            *sums, stage, phase, before = carried
            hopper.wait(self._full(stage), phase)
            at = self._tile_at(stage)
            if split is not None:
                sums = split.add(sums, at)
            else:
                sums = [self._multiply(sums[0], hopper.plus(base, at), own)]
            with hopper.when(leads):
                self._release_before(k, start, lane, before)
            return [*sums, *hopper.following(stage, phase, self.tile.stages), stage]

        nothing = [hopper.no_sums(self.tile.columns, self.kind)]
        initial = nothing if split is None else split.no_sums()
        *sums, stage, phase, last = self._walk_steps(
            tile, [*initial, *carried, hopper.word(0)], step
        )
        if split is not None:
            numbers = split.total(sums)
        else:
            hopper.wait_products()
            numbers = hopper.numbers(sums[0], self.tile.columns, self.kind)
        with hopper.when(leads):
            self._release(lane, last)
        return numbers, [stage, phase]

    def _first_step(self, share: Share) -> ir.Value:
        """The first step of a share, as a word."""
        zero = arith.ConstantOp(ir.IndexType.get(), 0).result
        return hopper.as_word(arith.MaxSIOp(self._value(share.start), zero).result)

    def _release_before(
        self, k: Variable, start: ir.Value | None, lane: ir.Value, stage: ir.Value
    ) -> None:
        """The products of the step before are done, if there was one: the first is `start`, or
        0."""
        index = Index.of(k)
        if index.is_constant:
            return
        step = hopper.as_word(self._value(index))
        with hopper.when(hopper.is_not(step, 0 if start is None else start)):
            self._release(lane, stage)

    def _multiply(self, sums: ir.Value, at: ir.Value, own: ir.Value) -> ir.Value:
        """Ask for the products of the tiles at `at`, of rows that begin `own` bytes further."""
        tile, kind = self.tile, self.kind
        places = (hopper.plus(at, own), hopper.plus(at, tile.rows * LINE_BYTES))
        left, right = (
            hopper.descriptor(place, 0 if m.along_k else self.depth * LINE_BYTES)
            for place, m in zip(places, self.maps, strict=True)
        )
        transposed = (not self.maps[0].along_k, not self.maps[1].along_k)
        hopper.begin_products()
        for step in range(LINE_BYTES // STEP_BYTES):
            first, second = (
                hopper.further(operand, step * self._step_bytes(number))
                for number, operand in enumerate((left, right))
            )
            sums = hopper.multiply(sums, first, second, tile.columns, kind, transposed)
        hopper.end_products(1)
        return sums

    def _step_bytes(self, number: int) -> int:
        """From one instruction's part of a tile to the next one's."""
        along_k = self.maps[number].along_k
        return STEP_BYTES if along_k else STEP_BYTES // self.kind.bytes * LINE_BYTES

    def _finish(
        self, dims: list[Index], row: Index, column: Index, lane: Index, numbers: list[ir.Value]
    ) -> None:
        """Write the outputs: a thread has rows r and r + 8, r = lane / 4, of its warp's 16."""
        first_row = self.nest.named("first_row", row + lane.floordiv(4))
        for high in range(2):
            pairs = [(numbers[i], numbers[i + 1]) for i in range(2 * high, len(numbers), 4)]
            write_row(self.space, dims, first_row + 8 * high, column, lane, pairs)


def find_maps(
    space: TileSpace, kind: MatrixType, tile: WgmmaTile, *, own_channels: bool
) -> tuple[TensorMap, TensorMap] | None:
    """The operands as arrays of which boxes are copied; None where one is not. With `own_channels`
    no zero of the filters meets channels of another group."""
    shape = space.shape
    left = tensor_map.find(space, kind, shape.lhs, tile.rows)
    if left is None:
        left = tensor_map.find_image(space, kind, tile.rows)
    if left is None:
        return None
    window = left.window
    if own_channels and window is not None and window.reads_others:
        return None
    right = tensor_map.find(space, kind, shape.rhs, tile.columns, tile.cluster, window)
    return (left, right) if right is not None else None


def walked_shape(space: TileSpace, kind: MatrixType) -> ContractionShape:
    """The contraction as warpgroups walk it: of an image, whole lines of channels at each place of
    the window."""
    shape = space.shape
    left = tensor_map.find(space, kind, shape.lhs, 1) or tensor_map.find_image(space, kind, 1)
    if left is None or left.window is None:
        return shape
    channel = next(d for d in reversed(shape.reduced) if shape.sizes[d] > 1)
    sizes = list(shape.sizes)
    sizes[channel] = left.window.lines * left.window.line
    return dataclasses.replace(shape, sizes=tuple(sizes))
