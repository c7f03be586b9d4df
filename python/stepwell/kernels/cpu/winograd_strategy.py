"""How a Winograd convolution is cut into tasks and blocks: its strategy, chosen by a cost model of
the target.

Filters are transformed at compile time, or in registers as they are multiplied: G w G^T has 4 times
as many numbers as w with F(4x4), and where there are few tiles to multiply them with, a core sooner
transforms filters than it reads what was transformed.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from stepwell.kernels.cpu.contraction_strategy import fits_registers
from stepwell.kernels.cpu.winograd_transform import Row
from stepwell.kernels.group import widths
from stepwell.kernels.index import Index, Variable, apply_map
from stepwell.kernels.strategy import Candidate, Choice, IntegerStrategy
from stepwell.kernels.structured import Structured, element_type
from stepwell.kernels.used_elements import needed_layout
from stepwell.mlir import ir
from stepwell.open_dimensions import is_open
from stepwell.packing import (
    Packing,
    PanelPacking,
    WinogradPacking,
    WinogradRegion,
    winograd_phases,
    winograd_regions,
)
from stepwell.targets import Target
from stepwell.tuning_record import ALGORITHM, STRATEGY

_SCRATCH_BYTES = 3 << 20
"""The largest scratch of a task: a thread's stack has 8 MiB, or what its creator gave it."""

_MOST_ROWS = 14
"""Tiles of a register tile at most: more have no registers on any target for two vectors."""

_FEWEST = 16
"""Channels that the transforms are worth, at least."""

TILES = (2, 4)
"""Outputs of a tile in a row that a filter of several terms computes."""

_LARGE_BLOCKS = 8
"""Up to so many blocks may be larger than L2, of the same size each."""

FILTERS = (2, 3, 4, 5, 7)
"""Terms of a filter in a dimension that is transformed."""

_LONGEST = 32
"""Tiles of a run at most."""

LINE = 16
"""Numbers that keep the positions of a tile apart: without them, they would lie a power of two
apart, in few sets of the cache."""

ATTRIBUTE = "kernel.winograd"
"""Marks a convolution whose input is padded to whole tiles: its value is the tile."""


@dataclass(frozen=True)
class WinogradStrategy(IntegerStrategy):
    """`tile` outputs a side; `block` input tiles and `panels` panels of `vectors` vectors a task;
    `rows` tiles in a register tile of the matrix products. With `plain` 1, weights are filters as
    they are, which register tiles transform, with 0 transformed ones. Each of the `block` tiles is
    a `run` of them, neighbours that slide over the same slices of the image."""

    tile: int
    block: int
    rows: int
    vectors: int
    panels: int
    plain: int = 0
    run: int = 1


_VARIANTS = 4
"""Register tiles that tuning looks at."""


@dataclass(frozen=True)
class Algorithm:
    """How a convolution is computed: by Winograd's algorithm in tiles of `tile`, or directly where
    that is 0."""

    tile: int


@dataclass(frozen=True)
class Side:
    """A dimension of an image, whose rows the algorithm transforms: its loop and the number of
    results along it, the dimension of the image that it is, and the filter in it, whose loop is
    None where it has one term; a stride is 2 only without dilation. The last of several filters
    along it is `reach` elements from the first."""

    loop: int
    size: int
    place: int
    filter_loop: int | None = None
    filter: int = 1
    dilation: int = 1
    stride: int = 1
    reach: int = 0

    def row(self, tile: int) -> Row:
        """What is transformed of a tile: a row of it, or a single number."""
        return Row(tile if self.filter > 1 else 1, self.filter, self.stride)

    def tiles(self, tile: int) -> int:
        """How many there are in a row; each of the dilated rows has its own."""
        return -(-self.size // (self.dilation * self.row(tile).tile))

    def padded(self, tile: int) -> int:
        """Elements of the image that whole tiles read; 0 where they read what results do."""
        if self.filter == 1:
            return 0
        results = self.tiles(tile) * self.row(tile).tile
        return (results * self.stride + self.filter - self.stride) * self.dilation + self.reach


@dataclass(frozen=True)
class Slide:
    """An axis of the grid of tiles, the depth, along which neighbours read the same slices of the
    image: number i those from i * `step` on, one for each term of the loop `tap`, of `taps`."""

    axis: int
    tap: int
    taps: int
    step: int

    def slices(self, run: int) -> int:
        """Slices that so many neighbours read."""
        return (run - 1) * self.step + self.taps


@dataclass(frozen=True)
class ConvolutionShape:
    """A convolution on images with channels last: the positions of its loops and their sizes.

    Filters have 2 to 5 or 7 terms in one dimension or two, the `sides`; one that is no filter's
    stands in where it is one. There may be further dimensions: those of the result are `images`,
    those that are summed over beside the channels (the depth of a 3-D filter) `taps`. The channels
    may be in groups: `inputs` and `outputs` are those of one."""

    images: tuple[int, ...]
    sides: tuple[Side, Side]
    outputs: int
    taps: tuple[int, ...]
    inputs: int
    sizes: tuple[int, ...]
    group: int | None = None
    slide: Slide | None = None

    @staticmethod
    def of(op: Structured) -> ConvolutionShape | None:
        """The shape of `op` if it is such a convolution: lhs [image.., in], rhs [tap.., in, out],
        or with groups before the channels, [.., group, in] and [.., in, group, out]."""
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
        if len(output) < 3 or len(filters) < 3 or here != len(sizes) + 1:
            return None
        *images, outputs = output
        *taps, inputs, last = filters
        loops = [Variable(f"d{i}", 0, max(n, 1) - 1) for i, n in enumerate(sizes)]
        reads = [
            {loops.index(v): index.coefficient(v) for v in index.variables()}
            for index in apply_map(op.maps[0], [Index(((loop, 1),)) for loop in loops])
        ]
        if group is not None and len(reads) > 1 and reads.pop(-2) != {group: 1}:
            return None
        if len(reads) != len(output) or last != outputs or reads.pop() != {inputs: 1}:
            return None
        sides = _sides(images, taps, reads, sizes)
        if sides is None:
            return None
        images = [loop for loop in images if loop not in (side.loop for side in sides)]
        taps = [loop for loop in taps if loop not in (side.filter_loop for side in sides)]
        others = [read for d, read in enumerate(reads) if d not in (s.place for s in sides)]
        long = [loop for loop in filters[:-2] if sizes[loop] > 1]
        apart = [loop for loop in taps if sizes[loop] > 1]
        apart += [side.filter_loop for side in sides if side.filter_loop is not None]
        if long != apart or not {d for read in others for d in read} <= {*images, *taps}:
            return None
        slide = None
        if not any(map(is_open, needed_layout(op.op))):
            slide = _slide(images, taps, sides, reads, sizes)
        return ConvolutionShape(
            tuple(images), sides, outputs, tuple(taps), inputs, sizes, group, slide
        )

    def of_all(self, dims: tuple[int, ...]) -> int:
        return math.prod(self.sizes[d] for d in dims)

    @property
    def groups(self) -> int:
        return 1 if self.group is None else self.sizes[self.group]

    @property
    def columns(self) -> int:
        """Output channels of a group."""
        return self.sizes[self.outputs]

    @property
    def filter(self) -> tuple[int, int]:
        """Terms of a filter, by sides."""
        down, across = self.sides
        return down.filter, across.filter

    @property
    def strides(self) -> tuple[int, int]:
        down, across = self.sides
        return down.stride, across.stride

    @property
    def terms(self) -> int:
        """Terms of a sum beside those of the sides."""
        return self.of_all((*self.taps, self.inputs))

    @property
    def summed(self) -> int:
        """Terms of a position's sum, where all phases of the image are in it."""
        return self.terms * len(winograd_phases(self.strides))

    def rows(self, tile: int) -> tuple[Row, Row]:
        """What is transformed of a tile in its two dimensions."""
        down, across = self.sides
        return down.row(tile), across.row(tile)

    def tiles(self) -> list[int]:
        """The tiles that there are, and that save products. Those in two dimensions have windows of
        6 at most: larger ones would lose another bit of their results."""
        most = 6 if min(self.filter) > 1 else 8
        direct = self.of_all((*self.images, *(side.loop for side in self.sides)))
        direct *= math.prod(self.filter)
        return [
            tile
            for tile in TILES
            if all(row.has_points and row.window <= most for row in self.rows(tile))
            and self.sums(tile) * math.prod(self.grid(tile)) < direct
        ]

    def name(self, tile: int) -> str:
        """The algorithm in tiles of `tile`, or directly where that is 0, as users know it."""
        if not tile:
            return "direct"
        results, terms = zip(*((row.tile, row.filter) for row in self.rows(tile)), strict=True)
        return "Winograd F({}x{}, {}x{})".format(*results, *terms)

    def windows(self, tile: int) -> tuple[int, int]:
        """Positions of a tile in its two dimensions."""
        down, across = self.rows(tile)
        return down.window, across.window

    def positions(self, tile: int) -> int:
        """Positions of a tile."""
        return math.prod(self.windows(tile))

    def regions(self, tile: int) -> tuple[WinogradRegion, ...]:
        """The positions of a tile."""
        return winograd_regions(self.windows(tile), self.strides, self.filter)

    def sums(self, tile: int) -> int:
        """Positions of a tile, each as often as phases meet there."""
        return sum(len(region.positions) * region.phases for region in self.regions(tile))

    def grid(self, tile: int, run: int = 1) -> list[int]:
        """How many tiles, or runs of them, there are: of images, of phases of dilated rows and
        columns, which are images of their own, of rows and of columns."""
        dilations = (side.dilation for side in self.sides)
        counts = (side.tiles(tile) for side in self.sides)
        grid = [*(self.sizes[d] for d in self.images), *dilations, *counts]
        if self.slide is not None:
            grid[self.slide.axis] //= run
        return grid


def _sides(
    images: Sequence[int],
    taps: Sequence[int],
    reads: Sequence[dict[int, int]],
    sizes: Sequence[int],
) -> tuple[Side, Side] | None:
    """The last two dimensions with a filter that can be transformed; of one alone, the other side
    is a neighbour without a filter."""
    found, plain = [], []
    for place, (loop, read) in enumerate(zip(images, reads, strict=True)):
        if loop not in read or any(loop in other for other in reads if other is not read):
            continue
        stride, size = read[loop], sizes[loop]
        others = [d for d in read if d != loop]
        long = sorted((d for d in others if sizes[d] > 1), key=lambda d: read[d])
        if not set(others) <= set(taps):
            continue
        if not long:
            plain.append(Side(loop, size, place))
        elif sizes[long[0]] in FILTERS:
            dilation, terms = read[long[0]], sizes[long[0]]
            reach = sum((sizes[d] - 1) * read[d] for d in long[1:])
            if stride == 1 or (stride == 2 < terms and dilation == 1 and not reach):
                side = Side(loop, size, place, long[0], terms, dilation, stride, reach)
                found.append(side)
    if len(found) == 1:
        before = [side for side in plain if side.place < found[0].place]
        after = [side for side in plain if side.place > found[0].place]
        found += [*before[-1:], *after[:1]][:1]
    if len(found) < 2:
        return None
    down, across = sorted(found[-2:], key=lambda side: side.place)
    return down, across


def _slide(
    images: Sequence[int],
    taps: Sequence[int],
    sides: Sequence[Side],
    reads: Sequence[dict[int, int]],
    sizes: Sequence[int],
) -> Slide | None:
    """The dimension with the only terms beside those of the sides, if its slices lie in order, and
    no side has phases."""
    long = [loop for loop in taps if sizes[loop] > 1]
    if len(long) != 1 or any(side.stride > 1 for side in sides):
        return None
    found = [read for read in reads if long[0] in read]
    for axis, loop in enumerate(images):
        alone = all(loop not in read for read in reads if read not in found)
        if alone and len(found) == 1 and found[0].keys() == {loop, long[0]} and sizes[loop] > 1:
            if found[0][long[0]] != 1:
                return None
            return Slide(axis, long[0], sizes[long[0]], found[0][loop])
    return None


@dataclass(frozen=True)
class _Counts:
    """How many there are of what a convolution in tiles computes with, in a group of channels:
    `sums` are the positions of a tile, each as often as phases meet there, `terms` those of each,
    `summed` those of all phases of the image; `inputs` and `stored` vectors of channels."""

    tiles: int
    positions: int
    across: int
    sums: int
    terms: int
    summed: int
    columns: int
    inputs: int
    stored: int
    groups: int
    filter: int
    transformed: int
    slide: Slide | None
    slid: int

    @staticmethod
    def of(tile: int, shape: ConvolutionShape, lanes: int) -> _Counts:
        stored, slide, grid = widths(shape.columns, lanes), shape.slide, shape.grid(tile)
        return _Counts(
            math.prod(grid),
            shape.positions(tile),
            shape.windows(tile)[1],
            shape.sums(tile),
            shape.terms,
            shape.summed,
            shape.columns,
            shape.of_all(shape.taps) * math.ceil(shape.sizes[shape.inputs] / lanes),
            sum((end - begin) // width for begin, end, width in stored),
            shape.groups,
            math.prod(shape.filter),
            sum(side.filter > 1 for side in shape.sides),
            slide,
            1 if slide is None else grid[slide.axis],
        )

    def sliced(self, run: int) -> float:
        """How many times as many numbers of the image neighbours in a run need as one does."""
        return 1 if self.slide is None else self.slide.slices(run) / self.slide.taps

    def runs(self) -> list[int]:
        """The runs that all tiles can be in."""
        return [run for run in range(1, min(self.slid, _LONGEST) + 1) if self.slid % run == 0]


def _positions(affine_map: ir.AffineMap) -> list[int]:
    """The loops that the results of a map are; none where one is no plain loop."""
    results = list(affine_map.results)
    plain = [e.position for e in results if isinstance(e, ir.AffineDimExpr)]
    return plain if len(plain) == len(results) else []


def packing(shape: ConvolutionShape, strategy: WinogradStrategy, lanes: int) -> Packing:
    """How filters are packed, and transformed where the kernel does not; the outputs of all groups
    are columns."""
    panel = strategy.vectors * lanes
    outputs = shape.groups * shape.columns
    source = (shape.of_all(shape.taps), *shape.filter, shape.sizes[shape.inputs], outputs)
    if strategy.plain:
        return PanelPacking(source, (0, 3, 1, 2, 4), 0, panel)
    down, across = (
        tuple(map(tuple, row.matrices()[1].tolist())) for row in shape.rows(strategy.tile)
    )
    return WinogradPacking(source, (down, across), panel, shape.strides)


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
    estimates = _estimates(shape, target, threads)
    best = min(estimates, key=lambda estimate: estimate[1], default=None)
    return best[0] if best is not None and best[1] < direct / threads else None


def least_time(shape: ConvolutionShape, target: Target, threads: int) -> float:
    """The estimated time of the best strategy, as `choose` compares it."""
    return min((time for _, time in _estimates(shape, target, threads)), default=math.inf)


def algorithm(
    shape: ConvolutionShape, target: Target, threads: int, direct: float
) -> Choice[Algorithm]:
    """The choice that `choose` makes."""
    estimates = _estimates(shape, target, threads)
    strategy = choose(shape, target, threads, direct)
    costs = {Algorithm(0): direct / threads} | {Algorithm(s.tile): time for s, time in estimates}

    def candidates(chosen: Algorithm) -> list[Candidate]:
        found = sorted(costs.items(), key=lambda item: (item[0] != chosen, item[1]))
        return [Candidate(shape.name(algorithm.tile), cost) for algorithm, cost in found]

    return Choice(
        ALGORITHM,
        Algorithm(strategy.tile if strategy is not None else 0),
        lambda chosen: "" if chosen in costs else f"tile is {chosen.tile}, which is none of it",
        candidates,
        lambda _: costs,
    )


def choice(
    tile: int, shape: ConvolutionShape, target: Target, threads: int
) -> Choice[WinogradStrategy]:
    """The choice that `blocking` makes."""
    return Choice(
        STRATEGY,
        blocking(tile, shape, target, threads),
        lambda strategy: problem(strategy, tile, shape, target),
        variants=lambda _: variants(tile, shape, target, threads),
    )


def variants(
    tile: int, shape: ConvolutionShape, target: Target, threads: int
) -> list[WinogradStrategy]:
    """Strategies worth measuring: of each register tile the fastest blocking by the cost model, of
    those the fastest, and two other blocks of the very fastest."""
    counts = _Counts.of(tile, shape, target.vector_lanes)
    listed = sorted(
        _strategies(tile, shape, target, threads),
        key=lambda s: _time(s, counts, target, threads),
    )
    tiles = {(s.rows, s.vectors, s.plain): s for s in reversed(listed)}
    best = [s for s in listed if tiles[s.rows, s.vectors, s.plain] == s]
    first = best[:1]
    blocks = [
        dataclasses.replace(s, block=s.rows * max(1, int(s.block * factor) // s.rows))
        for s in first
        for factor in (0.5, 2.0)
        if not s.plain
    ]
    return [*best[:_VARIANTS], *blocks]


def problem(strategy: WinogradStrategy, tile: int, shape: ConvolutionShape, target: Target) -> str:
    """Why `strategy` cannot be that of F(tile x tile); "" where it can."""
    lanes = target.vector_lanes
    counts = _Counts.of(tile, shape, lanes)
    tiles, columns = counts.tiles, math.ceil(shape.columns / lanes)
    if strategy.tile != tile:
        return f"tile is {strategy.tile}, and the image is padded for {tile}"
    for field in ("rows", "vectors", "block", "panels"):
        number = getattr(strategy, field)
        if number < 1:
            return f"{field} is {number}, which should be positive"
    if columns % strategy.vectors:
        return f"{columns} vectors of outputs are no panels of {strategy.vectors}"
    if strategy.run not in counts.runs():
        return f"run is {strategy.run}, and there are {counts.slid} tiles that slide over an image"
    tiles //= strategy.run
    if strategy.block % strategy.rows or strategy.rows > tiles:
        return f"a block of {strategy.block} tiles has no whole register tiles of {strategy.rows}"
    if strategy.panels > columns // strategy.vectors:
        return f"panels is {strategy.panels}, of {columns // strategy.vectors}"
    if strategy.plain:
        whole = strategy.vectors == strategy.run == 1 and strategy.block >= tiles
        whole = whole and _may_be_plain(shape)
        fits = strategy.plain == 1 and whole and strategy.rows <= _most_plain(counts, target)
    else:
        fits = fits_registers(strategy.rows, strategy.vectors, target)
    if not fits:
        return f"register tiles of {strategy.rows} by {strategy.vectors} do not fit {target.name}"
    if _scratch_bytes(strategy, counts, target) > _SCRATCH_BYTES:
        return f"a block of {strategy.block} tiles needs more than {_SCRATCH_BYTES} bytes"
    return ""


def _estimates(
    shape: ConvolutionShape, target: Target, threads: int
) -> list[tuple[WinogradStrategy, float]]:
    """The best strategy of each tile that can be, and its time."""
    if not applies(shape, target):
        return []
    found = []
    for tile in shape.tiles():
        counts = _Counts.of(tile, shape, target.vector_lanes)
        strategy = blocking(tile, shape, target, threads)
        if _scratch_bytes(strategy, counts, target) <= _SCRATCH_BYTES:
            found.append((strategy, _time(strategy, counts, target, threads)))
    return found


@functools.lru_cache(256)
def blocking(tile: int, shape: ConvolutionShape, target: Target, threads: int) -> WinogradStrategy:
    """How to run F(tile x tile): register tiles that waste little, as many input tiles a task as
    keep their transforms in L2 (or more, where weights come from memory), and panels in as few
    groups as keep the threads busy, since each group transforms its input tiles itself."""
    counts = _Counts.of(tile, shape, target.vector_lanes)
    strategies = _strategies(tile, shape, target, threads)
    return min(strategies, key=lambda s: _time(s, counts, target, threads))


def _strategies(
    tile: int, shape: ConvolutionShape, target: Target, threads: int
) -> list[WinogradStrategy]:
    """What `blocking` chooses from."""
    lanes = target.vector_lanes
    counts = _Counts.of(tile, shape, lanes)
    outputs, tile_bytes = counts.columns, counts.positions * counts.summed * 4
    strategies = []
    whole = [v for v in (4, 3, 2, 1) if -(-outputs // lanes) % v == 0]
    for run, vectors in itertools.product(counts.runs(), whole):
        tiles = counts.tiles // run
        most = max(4, int(target.l2_bytes * 6 // 10 // (tile_bytes * counts.sliced(run))))
        panels = math.ceil(outputs / (vectors * lanes))
        groups = {min(panels, g) for g in (1, threads, 2 * threads)}
        for rows in range(1, min(_MOST_ROWS, tiles) + 1):
            if not fits_registers(rows, vectors, target):
                break
            last = math.ceil(tiles / rows)
            even = {math.ceil(last / blocks) for blocks in range(1, _LARGE_BLOCKS + 1)}
            multiples = {*range(1, min(max(1, most // rows), last) + 1), *even}
            strategies += [
                WinogradStrategy(
                    tile, rows * count, rows, vectors, math.ceil(panels / group), run=run
                )
                for count in sorted(multiples)
                for group in sorted(groups)
            ]
    if _may_be_plain(shape):
        strategies += _of_plain_filters(tile, counts, target, threads)
    small = [s for s in strategies if _scratch_bytes(s, counts, target) <= _SCRATCH_BYTES]
    return small or strategies[:1]


def _of_plain_filters(
    tile: int, counts: _Counts, target: Target, threads: int
) -> list[WinogradStrategy]:
    """Strategies whose register tiles, a row of positions of some tiles, transform the filters;
    the block is all tiles."""
    tiles = counts.tiles
    panels = math.ceil(counts.columns / target.vector_lanes)
    most = _most_plain(counts, target)
    return [
        WinogradStrategy(
            tile, math.ceil(tiles / rows) * rows, rows, 1, math.ceil(panels / group), plain=1
        )
        for rows in range(1, min(most, tiles) + 1)
        for group in sorted({min(panels, g) for g in (1, threads, 2 * threads)})
    ]


def _may_be_plain(shape: ConvolutionShape) -> bool:
    """Whether register tiles can transform filters."""
    return shape.filter == (3, 3) and shape.strides == (1, 1)


def _most_plain(counts: _Counts, target: Target) -> int:
    """Tiles of a register tile that transforms filters, at most."""
    return (target.vector_registers - _WORKING) // counts.across


def _scratch_bytes(strategy: WinogradStrategy, counts: _Counts, target: Target) -> int:
    """What a task has on its stack: transformed tiles, and products of a panel."""
    panel = strategy.vectors * target.vector_lanes
    numbers = int(counts.summed * counts.sliced(strategy.run)) + strategy.run * panel
    return counts.positions * (strategy.block * numbers + 2 * LINE) * 4


_THERE, _BACK = 10, 10
"""Multiply-adds that a position's share of a tile's transforms takes as long as, in two
dimensions."""

_WORKING, _FILTERS = 8, 30
"""Registers of a register tile beside its sums where it transforms filters, and what that takes for
a row of positions, a step."""

_TILE = 80
"""The same of what a register tile takes beside its steps."""

_STEP, _STEP_ROW = 0.4, 0.03
"""And of what a step of it takes beside its multiply-adds and loads, and for each row."""

_IN_FLIGHT = 0.8
"""The part of `in_flight` that register tiles need here, whose sums are short."""

_IN_ORDER = 1.6
"""How much faster L3 gives transformed tiles, which are read in order, than it gives others."""

_WRITTEN = 2
"""Times that reading them takes, what it takes to write them where L2 cannot hold them."""


def _time(strategy: WinogradStrategy, counts: _Counts, target: Target, threads: int) -> float:
    """Estimated time, in vector multiply-adds: the products and the weights they wait for, both
    transforms, and the transformed tiles that each panel reads, half a vector at a time from L2,
    where the products of a run stay, too; all by the thread that has most.

    The constants were fitted to 190 strategies of 14 shapes, timed with AVX2, and to those that
    they choose for 15 layers of stride 1 and 2 whose weights come from memory."""
    run, sliced = strategy.run, counts.sliced(strategy.run)
    blocks = math.ceil(counts.tiles // run / strategy.block)
    panels = math.ceil(counts.columns / (strategy.vectors * target.vector_lanes))
    groups = math.ceil(panels / strategy.panels)
    sums = counts.sums * counts.terms
    register_tiles = blocks * strategy.block * run // strategy.rows * panels
    steps = sums * _step(strategy, counts.summed, target)
    if strategy.plain:
        steps = counts.across * counts.terms * (strategy.rows * counts.across + _FILTERS)
    products = register_tiles * (steps + counts.positions * _TILE)
    weights = _streaming(strategy, counts, target)
    sides = counts.transformed / 2
    there = groups * counts.tiles // run * counts.sums * counts.inputs * sliced * _THERE * sides
    back = counts.tiles * counts.stored * counts.positions * _BACK * sides
    moved = strategy.block * sums * 4
    panel = strategy.vectors * target.vector_lanes
    others = strategy.block * (run - 1) * panel * counts.positions * 4
    in_l2 = moved * sliced + others <= target.l2_bytes * 3 // 4
    rate = target.vector_bits / 16 if in_l2 else _IN_ORDER * target.l3_rate
    read = blocks * (panels * run if in_l2 else panels * run + _WRITTEN * sliced) * moved / rate
    time = max(products, weights) + target.waiting * min(products, weights) + there + back + read
    tasks = counts.groups * blocks * groups
    time *= counts.groups
    return time * math.ceil(tasks / threads) / tasks


def _step(strategy: WinogradStrategy, inputs: int, target: Target) -> float:
    """Of a step of a register tile. Vectors of a panel that fills L1 come from L2."""
    panel_bytes = inputs * strategy.vectors * target.vector_lanes * 4
    load = 1 + (panel_bytes > target.l1_bytes // 2) + (panel_bytes > target.l1_bytes)
    rows, vectors = strategy.rows, strategy.vectors
    loads = max(rows * target.broadcast_time + vectors, vectors * load)
    return max(rows * vectors, _IN_FLIGHT * target.in_flight, loads) + _STEP + _STEP_ROW * rows


def _streaming(strategy: WinogradStrategy, counts: _Counts, target: Target) -> float:
    """Vector multiply-adds that take as long as the weights of each block: from memory first, asked
    for a position ahead, then from where they stay."""
    blocks = math.ceil(counts.tiles // strategy.run / strategy.block)
    sums = counts.filter if strategy.plain else counts.sums
    weights = sums * counts.terms * counts.columns * 4
    again = (blocks - 1) * weights if weights > target.l2_bytes // 2 else 0
    rate = target.l3_rate if weights < target.l3_bytes * 3 // 4 else target.asked_rate
    return weights / target.asked_rate + again / rate
