"""Winograd convolution: filters of 2 to 5 or 7 terms in one or two dimensions, by F(2) and F(4).

Filters may be dilated, in groups, and have further dimensions (3-D convolutions): every d-th row
and column are an image of their own, and the products sum over those dimensions as over the
channels. With a stride of 2, even and odd rows and columns are four images with filters of 2x2,
2x1, 1x2 and 1x1 where it was 3x3, whose products are summed before they are transformed back.

    output tile = A^T [ (G w G^T) * (B^T d B) ] A        (S. Winograd, 1980; A. Lavin, S. Gray,
    2016)

m x m outputs of r x r terms take (m + r - 1)^2 multiplications an input and output channel, instead
of r^2 m^2: for 3x3 filters 2.25 and 4 times fewer, with a stride of 2 1.44 and 1.78 times; for 5x5
filters by F(2x2) 2.78 times. The weights G w G^T are
made at compile time in float64, or in registers where tiles are so few that reading them takes
longer. A task transforms a block of input tiles into scratch that stays in L2, then, a panel of
output channels at a time, multiplies each position as a small matrix product and transforms back,
with the epilogue on the results.

F(4x4) uses the points 0, +-11/16, +-3/2 and infinity: over three random layers (128 channels,
positive inputs) its relative L2 error is 8.2e-7 to 9.3e-7, where direct summation in one chain
gives 4.3e-7, the points 0, +-1, +-2 about 2.0e-6, and F(2x2) 3.1e-7. With a stride of 2 it uses
+-7/16, +-11/8 and infinity: 9.6e-7, and F(2x2) 4.8e-7. Sums by chunks of 32 terms, of filters that
are transformed in registers, have errors of 4.2e-7 and 1.8e-7.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from stepwell.kernels.builder import Lanes
from stepwell.kernels.cpu.contraction_strategy import steps_at_once, summation_levels
from stepwell.kernels.cpu.prefetch import lines_ahead
from stepwell.kernels.cpu.used_tiles import UsedTiles
from stepwell.kernels.cpu.winograd_shape import ConvolutionShape
from stepwell.kernels.cpu.winograd_strategy import LINE, WinogradStrategy
from stepwell.kernels.cpu.winograd_transform import Transform
from stepwell.kernels.group import KernelGroup, widths
from stepwell.kernels.index import Index, Variable, apply_map, constant, delinearize
from stepwell.kernels.structured import element_type
from stepwell.mlir import ir
from stepwell.packing import winograd_phases

_CHUNK, _SHORTEST_CHUNK = 32, 8
"""Terms of a sum whose plain filters stay in L1 while all positions use them, and the fewest that
are worth it."""


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
        self.outputs = shape.columns
        rows = shape.rows(strategy.tile)
        self.down, self.across = (Transform(group.nest, row) for row in rows)
        regions = shape.regions(strategy.tile)
        order = [at for region in regions for at in region.positions]
        self.places = {at: number for number, at in enumerate(order)}
        self.run = strategy.run
        self.grid = shape.grid(strategy.tile, self.run)
        self.tiles = math.prod(self.grid)
        self.taps = [(d, shape.sizes[d]) for d in shape.taps]
        self.apart = self.stored = shape.summed
        """How far apart the terms of neighbours in a run begin, and numbers of a whole run."""
        if self.run > 1:
            assert shape.slide is not None
            slices = shape.slide.slices(self.run)
            self.taps = [(shape.slide.tap, slices)]
            self.apart = shape.slide.step * shape.sizes[shape.inputs]
            self.stored = slices * shape.sizes[shape.inputs]
        self.panel = strategy.vectors * lanes
        self.panels = -(-self.outputs // self.panel)
        self.here = Index()
        """The group of channels that a task works on."""
        self.used = UsedTiles.of(group, self.op, shape, strategy.tile)

    def emit(self) -> None:
        strategy, nest = self.strategy, self.nest
        element = element_type(self.op.op.results[0])
        positions = len(self.places)
        moved = nest.scratch([positions, strategy.block * self.stored + LINE], element)
        products = nest.scratch([positions, strategy.block * self.run * self.panel + LINE], element)
        blocks = -(-self.tiles // strategy.block)
        panels = self.panels
        groups = -(-panels // strategy.panels)
        with (
            nest.parallel("task", self.shape.groups * groups * blocks) as task,
            self.evaluator.scope(),
        ):
            flat = Index.of(task)
            self.group.fill_halos(flat, self.lanes)
            self._fill_margins(flat)
            self.here, number, block = delinearize(flat, [self.shape.groups, groups, blocks])
            start = block * strategy.block
            self._for_runs(start, functools.partial(self._transform_input, moved))
            first = number * strategy.panels
            with nest.loop_between("panel", first, first + strategy.panels, panels) as panel:
                if strategy.plain:
                    self._multiply_plain(Index.of(panel), start, moved, products)
                else:
                    self._multiply(Index.of(panel), start, moved, products)
                self._transform_panel(Index.of(panel), start, products)

    def _fill_margins(self, task: Index) -> None:
        """In the first task of a group, write the tiles beyond those that are computed, where what
        follows reads what they were filled with."""
        if self.used is None or self.used.margins is None:
            return
        (down, most_down), (across, most_across) = self.used.margins
        tasks = self.shape.groups
        self.here = task
        with self.nest.when_all_below([(task, tasks)]), self.evaluator.scope():
            self._fill_tiles((down, most_down), (Index(), most_across))
            self._fill_tiles((Index(), down), (across, most_across))

    def _fill_tiles(self, down: tuple[Index, Index], across: tuple[Index, Index]) -> None:
        """Write the tiles between two rows and two columns of them, of sums that are zero."""
        *images, most_down, most_across = self.grid
        nest = self.nest
        with (
            nest.loop("image", 0, math.prod(images)) as image,
            nest.loop_between("down", *down, most_down) as row,
            nest.loop_between("across", *across, most_across) as column,
            self.evaluator.scope(),
        ):
            place = [*delinearize(Index.of(image), images), Index.of(row), Index.of(column)]
            for begin, end, width in widths(self.outputs, self.lanes):
                with nest.loop("v", begin, end, width) as v, self.evaluator.scope():
                    vector = Lanes.of(width)
                    zero = nest.zero(element_type(self.op.op.results[0]), width)
                    for i, j in itertools.product(range(self.down.tile), range(self.across.tile)):
                        self._store(place, i, j, Index.of(v) + vector.index, zero, vector)

    def _for_runs(self, start: Index, body: Callable[[list[Index], Index], None]) -> None:
        """Call `body(place, number)` in a loop over the runs of tiles of the block from `start` on:
        the place of the first tile in the grid, and the run's number in the block."""
        stop, total = start + self.strategy.block, self.used.count if self.used else None
        with self.nest.loop_between("tile", start, stop, self.tiles, other=total) as tile:
            with self.evaluator.scope():
                number = Index.of(tile)
                if self.used is None:
                    place = delinearize(number, self.grid)
                    if self.run > 1:
                        assert self.shape.slide is not None
                        axis = self.shape.slide.axis
                        place[axis] = place[axis] * self.run
                    body(place, number - start)
                else:
                    assert tile.value is not None
                    body(self.used.place(tile.value, self.grid), number - start)

    def _for_tiles(self, start: Index, body: Callable[[list[Index], Index], None]) -> None:
        """The same of all tiles, whose number is that of their products."""

        def of_run(place: list[Index], number: Index) -> None:
            with self._members() as member:
                here = list(place)
                if self.shape.slide is not None:
                    here[self.shape.slide.axis] = here[self.shape.slide.axis] + member
                body(here, member * self.strategy.block + number)

        self._for_runs(start, of_run)

    @contextmanager
    def _members(self) -> Iterator[Index]:
        """A loop over the tiles of a run."""
        if self.run == 1:
            yield Index()
            return
        with self.nest.loop("member", 0, self.run) as member, self.evaluator.scope():
            yield Index.of(member)

    @contextmanager
    def _rows(self, start: Index) -> Iterator[Index]:
        """A loop over the register tiles of the block from `start` on: the first tile of each."""
        block, rows = self.strategy.block, self.strategy.rows
        if self.used is None:
            with self.nest.loop("row", 0, block, rows) as row:
                yield Index.of(row)
            return
        rest = self.used.count - start
        with self.nest.loop_between("row", Index(), rest, block, rows) as row:
            yield Index.of(row)

    def _transform_panel(self, panel: Index, start: Index, products: ir.Value) -> None:
        """Transform the outputs of a panel back; the last one may have fewer columns."""
        last = self.outputs - (self.panels - 1) * self.panel

        def transform(panel: Index, is_last: bool) -> None:
            columns = last if is_last else self.panel
            body = functools.partial(self._transform_output, panel, columns, products)
            self._for_tiles(start, body)

        if self.panels == 1 or last == self.panel:
            transform(panel, True)
        else:
            self.nest.last_apart(panel, self.panels - 1, transform)

    def _transform_input(self, moved: ir.Value, tile: list[Index], local: Index) -> None:
        """B^T d B of a run of tiles from a place of the grid on, a vector of channels at a time;
        where they are no whole vectors, the last one begins among those of the one before."""
        shape = self.shape
        channels = shape.sizes[shape.inputs]
        loops, sizes = [d for d, _ in self.taps], [size for _, size in self.taps]
        for number, phase in enumerate(winograd_phases(shape.strides)):
            with self.nest.loop("tap", 0, math.prod(sizes)) as tap:
                where = dict(zip(loops, delinearize(Index.of(tap), sizes), strict=True))
                term = local * self.stored + number * shape.terms + Index.of(tap) * channels

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
        tile: list[Index],
        phase: tuple[int, int],
        terms: dict[int, Index],
        place: Index,
        moved: ir.Value,
        vector: Lanes,
    ) -> None:
        """Of one phase of the image; the odd terms of an odd filter have nothing at infinity."""
        shape = self.shape
        short = [
            bool(odd) and side.filter % 2 == 1 for odd, side in zip(phase, shape.sides, strict=True)
        ]
        rows, columns = self.down.window - short[0], self.across.window - short[1]

        def load(i: int, j: int) -> ir.Value:
            dims = self._at(tile, i, j)
            for dim, index in terms.items():
                dims[dim] = index
            for side, term in zip(shape.sides, phase, strict=True):
                if side.filter_loop is not None:
                    dims[side.filter_loop] = constant(term)
            point = apply_map(self.op.maps[0], dims)
            return self.evaluator.at(self.op.inputs[0], point, vector)

        moved_columns = [
            self.down.of_input([load(i, j) for i in range(rows)], not short[0])
            for j in range(columns)
        ]
        for i in range(rows):
            values = self.across.of_input([column[i] for column in moved_columns], not short[1])
            for j, value in enumerate(values):
                self.nest.store(value, moved, [constant(self.places[i, j]), place], vector)

    def _at(self, tile: list[Index], i: int, j: int) -> list[Index]:
        """The point of the iteration space at row `i` and column `j` of a tile."""
        shape = self.shape
        *images, down, across, row, column = tile
        dims = [Index()] * len(shape.sizes)
        for dim, index in zip(shape.images, images, strict=True):
            dims[dim] = index
        if shape.group is not None:
            dims[shape.group] = self.here
        height, width = shape.sides
        dims[height.loop] = (row * self.down.tile + i) * height.dilation + down
        dims[width.loop] = (column * self.across.tile + j) * width.dilation + across
        return dims

    def _multiply(self, panel: Index, start: Index, moved: ir.Value, products: ir.Value) -> None:
        """For each position, [block, in] times [in, panel]."""
        panel = self.here * self.panels + panel
        begin = 0
        for region in self.shape.regions(self.strategy.tile):
            end = begin + len(region.positions)
            terms = (region.first * self.shape.terms, region.phases * self.shape.terms)
            with self.nest.loop("position", begin, end) as position:
                here = Index.of(position)
                with self._members() as member:
                    self._multiply_position(panel, start, here, member, terms, moved, products)
            begin = end

    def _multiply_plain(
        self, panel: Index, begin: Index, moved: ir.Value, products: ir.Value
    ) -> None:
        """The same, a row of positions of some tiles at a time, whose sums are in registers with
        the transformed filters; chunks of the terms, whose filters stay in L1 meanwhile, are added.
        Weights are [panels, tap, in, 3, 3, panel]."""
        terms, rows = self.shape.terms, self.strategy.rows
        window = self.across.window
        chunk = max(c for c in range(1, _CHUNK + 1) if terms % c == 0)
        if chunk < _SHORTEST_CHUNK:
            chunk = terms
        panel = self.here * self.panels + panel
        vector = Lanes.of(self.lanes)
        zeros = [self.nest.zero(moved.type.element_type, self.lanes)] * (rows * window)
        unroll = steps_at_once(len(zeros))
        with self.nest.loop("chunk", 0, terms, chunk) as start:
            with self._rows(begin) as first:
                tiles = [first + r for r in range(rows)]
                for i in range(self.down.window):
                    places = [constant(self.places[i, j]) for j in range(window)]
                    sums = self.nest.reduce_steps(
                        "k",
                        0,
                        chunk,
                        zeros,
                        functools.partial(
                            self._plain_step, panel, Index.of(start), tiles, i, moved
                        ),
                        unroll,
                        functools.partial(
                            self._ask_plain, panel, Index.of(start), tiles[0], i, chunk, unroll
                        ),
                    )
                    at = [(place, tile) for place in places for tile in tiles]
                    for (place, tile), value in zip(at, sums, strict=True):
                        there = [place, tile * self.panel + vector.index]
                        self._add_chunk(value, products, there, vector, Index.of(start))

    def _plain_step(
        self,
        panel: Index,
        start: Index,
        tiles: list[Index],
        i: int,
        moved: ir.Value,
        k: Index,
        carried: list[ir.Value],
    ) -> list[ir.Value]:
        """A term of the sums of row `i` of the positions of `tiles`."""
        shape, nest, term = self.shape, self.nest, start + k
        vector, one = Lanes.of(self.lanes), Lanes.of(1)
        channels = shape.sizes[shape.inputs]
        at = [panel, *delinearize(term, [shape.terms // channels, channels])]
        filters = [
            [
                nest.load(self.weights, [*at, constant(a), constant(b), vector.index], vector)
                for b in range(self.across.filter)
            ]
            for a in range(self.down.filter)
        ]
        following = []
        row = self.down.row_of_filter(i, filters)
        for j, value in enumerate(self.across.of_filter(row)):
            for tile in tiles:
                place = [constant(self.places[i, j]), tile * shape.summed + term]
                left = nest.as_vector(nest.load(moved, place, one), vector)
                following.append(nest.fma(left, value, carried[len(following)]))
        return following

    def _ask_plain(
        self, panel: Index, start: Index, tile: Index, i: int, chunk: int, unroll: int, k: Index
    ) -> None:
        """For lines of the next panel, of which each row of positions has its share."""
        terms, rows = self.shape.terms, self.strategy.rows
        window, tiles = self.down.window, self.strategy.block // rows
        number = (start.floordiv(chunk) * tiles + tile.floordiv(rows)) * window + i
        count = terms // chunk * tiles * window
        numbers = terms * math.prod(self.shape.filter) * self.panel
        weights = self.nest.flattened(self.weights)
        for place in lines_ahead(k, number, count, chunk, numbers, unroll):
            self.nest.prefetch(weights, [(panel + 1) * numbers + place])

    def _add_chunk(
        self, value: ir.Value, products: ir.Value, place: list[Index], vector: Lanes, start: Index
    ) -> None:
        """Write the sums of the first chunk, add those of others."""
        if start.high == 0:
            self.nest.store(value, products, place, vector)
            return
        with self.nest.when(start, equals=0, otherwise=True) as branch:
            with branch.then():
                self.nest.store(value, products, place, vector)
            with branch.otherwise():
                total = self.nest.add(self.nest.load(products, place, vector), value)
                self.nest.store(total, products, place, vector)

    def _multiply_position(
        self,
        panel: Index,
        start: Index,
        here: Index,
        member: Index,
        terms: tuple[int, int],
        moved: ir.Value,
        products: ir.Value,
    ) -> None:
        """At one position, of one of the tiles of each run; `terms` are the first and the number of
        those of its sum."""
        strategy, nest = self.strategy, self.nest
        first, count = terms
        zero = nest.zero(moved.type.element_type, self.lanes)
        vectors = [Lanes.of(self.lanes) for _ in range(strategy.vectors)]
        one = Lanes.of(1)
        tiles = strategy.block // strategy.rows
        unroll = steps_at_once(strategy.rows * strategy.vectors)

        def ask(row: Index, k: Index) -> None:
            """Lines of the weights of the next position."""
            tile, every = member * tiles + row.floordiv(strategy.rows), self.run * tiles
            for place in lines_ahead(k, tile, every, count, count * self.panel, unroll):
                nest.prefetch(self.weights, [panel, here + 1, constant(first), place])

        with self._rows(start) as row:
            rows = [row + r for r in range(strategy.rows)]

            def step(k: Index, carried: list[ir.Value]) -> list[ir.Value]:
                right = [
                    nest.load(self.weights, [panel, here, k + first, v.index + n * self.lanes], v)
                    for n, v in enumerate(vectors)
                ]
                following = list(carried)
                for r, index in enumerate(rows):
                    place = [here, index * self.stored + member * self.apart + first + k]
                    left = nest.as_vector(nest.load(moved, place, one), vectors[0])
                    for n, value in enumerate(right):
                        cell = r * len(vectors) + n
                        following[cell] = nest.fma(left, value, following[cell])
                return following

            cells = [zero] * (strategy.rows * strategy.vectors)
            sums = self._sum(count, step, cells, functools.partial(ask, row))
            for r, index in enumerate(rows):
                for n, v in enumerate(vectors):
                    number = member * strategy.block + index
                    place = [here, number * self.panel + v.index + n * self.lanes]
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
        self, panel: Index, columns: int, products: ir.Value, tile: list[Index], local: Index
    ) -> None:
        """A^T m A of the tile at a place of the grid, in the first `columns` of a panel, the
        epilogue, and the stores that lie inside the image."""
        for begin, end, width in widths(columns, self.lanes):
            with self.nest.loop("v", begin, end, width) as v, self.evaluator.scope():
                vector = Lanes.of(width)
                offset = Index.of(v) + vector.index
                self._transform_vector(tile, local, panel, offset, products, vector)

    def _transform_vector(
        self,
        tile: list[Index],
        local: Index,
        panel: Index,
        offset: Index,
        products: ir.Value,
        vector: Lanes,
    ) -> None:
        columns = [
            self.down.of_output(
                [
                    self.nest.load(
                        products,
                        [constant(self.places[i, j]), local * self.panel + offset],
                        vector,
                    )
                    for i in range(self.down.window)
                ]
            )
            for j in range(self.across.window)
        ]
        for i in range(self.down.tile):
            values = self.across.of_output([column[i] for column in columns])
            for j, value in enumerate(values):
                self._store(tile, i, j, panel * self.panel + offset, value, vector)

    def _store(
        self, tile: list[Index], i: int, j: int, channel: Index, value: ir.Value, vector: Lanes
    ) -> None:
        """Finish and write the results at row `i` and column `j` of a tile, if it is in the
        image."""
        shape = self.shape
        dims = self._at(tile, i, j)
        dims[shape.outputs] = channel
        bounds = [(dims[side.loop], side.size) for side in shape.sides]
        outside = [(index, size) for index, size in bounds if index.high >= size]
        with self.nest.when_all_below(outside):
            self._write(apply_map(self.op.output_map, dims), value, vector)

    def _write(self, point: list[Index], value: ir.Value, vector: Lanes) -> None:
        result = self.op.op.results[0]
        with self.evaluator.scope():
            self.evaluator.bind(result, point, value)
            for output in self.group.outputs:
                self.group.write(output, self.group.point_of(output, result, point), vector)
