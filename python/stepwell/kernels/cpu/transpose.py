"""Transposes that move the innermost dimension: square tiles turned in registers, or, where the
output's innermost dimension is shorter than a vector, its elements interleaved there.

A tile is L vectors of L lanes, read along the source's contiguous dimension and written along the
output's. It is turned in log2(L) rounds of two-input shuffles: round s exchanges the off-diagonal s
x s blocks of every 2s x 2s block (J. O. Eklundh, 1972). Where L does not divide a dimension, the
last tile begins earlier and writes what the one before it has written once more."""

from __future__ import annotations

import math

from stepwell.kernels.builder import Lanes, vector
from stepwell.kernels.cpu import elementwise
from stepwell.kernels.group import KernelGroup, accesses, widths
from stepwell.kernels.index import Index, Variable, constant, delinearize, linearize
from stepwell.kernels.structured import element_type, shape_of
from stepwell.mlir import ir

_LEAST_LANES, _MOST_LANES = 4, 16
"""Of a tile, whose vectors have to fit the registers."""

_UNPACKED_BITS = 128
"""Vectors up to this size have instructions that put the lanes of two of them by turns."""

_MOVED = ("f64", "f32", "f16", "bf16", "i64", "i32", "i16", "i8")
"""Types of elements that vectors are shuffled of."""

_TASK_VECTORS = 32
"""Vectors of each row that a task interleaves."""


def emit(group: KernelGroup, lanes: int) -> None:
    """Write the tiles of a transposed copy, or plain elementwise loops where there are none; a
    register has so many `lanes` of 32 bits."""
    dims = turned_dims(group)
    if dims is not None:
        row, column = dims
        (output,) = group.outputs
        lanes = min(_MOST_LANES, 32 * lanes // element_type(output.value).width)
        shorter = min(output.shape[row], output.shape[column])
        if shorter >= lanes:
            _Transpose(group, lanes, row, column).emit()
            return
        whole = shape_of(output.buffer)[column] == output.shape[column]
        if row == column - 1 and output.shape[row] >= lanes and whole:
            _Interleave(group, lanes).emit()
            return
        if shorter >= _LEAST_LANES:
            _Transpose(group, 1 << shorter.bit_length() - 1, row, column).emit()
            return
    elementwise.emit(group, lanes)


def turned_dims(group: KernelGroup) -> tuple[int, int] | None:
    """(row, column): the output dimension that is contiguous in the source, and the output's own
    innermost."""
    if len(group.outputs) != 1:
        return None
    (output,) = group.outputs
    if str(element_type(output.value)) not in _MOVED:
        return None
    dims = [Variable(f"d{i}", 0, max(n, 1) - 1) for i, n in enumerate(output.shape)]
    point = [Index.of(d) for d in dims]
    reads = list(accesses(output.value, point, set(group.evaluator.buffers)))
    if len(reads) != 1:
        return None
    leaf, indices = reads[0]
    flat = linearize(indices, shape_of(leaf))
    column = len(dims) - 1
    rows = [i for i, d in enumerate(dims) if flat.coefficient(d) == 1 and i != column]
    if not flat.is_linear or len(rows) != 1 or output.shape[column] == 1:
        return None
    return rows[0], column


class _Transpose:
    def __init__(self, group: KernelGroup, lanes: int, row: int, column: int) -> None:
        self.group = group
        self.nest = group.nest
        self.evaluator = group.evaluator
        (self.output,) = group.outputs
        self.shape = self.output.shape
        self.lanes = lanes
        self.row = row
        self.column = column
        self.others = [i for i in range(len(self.shape)) if i not in (row, column)]

    def emit(self) -> None:
        outer = [self.shape[i] for i in self.others]
        rows = self.shape[self.row]
        blocks = -(-rows // self.lanes)
        with self.nest.parallel("task", math.prod(outer) * blocks) as task:
            self.group.fill_halos(Index.of(task), self.lanes)
            *where, block = delinearize(Index.of(task), [*outer, blocks])
            point = [Index()] * len(self.shape)
            for axis, index in zip(self.others, where, strict=True):
                point[axis] = index
            if not rows % self.lanes:
                self._strip(point, block * self.lanes)
                return

            def strip(block: Index, last: bool) -> None:
                self._strip(point, constant(rows - self.lanes) if last else block * self.lanes)

            self.nest.last_apart(block, blocks - 1, strip)

    def _strip(self, point: list[Index], start: Index) -> None:
        """L rows of the output, all columns."""
        columns = self.shape[self.column]
        whole = columns // self.lanes * self.lanes
        with self.nest.loop("j", 0, whole, self.lanes) as j, self.evaluator.scope():
            self._tile(point, start, Index.of(j))
        if whole < columns:
            with self.evaluator.scope():
                self._tile(point, start, constant(columns - self.lanes))

    def _tile(self, point: list[Index], row: Index, column: Index) -> None:
        along = Lanes.of(self.lanes)
        loaded = []
        for offset in range(self.lanes):
            source = self._at(point, row + along.index, column + offset)
            loaded.append(self.evaluator.at(self.output.value, source, along))
        for offset, value in enumerate(turn(loaded)):
            place = self._at(point, row + offset, column + along.index)
            self.group.store(self.output, place, value, along)

    def _at(self, point: list[Index], row: Index, column: Index) -> list[Index]:
        full = list(point)
        full[self.row], full[self.column] = row, column
        return full


class _Interleave:
    """A few rows of the source side by side: vectors of each become vectors of the output."""

    def __init__(self, group: KernelGroup, lanes: int) -> None:
        self.group = group
        self.nest = group.nest
        (self.output,) = group.outputs
        *self.others, self.rows, self.columns = self.output.shape
        self.lanes = lanes

    def emit(self) -> None:
        per_task = _TASK_VECTORS * self.lanes
        chunks = -(-self.rows // per_task)
        whole = self.rows // self.lanes * self.lanes
        with self.nest.parallel("task", math.prod(self.others) * chunks) as task:
            self.group.fill_halos(Index.of(task), self.lanes)
            *point, chunk = delinearize(Index.of(task), [*self.others, chunks])
            start = chunk * per_task
            with self.nest.loop_between("i", start, start + per_task, whole, self.lanes) as i:
                self._vectors(point, Index.of(i), self.lanes)
            if whole == self.rows:
                return
            with self.nest.when_last(chunk, chunks):
                for begin, end, width in widths(self.rows - whole, self.lanes):
                    for row in range(whole + begin, whole + end, width):
                        self._vectors(point, constant(row), width)

    def _vectors(self, point: list[Index], row: Index, width: int) -> None:
        along = Lanes.of(width)
        with self.group.evaluator.scope():
            columns = [
                self.nest.as_vector(
                    self.group.evaluator.at(
                        self.output.value, [*point, row + along.index, constant(column)], along
                    ),
                    along,
                )
                for column in range(self.columns)
            ]
            place = [*point, row, Index()]
            place = [index + low for index, low in zip(place, self.output.low, strict=True)]
            start = linearize(place, shape_of(self.output.buffer))
            flat = self.nest.flattened(self.output.buffer)
            for number, value in enumerate(interleaved(columns, width)):
                self.nest.store(value, flat, [start + number * width + along.index], along)


def interleaved(columns: list[ir.Value], width: int) -> list[ir.Value]:
    """The first elements of all columns, then the second ones, and so on, as vectors of `width`."""
    if width == 1:
        return columns
    results = []
    for begin in range(0, len(columns) * width, width):
        places = [divmod(begin + lane, len(columns)) for lane in range(width)]
        result = columns[0]
        for number, column in enumerate(columns):
            lanes = [
                width + place if source == number else (place if number <= 1 else lane)
                for lane, (place, source) in enumerate(places)
            ]
            if number:
                result = vector.ShuffleOp(result, column, lanes).result
        results.append(result)
    return results


def turn(rows: list[ir.Value]) -> list[ir.Value]:
    """The transpose of a square of vectors."""
    size = len(rows)
    if size * element_type(rows[0]).width <= _UNPACKED_BITS:
        return _unpacked(rows)
    step = 1
    while step < size:
        first = [lane if not lane & step else size + lane - step for lane in range(size)]
        second = [lane + step if not lane & step else size + lane for lane in range(size)]
        turned = list(rows)
        for number in range(size):
            if not number & step:
                pair = rows[number], rows[number + step]
                turned[number] = vector.ShuffleOp(*pair, first).result
                turned[number + step] = vector.ShuffleOp(*pair, second).result
        rows = turned
        step *= 2
    return rows


def _unpacked(rows: list[ir.Value]) -> list[ir.Value]:
    """The transpose of a square of short vectors, by rounds that put the lanes of a row and the one
    half the square further on by turns: single instructions for vectors that are not cut in two."""
    size = len(rows)
    low = [lane + side for lane in range(size // 2) for side in (0, size)]
    high = [lane + size // 2 for lane in low]
    for _ in range(size.bit_length() - 1):
        pairs = zip(rows[: size // 2], rows[size // 2 :], strict=True)
        rows = [vector.ShuffleOp(*pair, lanes).result for pair in pairs for lanes in (low, high)]
    return rows
