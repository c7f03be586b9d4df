"""How a Winograd convolution is cut into tasks and blocks: its strategy, chosen by a cost model of
the target.

Filters are transformed at compile time, or in registers as they are multiplied: G w G^T has 4 times
as many numbers as w with F(4x4), and where there are few tiles to multiply them with, a core sooner
transforms filters than it reads what was transformed.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from dataclasses import dataclass

from stepwell.kernels.cpu.contraction_strategy import fits_registers
from stepwell.kernels.cpu.winograd_transform import (
    FILTER,
    TILES,
    transform_matrices,
    window_of,
)
from stepwell.kernels.group import widths
from stepwell.kernels.index import Index, Variable, apply_map
from stepwell.kernels.strategy import Candidate, Choice, IntegerStrategy
from stepwell.kernels.structured import Structured, element_type
from stepwell.mlir import ir
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

_LARGE_BLOCKS = 8
"""Up to so many blocks may be larger than L2, of the same size each."""

LINE = 16
"""Numbers that keep the positions of a tile apart: without them, they would lie a power of two
apart, in few sets of the cache."""

ATTRIBUTE = "kernel.winograd"
"""Marks a convolution whose input is padded to whole tiles: its value is the tile."""


@dataclass(frozen=True)
class WinogradStrategy(IntegerStrategy):
    """`tile` outputs a side; `block` input tiles and `panels` panels of `vectors` vectors a task;
    `rows` tiles in a register tile of the matrix products. With `plain` 1, weights are filters as
    they are, which register tiles transform, with 0 transformed ones."""

    tile: int
    block: int
    rows: int
    vectors: int
    panels: int
    plain: int = 0


_VARIANTS = 4
"""Register tiles that tuning looks at."""


@dataclass(frozen=True)
class Algorithm:
    """How a 3x3 convolution is computed: by F(tile x tile, 3x3), or directly where `tile` is 0."""

    tile: int

    def __str__(self) -> str:
        side = f"{self.tile}x{self.tile}"
        return f"Winograd F({side}, {FILTER}x{FILTER})" if self.tile else "direct"


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


def packing(
    filters: tuple[int, ...], strategy: WinogradStrategy, lanes: int, stride: int = 1
) -> Packing:
    """How filters of shape [tap.., 3, 3, in, out] are packed, and transformed where the kernel does
    not; the outputs of all groups are columns."""
    panel = strategy.vectors * lanes
    if strategy.plain:
        *taps, height, width, inputs, outputs = filters
        merged = (math.prod(taps), height, width, inputs, outputs)
        return PanelPacking(merged, (0, 3, 1, 2, 4), 0, panel)
    _, g, _ = transform_matrices(strategy.tile, stride)
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
    estimates = _estimates(shape, target, threads)
    best = min(estimates, key=lambda estimate: estimate[1], default=None)
    return best[0] if best is not None and best[1] < direct / threads else None


def algorithm(
    shape: ConvolutionShape, target: Target, threads: int, direct: float
) -> Choice[Algorithm]:
    """The choice that `choose` makes."""
    estimates = _estimates(shape, target, threads)
    strategy = choose(shape, target, threads, direct)
    costs = {Algorithm(0): direct / threads} | {Algorithm(s.tile): time for s, time in estimates}

    def candidates(chosen: Algorithm) -> list[Candidate]:
        found = sorted(costs.items(), key=lambda item: (item[0] != chosen, item[1]))
        return [Candidate(str(algorithm), cost) for algorithm, cost in found]

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
    listed = sorted(
        _strategies(tile, shape, target, threads),
        key=lambda s: _time(s, shape, target, threads),
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
    tiles, lanes = _tiles(tile, shape), target.vector_lanes
    columns = math.ceil(shape.extents()[-1] / lanes)
    if strategy.tile != tile:
        return f"tile is {strategy.tile}, and the image is padded for {tile}"
    for field in ("rows", "vectors", "block", "panels"):
        number = getattr(strategy, field)
        if number < 1:
            return f"{field} is {number}, which should be positive"
    if columns % strategy.vectors:
        return f"{columns} vectors of outputs are no panels of {strategy.vectors}"
    if strategy.block % strategy.rows or strategy.rows > tiles:
        return f"a block of {strategy.block} tiles has no whole register tiles of {strategy.rows}"
    if strategy.panels > columns // strategy.vectors:
        return f"panels is {strategy.panels}, of {columns // strategy.vectors}"
    if strategy.plain:
        most = (target.vector_registers - _WORKING) // shape.window(tile)
        whole = strategy.vectors == 1 and strategy.block >= tiles and shape.stride == 1
        fits = strategy.plain == 1 and whole and strategy.rows <= most
    else:
        fits = fits_registers(strategy.rows, strategy.vectors, target)
    if not fits:
        return f"register tiles of {strategy.rows} by {strategy.vectors} do not fit {target.name}"
    if _scratch_bytes(strategy, shape, target) > _SCRATCH_BYTES:
        return f"a block of {strategy.block} tiles needs more than {_SCRATCH_BYTES} bytes"
    return ""


def _estimates(
    shape: ConvolutionShape, target: Target, threads: int
) -> list[tuple[WinogradStrategy, float]]:
    """The best strategy of each tile that can be, and its time."""
    if not applies(shape, target):
        return []
    strategies = [blocking(tile, shape, target, threads) for tile in TILES]
    return [
        (strategy, _time(strategy, shape, target, threads))
        for strategy in strategies
        if _scratch_bytes(strategy, shape, target) <= _SCRATCH_BYTES
    ]


@functools.lru_cache(256)
def blocking(tile: int, shape: ConvolutionShape, target: Target, threads: int) -> WinogradStrategy:
    """How to run F(tile x tile): register tiles that waste little, as many input tiles a task as
    keep their transforms in L2 (or more, where weights come from memory), and panels in as few
    groups as keep the threads busy, since each group transforms its input tiles itself."""
    strategies = _strategies(tile, shape, target, threads)
    return min(strategies, key=lambda s: _time(s, shape, target, threads))


def _strategies(
    tile: int, shape: ConvolutionShape, target: Target, threads: int
) -> list[WinogradStrategy]:
    """What `blocking` chooses from."""
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
    strategies += _of_plain_filters(tile, shape, target, threads)
    small = [s for s in strategies if _scratch_bytes(s, shape, target) <= _SCRATCH_BYTES]
    return small or strategies[:1]


def _of_plain_filters(
    tile: int, shape: ConvolutionShape, target: Target, threads: int
) -> list[WinogradStrategy]:
    """Strategies whose register tiles, a row of positions of some tiles, transform the filters;
    the block is all tiles."""
    if shape.stride > 1:
        return []
    tiles, window = _tiles(tile, shape), shape.window(tile)
    panels = math.ceil(shape.extents()[-1] / target.vector_lanes)
    most = (target.vector_registers - _WORKING) // window
    return [
        WinogradStrategy(
            tile, math.ceil(tiles / rows) * rows, rows, 1, math.ceil(panels / group), plain=1
        )
        for rows in range(1, min(most, tiles) + 1)
        for group in sorted({min(panels, g) for g in (1, threads, 2 * threads)})
    ]


def _scratch_bytes(strategy: WinogradStrategy, shape: ConvolutionShape, target: Target) -> int:
    """What a task has on its stack: transformed tiles, and products of a panel."""
    panel = strategy.vectors * target.vector_lanes
    positions = shape.window(strategy.tile) ** 2
    return positions * (strategy.block * (shape.summed + panel) + 2 * LINE) * 4


def _tiles(tile: int, shape: ConvolutionShape) -> int:
    return math.prod(shape.grid(tile))


_THERE, _BACK = 10, 10
"""Multiply-adds that a position's share of a tile's transforms takes as long as."""

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
    if strategy.plain:
        window = shape.window(strategy.tile)
        steps = window * shape.terms * (strategy.rows * window + _FILTERS)
    products = register_tiles * (steps + positions * _TILE)
    weights = _streaming(strategy, shape, target)
    vectors = shape.of_all(shape.taps) * math.ceil(shape.sizes[shape.inputs] / lanes)
    there = groups * tiles * shape.sums(strategy.tile) * vectors * _THERE
    stored = sum((end - begin) // width for begin, end, width in widths(outputs, lanes))
    back = tiles * stored * positions * _BACK
    moved = strategy.block * sums * 4
    in_l2 = moved <= target.l2_bytes * 3 // 4
    rate = target.vector_bits / 16 if in_l2 else _IN_ORDER * target.l3_rate
    read = blocks * (panels if in_l2 else panels + _WRITTEN) * moved / rate
    time = max(products, weights) + target.waiting * min(products, weights) + there + back + read
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
    sums = FILTER**2 if strategy.plain else shape.sums(strategy.tile)
    weights = sums * shape.terms * outputs * 4
    again = (blocks - 1) * weights if weights > target.l2_bytes // 2 else 0
    rate = target.l3_rate if weights < target.l3_bytes * 3 // 4 else target.asked_rate
    return weights / target.asked_rate + again / rate
