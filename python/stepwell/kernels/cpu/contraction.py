"""Contractions: matrix products and direct convolutions as one register-tiled loop nest.

    out[b, m, n] += lhs[b, m, k] * rhs[b, k, n]        (m and k may be several dimensions)

A register tile is `rows` x `vectors` accumulators: each step of k loads `vectors` vectors of the
rhs and one scalar a row of the lhs, broadcast. The rhs is packed into panels of `vectors` vectors
when it is a weight, so that a panel streams from the cache; the epilogue runs on the accumulators.
A tile's rows are a box of the last two m dimensions, so that each is a constant distance from the
first and one base register addresses them all. Where an instruction adds several products to each
sum, a step of k is as many terms, in the lhs a word of them (`dot_products.py`). Of few columns,
vectors lie along the terms: a step multiplies some of them of a row by those of a column, and the
parts of a sum are added up at its end.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from contextlib import AbstractContextManager

from stepwell.kernels.builder import Lanes
from stepwell.kernels.cpu import dot_products
from stepwell.kernels.cpu.contraction_strategy import (
    ContractionShape,
    ContractionStrategy,
    gathers_panels,
    is_packed,
    steps_at_once,
    summation_levels,
)
from stepwell.kernels.cpu.contraction_tile import ContractionTiles, Write
from stepwell.kernels.cpu.edge_tiles import EdgeRegion, Part, edge_regions
from stepwell.kernels.cpu.register_tile import RegisterTile, pieces
from stepwell.kernels.group import KernelGroup, accesses
from stepwell.kernels.index import Index, Variable, apply_map, constant, delinearize
from stepwell.kernels.structured import Structured, element_type
from stepwell.mlir import ir
from stepwell.packing import WORD_CODES

PanelBody = Callable[[Index, bool], None]


def emit(
    group: KernelGroup, strategy: ContractionStrategy, operands: tuple[int, int], lanes: int
) -> None:
    """Write the loops of a contraction group with `strategy`."""
    Contraction(group, group.anchor(), strategy, operands, lanes).emit()


class Contraction:
    """The loops of the contraction `op`, one of a group's operations, around its `tiles`.

    Its results go to the group's outputs, or where `write` puts them: then `written` is the value,
    of those computed from the contraction's, that it stores. Where they are set, `used_rows` (of
    `emit_block`) and `used_columns` say how many of each are worked out, in whole tiles and panels.
    """

    used_rows: Index | None = None
    used_columns: Index | None = None

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
        self.group, self.nest, self.evaluator = group, group.nest, group.evaluator
        self.op, self.strategy, self.lanes = op, strategy, lanes
        self.terms = strategy.terms
        self.shape = ContractionShape.of(op, operands, self.terms)
        rows = [self.shape.sizes[d] for d in self.shape.rows]
        self.row_sizes = ([self.shape.m] if strategy.merge_rows else rows) or [1]
        if len(self.row_sizes) == 1:
            self.row_sizes = [1, *self.row_sizes]
        self.panel = strategy.columns(lanes)
        self.panels = -(-self.shape.n // self.panel)
        self.gathered = self._gathered_panel()
        self.tiles = ContractionTiles(group, op, self.shape, strategy, lanes, write, written)

    def _gathered_panel(self) -> ir.Value | None:
        """Scratch for one panel of an rhs that is not packed, or is widened, when enough row tiles
        share it; for the terms of a chain where these are summed apart."""
        shape = self.shape
        if is_packed(self.op, shape) and not shape.widened:
            return None
        extents = [shape.sizes[d] for d in shape.reduced]
        if self.strategy.apart:
            _, extents[-1], _, _ = summation_levels(extents)[-1]
        elif not gathers_panels(shape, self.strategy, self.lanes):
            return None
        element = element_type(self.op.inputs[shape.rhs])
        return self.nest.scratch([*extents, self.panel * self.terms], element)

    def _gather_panel(
        self, dims: list[Index], panel: Index, last: bool, begin: list[Index] | None = None
    ) -> None:
        """Copy a panel of the rhs into scratch, so that its rows lie side by side in the cache; of
        a chain that is summed apart, the rows from `begin` on."""
        assert self.gathered is not None
        parts = pieces(self.tiles.columns(last), self.lanes)
        sizes = self.gathered.type.shape[:-1]
        in_words = self.shape.rhs_bytes < 1 and sizes[-1] % WORD_CODES == 0
        words = WORD_CODES if in_words else 1  # rows of a word, once it is loaded

        def copy(prefix: list[Index]) -> None:
            if len(prefix) < len(sizes):
                size = sizes[len(prefix)] // words
                with self._used_loop("k", self.tiles.used_terms, size) as k, self.evaluator.scope():
                    for row in range(words):
                        copy([*prefix, Index.of(k) * words + row])
                return
            for offset, width in parts:
                lanes = Lanes.of(width)
                full = list(dims)
                full[self.shape.column] = panel * self.panel + offset + lanes.index
                at = prefix
                if begin is not None:
                    at = [k + start for k, start in zip(prefix, begin, strict=True)]
                terms = [
                    self.tiles.operand(self.shape.rhs, self.tiles.at_term(full, at, term), lanes)
                    for term in range(self.terms)
                ]
                value = dot_products.interleave(terms) if self.terms > 1 else terms[0]
                stored = Lanes.of(width * self.terms)
                place = [*prefix, stored.index + offset * self.terms]
                self.nest.store(value, self.gathered, place, stored)

        with self.evaluator.scope():
            copy([])

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
                return self.tiles.at(dims, rows, (height, width), panel, last)

            if self.strategy.apart:
                widen = functools.partial(self._gather_panel, dims, panel, last)
                self._run_apart(block, full, at, widen if self.shape.widened else None)
                return

            def body(tile: Index) -> None:
                here = at(tile)
                self.tiles.run(here, self._ask_ahead(here, tile - block * taken))

            self._for_tiles(block, taken, full, body)

        self._for_panels(dims, column_group, run, gather=True)

    def _ask_ahead(self, tile: RegisterTile, number: Index) -> Callable[[Index], None] | None:
        """What prefetches, of what comes next, the share of tile number `number` of its block."""
        found = (self._ask_panel(tile, number), self.tiles.prefetching.rows(tile))
        asked = [ask for ask in found if ask is not None]

        def ask_all(k: Index) -> None:
            for ask in asked:
                ask(k)

        return ask_all if asked else None

    def _ask_panel(self, tile: RegisterTile, number: Index) -> Callable[[Index], None] | None:
        """What asks for a share of the next panel."""
        if not self.strategy.ask_panels or self.shape.widened:
            return None
        after = tile.panel + (0 if self.following else 1)
        steps = self.shape.k
        return self.tiles.prefetching.panel(tile, number, [after], steps, self.following)

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
                    self.tiles.run(self.tiles.at(dims, rows, region.box, panel, last))

                self._for_tiles(block, taken, region.tiles, body)

            self._for_panels(dims, column_group, run, gather=self.terms > 1)

    def _for_tiles(
        self, block: Index, taken: int, full: int, body: Callable[[Index], None], rest: int = 0
    ) -> None:
        """The tiles of a block, of `full` in all; the last block may be of the `rest` alone."""
        if taken == 1 and not rest and (known := block.known_below(full)).high < full:
            body(known)
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
        gathers = gather and self.gathered is not None and not self.strategy.apart
        self.tiles.gathered = self.gathered if gathers else None
        if gathers:
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
                    lambda tile: self.tiles.run(
                        self.tiles.at(dims, [Index(), tile * width], (1, width), panel, last)
                    ),
                    rest,
                )
            if rest:
                with self.nest.when_last(block, blocks), self.evaluator.scope():
                    at = [Index(), constant(full * width)]
                    self.tiles.run(self.tiles.at(dims, at, (1, rest), panel, last))

        self._for_all_panels(lambda panel, last: self._for_panel(dims, panel, last, run, True))

    def _run_apart(
        self,
        block: Index,
        full: int,
        at: Callable[[Index], RegisterTile],
        gather: Callable[[list[Index]], None] | None,
    ) -> None:
        """A panel and a block of tiles, the chains of a long sum in loops around the tiles: what a
        chain reads of the panel stays in L1, and is copied by `gather` before, if it is. The totals
        are in scratch meanwhile."""
        assert self.tiles.totals is not None
        taken = self.strategy.row_tiles
        first = at(Index())
        *outer, (axis, size, _, _) = summation_levels(self.tiles.reduced_sizes)
        with self.nest.loop("row", 0, taken * first.rows) as row, self.evaluator.scope():
            for register, zero in zip(first.vectors, self.tiles.zeros(first), strict=False):
                lanes = Lanes.of(register.width)
                at_row = [Index.of(row), lanes.index + register.offset]
                self.nest.store(zero, self.tiles.totals, at_row, lanes)

        def add_chain(tile: Index, begin: list[Index]) -> None:
            here, number = at(tile), tile - block * taken
            zeros = self.tiles.zeros(here)
            following = list(begin)
            following[axis] = following[axis] + size
            ahead = self.tiles.prefetching.panel(here, number, [here.panel, *following], size)

            def place(k: Index) -> list[Index]:
                return [*begin[:axis], begin[axis] + k, *begin[axis + 1 :]]

            def step(k: Index, carried: list[ir.Value]) -> list[ir.Value]:
                with self.evaluator.scope():
                    return here.step(place(k), carried)

            unroll = steps_at_once(len(zeros), self.shape.unfused)
            sums = self.nest.reduce_steps("k", 0, size, zeros, step, unroll, ahead)
            self.tiles.store_totals(here, sums, number * here.rows, add=True)

        def add_if_needed(tile: Index, begin: list[Index]) -> None:
            here = at(tile)
            bounds = self.tiles.terms_in_image(here).items()
            outside = [
                below
                for window, (start, stop) in bounds
                for below in ((start - begin[window], 1), (begin[window] - stop, 0))
            ]
            outside += self.tiles.needed_rows(here)
            if not outside:
                add_chain(tile, begin)
                return
            with self.nest.when_below(outside) as branch, branch.then(), self.evaluator.scope():
                add_chain(tile, begin)

        def chains(begin: list[Index], levels: list[tuple[int, int, int, bool]]) -> None:
            if not levels:
                if gather is not None:
                    self.tiles.gathered, self.tiles.gathered_from = self.gathered, begin
                    gather(begin)
                self._for_tiles(block, taken, full, lambda tile: add_if_needed(tile, begin))
                self.tiles.gathered = None
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
            lambda tile: self.tiles.finish_rows(at(tile), (tile - block * taken) * first.rows),
        )
