"""Selections of single rows, one vector of neighbours at a time.

What was found so far lies in order, keys and positions in scratch. Elements are compared with the
last one found, many at a time; most are none of the first few and cost nothing more. One that is
goes into its place: in each vector, from the last one on, lanes keep what comes before it, take it,
or take what was one lane before them, down to the vector that stays as it is.

    scf.for %i = %count to %length step 64 {
      %candidates = keys of x[%i ... %i + 63] > %last found
      scf.if any { scf.while bits are left { insert the element of the lowest bit } } }

The first elements go in from the last to the first, before others that are equal to them: so places
for which nothing was found yet need no mark but the least key.
"""

from __future__ import annotations

import functools

from stepwell.kernels.arithmetic import ssa
from stepwell.kernels.builder import NestBuilder
from stepwell.kernels.cpu.masks import WORD, any_lane, bits_of, lowest_bit
from stepwell.kernels.cpu.selection_keys import choose, compare, key, splat
from stepwell.kernels.scf_loops import (
    Values,
    add,
    each,
    either,
    index,
    loop,
    multiply,
    repeat,
    subtract,
    when,
)
from stepwell.kernels.selection import Selection
from stepwell.mlir import dialect, ir

arith = dialect("arith")
memref = dialect("memref")
vector = dialect("vector")

_CHUNK = WORD
"""Elements that are compared before the first branch: the bits of a word."""


class SelectionOfRows:
    """Writes the kernel; `buffers` are [rows, length, 1] and twice [rows, count, 1]."""

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
        self.rows, self.length, inner = source.type.shape
        assert inner == 1, "elements of a row are neighbours"
        self.count = values.type.shape[1]
        self.source, self.values, self.positions = map(nest.flattened, buffers)
        self.element = source.type.element_type
        self.width = vector_bits // self.element.width
        self.word = ir.IntegerType.get_signless(vector_bits // lanes)
        self.vectors = -(-self.count // lanes)
        shape = [(1 + self.vectors) * lanes]
        self.found = [nest.scratch(shape, self.word, rewritten=True) for _ in range(2)]
        """Keys and positions, from `lanes` on: what is one lane before the first can be read."""

    def emit(self) -> None:
        """Write the loops."""
        with self.nest.parallel("row", self.rows) as row:
            self.base = multiply(ssa(row), self.length)
            self._begin()
            last = self._last()
            start = self.count
            for chunk in sorted({max(_CHUNK, self.width), self.width}, reverse=True):
                stop = self.length - (self.length - start) % chunk
                last = self._scan(start, stop, chunk, last)
                start = stop
            loop((start, self.length, 1), [last], lambda at, last: [self._try(at, last[0])])
            self._write(multiply(ssa(row), self.count))

    def _begin(self) -> None:
        """Put the first elements in order, the last of them first."""
        least = splat(self._words(), -(1 << (self.word.width - 1)))
        for number in range(1, 1 + self.vectors):
            vector.StoreOp(least, self.found[0], [index(number * self.lanes)])

        def element(number: ir.Value) -> None:
            position = subtract(index(self.count - 1), number)
            used = subtract(number, arith.RemUIOp(number, index(self.lanes)).result)
            self._insert(self._key_at(position), position, "sgt", add(used, self.lanes))

        each(self.count, element)

    def _scan(self, start: int, stop: int, chunk: int, last: ir.Value) -> ir.Value:
        """Look at elements from `start` to `stop`, `chunk` at a time; the last key found then."""
        if start == stop:
            return last

        def step(position: ir.Value, carried: Values) -> Values:
            (last,) = carried
            keys = [self._keys(add(position, at)) for at in range(0, chunk, self.width)]
            bound = vector.BroadcastOp(keys[0].type, self._narrow(last)).result

            def above() -> ir.Value:
                return bits_of([compare("sgt", part, bound) for part in keys])

            highest = functools.reduce(lambda a, b: arith.MaxSIOp(a, b).result, keys)
            found = any_lane(compare("sgt", highest, bound))
            return either(found, lambda: [self._insert_all(above(), position, last)], [last])

        return loop((start, stop, chunk), [last], step)[0]

    def _insert_all(self, bits: ir.Value, start: ir.Value, last: ir.Value) -> ir.Value:
        """Insert the elements from `start` on that `bits` names, if they still come before
        `last`."""

        def step(carried: Values) -> Values:
            bits, last = carried
            rest = arith.AndIOp(bits, arith.SubIOp(bits, splat(bits.type, 1)).result).result
            return [rest, self._try(add(start, lowest_bit(bits)), last)]

        def is_left(carried: Values) -> ir.Value:
            return compare("ne", carried[0], splat(bits.type, 0))

        return repeat([bits, last], is_left, step)[1]

    def _try(self, position: ir.Value, last: ir.Value) -> ir.Value:
        """Insert an element if it comes before `last`; returns the last one afterwards."""
        here = self._key_at(position)

        def insert() -> Values:
            self._insert(here, position, "sge", index(self.vectors * self.lanes))
            return [self._last()]

        return either(compare("sgt", here, last), insert, [last])[0]

    def _insert(self, here: ir.Value, position: ir.Value, stays: str, place: ir.Value) -> None:
        """Put an element behind those found whose keys are `stays` its own; `place` is that of the
        last vector in use."""
        position = arith.IndexCastOp(self.word, position).result
        new = [vector.BroadcastOp(self._words(), value).result for value in (here, position)]
        first = index(self.lanes)

        def moves(carried: Values) -> ir.Value:
            """Whether the vector there is not the first one, and does not stay as it is."""
            (place,) = carried
            end = self._load(self.found[0], add(place, self.lanes - 1))
            is_behind = compare("ne", place, first)
            stays_whole = compare(stays, end, here)
            return choose(stays_whole, splat(stays_whole.type, 0), is_behind)

        def step(carried: Values) -> Values:
            self._move(new, stays, carried[0], is_first=False)
            return [subtract(carried[0], self.lanes)]

        if self.vectors > 1:
            (place,) = repeat([place], moves, step)
        when(compare("eq", place, first), lambda: self._move(new, stays, first, is_first=True))

    def _move(self, new: Values, stays: str, place: ir.Value, *, is_first: bool) -> None:
        """Put key and position, in all lanes of `new`, into the vectors at `place`."""
        before = subtract(place, 1)
        old, moved = (
            [vector.LoadOp(self._words(), found, [at]).result for found in self.found]
            for at in (place, before)
        )
        keeps = compare(stays, old[0], new[0])
        takes = compare(stays, moved[0], new[0])
        if is_first:
            takes = arith.OrIOp(takes, self._first_lane()).result
        for found, mine, shifted, value in zip(self.found, old, moved, new, strict=True):
            vector.StoreOp(choose(keeps, mine, choose(takes, value, shifted)), found, [place])

    def _first_lane(self) -> ir.Value:
        """True in the first lane alone."""
        kind = ir.VectorType.get([self.lanes], ir.IntegerType.get_signless(1))
        flags = [ir.BoolAttr.get(lane == 0) for lane in range(self.lanes)]
        return self.nest.constant(ir.DenseElementsAttr.get(flags, kind))

    def _last(self) -> ir.Value:
        """The key of the last element found."""
        return self._load(self.found[0], index(self.lanes + self.count - 1))

    def _key_at(self, position: ir.Value) -> ir.Value:
        """The key of an element, as a word."""
        narrow = key(self._load(self.source, add(self.base, position)), self.selection)
        return narrow if narrow.type == self.word else arith.ExtSIOp(self.word, narrow).result

    def _narrow(self, word: ir.Value) -> ir.Value:
        """A word that is the key of an element, in the type of keys."""
        kind = ir.IntegerType.get_signless(self.element.width)
        return word if kind == self.word else arith.TruncIOp(kind, word).result

    def _keys(self, position: ir.Value) -> ir.Value:
        """The keys of a vector of elements."""
        kind = ir.VectorType.get([self.width], self.element)
        elements = vector.LoadOp(kind, self.source, [add(self.base, position)]).result
        return key(elements, self.selection)

    def _write(self, base: ir.Value) -> None:
        """Write the elements found, and their positions."""
        kind = self.positions.type.element_type

        def element(number: ir.Value) -> None:
            word = self._load(self.found[1], add(number, self.lanes))
            position = arith.IndexCastOp(ir.IndexType.get(), word).result
            value = self._load(self.source, add(self.base, position))
            place = add(base, number)
            memref.StoreOp(value, self.values, [place])
            memref.StoreOp(arith.IndexCastOp(kind, position).result, self.positions, [place])

        each(self.count, element)

    def _words(self) -> ir.Type:
        return ir.VectorType.get([self.lanes], self.word)

    @staticmethod
    def _load(buffer: ir.Value, place: ir.Value) -> ir.Value:
        return memref.LoadOp(buffer, [place]).result
