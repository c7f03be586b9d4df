"""Winograd convolution: 3x3 filters by F(2x2) and F(4x4).

Filters may be dilated, in groups, and have further dimensions in front (3-D convolutions): every
d-th row and column are an image of their own, and the products sum over those dimensions as over
the channels. With a stride of 2, even and odd rows and columns are four images with filters of 2x2,
2x1, 1x2 and 1x1, whose products are summed before they are transformed back.

    output tile = A^T [ (G w G^T) * (B^T d B) ] A        (S. Winograd, 1980; A. Lavin, S. Gray,
    2016)

m x m outputs take (m + 2)^2 multiplications an input and output channel, instead of 9 m^2: 2.25 and
4 times fewer; with a stride of 2 (2 m + 1)^2, 1.44 and 1.78 times fewer. The weights G w G^T are
made at compile time in float64. A task transforms a block of input tiles into scratch that stays in
L2, then, a panel of output channels at a time, multiplies each position as a small matrix product
and transforms back, with the epilogue on the results.

F(4x4) uses the points 0, +-11/16, +-3/2 and infinity: over three random layers (128 channels,
positive inputs) its relative L2 error is 8.2e-7 to 9.3e-7, where direct summation in one chain
gives 4.3e-7, the points 0, +-1, +-2 about 2.0e-6, and F(2x2) 3.1e-7. With a stride of 2 it uses
+-7/16, +-11/8 and infinity: 9.6e-7, and F(2x2) 4.8e-7.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stepwell.kernels.builder import Lanes
from stepwell.kernels.cpu.contraction_strategy import (
    fits_registers,
    steps_at_once,
    summation_levels,
)
from stepwell.kernels.cpu.prefetch import lines_ahead
from stepwell.kernels.cpu.winograd_transform import (
    FILTER,
    TILES,
    Transform,
    transform_matrices,
    window_of,
)
from stepwell.kernels.group import KernelGroup, widths
from stepwell.kernels.index import Index, Variable, apply_map, constant, delinearize
from stepwell.kernels.strategy import IntegerStrategy
from stepwell.kernels.structured import Structured, element_type
from stepwell.mlir import ir
from stepwell.packing import (
    WinogradPacking,
    WinogradRegion,
    winograd_phases,
    winograd_regions,
)
from stepwell.targets import Target

_SCRATCH_BYTES = 3 << 20
"""The largest scratch of a task: a thread's stack has 8 MiB, or what its creator gave it."""

_MOST_ROWS = 14
"""Tiles of a register tile at most: more have no registers on any target for two vectors."""

_FEWEST = 16
"""Channels that the transforms are worth, at least."""

_LARGE_BLOCKS = 8
"""Up to so many blocks may be larger than L2, of the same size each."""

_LINE = 16
"""Numbers that keep the positions of a tile apart: without them, they would lie a power of two
apart, in few sets of the cache."""

ATTRIBUTE = "kernel.winograd"
"""Marks a convolution whose input is padded to whole tiles: its value is the tile."""


@dataclass(frozen=True)
class WinogradStrategy(IntegerStrategy):
    """`tile` outputs a side; `block` input tiles and `panels` panels of `vectors` vectors a task;
    `rows` tiles in a register tile of the matrix products."""

    tile: int
    block: int
    rows: int
    vectors: int
    panels: int


@dataclass(frozen=True)
class ConvolutionShape:
    """A 3x3 convolution on images with channels last: the positions of its loops, their sizes, the
    dilations of height and width, and the stride of both, 2 only without dilation. There may be
    further dimensions in front: those of the result are `images`, those that are summed over beside
    the channels (the depth of a 3-D filter) `taps`. The channels may be in groups: `inputs` and
    `outputs` are those of one."""

    images: tuple[int, ...]
    height: int
    width: int
    outputs: int
    taps: tuple[int, ...]
    filter_height: int
    filter_width: int
    inputs: int
    sizes: tuple[int, ...]
    dilations: tuple[int, int] = (1, 1)
    group: int | None = None
    stride: int = 1

    @staticmethod
    def of(op: Structured) -> ConvolutionShape | None:
        """The shape of `op` if it is such a convolution: lhs [image.., height, width, in], rhs
        [tap.., 3, 3, in, out], or with groups before the channels, [.., group, in] and
        [.., in, group, out]."""
        if len(op.inputs) != 2 or str(element_type(op.op.results[0])) != "f32":
            return None
        output, filters = _positions(op.output_map), _positions(op.maps[1])
        sizes = tuple(op.loop_sizes())
        group = output[-2] if len(output) > 1 and output[-2] in filters else None
        if group is not None:
            if filters[-2] != group:
                return None
            output, filters = [*output[:-2], output[-1]], [*filters[:-2], filters[-1]]
        here = len(output) + len(filters) + (group is not None)
        if len(output) < 4 or len(filters) < 4 or here != len(sizes) + 1:
            return None
        *images, height, width, outputs = output
        *taps, filter_height, filter_width, inputs, last = filters
        loops = [Variable(f"d{i}", 0, max(n, 1) - 1) for i, n in enumerate(sizes)]
        reads = [
            {loops.index(v): index.coefficient(v) for v in index.variables()}
            for index in apply_map(op.maps[0], [Index(((loop, 1),)) for loop in loops])
        ]
        if group is not None and len(reads) > 1 and reads.pop(-2) != {group: 1}:
            return None
        if len(reads) != len(output) or last != outputs or reads[-1] != {inputs: 1}:
            return None
        down, dilation_down = reads[-3].get(height, 0), reads[-3].get(filter_height, 0)
        across, dilation_across = reads[-2].get(width, 0), reads[-2].get(filter_width, 0)
        dilations = (dilation_down, dilation_across)
        outer = {d for read in reads[:-3] for d in read}
        if (
            reads[-3].keys() != {height, filter_height}
            or reads[-2].keys() != {width, filter_width}
            or down != across
            or not (down == 1 or (down == 2 and dilations == (1, 1)))
            or not outer <= {*images, *taps}
            or (sizes[filter_height], sizes[filter_width]) != (FILTER, FILTER)
        ):
            return None
        return ConvolutionShape(
            tuple(images),
            height,
            width,
            outputs,
            tuple(taps),
            filter_height,
            filter_width,
            inputs,
            sizes,
            dilations,
            group,
            down,
        )

    def extents(self) -> tuple[int, int, int, int, int]:
        """(images, height, width, terms beside those of the 3x3 filter, output channels), those of
        a group."""
        s = self.sizes
        return self.of_all(self.images), s[self.height], s[self.width], self.terms, s[self.outputs]

    def of_all(self, dims: tuple[int, ...]) -> int:
        return math.prod(self.sizes[d] for d in dims)

    @property
    def groups(self) -> int:
        return 1 if self.group is None else self.sizes[self.group]

    @property
    def terms(self) -> int:
        """Terms of a sum beside those of the 3x3 filter."""
        return self.of_all((*self.taps, self.inputs))

    @property
    def summed(self) -> int:
        """Terms of a position's sum, where all phases of the image are in it."""
        return self.terms * len(winograd_phases(self.stride))

    def window(self, tile: int) -> int:
        """Positions a side of a tile."""
        return window_of(tile, self.stride)

    def regions(self, tile: int) -> tuple[WinogradRegion, ...]:
        """The positions of a tile."""
        return winograd_regions(self.window(tile), self.stride)

    def sums(self, tile: int) -> int:
        """Positions of a tile, each as often as phases meet there."""
        return sum(len(region.positions) * region.phases for region in self.regions(tile))

    def grid(self, tile: int) -> list[int]:
        """How many tiles there are: of images, of phases of dilated rows and columns, which are
        images of their own, of rows and of columns."""
        spatial = zip((self.height, self.width), self.dilations, strict=True)
        counts = [-(-self.sizes[d] // (dilation * tile)) for d, dilation in spatial]
        return [*(self.sizes[d] for d in self.images), *self.dilations, *counts]

    def padded(self, tile: int) -> tuple[int, int]:
        """Input rows and columns that whole tiles read."""
        down, across = self.grid(tile)[-2:]
        rows, columns = self.dilations
        by, margin = tile * self.stride, FILTER - self.stride
        return (down * by + margin) * rows, (across * by + margin) * columns


def _positions(affine_map: ir.AffineMap) -> list[int]:
    """The loops that the results of a map are; none where one is no plain loop."""
    results = list(affine_map.results)
    plain = [e.position for e in results if isinstance(e, ir.AffineDimExpr)]
    return plain if len(plain) == len(results) else []


def packing(filters: tuple[int, ...], tile: int, panel: int, stride: int = 1) -> WinogradPacking:
    """How filters of shape [tap.., 3, 3, in, out] are transformed and packed for F(tile x tile);
    the outputs of all groups are columns."""
    _, g, _ = transform_matrices(tile, stride)
    return WinogradPacking(filters, tuple(map(tuple, g.tolist())), panel, stride)


def applies(shape: ConvolutionShape, target: Target) -> bool:
    """Whether there are channels for vectors: of groups, whole ones of outputs."""
    lanes = target.vector_lanes
    inputs, outputs = shape.sizes[shape.inputs], shape.sizes[shape.outputs]
    whole = shape.group is None or outputs % lanes == 0
    return whole and inputs >= max(lanes, _FEWEST) and outputs >= lanes


def choose(
    shape: ConvolutionShape, target: Target, threads: int, direct: float
) -> WinogradStrategy | None:
    """The strategy with the least estimated time on `threads` cores of `target`, None where direct
    convolution is faster, which takes as long as `direct` vector multiply-adds of one core."""
    if not applies(shape, target):
        return None
    strategies = [blocking(tile, shape, target, threads) for tile in TILES]
    strategies = [s for s in strategies if _scratch_bytes(s, shape, target) <= _SCRATCH_BYTES]
    if not strategies:
        return None
    best = min(strategies, key=lambda strategy: _time(strategy, shape, target, threads))
    return best if _time(best, shape, target, threads) < direct / threads else None


@functools.lru_cache(256)
def blocking(tile: int, shape: ConvolutionShape, target: Target, threads: int) -> WinogradStrategy:
    """How to run F(tile x tile): register tiles that waste little, as many input tiles a task as
    keep their transforms in L2 (or more, where weights come from memory), and panels in as few
    groups as keep the threads busy, since each group transforms its input tiles itself."""
    lanes = target.vector_lanes
    *_, outputs = shape.extents()
    tiles = _tiles(tile, shape)
    tile_bytes = shape.window(tile) ** 2 * shape.summed * 4
    most = max(4, target.l2_bytes * 6 // 10 // tile_bytes)
    strategies = []
    for vectors in (v for v in (4, 3, 2, 1) if -(-outputs // lanes) % v == 0):
        panels = math.ceil(outputs / (vectors * lanes))
        groups = {min(panels, g) for g in (1, threads, 2 * threads)}
        for rows in range(1, min(_MOST_ROWS, tiles) + 1):
            if not fits_registers(rows, vectors, target):
                break
            last = math.ceil(tiles / rows)
            even = {math.ceil(last / blocks) for blocks in range(1, _LARGE_BLOCKS + 1)}
            counts = {*range(1, min(max(1, most // rows), last) + 1), *even}
            strategies += [
                WinogradStrategy(tile, rows * count, rows, vectors, math.ceil(panels / group))
                for count in sorted(counts)
                for group in sorted(groups)
            ]
    small = [s for s in strategies if _scratch_bytes(s, shape, target) <= _SCRATCH_BYTES]
    return min(small or strategies[:1], key=lambda s: _time(s, shape, target, threads))


def _scratch_bytes(strategy: WinogradStrategy, shape: ConvolutionShape, target: Target) -> int:
    """What a task has on its stack: transformed tiles, and products of a panel."""
    panel = strategy.vectors * target.vector_lanes
    positions = shape.window(strategy.tile) ** 2
    return positions * (strategy.block * (shape.summed + panel) + 2 * _LINE) * 4


def _tiles(tile: int, shape: ConvolutionShape) -> int:
    return math.prod(shape.grid(tile))


_THERE, _BACK = 10, 10
"""Multiply-adds that a position's share of a tile's transforms takes as long as."""

_TILE = 80
"""The same of what a register tile takes beside its steps."""

_STEP, _STEP_ROW = 0.4, 0.03
"""And of what a step of it takes beside its multiply-adds and loads, and for each row."""

_IN_FLIGHT = 0.8
"""The part of `in_flight` that register tiles need here, whose sums are short."""

_IN_ORDER = 1.6
"""How much faster L3 gives transformed tiles, which are read in order, than it gives others."""

_WAITING = 0.3
"""The part of the shorter of products and weights' reading that the longer does not hide."""


def _time(
    strategy: WinogradStrategy, shape: ConvolutionShape, target: Target, threads: int
) -> float:
    """Estimated time, in vector multiply-adds: the products and the weights they wait for, both
    transforms, and the transformed tiles that each panel reads, half a vector at a time from L2;
    all by the thread that has most.

    The constants were fitted to 190 strategies of 14 shapes, timed with AVX2, and to those that
    they choose for 15 layers of stride 1 and 2 whose weights come from memory."""
    lanes = target.vector_lanes
    *_, outputs = shape.extents()
    tiles = _tiles(strategy.tile, shape)
    blocks = math.ceil(tiles / strategy.block)
    panels = math.ceil(outputs / (strategy.vectors * lanes))
    groups = math.ceil(panels / strategy.panels)
    positions, sums = shape.window(strategy.tile) ** 2, shape.sums(strategy.tile) * shape.terms
    register_tiles = blocks * strategy.block // strategy.rows * panels
    steps = sums * _step(strategy, shape.summed, target)
    products = register_tiles * (steps + positions * _TILE)
    weights = _streaming(strategy, shape, target)
    vectors = shape.of_all(shape.taps) * math.ceil(shape.sizes[shape.inputs] / lanes)
    there = groups * tiles * shape.sums(strategy.tile) * vectors * _THERE
    stored = sum((end - begin) // width for begin, end, width in widths(outputs, lanes))
    back = tiles * stored * positions * _BACK
    moved = strategy.block * sums * 4
    in_l2 = moved <= target.l2_bytes * 3 // 4
    rate = target.vector_bits / 16 if in_l2 else _IN_ORDER * target.l3_rate
    read = blocks * panels * moved / rate
    time = max(products, weights) + _WAITING * min(products, weights) + there + back + read
    tasks = shape.groups * blocks * groups
    time *= shape.groups
    return time * math.ceil(tasks / threads) / tasks


def _step(strategy: WinogradStrategy, inputs: int, target: Target) -> float:
    """Of a step of a register tile. Vectors of a panel that fills L1 come from L2."""
    panel_bytes = inputs * strategy.vectors * target.vector_lanes * 4
    load = 1 + (panel_bytes > target.l1_bytes // 2) + (panel_bytes > target.l1_bytes)
    rows, vectors = strategy.rows, strategy.vectors
    loads = max(rows * target.broadcast_time + vectors, vectors * load)
    return max(rows * vectors, _IN_FLIGHT * target.in_flight, loads) + _STEP + _STEP_ROW * rows


def _streaming(strategy: WinogradStrategy, shape: ConvolutionShape, target: Target) -> float:
    """Vector multiply-adds that take as long as the weights of each block: from memory first, asked
    for a position ahead, then from where they stay."""
    *_, outputs = shape.extents()
    blocks = math.ceil(_tiles(strategy.tile, shape) / strategy.block)
    weights = shape.sums(strategy.tile) * shape.terms * outputs * 4
    again = (blocks - 1) * weights if weights > target.l2_bytes // 2 else 0
    rate = target.l3_rate if weights < target.l3_bytes * 3 // 4 else target.asked_rate
    return weights / target.asked_rate + again / rate


def emit(group: KernelGroup, strategy: WinogradStrategy, lanes: int) -> None:
    """Write the loops of a convolution group with `strategy`."""
    _Winograd(group, strategy, lanes).emit()


class _Winograd:
    def __init__(self, group: KernelGroup, strategy: WinogradStrategy, lanes: int) -> None:
        self.group = group
        self.nest = group.nest
        self.evaluator = group.evaluator
        self.op = group.anchor()
        shape = ConvolutionShape.of(self.op)
        assert shape is not None
        self.shape = shape
        self.strategy = strategy
        self.lanes = lanes
        self.weights = self.evaluator.buffers[self.op.inputs[1].owner.operands[0]]
        self.outputs = shape.sizes[shape.outputs]
        self.transform = Transform(group.nest, strategy.tile, shape.stride)
        regions = shape.regions(strategy.tile)
        order = [at for region in regions for at in region.positions]
        self.places = {at: number for number, at in enumerate(order)}
        self.grid = shape.grid(strategy.tile)
        self.tiles = math.prod(self.grid)
        self.panel = strategy.vectors * lanes
        self.panels = -(-self.outputs // self.panel)
        self.here = Index()
        """The group of channels that a task works on."""

    def emit(self) -> None:
        strategy, nest = self.strategy, self.nest
        element = element_type(self.op.op.results[0])
        positions = len(self.places)
        moved = nest.scratch([positions, strategy.block * self.shape.summed + _LINE], element)
        products = nest.scratch([positions, strategy.block * self.panel + _LINE], element)
        blocks = -(-self.tiles // strategy.block)
        panels = self.panels
        groups = -(-panels // strategy.panels)
        with (
            nest.parallel("task", self.shape.groups * groups * blocks) as task,
            self.evaluator.scope(),
        ):
            flat = Index.of(task)
            self.group.fill_halos(flat, self.lanes)
            self.here, number, block = delinearize(flat, [self.shape.groups, groups, blocks])
            start = block * strategy.block
            stop = start + strategy.block
            with nest.loop_between("tile", start, stop, self.tiles) as tile:
                with self.evaluator.scope():
                    self._transform_input(Index.of(tile), Index.of(tile) - start, moved)
            first = number * strategy.panels
            with nest.loop_between("panel", first, first + strategy.panels, panels) as panel:
                self._multiply(Index.of(panel), moved, products)
                self._transform_panel(Index.of(panel), start, products)

    def _transform_panel(self, panel: Index, start: Index, products: ir.Value) -> None:
        """Transform the outputs of a panel back; the last one may have fewer columns."""
        nest, last = self.nest, self.outputs - (self.panels - 1) * self.panel

        def transform(columns: int) -> None:
            stop = start + self.strategy.block
            with nest.loop_between("tile", start, stop, self.tiles) as tile:
                with self.evaluator.scope():
                    local = Index.of(tile) - start
                    self._transform_output(Index.of(tile), local, panel, columns, products)

        if self.panels == 1 or last == self.panel:
            transform(last)
            return
        with nest.when(panel, equals=self.panels - 1, otherwise=True) as branch:
            with branch.then():
                transform(last)
            with branch.otherwise():
                transform(self.panel)

    def _transform_input(self, tile: Index, local: Index, moved: ir.Value) -> None:
        """B^T d B of one tile, a vector of channels at a time; where they are no whole vectors,
        the last one begins among those of the one before."""
        shape = self.shape
        channels = shape.sizes[shape.inputs]
        taps = [shape.sizes[d] for d in shape.taps]
        for number, phase in enumerate(winograd_phases(shape.stride)):
            with self.nest.loop("tap", 0, math.prod(taps)) as tap:
                where = dict(zip(shape.taps, delinearize(Index.of(tap), taps), strict=True))
                term = local * shape.summed + number * shape.terms + Index.of(tap) * channels

                def transform(first: Index, phase=phase, where=where, term=term) -> None:
                    vector = Lanes.of(self.lanes)
                    channel = first + vector.index
                    terms = {**where, shape.inputs: channel}
                    with self.evaluator.scope():
                        self._transform_phase(tile, phase, terms, term + channel, moved, vector)

                whole = channels // self.lanes * self.lanes
                with self.nest.loop("c", 0, whole, self.lanes) as c:
                    transform(Index.of(c))
                if whole < channels:
                    transform(constant(channels - self.lanes))

    def _transform_phase(
        self,
        tile: Index,
        phase: tuple[int, int],
        terms: dict[int, Index],
        place: Index,
        moved: ir.Value,
        vector: Lanes,
    ) -> None:
        """Of one phase of the image; odd rows and columns have nothing at infinity."""
        shape = self.shape
        window = shape.window(self.strategy.tile)
        down, across = phase
        rows, columns = window - down, window - across

        def load(i: int, j: int) -> ir.Value:
            dims = self._at(tile, i, j)
            for dim, index in terms.items():
                dims[dim] = index
            dims[shape.filter_height] = constant(down)
            dims[shape.filter_width] = constant(across)
            point = apply_map(self.op.maps[0], dims)
            return self.evaluator.at(self.op.inputs[0], point, vector)

        moved_columns = [
            self.transform.of_input([load(i, j) for i in range(rows)], not down)
            for j in range(columns)
        ]
        for i in range(rows):
            values = self.transform.of_input([column[i] for column in moved_columns], not across)
            for j, value in enumerate(values):
                self.nest.store(value, moved, [constant(self.places[i, j]), place], vector)

    def _at(self, tile: Index, i: int, j: int) -> list[Index]:
        """The point of the iteration space at row `i` and column `j` of a tile."""
        shape, side = self.shape, self.strategy.tile
        *images, down, across, row, column = delinearize(tile, self.grid)
        dims = [Index()] * len(shape.sizes)
        for dim, index in zip(shape.images, images, strict=True):
            dims[dim] = index
        if shape.group is not None:
            dims[shape.group] = self.here
        dims[shape.height] = (row * side + i) * shape.dilations[0] + down
        dims[shape.width] = (column * side + j) * shape.dilations[1] + across
        return dims

    def _multiply(self, panel: Index, moved: ir.Value, products: ir.Value) -> None:
        """For each position, [block, in] times [in, panel]."""
        panel = self.here * self.panels + panel
        start = 0
        for region in self.shape.regions(self.strategy.tile):
            stop = start + len(region.positions)
            with self.nest.loop("position", start, stop) as position:
                terms = (region.first * self.shape.terms, region.phases * self.shape.terms)
                self._multiply_position(panel, Index.of(position), terms, moved, products)
            start = stop

    def _multiply_position(
        self,
        panel: Index,
        here: Index,
        terms: tuple[int, int],
        moved: ir.Value,
        products: ir.Value,
    ) -> None:
        """At one position; `terms` are the first and the number of those of its sum."""
        strategy, nest = self.strategy, self.nest
        first, count = terms
        zero = nest.zero(moved.type.element_type, self.lanes)
        vectors = [Lanes.of(self.lanes) for _ in range(strategy.vectors)]
        one = Lanes.of(1)
        tiles = strategy.block // strategy.rows
        unroll = steps_at_once(strategy.rows * strategy.vectors)

        def ask(row: Index, k: Index) -> None:
            """Lines of the weights of the next position."""
            tile = row.floordiv(strategy.rows)
            for place in lines_ahead(k, tile, tiles, count, self.panel, unroll):
                nest.prefetch(self.weights, [panel, here + 1, constant(first), place])

        with nest.loop("row", 0, strategy.block, strategy.rows) as row:
            rows = [Index.of(row) + r for r in range(strategy.rows)]

            def step(k: Index, carried: list[ir.Value]) -> list[ir.Value]:
                right = [
                    nest.load(self.weights, [panel, here, k + first, v.index + n * self.lanes], v)
                    for n, v in enumerate(vectors)
                ]
                following = list(carried)
                for r, index in enumerate(rows):
                    place = [here, index * self.shape.summed + first + k]
                    left = nest.as_vector(nest.load(moved, place, one), vectors[0])
                    for n, value in enumerate(right):
                        cell = r * len(vectors) + n
                        following[cell] = nest.fma(left, value, following[cell])
                return following

            cells = [zero] * (strategy.rows * strategy.vectors)
            sums = self._sum(count, step, cells, functools.partial(ask, Index.of(row)))
            for r, index in enumerate(rows):
                for n, v in enumerate(vectors):
                    place = [here, index * self.panel + v.index + n * self.lanes]
                    nest.store(sums[r * len(vectors) + n], products, place, v)

    def _sum(
        self,
        terms: int,
        step: Callable[[Index, list[ir.Value]], list[ir.Value]],
        zeros: list[ir.Value],
        ask: Callable[[Index], None],
    ) -> list[ir.Value]:
        """The sum over `terms` steps, in two levels where it is long; `ask` is called in each
        iteration."""
        unroll = steps_at_once(len(zeros))

        def chain(start: Index, size: int, cells: list[ir.Value]) -> list[ir.Value]:
            return self.nest.reduce_steps(
                "k",
                0,
                size,
                cells,
                lambda k, inner: step(start + k, inner),
                unroll,
                lambda k: ask(start + k),
            )

        levels = summation_levels([terms])
        if len(levels) == 1:
            return chain(Index(), terms, zeros)
        (_, count, chunk, _), _ = levels

        def body(block: Variable, carried: list[ir.Value]) -> list[ir.Value]:
            partial = chain(Index.of(block) * chunk, chunk, zeros)
            return [self.nest.add(a, b) for a, b in zip(carried, partial, strict=True)]

        return self.nest.reduce_loop("block", 0, count, 1, zeros, body)

    def _transform_output(
        self, tile: Index, local: Index, panel: Index, columns: int, products: ir.Value
    ) -> None:
        """A^T m A of one tile in the first `columns` of a panel, the epilogue, and the stores that
        lie inside the image."""
        for begin, end, width in widths(columns, self.lanes):
            with self.nest.loop("v", begin, end, width) as v, self.evaluator.scope():
                vector = Lanes.of(width)
                offset = Index.of(v) + vector.index
                self._transform_vector(tile, local, panel, offset, products, vector)

    def _transform_vector(
        self,
        tile: Index,
        local: Index,
        panel: Index,
        offset: Index,
        products: ir.Value,
        vector: Lanes,
    ) -> None:
        side, shape = self.strategy.tile, self.shape
        window = shape.window(side)
        columns = [
            self.transform.of_output(
                [
                    self.nest.load(
                        products,
                        [constant(self.places[i, j]), local * self.panel + offset],
                        vector,
                    )
                    for i in range(window)
                ]
            )
            for j in range(window)
        ]
        for i in range(side):
            values = self.transform.of_output([columns[j][i] for j in range(window)])
            for j, value in enumerate(values):
                dims = self._at(tile, i, j)
                bounds = [(dims[d], shape.sizes[d]) for d in (shape.height, shape.width)]
                dims[shape.outputs] = panel * self.panel + offset
                self._store_inside(bounds, apply_map(self.op.output_map, dims), value, vector)

    def _store_inside(
        self,
        bounds: Sequence[tuple[Index, int]],
        point: list[Index],
        value: ir.Value,
        vector: Lanes,
    ) -> None:
        outside = [(index, size) for index, size in bounds if index.high >= size]
        if not outside:
            self._write(point, value, vector)
            return
        with self.nest.when_below(outside) as branch, branch.then():
            self._write(point, value, vector)

    def _write(self, point: list[Index], value: ir.Value, vector: Lanes) -> None:
        result = self.op.op.results[0]
        with self.evaluator.scope():
            self.evaluator.bind(result, point, value)
            for output in self.group.outputs:
                self.group.write(output, self.group.point_of(output, result, point), vector)
