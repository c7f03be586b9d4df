"""Transforms of length N1 N2 as many short ones, all lanes of a vector within one transform."""

from __future__ import annotations

from collections.abc import Sequence

from stepwell.dialects import stablehlo as hlo
from stepwell.mlir import ir
from stepwell.passes.linalg import _half_spectra as half_spectra
from stepwell.passes.linalg import _loops as loops
from stepwell.passes.linalg import _vectors as vectors
from stepwell.passes.linalg._butterflies import Complex, times
from stepwell.passes.linalg._fourier_call import LONGEST, FourierCall, blocks, twice
from stepwell.passes.linalg._fourier_passes import neighbours, reader, scratch
from stepwell.passes.linalg._loops import Values


class SplitTransform:
    """x[j1 N2 + j2] is transformed along j1 to [k1, j2], and that along j2 to [k2, k1].

    What is carried from one transform to the next is the result, by parts the middle [k1, j2] and
    lines, and buffers of the passes. Where source and result are in no cache they are read to and
    written from lines, in the order in which they lie in memory: what comes next is there by then.
    """

    def __init__(self, call: FourierCall) -> None:
        self.call, self.lanes = call, call.lanes
        self.first, self.second = call.first, call.second
        self.down, self.across = call.passes(call.first), call.passes(call.second)
        self.source = hlo.reshape(call.source, [call.outer, 2 * call.given])
        self.streams = call.streams and call.length <= LONGEST
        self.has_lines = self.streams or call.from_real

    def build(self) -> ir.Value:
        """The loops over all transforms; returns their result."""
        call = self.call
        result = loops.empty([call.outer, 2 * call.made], call.element)
        middle = [loops.empty([call.length], call.element) for _ in range(2)]
        lines = [loops.empty([call.made], call.element) for _ in range(2 if self.has_lines else 0)]
        pairs = max(self.down.pairs, 1 + self.across.pairs)
        rows = max(self.first, self.second)
        buffers = [x for _ in range(pairs) for x in scratch(rows, self.lanes, call.element)]
        end = 3 + len(lines)

        def transform(point: Values, values: Values) -> Values:
            result, middle = values[:1], values[1:3]
            lines, buffers = values[3:end], values[end:]
            if self.streams:
                lines = self._read_line(point[0], lines)
            middle, buffers = self._columns(point[0], lines, middle, buffers)
            if not self.has_lines:
                result, buffers = self._rows(point[0], middle, result, buffers)
                return [*result, *middle, *buffers]
            lines, buffers = self._rows(point[0], middle, lines, buffers)
            lines, result = self._write_line(point[0], lines, result)
            return [*result, *middle, *lines, *buffers]

        return loops.nest([call.outer], [result, *middle, *lines, *buffers], transform)[0]

    def _read_line(self, outer: ir.Value, lines: Values) -> Values:
        """The source's row, by parts, to the lines."""

        def block(number: Values, values: Values) -> Values:
            start = self.call.start(number[0], self.call.length)
            return _write(self._source(outer, start), values, start)

        return loops.nest([blocks(self.call.length, self.lanes)], lines, block)

    def _source(self, outer: ir.Value, start: ir.Value) -> Complex:
        """Neighbours of what is transformed, from the source."""
        call = self.call
        if call.to_real:
            return half_spectra.packed_line(
                self.source, outer, start, call.length, call.turns, self.lanes
            )
        return call.apart(vectors.read(self.source, [outer, twice(start)], 2 * self.lanes))

    def _columns(
        self, outer: ir.Value, lines: Values, middle: Values, buffers: Values
    ) -> tuple[Values, Values]:
        """The transforms along j1, times roots of unity, to the middle."""
        call = self.call

        def block(number: Values, values: Values) -> Values:
            start = call.start(number[0], self.second)

            def load(row: ir.Value) -> Complex:
                place = self._place(row, self.second, start)
                return self._read(lines, place) if self.streams else self._source(outer, place)

            def store(value: Complex, pair: Values, row: ir.Value) -> Values:
                turned = times(value, neighbours(call.twiddles, [row, start], self.lanes))
                return _write(turned, pair, self._place(row, self.second, start))

            return self.down.between(load, store, values[:2], values[2:])

        count = blocks(self.second, self.lanes)
        done = loops.nest([count], [*middle, *buffers], block)
        return done[:2], done[2:]

    def _rows(
        self, outer: ir.Value, middle: Values, target: Values, buffers: Values
    ) -> tuple[Values, Values]:
        """The transforms along j2, to the lines or to the result."""
        call, count = self.call, len(target)

        def block(number: Values, values: Values) -> Sequence[ir.Value]:
            column = call.start(number[0], self.first)
            square, rest = values[count : count + 2], values[count + 2 :]

            def load(row: ir.Value, start: ir.Value) -> Complex:
                return self._read(middle, self._place(loops.add(column, row), self.second, start))

            def store(value: Complex, target: Values, row: ir.Value) -> Values:
                place = self._place(row, self.first, column)
                if self.has_lines:
                    return _write(value, target, place)
                both = call.together(value)
                return [vectors.write(both, target[0], [outer, twice(place)])]

            square = call.load_squares(load, self.second, square)
            read = reader(square, self.lanes)
            done = self.across.between(read, store, values[:count], rest)
            return [*done[:count], *square, *done[count:]]

        done = loops.nest([blocks(self.first, self.lanes)], [*target, *buffers], block)
        return done[:count], done[count:]

    def _write_line(self, outer: ir.Value, lines: Values, result: Values) -> tuple[Values, Values]:
        """The lines to the result's row, as the spectrum of a real signal where it is one."""
        call = self.call
        if call.from_real:
            first = [loops.extract(line, [loops.index(0)]) for line in lines]
            end = [loops.index(call.length)]
            lines = [loops.insert(x, line, end) for x, line in zip(first, lines, strict=True)]

        def block(number: Values, values: Values) -> Values:
            start = call.start(number[0], call.made)
            if call.from_real:
                value = half_spectra.spectrum_of_line(
                    lines, start, call.length, call.turns, self.lanes
                )
            else:
                value = self._read(lines, start)
            return [vectors.write(call.together(value), values[0], [outer, twice(start)])]

        return lines, loops.nest([blocks(call.made, self.lanes)], result, block)

    def _place(self, row: ir.Value, width: int, column: ir.Value) -> ir.Value:
        return loops.add(loops.multiply(row, loops.index(width)), column)

    def _read(self, lines: Values, place: ir.Value) -> Complex:
        return Complex(*(vectors.read(line, [place], self.lanes) for line in lines))


def _write(value: Complex, lines: Values, place: ir.Value) -> Values:
    return [vectors.write(part, line, [place]) for part, line in zip(value, lines, strict=True)]
