"""Contractions on a grid: matrix products and convolutions by tiles in shared memory.

    out[b, m, n] += lhs[b, m, k] * rhs[b, k, n]        (m and k may be several dimensions)

A block computes a tile of `rows` x `columns` outputs. In every step its threads copy `depth` places
of k of both operands to shared memory, 4 elements at a time along the dimension that is contiguous,
then each adds their products to a register tile: groups of 4 rows by groups of 4
columns, spread over the block's tile so that the threads of a warp read different banks. The
epilogue works on the accumulators. Arithmetic is that of the operands' own types (no tensor cores).
"""

from __future__ import annotations

from stepwell.errors import LoweringError
from stepwell.kernels.builder import Lanes, vector
from stepwell.kernels.cpu.contraction_strategy import ContractionShape
from stepwell.kernels.gpu import mma_tile, reduction, simt_tile, wgmma, wgmma_tile
from stepwell.kernels.gpu.elementwise import element_bits, fill_halos
from stepwell.kernels.gpu.grid import GridBuilder
from stepwell.kernels.gpu.mma import MmaKernel
from stepwell.kernels.gpu.simt_tile import GROUP, SimtTile
from stepwell.kernels.gpu.tensor_core import F32Products, MatrixType
from stepwell.kernels.gpu.tile_order import TileOrder
from stepwell.kernels.gpu.tile_space import TileSpace
from stepwell.kernels.group import KernelGroup, accesses
from stepwell.kernels.index import Index, Variable, apply_map, constant, delinearize, linearize
from stepwell.kernels.structured import Structured, element_type, is_multiply_add, shape_of
from stepwell.mlir import ir
from stepwell.targets.nvidia import NvidiaTarget

PADDING_BITS = 128
"""Shared rows are longer by this: writes along a column then meet different banks."""

_WORD_BITS = 32


def emit(
    group: KernelGroup,
    nest: GridBuilder,
    operands: tuple[int, int] | None,
    target: NvidiaTarget,
    *,
    f32: F32Products = "exact",
    whole_sums: bool = False,
    strategy: ir.Attribute | None = None,
) -> None:
    """Write a contraction of `operands`, the numbers of lhs and rhs: on tensor cores where they
    take its types (f32 as `f32` says), in the tiles of `strategy` or of the cost
    model (with `whole_sums`, each sum in one block); else in `SimtTile`s. One that is too small for
    tiles, or more than a product, is done a thread an output."""
    op = group.anchor()
    shape = ContractionShape.of(op, operands) if operands is not None else None
    if shape is None or not is_multiply_add(op, widening=True):
        reduction.emit(group, nest)
        return
    kind = mma_tile.matrix_type(op, shape, target, f32)
    if kind is not None and mma_tile.is_large_enough(shape, kind):
        space = TileSpace(group, nest, op, shape)
        if strategy is None:
            strategy = _tensor_core_tile(space, kind, target, whole_sums=whole_sums).to_attribute()
            group.function.attributes["kernel.strategy"] = strategy
        if "warp_rows" in ir.DictAttr(strategy):
            tile = mma_tile.MmaTile.from_attribute(strategy)
            MmaKernel(space, tile, kind, overlaps=target.overlaps_kernels).emit()
            return
        tile = wgmma_tile.WgmmaTile.from_attribute(strategy)
        walked = wgmma.walked_shape(space, kind)
        if tile.sharing and not wgmma_tile.can_share(tile, walked, kind, tile.sharing):
            raise LoweringError(
                f"{tile.sharing} blocks of this strategy share tiles: they are no whole clusters, "
                "or have no step each"
            )
        maps = wgmma.find_maps(space, kind, tile, own_channels=whole_sums)
        if maps is None:
            raise LoweringError("an operand of this strategy is no array of which boxes are copied")
        wgmma.WgmmaKernel(space, tile, kind, maps, overlaps=target.overlaps_kernels).emit()
    elif simt_tile.is_large_enough(shape):
        _Tiled(group, nest, op, shape, simt_tile.choose(shape)).emit()
    else:
        reduction.emit(group, nest)


def _tensor_core_tile(
    space: TileSpace, kind: MatrixType, target: NvidiaTarget, *, whole_sums: bool
) -> mma_tile.MmaTile | wgmma_tile.WgmmaTile:
    """The tile with the least estimated time: of warpgroups, where they take the operands as they
    lie in memory, or of warps."""
    shape = space.shape
    by_warps = mma_tile.choose(shape, kind, target)
    if not wgmma_tile.takes(kind, target):
        return by_warps
    wide = any(element_bits(element_type(o.value)) > _WORD_BITS for o in space.group.outputs)
    walked = wgmma.walked_shape(space, kind)
    by_groups = wgmma_tile.choose(walked, kind, target, wide=wide, whole_sums=whole_sums)
    slower = wgmma_tile.cycles(by_groups, walked, kind, target) > mma_tile.cycles(
        by_warps, shape, kind, target
    )
    if slower or wgmma.find_maps(space, kind, by_groups, own_channels=whole_sums) is None:
        return by_warps
    return by_groups


class _Tiled:
    def __init__(
        self,
        group: KernelGroup,
        nest: GridBuilder,
        op: Structured,
        shape: ContractionShape,
        tile: SimtTile,
    ) -> None:
        self.group = group
        self.nest = nest
        self.evaluator = group.evaluator
        self.op = op
        self.shape = shape
        self.tile = tile
        self.lanes = Lanes.of(GROUP)
        self.space = TileSpace(group, nest, op, shape)
        self.lhs = self._shared(shape.lhs, tile.rows)
        self.rhs = self._shared(shape.rhs, tile.columns)

    def _shared(self, operand: int, extent: int) -> ir.Value:
        """A tile of an operand, [depth][extent and some padding]."""
        kind = element_type(self.op.inputs[operand])
        bits = element_bits(kind)
        return self.nest.shared([self.tile.depth, extent + PADDING_BITS // bits], kind, bits // 8)

    def emit(self) -> None:
        shape, tile = self.shape, self.tile
        down, across = -(-shape.m // tile.rows), -(-shape.n // tile.columns)
        order = TileOrder(shape.extent(shape.batch), down, across, panel=1, continues=False)
        if self.space.takes_slices():
            order = TileOrder.of(self.space, down, across)
        blocks = order.count
        with self.nest.grid(blocks, tile.threads) as (block, thread), self.evaluator.scope():
            fill_halos(self.group, self.nest, block * tile.threads + thread, blocks * tile.threads)
            which, row, column = order.at(self.nest, block)
            dims = self.space.batch_dims(which)
            first_row = row * tile.rows
            first_column = self.nest.named("column", column) * tile.columns
            self._block(dims, first_row, first_column, thread)

    def _block(self, dims: list[Index], row: Index, column: Index, thread: Index) -> None:
        tile, nest = self.tile, self.nest
        width = tile.columns // tile.thread_columns
        down = self.nest.named("ty", thread.floordiv(width))
        across = self.nest.named("tx", thread.mod(width))
        rows = _spread(down, tile.rows, tile.thread_rows)
        columns = _spread(across, tile.columns, tile.thread_columns)[::GROUP]
        kind = element_type(self.op.op.results[0])
        zero = nest.zero(kind, GROUP)

        def step(k: Variable, sums: list[ir.Value]) -> list[ir.Value]:
            start = Index.of(k) * tile.depth
            with self.evaluator.scope():
                self._copy(self.shape.lhs, self.lhs, dims, row, start, thread)
                self._copy(self.shape.rhs, self.rhs, dims, column, start, thread)
            nest.barrier()
            sums = self._multiply(sums, rows, columns)
            nest.barrier()
            return sums

        steps = -(-self.shape.k // tile.depth)
        cells = [(r, c) for r in rows for c in columns]
        sums = nest.reduce_loop("k", 0, steps, 1, [zero] * len(cells), step)
        for (r, c), total in zip(cells, sums, strict=True):
            self.space.finish(dims, row + r, column + c, total)

    def _multiply(
        self, sums: list[ir.Value], rows: list[Index], columns: list[Index]
    ) -> list[ir.Value]:
        """Add the products of the tiles in shared memory."""
        nest, op, lanes = self.nest, self.op, self.lanes
        grouped = self.tile.thread_rows % GROUP == 0
        accumulator = op.body.arguments[len(op.inputs)]
        one = Lanes.of(1)
        for k in range(self.tile.depth):
            at = constant(k)
            right = [nest.load(self.rhs, [at, c + lanes.index], lanes) for c in columns]
            left: list[ir.Value] = []
            for r in rows[::GROUP] if grouped else rows:
                if not grouped:
                    left.append(nest.load(self.lhs, [at, r], one))
                    continue
                four = nest.load(self.lhs, [at, r + lanes.index], lanes)
                left += [vector.ExtractOp(four, [], [i]).result for i in range(GROUP)]
            products = [(a, b) for a in left for b in right]
            following = []
            for (a, b), total in zip(products, sums, strict=True):
                arguments: dict = {
                    op.body.arguments[self.shape.lhs]: a,
                    op.body.arguments[self.shape.rhs]: b,
                    accumulator: total,
                }
                following.append(self.evaluator.run_body(op, [], arguments, lanes))
            sums = following
        return sums

    def _copy(
        self,
        operand: int,
        buffer: ir.Value,
        dims: list[Index],
        first: Index,
        start: Index,
        thread: Index,
    ) -> None:
        """Copy a tile of an operand to shared memory: `first` is its first row or column, `start`
        its first place in the reduced dimensions. Places outside of the operand become zeros."""
        tile, nest, lanes = self.tile, self.nest, self.lanes
        extent = tile.rows if operand == self.shape.lhs else tile.columns
        limit = self.space.limit(operand)
        along_k = self._is_contiguous_in_k(operand)
        inner, outer = (tile.depth, extent) if along_k else (extent, tile.depth)
        count = inner * outer // GROUP
        zero = nest.zero(element_type(self.op.inputs[operand]), GROUP)
        for number in range(-(-count // tile.threads)):
            flat = self.nest.named("copied", thread + number * tile.threads)
            with self.evaluator.scope(), nest.inside([(flat, count)]) as wanted, wanted.then():
                major, minor = delinearize(flat, [outer, inner // GROUP])
                minor = self.nest.named("minor", minor) * GROUP
                major = self.nest.named("major", major)
                ends = minor + lanes.index
                k, place = (ends, major) if along_k else (major, ends)
                bounds = [(start + k, self.shape.k), (first + place, limit)]
                whole = all(lanes.at(i, 0).high + _reach(i, lanes) < size for i, size in bounds)
                if whole or _steps_by_groups(bounds, lanes):
                    tests = [(lanes.at(i, 0), size) for i, size in bounds]
                    self._guarded(operand, buffer, dims, (k, place), (start, first), tests, zero)
                    continue
                for lane in range(GROUP):
                    at = lanes.at(k, lane), lanes.at(place, lane)
                    tests = [(lanes.at(i, lane), size) for i, size in bounds]
                    self._guarded(operand, buffer, dims, at, (start, first), tests, None)

    def _guarded(
        self,
        operand: int,
        buffer: ir.Value,
        dims: list[Index],
        at: tuple[Index, Index],
        origin: tuple[Index, Index],
        tests: list[tuple[Index, int]],
        zero: ir.Value | None,
    ) -> None:
        """Copy what lies at `at`, (k, row or column) of the tile that starts at `origin`: a vector,
        or an element where `zero`, the vector for places outside, is None."""
        nest = self.nest
        lanes = self.lanes if zero is not None else Lanes.of(1)
        kind = element_type(self.op.inputs[operand])

        def copy() -> None:
            value = self._operand(operand, dims, origin[0] + at[0], origin[1] + at[1], lanes)
            nest.store(value, buffer, list(at), lanes)

        if all(index.high < size for index, size in tests):
            copy()
            return
        with nest.inside(tests, otherwise=True) as branch:
            with branch.then(), self.evaluator.scope():
                copy()
            with branch.otherwise():
                nest.store(nest.zero(kind, 1) if zero is None else zero, buffer, list(at), lanes)

    def _operand(
        self, operand: int, dims: list[Index], k: Index, place: Index, lanes: Lanes
    ) -> ir.Value:
        return self.evaluator.at(
            self.op.inputs[operand], self.space.indices(dims, k, place, operand), lanes
        )

    def _is_contiguous_in_k(self, operand: int) -> bool:
        """Whether neighbours in the last reduced dimension lie together in memory."""
        sizes = self.shape.sizes
        dims = [Variable(f"d{i}", 0, max(n, 1) - 1) for i, n in enumerate(sizes)]
        at = apply_map(self.op.maps[operand], [Index.of(d) for d in dims])
        leaves = set(self.evaluator.buffers)
        found = next(accesses(self.op.inputs[operand], at, leaves, self.evaluator), None)
        if found is None:
            return True
        leaf, indices = found
        flat = linearize(indices, shape_of(leaf))
        last = next((d for d in reversed(self.shape.reduced) if sizes[d] > 1), None)
        return last is not None and flat.coefficient(dims[last]) == 1


def _spread(thread: Index, extent: int, own: int) -> list[Index]:
    """The places of a thread that has `own` of `extent`: groups of 4 side by side with those of
    its neighbours; fewer than 4 in a row."""
    if own % GROUP:
        return [thread * own + i for i in range(own)]
    stride = extent // (own // GROUP)
    return [thread * GROUP + g * stride + i for g in range(own // GROUP) for i in range(GROUP)]


def _reach(index: Index, lanes: Lanes) -> int:
    """How far the last lane lies from the first."""
    return (lanes.count - 1) * (lanes.stride(index) or 0)


def _steps_by_groups(bounds: list[tuple[Index, int]], lanes: Lanes) -> bool:
    """Whether a vector lies inside of all bounds when its first element does: the bounds of what
    moves with the lane are multiples of the group."""
    return all(size % GROUP == 0 for index, size in bounds if lanes.stride(index))
