"""Products with a compressed matrix: `y[b, n, m]`, sums over the terms that row n has.

Vectors run over the columns m. A register tile is one row of the matrix by as many vectors of
columns as there are, up to a point: each term is loaded once, broadcast, and multiplied by those
vectors of the row of `x` that its place names. The columns of a tile are a block of `x` that stays
in L2 while all rows of the matrix meet it. Where a tile has few vectors, sums are taken in several
chains, so that there are enough of them to hide the latency of a multiply-add.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stepwell.errors import LoweringError
from stepwell.kernels.builder import Lanes
from stepwell.kernels.cpu.register_tile import pieces
from stepwell.kernels.group import KernelGroup
from stepwell.kernels.index import Index, Variable, apply_map, delinearize
from stepwell.kernels.sparse_product import SparseProduct
from stepwell.kernels.structured import shape_of
from stepwell.mlir import dialect, ir
from stepwell.targets import Target

arith = dialect("arith")

KIND = "sparse-product"

_MOST_VECTORS, _MOST_CHAINS = 8, 8

_BYTES = 4
"""Of a number of f32."""

_ROWS = 32
"""Rows of the matrix that a task takes, of one block of columns."""


@dataclass(frozen=True)
class SparseTile:
    """How many vectors of columns a tile has, and in how many chains its sums are taken, a power
    of two."""

    vectors: int
    chains: int


def choose_tile(inner: int, columns: int, target: Target) -> SparseTile:
    """The tile for `x` of [inner, columns]: blocks of about the same size, which L2 holds."""
    vectors = math.ceil(columns / target.vector_lanes)
    held = target.l2_bytes * 3 // 4 // (inner * target.vector_lanes * _BYTES)
    blocks = math.ceil(vectors / max(1, min(_MOST_VECTORS, held)))
    each = math.ceil(vectors / blocks)
    chains = max(1, min(_MOST_CHAINS, 2 * target.in_flight // each))
    return SparseTile(each, 1 << chains.bit_length() - 1)


def emit(group: KernelGroup, target: Target) -> None:
    """Write the loops of a group whose anchor is such a product."""
    product = SparseProduct.of(group.anchor())
    if product is None:
        raise LoweringError(f"{group.name}: its anchor is no product with a compressed matrix")
    _Emitter(group, product, target).emit()


class _Emitter:
    def __init__(self, group: KernelGroup, product: SparseProduct, target: Target) -> None:
        self.group, self.nest, self.evaluator = group, group.nest, group.evaluator
        self.product, self.op = product, product.op
        self.lanes = target.vector_lanes
        self.batch, self.rows, self.columns, _ = self.op.loop_sizes()
        _, inner, _ = shape_of(product.dense)
        self.tile = choose_tile(inner, self.columns, target)

    def emit(self) -> None:
        width = self.tile.vectors * self.lanes
        blocks, whole = math.ceil(self.columns / width), self.columns // width
        sizes = [self.batch, blocks, math.ceil(self.rows / _ROWS)]
        with self.nest.parallel("task", math.prod(sizes)) as task, self.evaluator.scope():
            flat = Index.of(task)
            self.group.fill_halos(flat, self.lanes)
            batch, block, part = delinearize(flat, sizes)
            rest = self.columns - whole * width

            def run(block: Index, last: bool) -> None:
                with self.evaluator.scope():
                    self._block(batch, part, block * width, rest if last else width)

            if not whole or not rest:
                run(block, not whole)
            else:
                self.nest.last_apart(block, whole, run)

    def _block(self, batch: Index, part: Index, first: Index, count: int) -> None:
        """A part of the rows, for `count` columns from `first` on."""
        vectors = [(first + at, Lanes.of(width)) for at, width in pieces(count, self.lanes)]
        begin, end = part * _ROWS, part * _ROWS + _ROWS
        with self.nest.loop_between("n", begin, end, self.rows) as n, self.evaluator.scope():
            self._row(batch, Index.of(n), vectors)

    def _row(self, batch: Index, row: Index, vectors: Sequence[tuple[Index, Lanes]]) -> None:
        begin, end = (self._start(row + after) for after in (0, 1))
        points = [[batch, row, column + lanes.index] for column, lanes in vectors]
        sums = [
            self.nest.as_vector(self._initial(point, lanes), lanes)
            for point, (_, lanes) in zip(points, vectors, strict=True)
        ]
        sums = self._sums(batch, vectors, begin, end, sums)
        result = self.op.op.results[0]
        for point, (_, lanes), total in zip(points, vectors, sums, strict=True):
            with self.evaluator.scope():
                self.evaluator.bind(result, point, total)
                for output in self.group.outputs:
                    self.group.write(output, self.group.point_of(output, result, point), lanes)

    def _start(self, row: Index) -> ir.Value:
        """The number of the first term of `row`."""
        start = self.evaluator.at(self.product.starts, [row], Lanes.of(1))
        return arith.IndexCastUIOp(ir.IndexType.get(), start).result

    def _initial(self, point: list[Index], lanes: Lanes) -> ir.Value:
        at = apply_map(self.op.output_map, [*point, Index()])
        return self.evaluator.at(self.op.outputs[0], at, lanes)

    def _sums(
        self,
        batch: Index,
        vectors: Sequence[tuple[Index, Lanes]],
        begin: ir.Value,
        end: ir.Value,
        sums: list[ir.Value],
    ) -> list[ir.Value]:
        """`sums` and the products of the terms from `begin` to `end`, for all vectors."""
        terms, chains = shape_of(self.product.values)[0], self.tile.chains

        def several(count: int) -> Callable[[Variable, list[ir.Value]], list[ir.Value]]:
            def run(z: Variable, carried: list[ir.Value]) -> list[ir.Value]:
                following = list(carried)
                with self.evaluator.scope():
                    for chain in range(count):
                        own = slice(chain * len(vectors), (chain + 1) * len(vectors))
                        term = Index.of(z) + chain
                        following[own] = self._add_term(batch, vectors, term, following[own])
                return following

            return run

        if chains == 1:
            return self.nest.reduce_range("z", begin, end, terms, 1, sums, several(1))
        zeros = [
            self.nest.as_vector(self.nest.constant(ir.FloatAttr.get_f32(0.0)), lanes)
            for _, lanes in vectors
        ]
        step = arith.ConstantOp(ir.IndexType.get(), chains).result
        rest = arith.RemUIOp(arith.SubIOp(end, begin).result, step).result
        whole = arith.SubIOp(end, rest).result
        parts = [*sums, *zeros * (chains - 1)]
        parts = self.nest.reduce_range("z", begin, whole, terms, chains, parts, several(chains))
        while len(parts) > len(vectors):
            half = len(parts) // len(vectors) // 2 * len(vectors)
            added = [arith.AddFOp(a, b).result for a, b in zip(parts, parts[half:], strict=False)]
            parts = [*added[:half], *parts[2 * half :]]
        return self.nest.reduce_range("z", whole, end, terms, 1, parts, several(1))

    def _add_term(
        self,
        batch: Index,
        vectors: Sequence[tuple[Index, Lanes]],
        term: Index,
        sums: Sequence[ir.Value],
    ) -> list[ir.Value]:
        one = Lanes.of(1)
        value = self.evaluator.at(self.product.values, [term], one)
        place = self.evaluator.at(self.product.places, [term], one)
        number = arith.IndexCastUIOp(ir.IndexType.get(), place).result
        _, inner, _ = shape_of(self.product.dense)
        row = Index.of(Variable("place", 0, inner - 1, number, computed=True))
        return [
            self.nest.fma(
                self.nest.as_vector(value, lanes),
                self.evaluator.at(self.product.dense, [batch, row, column + lanes.index], lanes),
                total,
            )
            for (column, lanes), total in zip(vectors, sums, strict=True)
        ]
