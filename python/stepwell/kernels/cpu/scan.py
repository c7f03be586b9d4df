"""Cumulative reductions (`stepwell.kernels.scan`): each element is read once and written once, and
the totals stay in registers, or in L1.

Where elements of the dimensions behind lie side by side, a task is a block of such columns, and
goes down the rows with a vector of totals for each vector of columns, in registers if few:

    affine.for %i = 0 to %length { affine.for %j .. { %r[%i, %j] = %t[%j] = %t[%j] + %x[%i, %j] } }

Where the elements of a row do, lanes are rows: square tiles of as many rows and columns as a vector
has lanes are turned in registers (`transpose.turn`), combined column by column, and turned back.
The last columns, fewer than a tile has, are those of a tile that overlaps the one before it, whose
results it keeps; the last rows are computed twice where they do not fill a tile.

What is computed of results alone, element by element, is computed before they are written.
"""

from __future__ import annotations

from collections.abc import Iterator

from stepwell.errors import LoweringError
from stepwell.kernels.builder import Lanes, vector
from stepwell.kernels.cpu.transpose import turn
from stepwell.kernels.evaluate import from_storage, storage_type, to_storage
from stepwell.kernels.group import KernelGroup, Output, accesses, widths
from stepwell.kernels.index import Index, Variable, apply_map, constant, delinearize, linearize
from stepwell.kernels.scan import is_backward, is_scan, totals_of
from stepwell.kernels.structured import Structured, defining_op, element_type, shape_of
from stepwell.mlir import ir
from stepwell.targets import Target

_IN_REGISTERS = 8
"""Vectors of columns at most whose totals stay in registers."""

_UNROLLED = 4
"""Vectors of others in an iteration."""

_LEAST_ROWS, _MOST_ROWS = 4, 16
"""Of a tile that is turned."""


def emit(group: KernelGroup, target: Target, threads: int) -> None:
    """Write the loops of a group that has one cumulative reduction, for so many threads."""
    found = (Structured.of(op) for op in group.operations if is_scan(op))
    (op,) = [structured for structured in found if structured is not None]
    outer, length, inner = op.loop_sizes()
    bits = max(storage_type(element_type(o.value)).width for o in group.outputs)
    rows = min(_MOST_ROWS, target.vector_bits // max(bits, 32), 1 << outer.bit_length() - 1)
    if inner == 1 and rows >= _LEAST_ROWS and length >= rows:
        _Rows(group, op, rows).emit()
    else:
        _Columns(group, op, target, threads).emit()


class _Scan:
    """What both forms share: `op` of the sizes [outer, length, inner]."""

    def __init__(self, group: KernelGroup, op: Structured) -> None:
        self.group, self.op = group, op
        self.nest, self.evaluator = group.nest, group.evaluator
        self.outer, self.length, self.inner = op.loop_sizes()
        self.backward = is_backward(op.op)
        self.first_total = totals_of(op)
        self.results = {output: self._result_behind(output) for output in group.outputs}

    def _result_behind(self, output: Output) -> ir.Value:
        """A result of the operation that `output` is computed from."""
        found, waiting = list(self.op.op.results), [output.value]
        while waiting:
            value = waiting.pop()
            if value in found:
                return value
            made_by = defining_op(value)
            waiting += list(made_by.operands) if made_by is not None else []
        raise LoweringError(f"{self.group.name}: a result does not come from its scan")

    def starts(self, row: Index, column: Index, lanes: Lanes) -> list[ir.Value]:
        """The initial totals, in all lanes."""
        return [
            self.nest.as_vector(self.evaluator.at(value, [row, column], lanes), lanes)
            for value in self.op.outputs[self.first_total :]
        ]

    def position(self, number: Index) -> Index:
        """Where the element number `number` stands along the length, as it goes."""
        return number * -1 + (self.length - 1) if self.backward else number

    def combined(
        self, point: list[Index], elements: list[ir.Value], totals: list[ir.Value], lanes: Lanes
    ) -> tuple[list[ir.Value], list[ir.Value]]:
        """What the kernel's outputs hold, and the totals, after one more element."""
        arguments = list(self.op.body.arguments)
        known: dict = dict(zip(arguments, elements, strict=False))
        known.update(zip(arguments[-len(totals) :], totals, strict=True))
        with self.evaluator.scope():
            made = [
                self.nest.as_vector(value, lanes)
                for value in self.evaluator.run_whole_body(self.op, point, known, lanes)
            ]
            for result, value in zip(self.op.op.results[: self.first_total], made, strict=False):
                self.evaluator.bind(result, point, value)
            stored = [
                to_storage(
                    self.nest.as_vector(
                        self.evaluator.at(output.value, self.place(output, point), lanes), lanes
                    ),
                    element_type(output.value),
                )
                for output in self.group.outputs
            ]
        return stored, made[self.first_total :]

    def place(self, output: Output, point: list[Index]) -> list[Index]:
        """The element of `output` that is computed at `point`."""
        return self.group.point_of(output, self.results[output], point)

    def is_read(self, number: int) -> bool:
        """Whether the body uses an input."""
        return any(True for _ in self.op.body.arguments[number].uses)


class _Columns(_Scan):
    """Vectors of neighbouring columns."""

    def __init__(self, group: KernelGroup, op: Structured, target: Target, threads: int) -> None:
        super().__init__(group, op)
        totals = op.outputs[self.first_total :]
        bits = max(storage_type(element_type(value)).width for value in totals)
        self.lanes = target.vector_bits // max(bits, 32)
        self.most = target.l1_bytes // 2 // (len(totals) * bits // 8)
        self.threads = threads

    def emit(self) -> None:
        """Write the loops: a block of columns is one task."""
        block = self._columns_of_a_task()
        whole, rest = divmod(self.inner, block)
        blocks = whole + bool(rest)
        with self.nest.parallel("task", self.outer * blocks) as task, self.evaluator.scope():
            row, number = delinearize(Index.of(task), [self.outer, blocks])
            if not rest:
                self._block(row, number * block, block)
                return

            def run(number: Index, last: bool) -> None:
                with self.evaluator.scope():
                    self._block(row, number * block, rest if last else block)

            self.nest.last_apart(number, whole, run)

    def _columns_of_a_task(self) -> int:
        """As many as may be, since whole rows are read and written fastest: their totals stay in
        L1, and every thread has a task."""
        parts = max(-(-self.threads // self.outer), -(-self.inner // self.most))
        return min(self.inner, -(-self.inner // (parts * self.lanes)) * self.lanes)

    def _block(self, row: Index, start: Index, count: int) -> None:
        """`count` columns from `start` on."""
        pieces = list(widths(count, self.lanes))
        if sum((end - begin) // width for begin, end, width in pieces) > _IN_REGISTERS:
            self._in_memory(row, start, pieces)
        else:
            self._in_registers(row, start, pieces)

    def _in_registers(self, row: Index, start: Index, pieces: list[tuple[int, int, int]]) -> None:
        vectors = [
            (start + column + lanes.index, lanes)
            for begin, end, width in pieces
            for column in range(begin, end, width)
            for lanes in [Lanes.of(width)]
        ]
        totals = [self.starts(row, column, lanes) for column, lanes in vectors]
        each = len(totals[0])

        def step(i: Variable, carried: list[ir.Value]) -> list[ir.Value]:
            following: list[ir.Value] = []
            for number, (column, lanes) in enumerate(vectors):
                point = [row, self.position(Index.of(i)), column]
                before = carried[number * each : (number + 1) * each]
                following += self._element(point, before, lanes)
            return following

        carried = [total for totals_of_vector in totals for total in totals_of_vector]
        self.nest.reduce_loop("i", 0, self.length, 1, carried, step)

    def _in_memory(self, row: Index, start: Index, pieces: list[tuple[int, int, int]]) -> None:
        kinds = [element_type(value) for value in self.op.outputs[self.first_total :]]
        count = pieces[-1][1]
        kept = [self.nest.scratch([count], storage_type(kind)) for kind in kinds]

        def keep(totals: list[ir.Value], at: Index, lanes: Lanes) -> None:
            for total, kind, scratch in zip(totals, kinds, kept, strict=True):
                self.nest.store(to_storage(total, kind), scratch, [at], lanes)

        for column, lanes in self._walk(pieces):
            with self.evaluator.scope():
                keep(self.starts(row, start + column, lanes), column, lanes)
        with self.nest.loop("i", 0, self.length) as i:
            position = self.position(Index.of(i))
            for column, lanes in self._walk(pieces):
                before = [
                    from_storage(self.nest.load(scratch, [column], lanes), kind)
                    for scratch, kind in zip(kept, kinds, strict=True)
                ]
                point = [row, position, start + column]
                keep(self._element(point, before, lanes), column, lanes)

    def _walk(self, pieces: list[tuple[int, int, int]]) -> Iterator[tuple[Index, Lanes]]:
        """The columns of a block, in loops over vectors of each width."""
        for begin, end, width in pieces:
            for vectors in (_UNROLLED, 1):
                step = vectors * width
                stop = begin + (end - begin) // step * step
                if stop > begin:
                    with self.nest.loop("column", begin, stop, step) as column:
                        for number in range(vectors):
                            lanes = Lanes.of(width)
                            yield Index.of(column) + number * width + lanes.index, lanes
                begin = stop

    def _element(self, point: list[Index], totals: list[ir.Value], lanes: Lanes) -> list[ir.Value]:
        """Write the results at `point`; the totals afterwards."""
        with self.evaluator.scope():
            elements = [
                self.evaluator.at(value, apply_map(self.op.maps[number], point), lanes)
                if self.is_read(number)
                else totals[0]
                for number, value in enumerate(self.op.inputs)
            ]
            stored, totals = self.combined(point, elements, totals, lanes)
            for output, value in zip(self.group.outputs, stored, strict=True):
                self.group.store(output, self.place(output, point), value, lanes)
        return totals


class _Rows(_Scan):
    """Lanes are rows, which tiles of `lanes` rows and columns are turned for."""

    def __init__(self, group: KernelGroup, op: Structured, lanes: int) -> None:
        super().__init__(group, op)
        self.lanes = Lanes.of(lanes)
        self.turned = [self._has_to_be_turned(number) for number in range(len(op.inputs))]

    def emit(self) -> None:
        """Write the loops: as many rows as there are lanes are one task."""
        count = self.lanes.count
        whole, rest = divmod(self.outer, count)
        with self.nest.parallel("rows", whole + bool(rest)) as rows, self.evaluator.scope():
            if not rest:
                self._strip(Index.of(rows) * count)
                return

            def strip(number: Index, last: bool) -> None:
                with self.evaluator.scope():
                    self._strip(constant(self.outer - count) if last else number * count)

            self.nest.last_apart(Index.of(rows), whole, strip)

    def _strip(self, row: Index) -> None:
        """All columns of the rows from `row` on."""
        count = self.lanes.count
        whole = self.length // count * count

        def step(i: Variable, totals: list[ir.Value]) -> list[ir.Value]:
            start = Index.of(i)
            if self.backward:
                start = start * -1 + (self.length - count)
            return self._tile(row, start, 0, totals)

        totals = self.starts(row + self.lanes.index, Index(), self.lanes)
        totals = self.nest.reduce_loop("i", 0, whole, count, totals, step)
        if whole < self.length:
            last = constant(0 if self.backward else self.length - count)
            self._tile(row, last, count - (self.length - whole), totals)

    def _tile(self, row: Index, column: Index, done: int, totals: list[ir.Value]) -> list[ir.Value]:
        """The tile that begins at `row` and `column`, of which the first `done` columns, as it
        goes, have their results already; the totals afterwards."""
        count = self.lanes.count
        with self.evaluator.scope():
            turned = {
                number: self._columns(value, number, row, column)
                for number, value in enumerate(self.op.inputs)
                if self.turned[number]
            }
            order = list(range(count))[:: -1 if self.backward else 1][done:]
            made: dict[int, list[ir.Value]] = {}
            for place in order:
                point = [row + self.lanes.index, column + place, Index()]
                elements = [
                    turned[number][place]
                    if number in turned
                    else self._across(number, point, totals[0])
                    for number in range(len(self.op.inputs))
                ]
                made[place], totals = self.combined(point, elements, totals, self.lanes)
            for number, output in enumerate(self.group.outputs):
                columns = [made.get(place, made[order[0]])[number] for place in range(count)]
                self._store(output, row, column, columns, order)
        return totals

    def _columns(self, value: ir.Value, number: int, row: Index, column: Index) -> list[ir.Value]:
        """The columns of a tile of an input."""
        kind = element_type(value)
        rows = []
        for offset in range(self.lanes.count):
            point = [row + offset, column + self.lanes.index, Index()]
            read = self.evaluator.at(value, apply_map(self.op.maps[number], point), self.lanes)
            rows.append(to_storage(self.nest.as_vector(read, self.lanes), kind))
        return [from_storage(column, kind) for column in turn(rows)]

    def _across(self, number: int, point: list[Index], unread: ir.Value) -> ir.Value:
        """An input that is the same in all rows, or whose rows lie side by side."""
        if not self.is_read(number):
            return unread
        place = apply_map(self.op.maps[number], point)
        return self.evaluator.at(self.op.inputs[number], place, self.lanes)

    def _store(
        self, output: Output, row: Index, column: Index, columns: list[ir.Value], order: list[int]
    ) -> None:
        """Turn a tile of results back, and write those of the columns in `order`."""
        count = self.lanes.count
        for offset, value in enumerate(turn(columns)):
            point = self.place(output, [row + offset, column + self.lanes.index, Index()])
            if len(order) < count:
                before = self.nest.load(output.buffer, point, self.lanes)
                kept = [lane + count if lane in order else lane for lane in range(count)]
                value = vector.ShuffleOp(before, value, kept).result
            self.group.store(output, point, value, self.lanes)

    def _has_to_be_turned(self, number: int) -> bool:
        """Whether neighbours in a row, but no neighbours in a column, lie together in memory."""
        if not self.is_read(number):
            return False
        value = self.op.inputs[number]
        sizes = self.op.loop_sizes()
        dims = [Variable(f"d{i}", 0, size - 1) for i, size in enumerate(sizes)]
        point = apply_map(self.op.maps[number], [Index.of(dim) for dim in dims])
        leaves = set(self.evaluator.buffers)
        return any(
            linearize(indices, shape_of(leaf)).coefficient(dims[0]) not in (0, 1)
            for leaf, indices in accesses(value, point, leaves)
        )
