"""The convolutions that Winograd's algorithm computes: their loops by role, and their tiles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from stepwell.kernels.cpu.winograd_transform import Row
from stepwell.kernels.index import Index, Variable, apply_map
from stepwell.kernels.structured import Structured, element_type
from stepwell.kernels.used_elements import needed_layout
from stepwell.mlir import ir
from stepwell.open_dimensions import is_open
from stepwell.packing import WinogradRegion, winograd_phases, winograd_regions

TILES = (2, 4)
"""Outputs of a tile in a row that a filter of several terms computes."""

FILTERS = (2, 3, 4, 5, 7)
"""Terms of a filter in a dimension that is transformed."""


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


def _positions(affine_map: ir.AffineMap) -> list[int]:
    """The loops that the results of a map are; none where one is no plain loop."""
    results = list(affine_map.results)
    plain = [e.position for e in results if isinstance(e, ir.AffineDimExpr)]
    return plain if len(plain) == len(results) else []
