"""How attention is tiled and blocked: its strategy, chosen by a cost model of the target, and what
a tuning record may say of it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass

from stepwell.kernels.cpu.contraction_strategy import (
    ContractionShape,
    ContractionStrategy,
    fits_registers,
    tile_cost,
)
from stepwell.kernels.strategy import Candidate, Choice, IntegerStrategy
from stepwell.kernels.structured import (
    Structured,
    contraction_operands,
    element_type,
    is_multiply_add,
)
from stepwell.mlir import ir
from stepwell.targets import Target
from stepwell.tuning_record import STRATEGY

LEAST_TASKS = 8
"""Into so many tasks at least the queries are split, where there are enough."""

_MOST_ROWS, _MOST_VECTORS = 8, 4
"""Of a register tile."""

_SCRATCH_BYTES = 2 << 20
"""What the scores of a task may take, which lie on the stack of a thread."""

_CANDIDATES, _VARIANT_TILES = 4, 5
"""Register tiles that reports show, and that tuning looks at."""


@dataclass(frozen=True)
class AttentionStrategy(IntegerStrategy):
    """`row_tiles` register tiles of `rows` queries make a task. In the product that gives scores
    such a tile has `score_vectors` vectors, in the one with the values `value_vectors`."""

    rows: int
    row_tiles: int
    score_vectors: int
    value_vectors: int

    @property
    def queries(self) -> int:
        """Queries of a task."""
        return self.row_tiles * self.rows

    @property
    def scores(self) -> ContractionStrategy:
        """How the first product is tiled."""
        return self._product(self.score_vectors)

    @property
    def values(self) -> ContractionStrategy:
        """How the second product is tiled."""
        return self._product(self.value_vectors)

    def _product(self, vectors: int) -> ContractionStrategy:
        return ContractionStrategy((1, self.rows), vectors, self.row_tiles, 1, merge_rows=True)


def products(
    operations: list[ir.Operation], *, widening: bool = False
) -> list[tuple[Structured, tuple[int, int]]]:
    """The two contractions of an attention group with their operands, that of the scores first;
    with `widening`, also those that extend their operands."""
    found = []
    for op in operations:
        structured = Structured.of(op)
        if structured is not None and is_multiply_add(structured, widening=widening):
            operands = contraction_operands(structured)
            if operands is not None:
                found.append((structured, operands))
    return found


def bits_of_scores(operations: list[ir.Operation]) -> int:
    """Of a number that the first product of an attention group sums up."""
    scores, _ = products(operations)[0]
    return element_type(scores.op.results[0]).width


def choose(operations: list[ir.Operation], target: Target) -> AttentionStrategy:
    """The strategy with the least estimated time on `target` (deterministic)."""
    return _Space.of(operations, target).strategies()[0][0]


def choice(operations: list[ir.Operation], target: Target) -> Choice[AttentionStrategy]:
    """The choice that `choose` makes."""
    space = _Space.of(operations, target)
    return Choice(
        STRATEGY, space.strategies()[0][0], space.problem, space.candidates, space.variants
    )


@dataclass(frozen=True)
class _Space:
    """The strategies of attention; the products' shapes, that of the scores first."""

    scores: ContractionShape
    values: ContractionShape
    target: Target

    @staticmethod
    def of(operations: list[ir.Operation], target: Target) -> _Space:
        scores, values = (
            ContractionShape.of(op, operands) for op, operands in products(operations)
        )
        return _Space(scores, values, target)

    @property
    def _queries(self) -> int:
        """Of a task, at most: there are enough tasks, and the scores of one stay in L2."""
        shape = self.scores
        blocks = max(
            math.ceil(LEAST_TASKS / shape.extent(shape.batch)),
            math.ceil(4 * shape.m * shape.n / (self.target.l2_bytes // 2)),
        )
        return math.ceil(shape.m / min(blocks, shape.m))

    def _cost(self, shape: ContractionShape, rows: int, vectors: int) -> float:
        if not fits_registers(rows, vectors, self.target):
            return math.inf
        tile = tile_cost((1, rows), vectors, self._queries, 1, shape, self.target)
        return shape.n * shape.k * tile

    def strategies(self) -> list[tuple[AttentionStrategy, float]]:
        """The best of each number of rows with its estimated time, the fastest first."""
        found = []
        for rows in range(1, min(_MOST_ROWS, self._queries) + 1):
            costs = [
                min((self._cost(shape, rows, v), v) for v in range(1, _MOST_VECTORS + 1))
                for shape in (self.scores, self.values)
            ]
            (score_cost, score_vectors), (value_cost, value_vectors) = costs
            row_tiles = math.ceil(self._queries / rows)
            strategy = AttentionStrategy(rows, row_tiles, score_vectors, value_vectors)
            found.append((strategy, score_cost + value_cost))
        return sorted(found, key=lambda pair: pair[1])

    def candidates(self, chosen: AttentionStrategy) -> list[Candidate]:
        """The tiles of `chosen`, then the best others."""
        found = sorted(self.strategies(), key=lambda pair: pair[0].rows != chosen.rows)
        return [
            Candidate(f"{s.rows} rows x {s.score_vectors}, {s.value_vectors} vectors", cost)
            for s, cost in found[:_CANDIDATES]
        ]

    def variants(self, chosen: AttentionStrategy) -> Iterator[AttentionStrategy]:
        """Strategies beside `chosen` that are worth measuring: other blocks and widths of its
        register tiles, then those of other rows of which the cost model thinks most. Some of them
        may not be."""
        for changes in (
            {"row_tiles": max(1, chosen.row_tiles // 2)},
            {"row_tiles": 2 * chosen.row_tiles},
            {"score_vectors": chosen.score_vectors - 1},
            {"score_vectors": chosen.score_vectors + 1},
            {"value_vectors": chosen.value_vectors - 1},
            {"value_vectors": chosen.value_vectors + 1},
        ):
            yield dataclasses.replace(chosen, **changes)
        for strategy, _ in self.strategies()[:_VARIANT_TILES]:
            yield strategy

    def problem(self, strategy: AttentionStrategy) -> str:
        """Why `strategy` cannot be; "" where it can."""
        rows, shape = strategy.rows, self.scores
        if rows not in range(1, min(_MOST_ROWS, shape.m) + 1):
            return f"rows is {rows}, of {min(_MOST_ROWS, shape.m)}"
        for vectors in (strategy.score_vectors, strategy.value_vectors):
            known = vectors in range(1, _MOST_VECTORS + 1)
            if not known or not fits_registers(rows, vectors, self.target):
                return f"register tiles of {rows} by {vectors} do not fit {self.target.name}"
        row_tiles = math.ceil(shape.m / rows)
        if strategy.row_tiles not in range(1, row_tiles + 1):
            return f"row_tiles is {strategy.row_tiles}, of {row_tiles}"
        most = max(_SCRATCH_BYTES, 4 * self.strategies()[0][0].queries * shape.n)
        if 4 * strategy.queries * shape.n > most:
            return f"the scores of {strategy.queries} queries take more than {most} bytes"
        return ""
