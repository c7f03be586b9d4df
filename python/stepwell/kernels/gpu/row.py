"""Row kernels on a grid: softmax, normalisations, reductions over trailing dimensions.

A short row belongs to a warp, several to a block, and its sum is passed round by shuffles; a long
row belongs to a block, whose warps' sums meet in shared memory. Values that are costly and needed
again (the exponentials of a softmax) are kept there too. All threads of a row hold every reduction.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from stepwell.kernels.builder import Lanes
from stepwell.kernels.gpu.elementwise import element_bits, fill_halos, vector_lanes
from stepwell.kernels.gpu.grid import GridBuilder
from stepwell.kernels.group import KernelGroup
from stepwell.kernels.index import Index, Variable, apply_map, delinearize
from stepwell.kernels.reduction import Combiner
from stepwell.kernels.rows import is_costly, loop_point
from stepwell.kernels.structured import Structured, element_type, elements, shape_of
from stepwell.mlir import ir
from stepwell.targets.nvidia import WARP

BLOCK_THREADS = 256
WARP_ROW = 512
"""Longest row of a warp."""

KEPT_BYTES = 32 << 10
"""Most shared memory for values that are kept."""


@dataclass(frozen=True)
class RowShape:
    """How rows meet threads: `threads` share a row of `length` elements, `rows_per_block` rows make
    a block; each thread takes `lanes` elements at a time."""

    length: int
    rows: int
    threads: int
    rows_per_block: int
    lanes: int

    @staticmethod
    def of(length: int, rows: int, lanes: int) -> RowShape:
        """The shape for `rows` rows, with accesses of at most `lanes` elements."""
        lanes = math.gcd(lanes, length)
        if length > WARP_ROW:
            return RowShape(length, rows, BLOCK_THREADS, 1, lanes)
        per_block = max(1, min(BLOCK_THREADS // WARP, rows))
        return RowShape(length, rows, WARP, per_block, lanes)

    @property
    def blocks(self) -> int:
        return -(-self.rows // self.rows_per_block)


def emit(group: KernelGroup, nest: GridBuilder) -> None:
    """Write the passes of a group of row operations."""
    reductions = group.reductions()
    rows = elements(reductions[0].op.results[0])
    length = math.prod(reductions[0].loop_sizes()) // rows
    shape = RowShape.of(length, rows, vector_lanes(group))
    threads = shape.threads * shape.rows_per_block
    with nest.grid(shape.blocks, threads) as (block, thread), group.evaluator.scope():
        fill_halos(group, nest, block * threads + thread, shape.blocks * threads)
        row = block * shape.rows_per_block + thread.floordiv(shape.threads)
        if row.high < rows:
            _Row(group, nest, shape, row, thread.mod(shape.threads), thread).emit(reductions)
            return
        last = Variable("row", 0, rows - 1, nest.index_value(row, Lanes.of(1)))
        with nest.inside([(row, rows)]) as branch, branch.then(), group.evaluator.scope():
            bounded = Index.of(last)
            _Row(group, nest, shape, bounded, thread.mod(shape.threads), thread).emit(reductions)


class _Row:
    def __init__(
        self,
        group: KernelGroup,
        nest: GridBuilder,
        shape: RowShape,
        row: Index,
        place: Index,
        thread: Index,
    ) -> None:
        self.group = group
        self.nest = nest
        self.evaluator = group.evaluator
        self.shape = shape
        self.row = row
        self.place = place
        """The thread's number among those of the row."""
        self.thread = thread
        self.vector = Lanes.of(shape.lanes)

    def emit(self, reductions: list[Structured]) -> None:
        for reduction in reductions:
            self._reduce(reduction)
        length, lanes = self.shape.length, self.shape.lanes
        full = [o for o in self.group.outputs if self._is_full(math.prod(o.shape))]
        narrow = [o for o in self.group.outputs if o not in full]
        if narrow:
            with self.nest.when(self.place, equals=0) as branch, branch.then():
                with self.evaluator.scope():
                    for output in narrow:
                        point = delinearize(self.row, output.shape)
                        self.group.write(output, point, Lanes.of(1))
        if full:
            with self.nest.each("i", self.place, length // lanes, self.shape.threads) as i:
                with self.evaluator.scope():
                    flat = self.row * length + self._element(i)
                    for output in full:
                        self.group.write(output, delinearize(flat, output.shape), self.vector)

    def _is_full(self, size: int) -> bool:
        return size == self.shape.rows * self.shape.length and self.shape.length > 1

    def _element(self, i: Variable) -> Index:
        """The elements of the row in its vector number `i`."""
        return Index.of(i) * self.shape.lanes + self.vector.index

    def _reduce(self, op: Structured) -> None:
        combiner = Combiner.of(op)
        kept = self._keep(op)
        kind = op.body.arguments[len(op.inputs)].type
        lanes = self.shape.lanes
        wide = ir.VectorType.get([lanes], kind) if lanes > 1 else kind
        identity = self.nest.constant(combiner.identity_of(wide))

        def body(i: Variable, accumulator: ir.Value) -> ir.Value:
            return self._step(op, kept, i, accumulator)

        count, threads = self.shape.length // lanes, self.shape.threads
        with self.evaluator.scope():
            part = self.nest.reduce_each(self.place, count, threads, identity, body)
        total = self._across_threads(combiner, combiner.across_lanes(part))
        point = delinearize(self.row, shape_of(op.outputs[0]))
        initial = self.evaluator.at(op.outputs[0], point, Lanes.of(1))
        total = combiner.join(initial, total)
        result = op.op.results[0]
        self.evaluator.bind(result, delinearize(self.row, shape_of(result)), total)
        for value, buffer in kept.items():
            self.evaluator.keep(value, buffer, self.row * self.shape.length)

    def _step(
        self, op: Structured, kept: dict[ir.Value, ir.Value], i: Variable, accumulator: ir.Value
    ) -> ir.Value:
        element = self._element(i)
        dims = loop_point(op, self.row * self.shape.length + element)
        with self.evaluator.scope():
            arguments: dict = {op.body.arguments[len(op.inputs)]: accumulator}
            for number, value in enumerate(op.inputs):
                argument = op.body.arguments[number]
                if not any(True for _ in argument.uses):
                    continue
                read = self.evaluator.at(value, apply_map(op.maps[number], dims), self.vector)
                arguments[argument] = read
                if value in kept:
                    self.nest.store(read, kept[value], [element], self.vector)
            return self.evaluator.run_body(op, dims, arguments, self.vector)

    def _across_threads(self, combiner: Combiner, value: ir.Value) -> ir.Value:
        """Combine the values of all threads of the row; each gets the result."""
        offset = WARP // 2
        while offset:
            value = combiner.join(value, self.nest.shuffle_xor(value, offset))
            offset //= 2
        warps = self.shape.threads // WARP
        if warps == 1:
            return value
        buffer = self.nest.shared([warps], value.type, element_bits(value.type) // 8)
        one = Lanes.of(1)
        with self.nest.when(self.thread.mod(WARP), equals=0) as branch, branch.then():
            self.nest.store(value, buffer, [self.thread.floordiv(WARP)], one)
        self.nest.barrier()
        parts = [self.nest.load(buffer, [Index((), warp)], one) for warp in range(warps)]
        total = parts[0]
        for part in parts[1:]:
            total = combiner.join(total, part)
        return total

    def _keep(self, op: Structured) -> dict[ir.Value, ir.Value]:
        """Shared rows for operands of `op` that are costly and needed again. A barrier follows, in
        the reduction across threads; rows of warps have none and compute such values again."""
        kept: dict[ir.Value, ir.Value] = {}
        if self.shape.threads == WARP:
            return kept
        for value in op.inputs:
            users = {use.owner.operation for use in value.uses}
            kind = element_type(value)
            size = self.shape.length * element_bits(kind) // 8
            if (
                self._is_full(elements(value))
                and len(users) > 1
                and is_costly(value)
                and str(kind) != "i1"
                and self.nest.shared_bytes + size <= KEPT_BYTES
            ):
                kept[value] = self.nest.shared([self.shape.length], kind, element_bits(kind) // 8)
        return kept
