"""`legalize-fourier`: discrete Fourier transforms as loops over vectors of independent transforms.

    %y = stablehlo.custom_call @stepwell.fourier(%x) {inverse = false}
        : (tensor<OxNxIx2xf32>) -> tensor<OxNxIx2xf32>

transforms x[O, N, I] of complex numbers, by parts, along N. Each lane of a vector is a transform of
its own: neighbours along I, or along O where I is 1. A single long transform becomes many short
ones, N = N1 N2: those of the columns of an N1 x N2 matrix, times roots of unity, and then those of
its rows (D. H. Bailey, "FFTs in external or hierarchical memory", 1990).

The vectors of a block go to a scratch buffer [N, lanes] for the real and one for the imaginary
parts, and from there to a second pair and back, in one pass for each factor 4, 2, 3, 5, .. of N
(Stockham's form, which needs no reordering: C. Van Loan, "Computational Frameworks for the Fast
Fourier Transform", 1992). An inverse transform is one with real and imaginary parts exchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.dialects.fourier import CALL, factors, roots
from stepwell.mlir import ir
from stepwell.passes.base import Pass, State
from stepwell.passes.linalg import _loops as loops
from stepwell.passes.linalg import _vectors as vectors
from stepwell.passes.linalg._butterflies import Complex, butterfly, times
from stepwell.passes.linalg._loops import Values

_LONGEST = 4096
"""Transforms of this length, a vector of them, stay in the second level of the cache."""


@dataclass(frozen=True)
class LegalizeFourier(Pass):
    """Rewrite every call of a transform inside a function."""

    name: ClassVar[str] = "legalize-fourier"
    anchor: ClassVar[str] = "func.func"

    def run(self, op: ir.Operation, state: State) -> None:
        def build(call: ir.Operation) -> Values | None:
            if ir.StringAttr(call.attributes["call_target_name"]).value != CALL:
                return None
            return _Plan(call, op, state).build()

        loops.rewrite_operations(op, {"stablehlo.custom_call": build})


class _Plan:
    """How one call is computed: sizes, lanes, and tables of roots of unity, which are constants at
    the beginning of the function."""

    def __init__(self, op: ir.Operation, function: ir.Operation, state: State) -> None:
        self.source = op.operands[0]
        self.shape = loops.shape_of(self.source)
        self.outer, self.length, self.inner, _ = self.shape
        self.element = loops.element_of(self.source)
        self.inverse = ir.BoolAttr(op.attributes["inverse"]).value
        double = isinstance(self.element, ir.F64Type)
        widest = state.target.vector_lanes // (2 if double else 1)
        self.first = 1
        """N1 of a transform that is split, else 1."""
        if self.inner == 1 and (self.length > _LONGEST or self.outer < widest):
            self.first = _first_factor(self.length, widest)
        if self.first > 1:
            self.lanes = widest
        else:
            self.lanes = _power_of_two(
                min(widest, self.inner if self.inner > 1 else min(self.outer, self.length))
            )
        kind = np.dtype(np.float64 if double else np.float32)

        def constant(values: np.ndarray) -> ir.Value:
            parts = np.stack([np.real(values), np.imag(values)]).astype(kind)
            return hlo.constant(parts, state.weights, "roots")

        entry = function.regions[0].blocks[0]
        with ir.InsertionPoint.at_block_begin(entry), op.location:
            sizes = {self.first, self.length // self.first} - {1}
            self.tables = {size: constant(_stage_roots(size)) for size in sorted(sizes)}
            if self.first > 1:
                second = self.length // self.first
                exponents = np.multiply.outer(np.arange(self.first), np.arange(second))
                self.twiddles = constant(roots(exponents, self.length))

    def build(self) -> Values:
        """The loops; returns the transform."""
        if self.first > 1:
            result = self._split()
        elif self.inner > 1:
            result = self._columns()
        else:
            result = self._rows()
        return [hlo.reshape(result, self.shape)]

    # --- The three ways ---------------------------------------------------------------------------

    def _columns(self) -> ir.Value:
        """Lanes along I."""
        shape = [self.outer, self.length, 2 * self.inner]
        source = hlo.reshape(self.source, shape)

        def block(point: Values, values: Values) -> Sequence[ir.Value]:
            outer, start = point[0], self._start(point[1], self.inner)
            scratch = self._load_columns(source, outer, start, self.length, values[1:])
            scratch = self._transformed(self.length, scratch)
            result = self._store_columns(scratch, values[0], outer, start, self.length)
            return [result, *scratch]

        blocks = [self.outer, self._blocks(self.inner)]
        carried = [loops.empty(shape, self.element), *self._scratch(self.length)]
        return loops.nest(blocks, carried, block)[0]

    def _rows(self) -> ir.Value:
        """Lanes along O: squares of lanes times lanes elements are transposed on both ways."""
        shape = [self.outer, 2 * self.length]
        source = hlo.reshape(self.source, shape)

        def block(point: Values, values: Values) -> Sequence[ir.Value]:
            first = self._start(point[0], self.outer)

            def load(row: ir.Value, start: ir.Value) -> Complex:
                position = [loops.add(first, row), _twice(start)]
                return self._apart(vectors.read(source, position, 2 * self.lanes))

            scratch = self._load_squares(load, self.length, values[1:])
            scratch = self._transformed(self.length, scratch)
            done = self._done(self.length, scratch)

            def store(number: Values, result: Values) -> Sequence[ir.Value]:
                start = self._start(number[0], self.length)
                read = [self._read(done, loops.add(start, loops.index(j))) for j in self._all()]
                rows = [vectors.transposed([r[part] for r in read]) for part in range(2)]
                written = result[0]
                for lane, parts in enumerate(zip(*rows, strict=True)):
                    position = [loops.add(first, loops.index(lane)), _twice(start)]
                    value = self._together(Complex(*parts))
                    written = vectors.write(value, written, position)
                return [written]

            result = loops.nest([self._blocks(self.length)], values[:1], store)
            return [*result, *scratch]

        carried = [loops.empty(shape, self.element), *self._scratch(self.length)]
        return loops.nest([self._blocks(self.outer)], carried, block)[0]

    def _split(self) -> ir.Value:
        """x[j1 N2 + j2] is transformed along j1 to [k1, j2], and that along j2 to [k2, k1]."""
        first, second = self.first, self.length // self.first
        source = hlo.reshape(self.source, [self.outer, first, 2 * second])
        middle = [loops.empty([first, second], self.element) for _ in range(2)]

        def transform(point: Values, values: Values) -> Sequence[ir.Value]:
            result, halves, scratch = values[0], values[1:3], values[3:7]
            others = values[7:] or scratch

            def down(number: Values, values: Values) -> Sequence[ir.Value]:
                start = self._start(number[0], second)
                inner = self._load_columns(source, point[0], start, first, values[2:])
                inner = self._transformed(first, inner)
                done = self._done(first, inner)

                def turn(row: Values, halves: Values) -> Sequence[ir.Value]:
                    position = [row[0], start]
                    value = times(self._read(done, row[0]), self._twiddle(position))
                    return [
                        vectors.write(part, half, position)
                        for part, half in zip(value, halves, strict=True)
                    ]

                return [*loops.nest([first], values[:2], turn), *inner]

            blocks = [self._blocks(second)]
            *halves, s0, s1, s2, s3 = loops.nest(blocks, [*halves, *scratch], down)
            scratch = [s0, s1, s2, s3]

            def across(number: Values, values: Values) -> Sequence[ir.Value]:
                column = self._start(number[0], first)

                def load(row: ir.Value, start: ir.Value) -> Complex:
                    position = [loops.add(column, row), start]
                    return Complex(*(vectors.read(h, position, self.lanes) for h in halves))

                inner = self._load_squares(load, second, values[1:])
                inner = self._transformed(second, inner)
                return [self._store_columns(inner, values[0], point[0], column, second), *inner]

            blocks = [self._blocks(first)]
            used = others if first != second else scratch
            result, *used = loops.nest(blocks, [result, *used], across)
            return [result, *halves, *(scratch + used if first != second else used)]

        sizes = [first] if first == second else [first, second]
        carried = [
            loops.empty([self.outer, second, 2 * first], self.element),
            *middle,
            *(tensor for size in sizes for tensor in self._scratch(size)),
        ]
        return loops.nest([self.outer], carried, transform)[0]

    # --- Passes -----------------------------------------------------------------------------------

    def _transformed(self, length: int, scratch: Values) -> Values:
        """The passes over a block in the first two of four scratch tensors, which are returned in
        their order; `_done` says which have the result."""
        source, target = scratch[:2], scratch[2:]
        remaining, stride, offset = length, 1, 0
        for factor in factors(length) or []:
            remaining //= factor
            target = self._stage(length, source, target, (factor, remaining, stride, offset))
            source, target = target, source
            offset += remaining * (factor - 1)
            stride *= factor
        if self._swaps(length):
            source, target = target, source
        return [*source, *target]

    def _swaps(self, length: int) -> bool:
        """Whether the result of all passes is in the second pair of scratch tensors."""
        return len(factors(length) or []) % 2 == 1

    def _done(self, length: int, scratch: Values) -> Values:
        """The pair of scratch tensors with the result of all passes."""
        return scratch[2:] if self._swaps(length) else scratch[:2]

    def _stage(
        self, length: int, source: Values, target: Values, sizes: tuple[int, int, int, int]
    ) -> Values:
        """From [factor, m, stride] to [m, factor, stride]: transforms along the first dimension,
        times exp(-2 pi i p k / (factor m))."""
        factor, count, stride, offset = sizes

        def group(point: Values, values: Values) -> Sequence[ir.Value]:
            p = point[0]
            twiddles = [
                self._root(length, loops.add(_times(p, factor - 1), loops.index(offset + k)))
                for k in range(factor - 1)
            ]

            def element(inner: Values, values: Values) -> Sequence[ir.Value]:
                begin = loops.add(inner[0], _times(p, stride))
                read = [
                    self._read(source, loops.add(begin, loops.index(stride * count * k)))
                    for k in range(factor)
                ]
                results = butterfly(read)
                begin = loops.add(inner[0], _times(p, stride * factor))
                for k, value in enumerate(results):
                    turned = times(value, twiddles[k - 1]) if k and count > 1 else value
                    values = self._write(turned, values, loops.add(begin, loops.index(stride * k)))
                return values

            return loops.nest([stride], values, element)

        return loops.nest([count], target, group)

    def _root(self, length: int, position: ir.Value) -> Complex:
        table = self.tables[length]
        parts = (loops.extract(table, [loops.index(part), position]) for part in range(2))
        return Complex(*(vectors.broadcast(part, self.lanes) for part in parts))

    def _twiddle(self, position: Values) -> Complex:
        return Complex(
            *(
                vectors.read(self.twiddles, [loops.index(part), *position], self.lanes)
                for part in range(2)
            )
        )

    # --- Loads and stores -------------------------------------------------------------------------

    def _load_columns(
        self, source: ir.Value, outer: ir.Value, start: ir.Value, length: int, scratch: Values
    ) -> Values:
        """source[outer, :, start..] of parts side by side to scratch."""

        def load(point: Values, values: Values) -> Sequence[ir.Value]:
            position = [outer, point[0], _twice(start)]
            value = self._apart(vectors.read(source, position, 2 * self.lanes))
            return self._write(value, values, point[0])

        return [*loops.nest([length], scratch[:2], load), *scratch[2:]]

    def _store_columns(
        self, scratch: Values, result: ir.Value, outer: ir.Value, start: ir.Value, length: int
    ) -> ir.Value:
        """Scratch to result[outer, :, start..]."""
        done = self._done(length, scratch)

        def store(point: Values, values: Values) -> Sequence[ir.Value]:
            value = self._together(self._read(done, point[0]))
            return [vectors.write(value, values[0], [outer, point[0], _twice(start)])]

        return loops.nest([length], [result], store)[0]

    def _load_squares(
        self, load: Callable[[ir.Value, ir.Value], Complex], length: int, scratch: Values
    ) -> Values:
        """Rows, of which `load` gives the lanes from a start on, to the lanes of scratch."""

        def square(number: Values, values: Values) -> Sequence[ir.Value]:
            start = self._start(number[0], length)
            rows = [load(loops.index(lane), start) for lane in self._all()]
            columns = [vectors.transposed([row[part] for row in rows]) for part in range(2)]
            for j, parts in enumerate(zip(*columns, strict=True)):
                values = self._write(Complex(*parts), values, loops.add(start, loops.index(j)))
            return values

        return [*loops.nest([self._blocks(length)], scratch[:2], square), *scratch[2:]]

    def _apart(self, both: ir.Value) -> Complex:
        real, imaginary = vectors.even_and_odd(both)
        return Complex(imaginary, real) if self.inverse else Complex(real, imaginary)

    def _together(self, value: Complex) -> ir.Value:
        if not self.inverse:
            return vectors.interleaved(*value)
        scaled = [vectors.scaled(part, 1 / self.length) for part in value]
        return vectors.interleaved(scaled[1], scaled[0])

    def _read(self, scratch: Values, row: ir.Value) -> Complex:
        position = [row, loops.index(0)]
        return Complex(*(vectors.read(half, position, self.lanes) for half in scratch))

    def _write(self, value: Complex, scratch: Values, row: ir.Value) -> Values:
        position = [row, loops.index(0)]
        return [
            vectors.write(part, half, position) for part, half in zip(value, scratch, strict=True)
        ]

    def _scratch(self, length: int) -> Values:
        return [loops.empty([length, self.lanes], self.element) for _ in range(4)]

    def _all(self) -> range:
        return range(self.lanes)

    def _blocks(self, size: int) -> int:
        return -(-size // self.lanes)

    def _start(self, block: ir.Value, size: int) -> ir.Value:
        """Where a block begins; the last one ends where the dimension does."""
        start = _times(block, self.lanes)
        return (
            start
            if size % self.lanes == 0
            else loops.minimum(start, loops.index(size - self.lanes))
        )


def _times(value: ir.Value, factor: int) -> ir.Value:
    return loops.multiply(value, loops.index(factor))


def _twice(value: ir.Value) -> ir.Value:
    return _times(value, 2)


def _power_of_two(limit: int) -> int:
    """The greatest power of two up to `limit`."""
    return 1 << (limit.bit_length() - 1)


def _first_factor(length: int, least: int) -> int:
    """The divisor nearest to the square root from below, if it and the other one are at least
    `least`, else 1."""
    divisors = [d for d in range(least, int(length**0.5) + 1) if length % d == 0]
    return divisors[-1] if divisors else 1


def _stage_roots(length: int) -> np.ndarray:
    """The roots of all passes one after another: [p, k] for k from 1 to the factor less one."""
    parts, remaining = [], length
    for factor in factors(length) or []:
        size, remaining = remaining, remaining // factor
        exponents = np.multiply.outer(np.arange(remaining), np.arange(1, factor))
        parts.append(roots(exponents, size).reshape(-1))
    return np.concatenate(parts)
