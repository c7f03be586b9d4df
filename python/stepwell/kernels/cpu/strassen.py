"""Matrix products by seven products of halves instead of eight: Strassen's algorithm.

    [a b; c d] [e f; g h]  with the sums of S. Winograd (1971), one level of them

Rows and terms of the lhs, terms and columns of the rhs are halved; each product is of sums of
blocks, and blocks of the result are sums of the products. A task sums a block of rows of the lhs
into scratch. Then, a pair of panels at a time, the first register tile of a product of a sum of
weights takes that sum as it multiplies, vector by vector, and leaves it for the others; the results
are summed and finished row by row.

Rounding errors are two to three times those of direct sums: over products of normal numbers the
relative L2 error is 6.7e-7 with 768 terms, where direct sums have 2.9e-7. They are in proportion to
the larger one of the two rows, and of the two columns, that are summed. Rows may have nothing to do
with each other, as tokens or images of a batch: where the largest number of one is more than 16
times that of the other, or not finite, or sums overflow, a task multiplies the blocks as they are.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

from stepwell.kernels.builder import Lanes
from stepwell.kernels.cpu.contraction_strategy import ContractionShape, steps_at_once
from stepwell.kernels.cpu.contraction_tile import with_initial
from stepwell.kernels.cpu.prefetch import lines_ahead
from stepwell.kernels.cpu.strassen_strategy import LINE, PLAIN, PRODUCTS, StrassenStrategy
from stepwell.kernels.cpu.term_loops import TermLoops
from stepwell.kernels.group import KernelGroup
from stepwell.kernels.index import Index, Variable, apply_map, constant, delinearize
from stepwell.kernels.scf_loops import when
from stepwell.kernels.structured import element_type
from stepwell.kernels.vector_math import any_lane
from stepwell.mlir import dialect, ir

arith, scf = dialect("arith"), dialect("scf")
math_ops, vector_ops = dialect("math"), dialect("vector")

_APART = 16.0
"""How many times the largest number of a row may be that of the row that it is summed with."""

Right = Callable[[Index], list[ir.Value]]
"""The vectors of the rhs of a product at a term."""


def emit(
    group: KernelGroup, strategy: StrassenStrategy, operands: tuple[int, int], lanes: int
) -> None:
    """Write the loops of a product of a matrix and packed weights with `strategy`."""
    _Strassen(group, strategy, operands, lanes).emit()


class _Strassen:
    def __init__(
        self,
        group: KernelGroup,
        strategy: StrassenStrategy,
        operands: tuple[int, int],
        lanes: int,
    ) -> None:
        self.group, self.nest, self.evaluator = group, group.nest, group.evaluator
        self.op, self.strategy, self.lanes = group.anchor(), strategy, lanes
        self.shape = ContractionShape.of(self.op, operands)
        self.weights = self.evaluator.buffers[self.op.inputs[self.shape.rhs]]
        self.terms = self.shape.k // 2
        self.panel = strategy.vectors * lanes
        self.pairs = self.shape.n // (2 * self.panel)
        self.blocks = strategy.blocks(self.shape.m)
        self.first = self.blocks * strategy.half
        """Rows of the upper half; the lower one may have fewer."""
        element = element_type(self.op.op.results[0])
        half, stride = strategy.half, self.terms + LINE
        self.stride = stride
        self.left = self.nest.scratch([PRODUCTS, half * stride], element)
        self.right = self.nest.scratch([self.terms, self.panel], element)
        self.products = self.nest.scratch([PRODUCTS, half * self.panel + LINE], element)
        self.check = self.nest.scratch([1], element)
        """Zero, or NaN where rows of the lhs are not to be summed."""

    def emit(self) -> None:
        groups = -(-self.pairs // self.strategy.pairs)
        with (
            self.nest.parallel("task", groups * self.blocks) as task,
            self.evaluator.scope(),
        ):
            flat = Index.of(task)
            self.group.fill_halos(flat, self.lanes)
            number, block = delinearize(flat, [groups, self.blocks])
            start = block * self.strategy.half
            one = Lanes.of(1)
            zero = self.nest.zero(self.check.type.element_type, 1)
            self.nest.store(zero, self.check, [Index()], one)
            self._for_rows(block, functools.partial(self._sum_row, start))
            checked = self.nest.load(self.check, [Index()], one)
            is_wild = arith.CmpFOp(arith.CmpFPredicate.UNO, checked, checked).result
            copy = functools.partial(self._copy_row, start)
            when(is_wild, lambda: self._for_rows(block, copy))
            begin, count = number * self.strategy.pairs, self.strategy.pairs
            with self.nest.loop_between("pair", begin, begin + count, self.pairs) as pair:
                with self.evaluator.scope():
                    branch = scf.IfOp(is_wild, has_else=True)
                    with ir.InsertionPoint(branch.then_block):
                        self._multiply_blocks(Index.of(pair))
                        scf.YieldOp([])
                    with ir.InsertionPoint(branch.else_block):
                        self._multiply(Index.of(pair))
                        self._combine()
                        scf.YieldOp([])
                    finish = functools.partial(self._finish_row, Index.of(pair), start)
                    self._for_rows(block, finish)

    def _for_rows(self, block: Index, body: Callable[[Index, bool], None]) -> None:
        """Call `body(row, both)` in loops over the rows of a block of the upper half: with their
        rows of the lower half, and without where that has ended."""
        start, half = block * self.strategy.half, self.strategy.half
        lower = self.shape.m - self.first
        with self.nest.loop_between("row", start, start + half, lower) as row:
            with self.evaluator.scope():
                body(Index.of(row), True)
        if lower < self.first:
            with self.nest.when_last(block, self.blocks):
                with self.nest.loop("row", lower, self.first) as row, self.evaluator.scope():
                    body(Index.of(row), False)

    def _point(self, row: Index, column: Index, term: Index) -> list[Index]:
        """Of the iteration space."""
        shape = self.shape
        dims = [Index()] * len(shape.sizes)
        rows = delinearize(row, [shape.sizes[d] for d in shape.rows])
        for axis, index in zip(shape.rows, rows, strict=True):
            dims[axis] = index
        dims[shape.column], dims[shape.reduced[-1]] = column, term
        return dims

    # The lhs

    def _blocks_at(self, row: Index, term: Index, both: bool) -> list[ir.Value]:
        """A vector of terms, from `term` on, of each block of the lhs: upper left and right, lower
        left and right; without `both`, these are zeros."""
        vector = Lanes.of(self.lanes)
        found = []
        for below in range(2 if both else 1):
            for right in range(2):
                along = term + self.terms * right + vector.index
                at = self._point(row + self.first * below, Index(), along)
                point = apply_map(self.op.maps[self.shape.lhs], at)
                value = self.evaluator.at(self.op.inputs[self.shape.lhs], point, vector)
                found.append(self.nest.as_vector(value, vector))
        zero = self.nest.zero(found[0].type.element_type, self.lanes)
        return found if both else [*found, zero, zero]

    def _store_left(self, row: Index, term: Index, values: list[ir.Value]) -> None:
        """`values` as the lhs of products in a row of the block."""
        vector = Lanes.of(self.lanes)
        for number, value in enumerate(values):
            place = [constant(number), row * self.stride + term + vector.index]
            self.nest.store(value, self.left, place, vector)

    def _sum_row(self, start: Index, row: Index, both: bool) -> None:
        """The lhs of each product in a row of a block that begins at `start`."""
        nest, one = self.nest, Lanes.of(1)
        element = self.left.type.element_type

        def sum_terms(k: Variable, carried: list[ir.Value]) -> list[ir.Value]:
            with self.evaluator.scope():
                a, b, c, d = self._blocks_at(row, Index.of(k), both)
            lower = nest.add(c, d)
            rest = nest.subtract(lower, a)
            right, across = nest.subtract(b, rest), nest.subtract(a, c)
            self._store_left(row - start, Index.of(k), [a, b, right, lower, rest, d, across])
            checked, *largest = carried
            for value in (right, across):
                checked = nest.fma(value, nest.splat_like(value, 0.0), checked)
            return [checked, *map(_larger, largest, (a, c), (b, d))]

        word = ir.IntegerType.get_signless(32)
        zeros = [nest.zero(kind, self.lanes) for kind in (element, word, word)]
        checked, *largest = nest.reduce_loop("k", 0, self.terms, self.lanes, zeros, sum_terms)
        uno, ogt = arith.CmpFPredicate.UNO, arith.CmpFPredicate.OGT
        is_wild = any_lane(arith.CmpFOp(uno, checked, checked).result)
        if both:
            upper, lower = (_largest_lane(bits, element) for bits in largest)
            for x, y in ((upper, lower), (lower, upper)):
                is_apart = arith.CmpFOp(ogt, x, nest.scaled(y, _APART)).result
                is_wild = arith.OrIOp(is_wild, is_apart).result
        nan = nest.float_constant(math.nan, element)
        check = nest.load(self.check, [Index()], one)
        nest.store(arith.SelectOp(is_wild, nan, check).result, self.check, [Index()], one)

    def _copy_row(self, start: Index, row: Index, both: bool) -> None:
        """The blocks of the lhs as they are."""
        with self.nest.loop("k", 0, self.terms, self.lanes) as k, self.evaluator.scope():
            self._store_left(row - start, Index.of(k), self._blocks_at(row, Index.of(k), both))

    # The products

    def _multiply(self, pair: Index) -> None:
        """The products of a pair of panels: a e, b g and one of h by weights as they are; then of
        the sums f - e, h - (f - e), that less g, and h - f."""
        with self.nest.loop("product", 0, PLAIN) as product, self.evaluator.scope():
            number = Index.of(product)
            block = self._block(pair, number.floordiv(2), (number + 1).floordiv(2))
            self._for_tiles(0, functools.partial(self._tile, pair, number, right=block))
        e, f, g, h = (self._block(pair, constant(j), constant(i)) for i in (0, 1) for j in (0, 1))
        for number, (x, y) in enumerate(((f, e), (h, None), (None, g), (h, f)), start=PLAIN):
            at = constant(number)
            self._tile(pair, at, Index(), self._sum(x or self._summed, y or self._summed))
            rest = functools.partial(self._tile, pair, at, right=self._summed)
            self._for_tiles(self.strategy.rows, rest)

    def _multiply_blocks(self, pair: Index) -> None:
        """The blocks of the result of a pair of panels, as sums of two products each."""
        with (
            self.nest.loop("below", 0, 2) as below,
            self.nest.loop("side", 0, 2) as side,
            self.evaluator.scope(),
        ):
            upper, panel = Index.of(below) * 2, Index.of(side)

            def tile(row: Index) -> None:
                def step(point: list[Index], carried: list[ir.Value]) -> list[ir.Value]:
                    half, k = point
                    weights = self._block(pair, panel, half)(k)
                    return self._multiply_add(upper + half, row, k, weights, carried)

                number = upper + panel
                ask = functools.partial(self._ask, pair, number, 4, 2 * self.terms, row)
                loops = TermLoops(self.nest, self.evaluator, [2, self.terms], step)
                self._store_tile(number, row, loops.sum(self._zeros(), ahead=ask))

            self._for_tiles(0, tile)

    def _for_tiles(self, begin: int, tile: Callable[[Index], None]) -> None:
        """Call `tile(row)` for the first rows of register tiles from row `begin` on."""
        half, rows = self.strategy.half, self.strategy.rows
        if begin < half:
            with self.nest.loop("row", begin, half, rows) as row, self.evaluator.scope():
                tile(Index.of(row))

    def _block(self, pair: Index, side: Index, below: Index) -> Right:
        """Weights of the left or right panel of a pair, in the upper or lower half of the terms."""
        taps = [Index()] * (len(self.shape.reduced) - 1)
        panel, first = pair * 2 + side, below * self.terms
        return lambda k: self._vectors(self.weights, [panel, *taps, first + k])

    def _summed(self, k: Index) -> list[ir.Value]:
        return self._vectors(self.right, [k])

    def _vectors(self, buffer: ir.Value, place: list[Index]) -> list[ir.Value]:
        vector = Lanes.of(self.lanes)
        return [
            self.nest.load(buffer, [*place, vector.index + n * self.lanes], vector)
            for n in range(self.strategy.vectors)
        ]

    def _sum(self, x: Right, y: Right) -> Right:
        """x - y, which is kept."""

        def right(k: Index) -> list[ir.Value]:
            vector = Lanes.of(self.lanes)
            sums = [self.nest.subtract(*both) for both in zip(x(k), y(k), strict=True)]
            for n, value in enumerate(sums):
                self.nest.store(value, self.right, [k, vector.index + n * self.lanes], vector)
            return sums

        return right

    def _tile(self, pair: Index, number: Index, row: Index, right: Right) -> None:
        """A register tile of a product, from a row of the block on."""

        def step(point: list[Index], carried: list[ir.Value]) -> list[ir.Value]:
            (k,) = point
            return self._multiply_add(number, row, k, right(k), carried)

        ask = functools.partial(self._ask, pair, number, PRODUCTS, self.terms, row)
        loops = TermLoops(self.nest, self.evaluator, [self.terms], step)
        self._store_tile(number, row, loops.sum(self._zeros(), ahead=ask))

    def _zeros(self) -> list[ir.Value]:
        """Of the sums of a register tile."""
        zero = self.nest.zero(self.left.type.element_type, self.lanes)
        return [zero] * (self.strategy.rows * self.strategy.vectors)

    def _multiply_add(
        self, number: Index, row: Index, k: Index, weights: list[ir.Value], sums: list[ir.Value]
    ) -> list[ir.Value]:
        """A term of a register tile's sums, of lhs number `number`."""
        vector, following = Lanes.of(self.lanes), []
        for r in range(self.strategy.rows):
            place = [number, (row + r) * self.stride + k]
            value = self.nest.as_vector(self.nest.load(self.left, place, Lanes.of(1)), vector)
            for right in weights:
                following.append(self.nest.fma(value, right, sums[len(following)]))
        return following

    def _store_tile(self, number: Index, row: Index, sums: list[ir.Value]) -> None:
        vector = Lanes.of(self.lanes)
        for cell, value in enumerate(sums):
            r, n = divmod(cell, self.strategy.vectors)
            place = [number, (row + r) * self.panel + n * self.lanes + vector.index]
            self.nest.store(value, self.products, place, vector)

    def _ask(
        self, pair: Index, number: Index, products: int, terms: int, row: Index, k: Index
    ) -> None:
        """For lines of the next pair of panels, of which each tile of each of so many products has
        a share."""
        rows = self.strategy.rows
        tiles, numbers = self.strategy.half // rows, 2 * self.shape.k * self.panel
        unroll = steps_at_once(rows * self.strategy.vectors)
        tile = number * tiles + row.floordiv(rows)
        weights = self.nest.flattened(self.weights)
        for place in lines_ahead(k, tile, products * tiles, terms, numbers, unroll):
            self.nest.prefetch(weights, [(pair + 1) * numbers + place])

    # The results

    def _combine(self) -> None:
        """Sums of the products of a pair of panels, in place of the first of them: the blocks of
        the result."""
        nest, vector = self.nest, Lanes.of(self.lanes)
        size = self.strategy.half * self.panel
        with nest.loop("v", 0, size, self.lanes) as v, self.evaluator.scope():
            place = Index.of(v) + vector.index
            ae, bg, h, lower, rest, d, across = (
                nest.load(self.products, [constant(number), place], vector)
                for number in range(PRODUCTS)
            )
            inner = nest.add(ae, rest)
            outer = nest.add(inner, across)
            results = [
                nest.add(ae, bg),
                nest.add(nest.add(inner, lower), h),
                nest.subtract(outer, d),
                nest.add(outer, lower),
            ]
            for number, value in enumerate(results):
                nest.store(value, self.products, [constant(number), place], vector)

    def _finish_row(self, pair: Index, start: Index, row: Index, both: bool) -> None:
        """The results of a row of the upper half and of its row of the lower one, in the columns of
        a pair of panels."""
        nest, vector, local = self.nest, Lanes.of(self.lanes), row - start
        with (
            nest.loop("below", 0, 2 if both else 1) as below,
            nest.loop("side", 0, 2) as side,
            nest.loop("v", 0, self.panel, self.lanes) as v,
            self.evaluator.scope(),
        ):
            offset = Index.of(v) + vector.index
            number = Index.of(below) * 2 + Index.of(side)
            total = nest.load(self.products, [number, local * self.panel + offset], vector)
            column = (pair * 2 + Index.of(side)) * self.panel + offset
            dims = self._point(row + Index.of(below) * self.first, column, Index())
            self._write(apply_map(self.op.output_map, dims), total, vector)

    def _write(self, point: list[Index], total: ir.Value, vector: Lanes) -> None:
        result = self.op.op.results[0]
        total = with_initial(self.op, self.evaluator, total, point, vector)
        self.evaluator.bind(result, point, total)
        for output in self.group.outputs:
            self.group.write(output, self.group.point_of(output, result, point), vector)


def _larger(largest: ir.Value, *values: ir.Value) -> ir.Value:
    """The larger one of `largest` and of what values of f32 are without their signs, lane by lane,
    as bits, whose order is that of the numbers."""
    for value in values:
        bits = arith.BitcastOp(largest.type, math_ops.AbsFOp(value).result).result
        largest = arith.MaxUIOp(largest, bits).result
    return largest


def _largest_lane(bits: ir.Value, element: ir.Type) -> ir.Value:
    """Of numbers without signs, whose `bits` these are."""
    kind = vector_ops.CombiningKind.MAXUI
    found = vector_ops.ReductionOp(bits.type.element_type, kind, bits).result
    return arith.BitcastOp(element, found).result
