"""Selections of many rows at a time, one a lane.

Keys and positions of the elements found are vectors in registers. An element is compared with all
of them, lane by lane: those that come before it stay, the others move by one place.

    scf.for %i {
      %x = key of x[%i], for 16 rows
      keys[j] = keys[j] >= %x ? keys[j] : keys[j - 1] >= %x ? %x : keys[j - 1]    // for all j }

Where rows are long, most elements are none of the first few of any lane: they cost a comparison
with the last place. Rows side by side are loaded as a vector, short ones are gathered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stepwell.kernels.arithmetic import ssa
from stepwell.kernels.builder import NestBuilder
from stepwell.kernels.cpu.masks import any_lane
from stepwell.kernels.cpu.selection_keys import choose, compare, key, splat
from stepwell.kernels.index import Variable
from stepwell.kernels.scf_loops import Values, add, either, index, loop, multiply, subtract
from stepwell.kernels.selection import Selection
from stepwell.mlir import dialect, ir

arith = dialect("arith")
memref = dialect("memref")
vector = dialect("vector")

_SKIPS_FROM = 4
"""Rows of so many elements for each one found are worth a branch."""


@dataclass(frozen=True)
class _Rows:
    """Where the rows of a block begin, in the flat source and in the flat results: one place that
    the lanes follow each other from, or one for each lane."""

    sources: Sequence[ir.Value]
    results: Sequence[ir.Value]


class SelectionOfColumns:
    """Writes the kernel; `buffers` are [outer, length, inner] and twice [outer, count, inner]."""

    def __init__(
        self,
        nest: NestBuilder,
        selection: Selection,
        buffers: tuple[ir.Value, ir.Value, ir.Value],
        lanes: int,
        vector_bits: int,
    ) -> None:
        self.nest, self.selection, self.lanes = nest, selection, lanes
        source, values, _ = buffers
        self.outer, self.length, self.inner = source.type.shape
        self.count = values.type.shape[1]
        self.source, self.values, self.positions = map(nest.flattened, buffers)
        self.element = source.type.element_type
        word = ir.IntegerType.get_signless(vector_bits // lanes)
        self.kind = ir.VectorType.get([lanes], word)
        self.skips = self.length >= _SKIPS_FROM * self.count

    def emit(self) -> None:
        """Write the loops."""
        side_by_side = self.inner >= self.lanes
        rows_of_blocks = self.inner if side_by_side else self.outer * self.inner
        blocks = -(-rows_of_blocks // self.lanes)
        with self.nest.parallel("block", self.outer * blocks if side_by_side else blocks) as block:
            rows = self._neighbours(block, blocks) if side_by_side else self._each(block)
            self._write(rows, self._select(rows))

    def _neighbours(self, block: Variable, blocks: int) -> _Rows:
        """Rows side by side; the last block of them overlaps the one before."""
        number = ssa(block)
        outer = arith.DivUIOp(number, index(blocks)).result
        first = multiply(arith.RemUIOp(number, index(blocks)).result, self.lanes)
        first = arith.MinUIOp(first, index(self.inner - self.lanes)).result
        places = [
            add(multiply(outer, size * self.inner), first) for size in (self.length, self.count)
        ]
        return _Rows([places[0]], [places[1]])

    def _each(self, block: Variable) -> _Rows:
        """Rows anywhere; lanes beyond the last row have that one, too."""
        first = multiply(ssa(block), self.lanes)
        last = index(self.outer * self.inner - 1)
        sources, results = [], []
        for lane in range(self.lanes):
            row = arith.MinUIOp(add(first, lane), last).result
            outer = arith.DivUIOp(row, index(self.inner)).result
            inner = arith.RemUIOp(row, index(self.inner)).result
            for places, size in ((sources, self.length), (results, self.count)):
                places.append(add(multiply(outer, size * self.inner), inner))
        return _Rows(sources, results)

    def _select(self, rows: _Rows) -> Values:
        """Keys of what comes first, as vectors, then positions."""
        least = splat(self.kind, -(1 << (self.kind.element_type.width - 1)))
        found = [*[least] * self.count, *[splat(self.kind, 0)] * self.count]

        def begin(number: ir.Value, found: Values) -> Values:
            return self._insert(rows, subtract(index(self.count - 1), number), found, "sge")

        def step(position: ir.Value, found: Values) -> Values:
            return self._insert(rows, position, found, "sgt")

        found = loop((0, self.count, 1), found, begin)
        return loop((self.count, self.length, 1), found, step)

    def _insert(self, rows: _Rows, position: ir.Value, found: Values, goes_before: str) -> Values:
        """Put the elements at `position` before those found to which their keys are
        `goes_before`."""
        here = key(self._at(rows, position), self.selection)
        if here.type != self.kind:
            here = arith.ExtSIOp(self.kind, here).result
        place = arith.IndexCastOp(self.kind.element_type, position).result
        place = vector.BroadcastOp(self.kind, place).result
        keys, positions = found[: self.count], found[self.count :]

        def insert() -> Values:
            passed = [compare(goes_before, here, held) for held in keys]
            return [*_moved(keys, here, passed), *_moved(positions, place, passed)]

        if not self.skips or goes_before != "sgt":
            return insert()
        return either(any_lane(compare(goes_before, here, keys[-1])), insert, found)

    def _at(self, rows: _Rows, position: ir.Value) -> ir.Value:
        """The element at `position`, in each row."""
        kind = ir.VectorType.get([self.lanes], self.element)
        moved = multiply(position, self.inner)
        offsets = [add(place, moved) for place in rows.sources]
        if len(offsets) == 1:
            return vector.LoadOp(kind, self.source, offsets).result
        parts = [memref.LoadOp(self.source, [offset]).result for offset in offsets]
        return vector.FromElementsOp(kind, parts).result

    def _write(self, rows: _Rows, found: Values) -> None:
        for number, positions in enumerate(found[self.count :]):
            self._store(self._elements(rows, positions), self.values, rows, number)
            self._store(self._as_stored(positions), self.positions, rows, number)

    def _elements(self, rows: _Rows, positions: ir.Value) -> ir.Value:
        """The elements at a vector of positions, each in the row of its lane."""
        starts = rows.sources
        if len(starts) == 1:
            starts = [add(starts[0], lane) for lane in range(self.lanes)]
        parts = []
        for lane, start in enumerate(starts):
            position = vector.ExtractOp(positions, [], [lane]).result
            position = arith.IndexCastOp(ir.IndexType.get(), position).result
            place = add(start, multiply(position, self.inner))
            parts.append(memref.LoadOp(self.source, [place]).result)
        return vector.FromElementsOp(ir.VectorType.get([self.lanes], self.element), parts).result

    def _as_stored(self, positions: ir.Value) -> ir.Value:
        element = self.positions.type.element_type
        kind = ir.VectorType.get([self.lanes], element)
        if element.width == self.kind.element_type.width:
            return positions
        wider = element.width > self.kind.element_type.width
        return (arith.ExtSIOp if wider else arith.TruncIOp)(kind, positions).result

    def _store(self, value: ir.Value, buffer: ir.Value, rows: _Rows, number: int) -> None:
        """Write a vector as result `number` of its rows."""
        moved = index(number * self.inner)
        offsets = [add(place, moved) for place in rows.results]
        if len(offsets) == 1:
            vector.StoreOp(value, buffer, offsets)
            return
        for lane, offset in enumerate(offsets):
            memref.StoreOp(vector.ExtractOp(value, [], [lane]).result, buffer, [offset])


def _moved(held: Values, new: ir.Value, passed: Values) -> Values:
    """`held` with `new` before the first that it has `passed`, and these one place further."""
    before = [new, *(choose(p, h, new) for p, h in zip(passed, held, strict=True))]
    return [choose(p, b, h) for p, b, h in zip(passed, before, held, strict=False)]
