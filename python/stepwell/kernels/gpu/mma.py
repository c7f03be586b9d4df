"""Contractions by tensor cores: `mma.sync` on tiles that `cp.async` brings to shared memory.

A block computes a tile of `rows` x `columns` outputs, each warp a part of it in registers. k is
walked in steps of 64 or 128 bytes; a ring of them is in shared memory, of which the first is
multiplied while the others are on their way:

    copy steps 0 .. stages-2             (weights while the kernel before ends, from sm_90 on)
    for each step of k:
        wait for its copies; barrier         (the barrier also ends the reading of the step before)
        copy the step that is stages-1 ahead to where the step before was
        for each 32 bytes of k: load fragments (ldmatrix); multiply (mma.sync)

Sums stay in registers and go through the epilogue there, 8 neighbours at a time.
"""

from __future__ import annotations

from stepwell.kernels.builder import arith, vector
from stepwell.kernels.gpu import hopper, split_f32, tensor_core
from stepwell.kernels.gpu.accumulators import write_row
from stepwell.kernels.gpu.elementwise import fill_halos
from stepwell.kernels.gpu.fragments import Fragments
from stepwell.kernels.gpu.mma_tile import MmaTile, steps_of
from stepwell.kernels.gpu.operand_ring import OperandRing
from stepwell.kernels.gpu.split_f32 import Parts
from stepwell.kernels.gpu.tensor_core import COLUMNS, ROWS, MatrixType
from stepwell.kernels.gpu.tile_order import TileOrder
from stepwell.kernels.gpu.tile_space import TileSpace
from stepwell.kernels.index import Index, Variable, constant, delinearize
from stepwell.mlir import ir
from stepwell.targets.nvidia import WARP


class MmaKernel:
    """One contraction in tiles of `tile`, its operands taken as `kind`."""

    def __init__(
        self, space: TileSpace, tile: MmaTile, kind: MatrixType, *, overlaps: bool
    ) -> None:
        self.space = space
        self.group = space.group
        self.nest = space.nest
        self.shape = shape = space.shape
        self.tile = tile
        self.kind = kind
        self.left = OperandRing(self.space, kind, shape.lhs, tile, tile.rows)
        self.right = OperandRing(self.space, kind, shape.rhs, tile, tile.columns)
        rings = (self.left, self.right)
        self.ahead = [ring for ring in rings if overlaps and ring.is_constant]
        """Those whose first copies begin while the kernel before this one ends."""
        self.steps = -(-shape.k // self.left.depth)
        self.fragments = tile.warp_rows // ROWS, tile.warp_columns // COLUMNS
        """Instructions of a warp down and across, for each step of k."""

    def emit(self) -> None:
        """Write the kernel."""
        shape, tile, nest = self.shape, self.tile, self.nest
        nest.states_alignment = True
        down, across = -(-shape.m // tile.rows), -(-shape.n // tile.columns)
        order = TileOrder.of(self.space, down, across)
        blocks = order.count
        with nest.grid(blocks, tile.threads) as (block, thread), self.space.evaluator.scope():
            self.worker = block * tile.threads + thread, blocks * tile.threads
            which, row, column = order.at(nest, block)
            dims = self.space.batch_dims(which)
            self._block(dims, row * tile.rows, nest.named("column", column) * tile.columns, thread)

    def _block(self, dims: list[Index], row: Index, column: Index, thread: Index) -> None:
        nest, tile = self.nest, self.tile
        lane = nest.named("lane", thread.mod(WARP))
        warp_down, warp_across = delinearize(thread.floordiv(WARP), list(tile.warps))
        warp_row = nest.named("warp_row", warp_down) * tile.warp_rows
        warp_column = nest.named("warp_column", warp_across) * tile.warp_columns
        self.left.prepare(dims, row, thread)
        self.right.prepare(dims, column, thread)
        left = Fragments(self.left, warp_row, lane, left=True)
        right = Fragments(self.right, warp_column, lane, left=False)
        left.prepare(self.fragments[0], steps_of(tile))
        right.prepare(self.fragments[1] // 2, steps_of(tile))
        sums = self._loop(left, right)
        self._finish(dims, row + warp_row, column + warp_column, lane, sums)

    def _loop(self, left: Fragments, right: Fragments) -> list[ir.Value]:
        """The loop over k; returns the sums of each instruction of the warp."""
        nest, stages = self.nest, self.tile.stages
        index = ir.IndexType.get()
        if self.ahead:
            self._begin_first(self.ahead)
            hopper.wait_for_kernel()
        fill_halos(self.group, nest, *self.worker)
        self._begin_first([ring for ring in (self.left, self.right) if ring not in self.ahead])
        down, across = self.fragments
        sums = [tensor_core.no_sums(self.kind)] * (down * across)
        places = [arith.ConstantOp(index, place).result for place in (0, stages - 1)]

        def step(k: Variable, carried: list[ir.Value]) -> list[ir.Value]:
            reading, writing, *sums = carried
            tensor_core.wait(stages - 2)
            nest.barrier()
            ahead = Index.of(k) + (stages - 1)
            pending = self._begin(ahead, writing)
            tensor_core.commit()
            sums = self._multiply(left, right, reading, sums)
            for ring, values in zip((self.left, self.right), pending, strict=True):
                ring.end(values, writing)
            return [self._next(reading), self._next(writing), *sums]

        return nest.reduce_loop("k", 0, self.steps, 1, [*places, *sums], step)[2:]

    def _begin_first(self, rings: list[OperandRing]) -> None:
        """Begin the copies of as many steps as the ring has room for, a group each; those of
        `ahead` belong to the first group that follows."""
        for stage in range(self.tile.stages - 1):
            if stage < self.steps:
                place = arith.ConstantOp(ir.IndexType.get(), stage).result
                for ring in rings:
                    ring.end(ring.begin(constant(stage), place), place)
            if rings is not self.ahead:
                tensor_core.commit()

    def _begin(self, step: Index, stage: ir.Value) -> list[list[ir.Value]]:
        """Begin the copies of `step` where there is such a step; returns what was read."""
        rings = (self.left, self.right)
        if step.low < self.steps:
            with self.nest.where([(step, self.steps)]):
                for ring in rings:
                    if ring.is_async:
                        ring.begin(step, stage)
            return [[] if ring.is_async else ring.begin(step, stage) for ring in rings]
        return [[], []]

    def _next(self, place: ir.Value) -> ir.Value:
        """The place of the ring after `place`."""
        index = ir.IndexType.get()
        first, last = (arith.ConstantOp(index, n).result for n in (0, self.tile.stages - 1))
        wraps = arith.CmpIOp(0, place, last).result
        return arith.SelectOp(wraps, first, self.nest.plus(place, 1)).result

    def _multiply(
        self, left: Fragments, right: Fragments, stage: ir.Value, sums: list[ir.Value]
    ) -> list[ir.Value]:
        """Add the products of one tile of the ring."""
        down, across = self.fragments
        offsets = [self.nest.times(stage, ring.size) for ring in (self.left, self.right)]
        if self.kind.split:
            return self._multiply_split(left, right, offsets, sums)
        for step in range(steps_of(self.tile)):
            rows = [left.load(i, step, offsets[0]) for i in range(down)]
            columns: list[ir.Value] = []
            for pair in range(across // 2):
                loaded = right.load(pair, step, offsets[1])
                columns += [tensor_core.half(loaded, number) for number in range(2)]
            cells = [(a, b) for a in rows for b in columns]
            sums = [
                tensor_core.multiply(a, b, total, self.kind)
                for (a, b), total in zip(cells, sums, strict=True)
            ]
        return sums

    def _multiply_split(
        self, left: Fragments, right: Fragments, offsets: list[ir.Value], sums: list[ir.Value]
    ) -> list[ir.Value]:
        """`_multiply` by products of parts; `offsets` are where the tiles of both begin."""
        down, across = self.fragments
        for first in range(0, steps_of(self.tile), split_f32.STEPS):
            steps = range(first, first + split_f32.STEPS)
            columns: list[list[Parts]] = []
            for pair in range(across // 2):
                loaded = [Parts.of(right.load(pair, step, offsets[1])) for step in steps]
                columns += [[part.half(number) for part in loaded] for number in range(2)]
            found: list[ir.Value] = []
            for i in range(down):
                rows = [Parts.of(left.load(i, step, offsets[0])) for step in steps]
                found += split_f32.multiply(rows, columns, sums[i * across :][:across], self.kind)
            sums = found
        return sums

    def _finish(
        self, dims: list[Index], row: Index, column: Index, lane: Index, sums: list[ir.Value]
    ) -> None:
        """Write the outputs: a thread has rows r and r + 8, r = lane / 4, of each instruction."""
        down, across = self.fragments
        first_row = self.nest.named("first_row", row + lane.floordiv(4))
        for i in range(down):
            for high in range(2):
                pairs = []
                for part in sums[i * across :][:across]:
                    both = vector.ExtractOp(part, [], [high]).result
                    first, second = (vector.ExtractOp(both, [], [j]).result for j in range(2))
                    pairs.append((first, second))
                write_row(
                    self.space,
                    dims,
                    first_row + (i * ROWS + high * COLUMNS),
                    column,
                    lane,
                    pairs,
                    ordered=self.right.is_permuted,
                )
