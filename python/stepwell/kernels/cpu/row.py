"""Row kernels: softmax, normalisations, and reductions over trailing dimensions.

Each task is one row. Every reduction is a pass over the row with several vector accumulators;
values that are costly to compute and needed again (the exponentials of a softmax) are kept in a row
of scratch; a last pass writes the results. The second pass, whose row is in L1, asks for the next
row meanwhile, so that computing and reading from beyond L2 overlap. Of an open dimension
(docs/levels.md), sums read no more than is in use."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from stepwell.kernels.builder import Lanes
from stepwell.kernels.group import KernelGroup, accesses, widths
from stepwell.kernels.index import Index, Variable, apply_map, constant, delinearize, linearize
from stepwell.kernels.reduction import Combiner
from stepwell.kernels.rows import is_costly, loop_point
from stepwell.kernels.structured import Structured, defining_op, element_type, elements, shape_of
from stepwell.kernels.used_elements import used_terms
from stepwell.mlir import ir

ACCUMULATORS = 4
"""Independent accumulators of a pass: hides the latency of an addition. One is enough where values
are costly, and leaves registers for their constants."""

SCRATCH_BYTES = 512 << 10
"""Longest row that is kept in scratch."""

LONG_ROW = 4096
"""Elements of a row that leave no place for one of scratch in L1: from there on, scratch is one
more stream from L2, and the row of the result is a better place. (Softmax of 32,000 elements: 75 us
for 8 rows in place of 90. Of 1024: 24.6 us for 64 rows, where the row of the result takes 26.2.)"""


def emit(group: KernelGroup, lanes: int) -> None:
    """Write the passes of a group of row operations."""
    reductions = group.reductions()
    domain = math.prod(reductions[0].loop_sizes())
    rows = elements(reductions[0].op.results[0])
    with group.nest.parallel("row", rows) as row, group.evaluator.scope():
        kernel = Row(group, lanes, Index.of(row), rows, domain // rows)
        if rows > 1 and kernel.length < LONG_ROW:
            kernel.next_row = _NextRow(group, reductions[0], row, kernel.length)
        kernel.emit(reductions)


@dataclass(frozen=True)
class _NextRow:
    """What `first`, the first reduction of a row of `length` elements, reads of the next one."""

    group: KernelGroup
    first: Structured
    row: Variable
    length: int

    def ask(self, position: Index) -> None:
        """Prefetch it from there on, where it lies as far behind that of each row."""
        evaluator, nest = self.group.evaluator, self.group.nest
        point = loop_point(self.first, Index.of(self.row) * self.length + position)
        leaves = set(self.group.inputs)
        for value, affine_map in zip(self.first.inputs, self.first.maps, strict=False):
            for leaf, indices in accesses(value, apply_map(affine_map, point), leaves, evaluator):
                place = linearize(indices, shape_of(leaf))
                stride = place.coefficient(self.row)
                known = all(variable.value is not None for variable in place.variables())
                if place.is_linear and stride and known:
                    flat = nest.flattened(evaluator.buffers[leaf])
                    nest.prefetch(flat, [place + stride], near=True)


Place = tuple[ir.Value, Index]
"""A 1-D buffer, and the flat position among the elements of all rows that it begins with."""


class Row:
    """The passes over row number `row` of `rows`, each of `length` elements: of these, the first
    `used` where it is given, a multiple of `lanes` as `length` is then."""

    def __init__(
        self,
        group: KernelGroup,
        lanes: int,
        row: Index,
        rows: int,
        length: int,
        used: Index | None = None,
    ) -> None:
        self.group = group
        self.nest = group.nest
        self.evaluator = group.evaluator
        self.lanes = lanes
        self.row = row
        self.rows = rows
        self.length = length
        self.used = used
        self.kept_in_result = False
        self.next_row: _NextRow | None = None
        self.passes = 0

    def emit(self, reductions: list[Structured]) -> None:
        """Reduce, and write the group's outputs."""
        self.group.fill_halos(self.row, self.lanes)
        self.reduce(reductions)
        full = [o for o in self.group.outputs if math.prod(o.shape) != self._rows(o.shape)]
        one = Lanes.of(1)
        for output in self.group.outputs:
            if output not in full:
                self.group.write(output, delinearize(self.row, output.shape), one)
        if not full:
            return

        def write(flat: Index, vector: Lanes) -> None:
            for output in full:
                self.group.write(output, delinearize(flat, output.shape), vector)

        self.walk(write)

    def reduce(self, reductions: list[Structured]) -> None:
        """Compute the row's value of each of `reductions`, and let the evaluator know it."""
        for reduction in reductions:
            self._reduce(reduction)
            self.passes += 1

    def walk(self, body: Callable[[Index, Lanes], None]) -> None:
        """Call `body` for the vectors of the row: their place among the elements of all rows."""
        if self.used is not None:
            vector = Lanes.of(self.lanes)
            whole = self.nest.loop_between("i", Index(), self.used, self.length, self.lanes)
            with whole as i, self.evaluator.scope():
                i = Variable("i", 0, self.length - self.lanes, i.value)
                body(self.row * self.length + Index.of(i) + vector.index, vector)
            return
        for begin, end, width in widths(self.length, self.lanes):
            vector = Lanes.of(width)
            with self.nest.loop("i", begin, end, width) as i, self.evaluator.scope():
                self._ask(Index.of(i))
                body(self.row * self.length + Index.of(i) + vector.index, vector)

    def _ask(self, position: Index) -> None:
        if self.next_row is not None and self.passes == 1:
            self.next_row.ask(position)

    def _rows(self, shape: tuple[int, ...]) -> int:
        """The element count of a row-level value if `shape` is one, else 0."""
        size = math.prod(shape)
        return size if size * self.length == self._domain() and self.length > 1 else 0

    def _domain(self) -> int:
        return self.rows * self.length

    def _reduce(self, op: Structured) -> None:
        combiner = Combiner.of(op)
        kept = self._keep(op)
        initial = self.evaluator.at(
            op.outputs[0], delinearize(self.row, shape_of(op.outputs[0])), Lanes.of(1)
        )
        total = initial
        used = self.used if self.used is not None or kept else self._used_terms(op)
        if used is not None:
            total = self._reduce_used(op, combiner, kept, total, used)
        for begin, end, width in widths(self.length if used is None else 0, self.lanes):
            vector = Lanes.of(width)
            count = 1 if kept else min(ACCUMULATORS, (end - begin) // width)
            stop = begin + (end - begin) // (count * width) * count * width
            pieces = [(begin, stop, count)]
            if end > stop:
                pieces.append((stop, end, 1))
            for low, high, unroll in pieces:
                total = combiner.join(
                    total,
                    self._pass(op, combiner, kept, vector, constant(low), constant(high), unroll),
                )
        result = op.op.results[0]
        self.evaluator.bind(result, delinearize(self.row, shape_of(result)), total)
        for value, (buffer, start) in kept.items():
            self.evaluator.keep(value, buffer, start)

    def _used_terms(self, op: Structured) -> Index | None:
        """How much of a row `op` has to read, in whole vectors; None where that is all of it."""
        terms = used_terms(self.group, op) if self.length % self.lanes == 0 else {}
        moving = [
            i for i, n in enumerate(op.loop_sizes()) if op.iterators[i] == "reduction" and n > 1
        ]
        if len(moving) != 1 or moving[0] not in terms:
            return None
        return (terms[moving[0]].count + (self.lanes - 1)).floordiv(self.lanes) * self.lanes

    def _reduce_used(
        self,
        op: Structured,
        combiner: Combiner,
        kept: dict[ir.Value, Place],
        total: ir.Value,
        used: Index,
    ) -> ir.Value:
        """The first `used` of the row: rounds of several vectors, then single ones."""
        vector = Lanes.of(self.lanes)
        count = 1 if kept else min(ACCUMULATORS, self.length // self.lanes)
        step = count * self.lanes
        rounds = used.floordiv(step) * step
        pieces = [(constant(0), rounds, count)]
        if count > 1:
            pieces.append((rounds, used, 1))
        for low, high, unroll in pieces:
            part = self._pass(op, combiner, kept, vector, low, high, unroll)
            total = combiner.join(total, part)
        return total

    def _pass(
        self,
        op: Structured,
        combiner: Combiner,
        kept: dict[ir.Value, Place],
        vector: Lanes,
        begin: Index,
        end: Index,
        unroll: int,
    ) -> ir.Value:
        scalar = op.body.arguments[len(op.inputs)].type
        kind = ir.VectorType.get([vector.count], scalar) if vector.count > 1 else scalar
        identity = self.nest.constant(combiner.identity_of(kind))

        def body(i: Variable, carried: list[ir.Value]) -> list[ir.Value]:
            return [
                self._step(op, kept, vector, Index.of(i) + number * vector.count, accumulator)
                for number, accumulator in enumerate(carried)
            ]

        with self.evaluator.scope():
            step, initial = unroll * vector.count, [identity] * unroll
            if begin.is_constant and end.is_constant:
                carried = self.nest.reduce_loop(
                    "i", begin.constant, end.constant, step, initial, body
                )
            else:
                carried = self.nest.reduce_between(
                    "i", begin, end, self.length, step, initial, body
                )
        while len(carried) > 1:
            half = len(carried) // 2
            carried = [
                *(
                    combiner.join(a, b)
                    for a, b in zip(carried[:half], carried[half:], strict=False)
                ),
                *carried[2 * half :],
            ]
        return combiner.across_lanes(carried[0])

    def _step(
        self,
        op: Structured,
        kept: dict[ir.Value, Place],
        vector: Lanes,
        position: Index,
        accumulator: ir.Value,
    ) -> ir.Value:
        dims = loop_point(op, self.row * self.length + position + vector.index)
        self._ask(position)
        with self.evaluator.scope():
            for value, (buffer, start) in kept.items():
                flat = self.row * self.length + position + vector.index
                made = self.evaluator.at(value, delinearize(flat, shape_of(value)), vector)
                self.nest.store(made, buffer, [flat - start], vector)
            arguments: dict = {op.body.arguments[len(op.inputs)]: accumulator}
            for number, value in enumerate(op.inputs):
                argument = op.body.arguments[number]
                if not any(True for _ in argument.uses):
                    continue
                arguments[argument] = self.evaluator.at(
                    value, apply_map(op.maps[number], dims), vector
                )
            return self.evaluator.run_body(op, dims, arguments, vector)

    def _keep(self, op: Structured) -> dict[ir.Value, Place]:
        """Where to keep what `op` reads, if only through other operations, that is costly and
        needed again: rows of scratch, and for one of them the row of the result."""
        kept: dict[ir.Value, Place] = {}
        waiting = list(op.inputs)
        for value in waiting:
            producer = defining_op(value)
            users = {use.owner.operation for use in value.uses}
            element = element_type(value)
            if (
                producer is None
                or value in kept
                or elements(value) != self._domain()
                or not is_costly(value)
                or str(element) == "i1"
            ):
                continue
            if len(users) > 1:
                place = self._place(value)
                if place is not None:
                    kept[value] = place
            elif (maker := Structured.of(producer)) is not None and maker.is_elementwise:
                waiting += maker.inputs
        return kept

    def _place(self, value: ir.Value) -> Place | None:
        """Where to keep `value`, or None if it is too much."""
        if self.length >= LONG_ROW and not self.kept_in_result and self._becomes_result(value):
            self.kept_in_result = True
            return self.nest.flattened(self.group.outputs[0].buffer), Index()
        if self.length * 8 > SCRATCH_BYTES:
            return None
        return self.nest.scratch([self.length], element_type(value)), self.row * self.length

    def _becomes_result(self, value: ir.Value) -> bool:
        """Whether the group has one result, of the type of `value`, and nothing but its own element
        is read of `value` to compute one of its elements."""
        output, *others = self.group.outputs
        sizes = shape_of(output.buffer)
        if others or element_type(output.buffer) != element_type(value) or sizes != output.shape:
            return False
        if math.prod(sizes) != self._domain():
            return False
        dims = [Variable(f"d{i}", 0, max(n, 1) - 1) for i, n in enumerate(sizes)]
        point = [Index.of(d) for d in dims]
        own = linearize(point, sizes)
        leaves = {*self.evaluator.buffers, value}
        reads = [
            linearize(indices, shape_of(value))
            for leaf, indices in accesses(output.value, point, leaves)
            if leaf == value
        ]
        return bool(reads) and all(read == own for read in reads)
