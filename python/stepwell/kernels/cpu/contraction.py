"""Contractions: matrix products and direct convolutions as one register-tiled loop nest.

    out[b, m, n] += lhs[b, m, k] * rhs[b, k, n]        (m and k may be several dimensions)

A register tile is `rows` x `vectors` accumulators: each step of k loads `vectors` vectors of the
rhs and one scalar a row of the lhs, broadcast. The rhs is packed into panels of `vectors` vectors
when it is a weight, so that a panel streams from the cache; the epilogue runs on the accumulators.
A tile's rows are a box of the last two m dimensions, so that each is a constant distance from the
first and one base register addresses them all. Where an instruction adds several products to each
sum, a step of k is as many terms, in the lhs a word of them (`dot_products.py`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from contextlib import AbstractContextManager

from stepwell.kernels.builder import Lanes, vector
from stepwell.kernels.cpu import dot_products, halo
from stepwell.kernels.cpu.contraction_strategy import (
    ContractionShape,
    ContractionStrategy,
    gathers_panels,
    is_packed,
    steps_at_once,
    summation_levels,
)
from stepwell.kernels.cpu.edge_tiles import EdgeRegion, Part, edge_regions
from stepwell.kernels.cpu.prefetch import Prefetching
from stepwell.kernels.cpu.register_tile import RegisterTile, RegisterVector, pieces
from stepwell.kernels.cpu.term_loops import TermLoops
from stepwell.kernels.group import KernelGroup, accesses
from stepwell.kernels.index import Index, Variable, apply_map, constant, delinearize
from stepwell.kernels.rows import is_costly
from stepwell.kernels.structured import Structured, defining_op, element_type, extension
from stepwell.mlir import ir

PanelBody = Callable[[Index, bool], None]
Write = Callable[[list[Index], Lanes], None]
"""Stores what becomes of the result at a point: by now the evaluator knows it there."""


def emit(
    group: KernelGroup, strategy: ContractionStrategy, operands: tuple[int, int], lanes: int
) -> None:
    """Write the loops of a contraction group with `strategy`."""
    Contraction(group, group.anchor(), strategy, operands, lanes).emit()


class Contraction:
    """The loops of the contraction `op`, one of a group's operations.

    Its results go to the group's outputs, or where `write` puts them: then `written` is the value,
    of those computed from the contraction's, that it stores. Where they are set, `used_rows` (of
    `emit_block`), `used_columns` and `used_terms` say how many of each are worked out, the first
    two in whole tiles and panels.
    """

    used_rows: Index | None = None
    used_columns: Index | None = None
    used_terms: Index | None = None

    following: list[Index] | None = None
    """The point of the batch that meets a panel next, where all meet it before the next one."""

    def __init__(
        self,
        group: KernelGroup,
        op: Structured,
        strategy: ContractionStrategy,
        operands: tuple[int, int],
        lanes: int,
        write: Write | None = None,
        written: ir.Value | None = None,
    ) -> None:
        self.group = group
        self.nest = group.nest
        self.evaluator = group.evaluator
        self.op = op
        self.write = write or self._write_outputs
        self.terms = strategy.terms
        self.shape = ContractionShape.of(self.op, operands, self.terms)
        self.strategy = strategy
        self.lanes = lanes
        sizes = self.shape.sizes
        self.row_sizes = (
            [self.shape.m] if strategy.merge_rows else [sizes[d] for d in self.shape.rows]
        ) or [1]
        if len(self.row_sizes) == 1:
            self.row_sizes = [1, *self.row_sizes]
        self.panel = strategy.vectors * lanes
        self.panels = -(-self.shape.n // self.panel)
        self.prefetching = Prefetching(group, op, self.shape, strategy, self.panel)
        self.packed = is_packed(self.op, self.shape)
        bounded = not strategy.merge_rows and strategy.chains == 1
        self.windows = halo.windows(op, self.shape) if bounded else []
        self.gathered = self._gathered_panel()
        self.reads_gathered = False
        result = self.op.op.results[0]
        results = [written] if written else [output.value for output in group.outputs]
        self.is_costly = any(is_costly(value) for value in results if value != result)
        self.totals: ir.Value | None = None
        if self.is_costly or strategy.apart:
            rows = strategy.box[0] * strategy.box[1] * (strategy.row_tiles if strategy.apart else 1)
            self.totals = self.nest.scratch(
                [rows, self.panel], element_type(result), rewritten=not strategy.apart
            )

    def _gathered_panel(self) -> ir.Value | None:
        """Scratch for one panel of an rhs that is not packed, when enough row tiles share it."""
        if self.packed or not gathers_panels(self.shape, self.strategy, self.lanes):
            return None
        extents = [self.shape.sizes[d] for d in self.shape.reduced]
        element = element_type(self.op.inputs[self.shape.rhs])
        return self.nest.scratch([*extents, self.panel * self.terms], element)

    def _gather_panel(self, dims: list[Index], panel: Index, last: bool) -> None:
        """Copy a panel of the rhs into scratch, so that its rows lie side by side in the cache."""
        assert self.gathered is not None
        parts = pieces(self._columns(last), self.lanes)

        def copy(prefix: list[Index]) -> None:
            if len(prefix) < len(self.shape.reduced):
                size = self.shape.sizes[self.shape.reduced[len(prefix)]]
                with self._used_loop("k", self.used_terms, size) as k, self.evaluator.scope():
                    copy([*prefix, Index.of(k)])
                return
            for offset, width in parts:
                lanes = Lanes.of(width)
                full = list(dims)
                full[self.shape.column] = panel * self.panel + offset + lanes.index
                terms = [
                    self._operand(self.shape.rhs, self._at_term(full, prefix, term), lanes)
                    for term in range(self.terms)
                ]
                value = dot_products.interleave(terms) if self.terms > 1 else terms[0]
                stored = Lanes.of(width * self.terms)
                place = [*prefix, stored.index + offset * self.terms]
                self.nest.store(value, self.gathered, place, stored)

        with self.evaluator.scope():
            copy([])

    def _at_term(self, dims: list[Index], reduced: list[Index], term: Index | int) -> list[Index]:
        """`dims` at a term of the word that is at `reduced`."""
        full = list(dims)
        for axis, index in zip(self.shape.reduced, reduced, strict=True):
            full[axis] = index
        if self.terms > 1:
            last = self.shape.reduced[-1]
            full[last] = full[last] * self.terms + term
        return full

    def _columns(self, last: bool) -> int:
        """Columns of a panel that exist in the output."""
        return self.shape.n - (self.panels - 1) * self.panel if last else self.panel

    # Tasks: batch x blocks of row tiles x groups of panels

    def emit(self) -> None:
        shape, strategy = self.shape, self.strategy
        height, width = strategy.box
        tiles_across = self.row_sizes[-1] // width
        tiles_down = self.row_sizes[-2] // height
        lead = math.prod(self.row_sizes[:-2])
        full = lead * tiles_down * tiles_across
        batch = shape.extent(shape.batch)
        blocks = -(-full // strategy.row_tiles) if full else 0
        panel_groups = -(-self.panels // strategy.panels)
        parts: list[Part] = []
        if blocks:
            parts.append(Part(blocks, functools.partial(self._full_block, full)))
        parts += self._edge_parts()
        tasks = sum(part.tasks for part in parts)
        with (
            self.nest.parallel("task", batch * panel_groups * tasks) as task,
            self.evaluator.scope(),
        ):
            flat = Index.of(task)
            self.group.fill_halos(flat, self.lanes)
            which, column_group, number = delinearize(flat, [batch, panel_groups, tasks])
            if strategy.panels_first:
                column_group, which, number = delinearize(flat, [panel_groups, batch, tasks])
            dims = self._placed(which)
            if strategy.panels_first and strategy.ask_panels:
                self.following = self._placed((which + 1).mod(batch))
            begin = 0
            for part in parts:
                end = begin + part.tasks
                bounds = [(constant(begin) - number, 1)] if begin else []
                bounds += [(number, end)] if end < tasks else []
                with self.nest.when_all_below(bounds), self.evaluator.scope():
                    part.emit(dims, number + -begin, column_group)
                begin = end

    def _placed(self, which: Index) -> list[Index]:
        """A point of the iteration space at number `which` of the batch."""
        shape = self.shape
        dims = [Index()] * len(shape.sizes)
        sizes = [shape.sizes[d] for d in shape.batch]
        for axis, index in zip(shape.batch, delinearize(which, sizes), strict=True):
            dims[axis] = index
        for number in (shape.lhs, shape.rhs):
            self._load_slice_numbers(number, dims)
        return dims

    def _load_slice_numbers(self, number: int, dims: list[Index]) -> None:
        """Let the evaluator know the slices of an operand that are read at the batch of `dims`, in
        front of the loops."""
        at = apply_map(self.op.maps[number], dims)
        for _ in accesses(self.op.inputs[number], at, set(self.group.inputs), self.evaluator):
            pass

    def _edge_parts(self) -> list[Part]:
        """The regions that the full boxes leave: tasks of as many rows as those of full boxes have;
        one for all regions where they are no more."""
        regions = edge_regions(self.row_sizes, self.strategy.box)
        height, width = self.strategy.box
        rows = self.strategy.row_tiles * height * width
        if sum(region.rows for region in regions) <= rows:
            whole = [(region, region.tiles) for region in regions]
            return [Part(1, functools.partial(self._edge_block, whole))] if regions else []
        parts = []
        for region in regions:
            taken = max(1, rows // math.prod(region.box))
            emit = functools.partial(self._edge_block, [(region, taken)])
            parts.append(Part(-(-region.tiles // taken), emit))
        return parts

    def _full_block(self, full: int, dims: list[Index], block: Index, column_group: Index) -> None:
        height, width = self.strategy.box
        tiles = [*self.row_sizes[:-2], self.row_sizes[-2] // height, self.row_sizes[-1] // width]
        taken = self.strategy.row_tiles

        def run(panel: Index, last: bool) -> None:
            def at(tile: Index) -> RegisterTile:
                rows = self._rows_at(tile, tiles, (height, width))
                return self._tile_at(dims, rows, (height, width), panel, last)

            if self.strategy.apart:
                self._run_apart(block, full, at)
                return
            asks = self.strategy.ask_panels
            self._for_tiles(
                block,
                taken,
                full,
                lambda tile: self._run_tile(at(tile), tile - block * taken if asks else None),
            )

        self._for_panels(dims, column_group, run, gather=True)

    def _rows_at(self, tile: Index, tiles: list[int], box: tuple[int, int]) -> list[Index]:
        *lead, down, across = delinearize(tile, tiles)
        return [*lead, down * box[0], across * box[1]]

    def _edge_block(
        self,
        regions: list[tuple[EdgeRegion, int]],
        dims: list[Index],
        block: Index,
        column_group: Index,
    ) -> None:
        """Of each region, block number `block` of so many tiles."""
        for region, taken in regions:

            def run(panel: Index, last: bool, region=region, taken=taken) -> None:
                def body(tile: Index) -> None:
                    *lead, down, across = delinearize(tile, list(region.counts))
                    height, width = region.box
                    rows = [
                        *lead,
                        down * height + region.start[0],
                        across * width + region.start[1],
                    ]
                    self._run_tile(self._tile_at(dims, rows, region.box, panel, last))

                self._for_tiles(block, taken, region.tiles, body)

            self._for_panels(dims, column_group, run, gather=self.terms > 1)

    def _for_tiles(
        self, block: Index, taken: int, full: int, body: Callable[[Index], None], rest: int = 0
    ) -> None:
        """The tiles of a block, of `full` in all; the last block may be of the `rest` alone."""
        if taken == 1 and not rest:
            body(block)
            return
        start, used = block * taken, self.used_rows
        if used is not None:
            width = self.strategy.box[1]
            used = (used + (width - 1)).floordiv(width)
        with self.nest.loop_between("tile", start, start + taken, full, other=used) as variable:
            with self.evaluator.scope():
                body(Index.of(variable))

    def _for_panels(
        self, dims: list[Index], column_group: Index, run: PanelBody, gather: bool
    ) -> None:
        """Call `body(panel, is_last)` in loops over the panels of a group; the last panel of all is
        apart when it is not full. With `gather`, a panel that is not packed is copied first."""

        def body(panel: Index, last: bool) -> None:
            self._for_panel(dims, panel, last, run, gather)

        count = self.strategy.panels
        groups = -(-self.panels // count)
        if groups == 1:
            self._for_all_panels(body)
            return
        start = column_group * count
        ragged = self.shape.n % self.panel != 0
        whole = self.panels - (1 if ragged else 0)
        with self.nest.loop_between("panel", start, start + count, whole) as variable:
            with self.evaluator.scope():
                body(Index.of(variable), False)
        if ragged:
            with self.nest.when(column_group, equals=groups - 1) as branch:
                with branch.then(), self.evaluator.scope():
                    body(constant(self.panels - 1), True)

    def _for_all_panels(self, body: PanelBody) -> None:
        ragged = self.shape.n % self.panel != 0
        whole = self.panels - (1 if ragged else 0)
        used = self.used_columns
        if whole:
            panels = None if used is None else (used + (self.panel - 1)).floordiv(self.panel)
            with self._used_loop("panel", panels, whole) as variable, self.evaluator.scope():
                body(Index.of(variable), False)
        if ragged and used is not None:
            before = constant(whole * self.panel) + used * -1
            with self.nest.when_below([(before, 0)]) as branch, branch.then():
                with self.evaluator.scope():
                    body(constant(self.panels - 1), True)
        elif ragged:
            with self.evaluator.scope():
                body(constant(self.panels - 1), True)

    def _used_loop(
        self, name: str, used: Index | None, size: int
    ) -> AbstractContextManager[Variable]:
        """A loop over the first `used` of `size`, or all of them."""
        if used is None:
            return self.nest.loop(name, 0, size)
        return self.nest.loop_between(name, Index(), used, size)

    def _for_panel(
        self, dims: list[Index], panel: Index, last: bool, run: PanelBody, gather: bool
    ) -> None:
        self.reads_gathered = gather and self.gathered is not None
        if self.reads_gathered:
            self._gather_panel(dims, panel, last)
        run(panel, last)

    def emit_block(self, which: Index, block: Index, blocks: int) -> None:
        """All columns of one of `blocks` blocks of `row_tiles` row tiles, as part of a kernel that
        has loops of its own; `which` is its number in the batch. Rows have to be merged."""
        dims = self._placed(which)
        width, taken = self.strategy.box[1], self.strategy.row_tiles
        full, rest = divmod(self.shape.m, width)

        def run(panel: Index, last: bool) -> None:
            if full:
                self._for_tiles(
                    block,
                    taken,
                    full,
                    lambda tile: self._run_tile(
                        self._tile_at(dims, [Index(), tile * width], (1, width), panel, last)
                    ),
                    rest,
                )
            if rest:
                with self.nest.when_last(block, blocks), self.evaluator.scope():
                    at = [Index(), constant(full * width)]
                    self._run_tile(self._tile_at(dims, at, (1, rest), panel, last))

        self._for_all_panels(lambda panel, last: self._for_panel(dims, panel, last, run, True))

    # The register tile

    def _tile_at(
        self,
        dims: list[Index],
        rows: list[Index],
        box: tuple[int, int],
        panel: Index,
        last: bool,
    ) -> RegisterTile:
        """The register tile whose first row is `rows`."""
        vectors = self._vectors(self._columns(last))
        lanes = [Lanes.of(register.width) for register in vectors]
        points = [(r, c) for r in range(box[0]) for c in range(box[1])]

        def place(
            point: tuple[Index | int, Index | int], column: Index, reduced: list[Index]
        ) -> list[Index]:
            full = list(dims)
            index = [*rows[:-2], rows[-2] + point[0], rows[-1] + point[1]]
            if self.strategy.merge_rows:
                index = delinearize(index[-1], [self.shape.sizes[d] for d in self.shape.rows])
            else:
                index = index[len(index) - len(self.shape.rows) :]
            for axis, value in zip(self.shape.rows, index, strict=True):
                full[axis] = value
            full[self.shape.column] = column
            return self._at_term(full, reduced, 0)

        start = panel * self.panel

        def step(reduced: list[Index], carried: list[ir.Value]) -> list[ir.Value]:
            right = [
                self._columns_at(
                    lambda column: place((0, 0), column, reduced), reduced, start, register
                )
                for register in vectors
            ]
            following = list(carried)
            for number, point in enumerate(points):
                left = self._row_at(place(point, start, reduced))
                for v, loaded in enumerate(right):
                    cell = number * len(vectors) + v
                    following[cell] = self._multiply_add(left, loaded, following[cell], lanes[v])
            return following

        return RegisterTile(dims, box, panel, start, vectors, place, step)

    def _columns_at(
        self,
        place: Callable[[Index], list[Index]],
        reduced: list[Index],
        start: Index,
        register: RegisterVector,
    ) -> ir.Value:
        """What a step reads of the rhs for a vector of columns, `place` of which are points."""
        rhs, lanes = self.shape.rhs, Lanes.of(register.width * self.terms)
        if self.reads_gathered and self.gathered is not None:
            at = [*reduced, lanes.index + register.offset * self.terms]
            loaded = self.nest.load(self.gathered, at, lanes)
        elif self.terms > 1:
            first = apply_map(self.op.maps[rhs], place(start + register.offset))
            at = [*first[:-1], first[-1] + lanes.index]
            loaded = self.evaluator.at(self.op.inputs[rhs], at, lanes)
        else:
            loaded = self._operand(rhs, place(start + register.offset + lanes.index), lanes)
        return loaded if self.terms > 1 else self._extended(rhs, loaded, lanes)

    def _row_at(self, point: list[Index]) -> ir.Value:
        """What a step reads of the lhs for a row: a number, or a word."""
        lhs, lanes = self.shape.lhs, Lanes.of(self.terms)
        if self.terms == 1:
            return self._extended(lhs, self._operand(lhs, point, lanes), lanes)
        point[self.shape.reduced[-1]] += lanes.index
        return self._operand(lhs, point, lanes)

    def _extended(self, number: int, value: ir.Value, lanes: Lanes) -> ir.Value:
        """An operand in the type of the sums."""
        found = extension(self.op, number)
        return value if found is None else self.evaluator.elementwise_op(found, [value], lanes)

    def _multiply_add(
        self, left: ir.Value, right: ir.Value, total: ir.Value, lanes: Lanes
    ) -> ir.Value:
        if self.terms == 1:
            left, right = (self.nest.as_vector(value, lanes) for value in (left, right))
            return self.nest.fma(left, right, total)
        inputs = [right, right]
        inputs[self.shape.lhs] = dot_products.broadcast(left, lanes.count)
        return dot_products.multiply_add(self.op, inputs, total)

    def _zeros(self, tile: RegisterTile) -> list[ir.Value]:
        element = element_type(self.op.op.results[0])
        return [self.nest.zero(element, register.width) for register in tile.vectors] * tile.rows

    def _run_tile(self, tile: RegisterTile, asking: Index | None = None) -> None:
        """Sum and finish a register tile; `asking`, its place in the block, says to prefetch its
        share of the next panel."""
        results = self.prefetching.results(tile)
        ahead = None
        if asking is not None:
            after = tile.panel + (0 if self.following else 1)
            ahead = self.prefetching.panel(tile, asking, [after], self.shape.k, self.following)
        extents, chains = self._reduced_sizes(), self.strategy.chains
        bounds = self._terms_in_image(tile)
        exact = self.shape.exact
        terms = TermLoops(self.nest, self.evaluator, extents, tile.step, chains, bounds, exact)
        zeros = self._zeros(tile)
        if self.used_terms is not None:
            sums = terms.sum_used(zeros, self.used_terms)
        else:
            sums = terms.sum(zeros, results, ahead)
        if self.is_costly:
            self._store_totals(tile, sums, Index())
            self._finish_rows(tile, Index())
            return
        for number, point in enumerate(tile.points):
            for v, register in enumerate(tile.vectors):
                total = sums[number * len(tile.vectors) + v]
                reduced = [Index()] * len(self.shape.reduced)
                at = tile.place(point, tile.start + register.offset, reduced)
                self._finish(at, total, register)

    def _terms_in_image(self, tile: RegisterTile) -> dict[int, tuple[Index, Index]]:
        """By reduced dimension, [start, stop) of the terms that do not meet zeros alone."""
        origin = [Index()] * len(self.shape.reduced)
        (down, across), first = tile.box, tile.place((0, 0), tile.start, origin)
        last = tile.place((down - 1, across - 1), tile.start, origin)
        rows = self.shape.rows
        return {
            window.reduced: window.bounds(first[rows[window.row]], last[rows[window.row]])
            for window in self.windows
        }

    def _run_apart(self, block: Index, full: int, at: Callable[[Index], RegisterTile]) -> None:
        """A panel and a block of tiles, the chains of a long sum in loops around the tiles: what a
        chain reads of the panel stays in L1. The totals are in scratch meanwhile."""
        assert self.totals is not None
        taken = self.strategy.row_tiles
        first = at(Index())
        *outer, (axis, size, _, _) = summation_levels(self._reduced_sizes())
        with self.nest.loop("row", 0, taken * first.rows) as row, self.evaluator.scope():
            for register, zero in zip(first.vectors, self._zeros(first), strict=False):
                lanes = Lanes.of(register.width)
                at_row = [Index.of(row), lanes.index + register.offset]
                self.nest.store(zero, self.totals, at_row, lanes)

        def add_chain(tile: Index, begin: list[Index]) -> None:
            here, number = at(tile), tile - block * taken
            zeros = self._zeros(here)
            following = list(begin)
            following[axis] = following[axis] + size
            ahead = self.prefetching.panel(here, number, [here.panel, *following], size)

            def place(k: Index) -> list[Index]:
                return [*begin[:axis], begin[axis] + k, *begin[axis + 1 :]]

            def step(k: Index, carried: list[ir.Value]) -> list[ir.Value]:
                with self.evaluator.scope():
                    return here.step(place(k), carried)

            unroll = steps_at_once(len(zeros))
            sums = self.nest.reduce_steps("k", 0, size, zeros, step, unroll, ahead)
            self._store_totals(here, sums, number * here.rows, add=True)

        def add_if_needed(tile: Index, begin: list[Index]) -> None:
            bounds = self._terms_in_image(at(tile)).items()
            outside = [
                below
                for window, (start, stop) in bounds
                for below in ((start - begin[window], 1), (begin[window] - stop, 0))
            ]
            if not outside:
                add_chain(tile, begin)
                return
            with self.nest.when_below(outside) as branch, branch.then(), self.evaluator.scope():
                add_chain(tile, begin)

        def chains(begin: list[Index], levels: list[tuple[int, int, int, bool]]) -> None:
            if not levels:
                self._for_tiles(block, taken, full, lambda tile: add_if_needed(tile, begin))
                return
            (outer_axis, count, by, _), *rest = levels
            with self.nest.loop("k", 0, count) as k, self.evaluator.scope():
                inner = list(begin)
                inner[outer_axis] = inner[outer_axis] + Index.of(k) * by
                chains(inner, rest)

        chains([Index()] * len(self.shape.reduced), outer)
        self._for_tiles(
            block,
            taken,
            full,
            lambda tile: self._finish_rows(at(tile), (tile - block * taken) * first.rows),
        )

    def _store_totals(
        self, tile: RegisterTile, sums: list[ir.Value], base: Index, add: bool = False
    ) -> None:
        """Put the sums of a tile into scratch, from row `base` on, or add them to what is there."""
        assert self.totals is not None
        for number, total in enumerate(sums):
            row, v = divmod(number, len(tile.vectors))
            lanes = Lanes.of(tile.vectors[v].width)
            at = [base + row, lanes.index + tile.vectors[v].offset]
            if add:
                total = self.nest.add(self.nest.load(self.totals, at, lanes), total)
            self.nest.store(total, self.totals, at, lanes)

    def _finish_rows(self, tile: RegisterTile, base: Index) -> None:
        """The epilogue a row at a time from scratch: one of exponentials and the like would need
        more registers than there are for all rows at once."""
        assert self.totals is not None
        with self.nest.loop("row", 0, tile.rows) as row, self.evaluator.scope():
            point = delinearize(Index.of(row), list(tile.box))
            for register in tile.vectors:
                lanes = Lanes.of(register.width)
                place = [base + Index.of(row), lanes.index + register.offset]
                total = self.nest.load(self.totals, place, lanes)
                reduced = [Index()] * len(self.shape.reduced)
                at = tile.place((point[0], point[1]), tile.start + register.offset, reduced)
                self._finish(at, total, register)

    def _reduced_sizes(self) -> list[int]:
        return [self.shape.sizes[d] for d in self.shape.reduced]

    def _vectors(self, columns: int) -> list[RegisterVector]:
        """The vectors of a tile of `columns` columns. Where the packed rhs has padding: full ones,
        and at the end half a one if that does (cores that split full ones take half the
        time); else halving ones that end with the columns."""
        if self.packed or self.terms > 1:
            half, vectors = self.lanes // 2, []
            for start in range(0, columns, self.lanes):
                valid = min(self.lanes, columns - start)
                vectors.append(RegisterVector(start, half if valid <= half else self.lanes, valid))
            return vectors
        return [RegisterVector(begin, width, width) for begin, width in pieces(columns, self.lanes)]

    def _operand(self, number: int, dims: list[Index], lanes: Lanes) -> ir.Value:
        value = self.op.inputs[number]
        return self.evaluator.at(value, apply_map(self.op.maps[number], dims), lanes)

    def _finish(self, dims: list[Index], total: ir.Value, register: RegisterVector) -> None:
        """Add the initial value, run the epilogue on the valid lanes, and store."""
        for begin, count in pieces(register.valid, self.lanes):
            lanes = Lanes.of(count)
            part = total
            if count < register.width:
                part = vector.ExtractStridedSliceOp(
                    ir.VectorType.get([count], total.type.element_type),
                    total,
                    [begin],
                    [count],
                    [1],
                ).result
                if count == 1:
                    part = vector.ExtractOp(part, [], [0]).result
            full = list(dims)
            full[self.shape.column] = dims[self.shape.column] + begin + lanes.index
            point = apply_map(self.op.output_map, full)
            result = self.op.op.results[0]
            with self.evaluator.scope():
                part = self._with_initial(part, point, lanes)
                self.evaluator.bind(result, point, part)
                self.write(point, lanes)

    def _write_outputs(self, point: list[Index], lanes: Lanes) -> None:
        for output in self.group.outputs:
            at = self.group.point_of(output, self.op.op.results[0], point)
            self.group.write(output, at, lanes)

    def _with_initial(self, total: ir.Value, point: list[Index], lanes: Lanes) -> ir.Value:
        initial = self.op.outputs[0]
        if _is_zero_fill(initial):
            return total
        value = self.nest.as_vector(self.evaluator.at(initial, point, lanes), lanes)
        return self.nest.add(total, value)


def _is_zero_fill(value: ir.Value) -> bool:
    op = defining_op(value)
    if op is None or op.name not in ("linalg.fill", "linalg.generic"):
        return False
    structured = Structured.of(op)
    if structured is not None and structured.copied_input() != 0:
        return False
    source = defining_op(op.operands[0])
    if source is None or source.name != "arith.constant":
        return False
    attribute = source.attributes["value"]
    if isinstance(source.results[0].type, ir.ShapedType):
        dense = ir.DenseElementsAttr(attribute)
        attribute = dense.get_splat_value() if dense.is_splat else attribute
    return isinstance(attribute, ir.FloatAttr | ir.IntegerAttr) and attribute.value == 0
