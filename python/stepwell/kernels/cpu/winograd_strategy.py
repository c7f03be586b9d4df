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
from dataclasses import dataclass

from stepwell.kernels.cpu.contraction_strategy import fits_registers
from stepwell.kernels.cpu.winograd_shape import ConvolutionShape, Slide
from stepwell.kernels.group import widths
from stepwell.kernels.strategy import Candidate, Choice, IntegerStrategy
from stepwell.packing import (
    Packing,
    PanelPacking,
    WinogradPacking,
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
