"""Attention: the scores of some queries, their softmax, and the sum of values it weighs, in one go.

    scores[b, m, n]   = query[b, m, k] * key[b, k, n]      (and what follows: scale, mask)
    weights[b, m, n]  = softmax of scores over n
    out[b, m, d]      = weights[b, m, n] * value[b, n, d]

In a program with open sizes, in which some keys are not in use and their scores masked by a vector
of booleans, no more is computed than the keys in use and what fills their last vectors.

A task is a block of queries. Its scores, and then its weights, stay in scratch, so that the scores
of all queries are never in memory. The products are tiled as contractions are, the rows between
them go as those of row kernels do.
"""

from __future__ import annotations

import math

from stepwell.kernels.builder import Lanes
from stepwell.kernels.cpu.attention_strategy import AttentionStrategy, products
from stepwell.kernels.cpu.contraction import Contraction
from stepwell.kernels.cpu.contraction_strategy import ContractionShape
from stepwell.kernels.cpu.row import Row
from stepwell.kernels.evaluate import to_storage
from stepwell.kernels.group import KernelGroup
from stepwell.kernels.index import Index, delinearize, linearize
from stepwell.kernels.structured import (
    Structured,
    defining_op,
    element_type,
    elements,
    shape_of,
)
from stepwell.kernels.used_elements import used_keys
from stepwell.mlir import ir

KIND = "attention"
"""The kind of such a kernel."""


def emit(group: KernelGroup, strategy: AttentionStrategy, lanes: int) -> None:
    """Write the loops of an attention group with `strategy`."""
    _Attention(group, strategy, lanes).emit()


class _Attention:
    def __init__(self, group: KernelGroup, strategy: AttentionStrategy, lanes: int) -> None:
        self.group, self.nest, self.evaluator = group, group.nest, group.evaluator
        self.lanes = lanes
        (scores, first), (values, second) = products(group.operations)
        self.rows = [r for r in group.reductions() if r.op not in (scores.op, values.op)]
        self.raw = scores.op.results[0]
        self.score = _last_scores(self.raw, self.rows[0])
        self.weight = values.inputs[second[0]]
        shape = ContractionShape.of(scores, first)
        self.keys, self.queries, self.batch = shape.n, shape.m, shape.extent(shape.batch)
        self.taken = strategy.queries
        kept, weighing = element_type(self.score), element_type(self.weight)
        self.kept = self.nest.scratch([self.taken * self.keys], kept)
        self.weighing = (
            self.kept if weighing == kept else self.nest.scratch([self.taken * self.keys], weighing)
        )
        self.start = Index()
        self.scores = Contraction(
            group, scores, strategy.scores, first, lanes, self._store_score, self.score
        )
        self.values = Contraction(group, values, strategy.values, second, lanes)
        whole = self.keys % self.scores.panel == 0 and len(self.values.shape.reduced) == 1
        keys = used_keys(group, self.score, self.keys) if whole else None
        self.used_columns: Index | None = None
        self.used_queries: Index | None = None
        if keys is not None:
            panel = self.scores.panel
            self.used_columns = (keys.count + (panel - 1)).floordiv(panel) * panel
            if keys.are_as_many(scores.op, -2, self.queries):
                self.used_queries = keys.count
            self.scores.used_columns = self.values.tiles.used_terms = keys.count
            self.scores.used_rows = self.values.used_rows = self.used_queries
            self._state_exact_reads(values, second)

    def _state_exact_reads(self, values: Structured, operands: tuple[int, int]) -> None:
        """Say that of the values no more is read than those of the keys in use."""
        read = self.group.argument_behind(values.inputs[operands[1]])
        if read is not None:
            self.group.exact_reads.append(read)

    def emit(self) -> None:
        blocks = math.ceil(self.queries / self.taken)
        with self.nest.parallel("task", self.batch * blocks) as task, self.evaluator.scope():
            which, block = delinearize(Index.of(task), [self.batch, blocks])
            query = block * self.taken
            self.start = (which * self.queries + query) * self.keys
            self.scores.emit_block(which, block, blocks)
            with self.evaluator.scope():
                self.evaluator.keep(self.score, self.kept, self.start)
                with self.nest.loop_between(
                    "query", query, query + self.taken, self.queries, other=self.used_queries
                ) as variable:
                    self._softmax(which * self.queries + Index.of(variable))
            with self.evaluator.scope():
                self.evaluator.keep(self.weight, self.weighing, self.start)
                self.values.emit_block(which, block, blocks)

    def _softmax(self, number: Index) -> None:
        """Turn the scores of a query into weights, in their place where the type is the same."""
        with self.evaluator.scope():
            rows = self.batch * self.queries
            row = Row(self.group, self.lanes, number, rows, self.keys, self.used_columns)
            row.reduce(self.rows)
            row.walk(lambda flat, lanes: self._store(self.weight, self.weighing, flat, lanes))

    def _store_score(self, point: list[Index], lanes: Lanes) -> None:
        self._store(self.score, self.kept, linearize(point, shape_of(self.raw)), lanes)

    def _store(self, value: ir.Value, scratch: ir.Value, flat: Index, lanes: Lanes) -> None:
        computed = self.evaluator.at(value, delinearize(flat, shape_of(value)), lanes)
        stored = to_storage(computed, element_type(value))
        self.nest.store(stored, scratch, [flat - self.start], lanes)


def _last_scores(raw: ir.Value, first: Structured) -> ir.Value:
    """What is kept of the scores: what the first reduction reads, when all else that is made of the
    raw scores is made of that; else the raw ones."""
    read = max(first.inputs, key=elements)
    made_by = defining_op(read)
    seen: set[ir.Operation] = set()
    waiting = [raw]
    while waiting:
        for use in waiting.pop().uses:
            user = use.owner.operation
            if user == made_by or user in seen:
                continue
            seen.add(user)
            structured = Structured.of(user)
            if structured is not None and "reduction" in structured.iterators:
                return raw
            waiting += user.results
    return read
