"""The register tiles of a contraction: what a step of k reads and multiplies, the sums, and the
epilogue on them."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

from stepwell.kernels.builder import Lanes, vector
from stepwell.kernels.cpu import dot_products, halo
from stepwell.kernels.cpu.contraction_strategy import (
    ContractionShape,
    ContractionStrategy,
    is_packed,
)
from stepwell.kernels.cpu.prefetch import Prefetching
from stepwell.kernels.cpu.register_tile import RegisterTile, RegisterVector, pieces
from stepwell.kernels.cpu.sum_parts import add_parts
from stepwell.kernels.cpu.term_loops import TermLoops
from stepwell.kernels.evaluate import Evaluator
from stepwell.kernels.group import KernelGroup
from stepwell.kernels.index import Index, apply_map, delinearize
from stepwell.kernels.rows import is_costly
from stepwell.kernels.structured import Structured, defining_op, element_type, extension
from stepwell.kernels.used_elements import unneeded_from
from stepwell.kernels.widened_weights import WidenedWeights
from stepwell.mlir import ir

Write = Callable[[list[Index], Lanes], None]
"""Stores what becomes of the result at a point: by now the evaluator knows it there."""


class ContractionTiles:
    """The register tiles of the contraction `op`, one of a group's operations.

    Its results go to the group's outputs, or where `write` puts them: then `written` is the value,
    of those computed from the contraction's, that it stores. Where they are set, `used_terms` says
    how many terms are summed, and `gathered` is a panel of the rhs that steps read in its place,
    with the terms from `gathered_from` on.
    """

    used_terms: Index | None = None
    gathered: ir.Value | None = None
    gathered_from: list[Index] | None = None

    def __init__(
        self,
        group: KernelGroup,
        op: Structured,
        shape: ContractionShape,
        strategy: ContractionStrategy,
        lanes: int,
        write: Write | None,
        written: ir.Value | None,
    ) -> None:
        self.group, self.nest, self.evaluator = group, group.nest, group.evaluator
        self.op, self.shape, self.strategy, self.lanes = op, shape, strategy, lanes
        self.terms = strategy.terms
        self.write = write or self._write_outputs
        self.panel = strategy.columns(lanes)
        self.panels = -(-shape.n // self.panel)
        self.packed = is_packed(op, shape)
        self.parts = strategy.terms if strategy.along else 1
        self.widened = WidenedWeights.of(op.inputs[shape.rhs])
        self.reduced_sizes = [shape.sizes[d] for d in shape.reduced]
        self.prefetching = Prefetching(group, op, shape, strategy, self.panel)
        bounded = not strategy.merge_rows and strategy.chains == 1
        self.windows = halo.windows(op, shape) if bounded else []
        result = op.op.results[0]
        results = [written] if written else [output.value for output in group.outputs]
        self.is_costly = any(is_costly(value) for value in results if value != result)
        self.totals: ir.Value | None = None
        self.unneeded_from = unneeded_from(group, op)
        if self.is_costly or strategy.apart:
            rows = strategy.box[0] * strategy.box[1] * (strategy.row_tiles if strategy.apart else 1)
            self.totals = self.nest.scratch(
                [rows, self.panel], element_type(result), rewritten=not strategy.apart
            )

    def at(
        self,
        dims: list[Index],
        rows: list[Index],
        box: tuple[int, int],
        panel: Index,
        last: bool,
    ) -> RegisterTile:
        """The register tile whose first row is `rows`."""
        vectors = self._vectors(self.columns(last))
        widths = {register.width for register in vectors}
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
            return self.at_term(full, reduced, 0)

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
                spread = {width: self._spread(left, width) for width in widths}
                for v, loaded in enumerate(right):
                    cell, row = number * len(vectors) + v, spread[vectors[v].width]
                    following[cell] = self._multiply_add(row, loaded, following[cell])
            return following

        return RegisterTile(dims, box, panel, start, vectors, place, step)

    def columns(self, last: bool) -> int:
        """Columns of a panel that exist in the output."""
        return self.shape.n - (self.panels - 1) * self.panel if last else self.panel

    def _vectors(self, columns: int) -> list[RegisterVector]:
        """The vectors of a tile of `columns` columns. Where the packed rhs has padding: full ones,
        or one half if that does; else halving ones that end with the columns. Beside full ones a
        half saves nothing: LLVM's registers of sums of two widths are not enough for both."""
        if self.strategy.along:
            return [RegisterVector(column, 1, 1) for column in range(columns)]
        if self.packed or self.terms > 1:
            half, vectors = self.lanes // 2, []
            for start in range(0, columns, self.lanes):
                valid = min(self.lanes, columns - start)
                vectors.append(
                    RegisterVector(start, half if columns <= half else self.lanes, valid)
                )
            return vectors
        return [RegisterVector(begin, width, width) for begin, width in pieces(columns, self.lanes)]

    def _columns_at(
        self,
        place: Callable[[Index], list[Index]],
        reduced: list[Index],
        start: Index,
        register: RegisterVector,
    ) -> ir.Value:
        """What a step reads of the rhs for a vector of columns, `place` of which are points."""
        rhs, lanes = self.shape.rhs, Lanes.of(register.width * self.terms)
        if self.gathered is not None:
            if self.gathered_from is not None:
                reduced = [k - f for k, f in zip(reduced, self.gathered_from, strict=True)]
            at = [*reduced, lanes.index + register.offset * self.terms]
            loaded = self.nest.load(self.gathered, at, lanes)
        elif self.terms > 1:
            first = apply_map(self.op.maps[rhs], place(start + register.offset))
            at = [*first[:-1], first[-1] + lanes.index]
            loaded = self.evaluator.at(self.op.inputs[rhs], at, lanes)
        else:
            loaded = self.operand(rhs, place(start + register.offset + lanes.index), lanes)
        if self.terms > 1:
            return loaded
        return self.nest.as_vector(self._extended(rhs, loaded, lanes), lanes)

    def _row_at(self, point: list[Index]) -> ir.Value:
        """What a step reads of the lhs for a row: a number, or a word."""
        lhs, lanes = self.shape.lhs, Lanes.of(self.terms)
        if self.terms == 1:
            return self._extended(lhs, self.operand(lhs, point, lanes), lanes)
        point[self.shape.reduced[-1]] += lanes.index
        return self.operand(lhs, point, lanes)

    def operand(self, number: int, dims: list[Index], lanes: Lanes) -> ir.Value:
        value = self.op.inputs[number]
        if number == self.shape.rhs and self.widened is not None and self._scales_chains:
            value = self.widened.unscaled
        return self.evaluator.at(value, apply_map(self.op.maps[number], dims), lanes)

    def at_term(self, dims: list[Index], reduced: list[Index], term: Index | int) -> list[Index]:
        """`dims` at a term of the word that is at `reduced`."""
        full = list(dims)
        for axis, index in zip(self.shape.reduced, reduced, strict=True):
            full[axis] = index
        if self.terms > 1:
            last = self.shape.reduced[-1]
            full[last] = full[last] * self.terms + term
        return full

    def _extended(self, number: int, value: ir.Value, lanes: Lanes) -> ir.Value:
        """An operand in the type of the sums."""
        found = extension(self.op, number)
        return value if found is None else self.evaluator.elementwise_op(found, [value], lanes)

    def _spread(self, left: ir.Value, count: int) -> ir.Value:
        """What `_row_at` read, for so many columns."""
        if self.strategy.along:
            return left
        if self.terms == 1:
            return self.nest.as_vector(left, Lanes.of(count))
        return dot_products.broadcast(left, count)

    def _multiply_add(self, left: ir.Value, right: ir.Value, total: ir.Value) -> ir.Value:
        if self.strategy.along or self.terms == 1:
            return self.nest.fma(left, right, total)
        inputs = [right, right]
        inputs[self.shape.lhs] = left
        return dot_products.multiply_add(self.op, inputs, total)

    def run(self, tile: RegisterTile, ahead: Callable[[Index], None] | None = None) -> None:
        """Sum and finish a register tile; `ahead` prefetches in each iteration over k."""
        results = self.prefetching.results(tile)
        extents, chains = self.reduced_sizes, self.strategy.chains
        bounds = self.terms_in_image(tile)
        terms = TermLoops(
            self.nest,
            self.evaluator,
            extents,
            tile.step,
            chains,
            bounds,
            self.shape.exact,
            self.shape.unfused,
        )
        zeros = self.zeros(tile)

        def total() -> list[ir.Value]:
            if self.widened is not None and self.gathered is None:
                join = functools.partial(self._join_scaled, tile)
                asked = self.prefetching.narrow_weights(tile)
                return terms.sum_joined(zeros, self.shape.chain, join, asked)
            if self.used_terms is not None:
                return terms.sum_used(zeros, self.used_terms)
            return terms.sum(zeros, results, ahead)

        sums = self.nest.unless_outside(self.needed_rows(tile), total, zeros)
        if self.strategy.along:
            columns = len(tile.vectors)
            sums = add_parts(sums, columns)
            tile = dataclasses.replace(tile, vectors=[RegisterVector(0, columns, columns)])
        if self.is_costly:
            self.store_totals(tile, sums, Index())
            self.finish_rows(tile, Index())
            return
        for number, point in enumerate(tile.points):
            for v, register in enumerate(tile.vectors):
                total = sums[number * len(tile.vectors) + v]
                reduced = [Index()] * len(self.shape.reduced)
                at = tile.place(point, tile.start + register.offset, reduced)
                self._finish(at, total, register)

    @property
    def _scales_chains(self) -> bool:
        """Whether steps read weights without their scales."""
        return self.shape.block > 0 and self.gathered is None

    def _join_scaled(
        self, tile: RegisterTile, start: list[Index], totals: list[ir.Value], sums: list[ir.Value]
    ) -> list[ir.Value]:
        """`totals` and the sums of a chain, times the scales of the block that it lies in."""
        assert self.widened is not None
        if not self._scales_chains:
            return [self.nest.add(*pair) for pair in zip(totals, sums, strict=True)]
        scales = []
        with self.evaluator.scope():
            for register in tile.vectors:
                lanes = Lanes.of(register.width)
                column = tile.start + register.offset + lanes.index
                at = apply_map(self.op.maps[self.shape.rhs], tile.place((0, 0), column, start))
                found = self.evaluator.at(self.widened.scales, self.widened.scales_at(at), lanes)
                scales.append(self.nest.as_vector(found, lanes))
        return [
            self.nest.fma(value, scales[number % len(scales)], total)
            for number, (total, value) in enumerate(zip(totals, sums, strict=True))
        ]

    def zeros(self, tile: RegisterTile) -> list[ir.Value]:
        element = element_type(self.op.op.results[0])
        widths = [register.width * self.parts for register in tile.vectors]
        return [self.nest.zero(element, width) for width in widths] * tile.rows

    def terms_in_image(self, tile: RegisterTile) -> dict[int, tuple[Index, Index]]:
        """By reduced dimension, [start, stop) of the terms that do not meet zeros alone."""
        origin = [Index()] * len(self.shape.reduced)
        (down, across), first = tile.box, tile.place((0, 0), tile.start, origin)
        last = tile.place((down - 1, across - 1), tile.start, origin)
        rows = self.shape.rows
        return {
            window.reduced: window.bounds(first[rows[window.row]], last[rows[window.row]])
            for window in self.windows
        }

    def needed_rows(self, tile: RegisterTile) -> list[tuple[Index, int]]:
        """The first row of the tile, beyond which its sums are not needed: indices and bounds."""
        first = tile.place((0, 0), tile.start, [Index()] * len(self.shape.reduced))
        return [(first[loop] - stop, 0) for loop, stop in self.unneeded_from.items()]

    def store_totals(
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

    def finish_rows(self, tile: RegisterTile, base: Index) -> None:
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
                part = with_initial(self.op, self.evaluator, part, point, lanes)
                self.evaluator.bind(result, point, part)
                self.write(point, lanes)

    def _write_outputs(self, point: list[Index], lanes: Lanes) -> None:
        for output in self.group.outputs:
            at = self.group.point_of(output, self.op.op.results[0], point)
            self.group.write(output, at, lanes)


def with_initial(
    op: Structured, evaluator: Evaluator, total: ir.Value, point: list[Index], lanes: Lanes
) -> ir.Value:
    """A sum of `op` at a point of its result, with what it begins with."""
    initial, nest = op.outputs[0], evaluator.nest
    if _is_zero_fill(initial):
        return total
    value = nest.as_vector(evaluator.at(initial, point, lanes), lanes)
    return nest.add(total, value)


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
