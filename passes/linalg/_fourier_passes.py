"""Stockham's passes: transforms of one length, each lane of a vector one of its own.

A pass for a factor r of the length takes [r, m, s] to [m, r, s]: transforms along the first
dimension, times exp(-2 pi i p k / (r m)) (C. Van Loan, "Computational Frameworks for the Fast
Fourier Transform", 1992). What the first pass reads and the last one writes may be anywhere, what
is between goes to scratch [length, lanes], the real parts in one buffer, the imaginary in another.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from stepwell.dialects.fourier import FACTORS, roots
from stepwell.mlir import ir
from stepwell.passes.linalg import _loops as loops
from stepwell.passes.linalg import _vectors as vectors
from stepwell.passes.linalg._butterflies import Complex, butterfly, times
from stepwell.passes.linalg._loops import Values

_LARGEST_RADIX = 16
_SPARE_PART = 0.75
"""Of the registers: what a butterfly's elements may take, so that its terms fit beside them."""

Load = Callable[[ir.Value], Complex]
"""The vector at a row of what is transformed."""

Store = Callable[[Complex, Values, ir.Value], Values]
"""The tensors with a vector written at a row of the result."""


@dataclass(frozen=True)
class Passes:
    """Transforms of `length` vectors of `lanes`; `table` is `stage_roots` by parts, None for a
    length of 1."""

    length: int
    lanes: int
    registers: int
    element: ir.Type
    table: ir.Value | None

    @property
    def radices(self) -> tuple[int, ...]:
        """The factors of the length, of one pass each."""
        return radices(self.length, self.registers)

    @property
    def pairs(self) -> int:
        """Pairs of buffers that `between` needs."""
        return max(0, min(len(self.radices) - 1, 2))

    def buffers(self) -> Values:
        """Scratch of `between`."""
        pairs = [scratch(self.length, self.lanes, self.element) for _ in range(self.pairs)]
        return [buffer for pair in pairs for buffer in pair]

    def between(self, load: Load, store: Store, target: Values, buffers: Values) -> Values:
        """Transform from where `load` reads to where `store` writes, tensors of `target`; returns
        these and the buffers."""
        if self.length == 1:
            row = loops.index(0)
            return [*store(load(row), target, row), *buffers]
        pairs = [buffers[start : start + 2] for start in range(0, len(buffers), 2)]
        last, read = len(self.radices) - 1, load
        for number, sizes in enumerate(self._sizes()):
            if number == last:
                target = self._pass(read, store, target, sizes)
                break
            written = self._pass(read, write, pairs[number % 2], sizes)
            pairs[number % 2] = written
            read = reader(written, self.lanes)
        return [*target, *(part for pair in pairs for part in pair)]

    def in_scratch(self, source: Values, target: Values) -> tuple[Values, Values]:
        """The pairs of scratch after a transform of the first one, in the same order; `ends_in`
        says which has the result."""
        pairs = [source, target]
        for number, sizes in enumerate(self._sizes()):
            read = reader(pairs[number % 2], self.lanes)
            pairs[1 - number % 2] = self._pass(read, write, pairs[1 - number % 2], sizes)
        return pairs[0], pairs[1]

    @property
    def ends_in(self) -> int:
        """The pair with the result of `in_scratch`: 0 or 1."""
        return len(self.radices) % 2

    def _sizes(self) -> Iterator[tuple[int, int, int, int]]:
        """Of each pass: its radix, m, s, and the place of its roots in the table."""
        remaining, stride, offset = self.length, 1, 0
        for radix in self.radices:
            remaining //= radix
            yield radix, remaining, stride, offset
            offset += remaining * (radix - 1)
            stride *= radix

    def _pass(
        self, load: Load, store: Store, target: Values, sizes: tuple[int, int, int, int]
    ) -> Values:
        radix, count, stride, offset = sizes

        def group(point: Values, values: Values) -> Sequence[ir.Value]:
            p = point[0]
            places = range(offset, offset + (radix - 1 if count > 1 else 0))
            twiddles = [
                root(self.table, loops.add(_times(p, radix - 1), loops.index(place)), self.lanes)
                for place in places
            ]

            def element(inner: Values, values: Values) -> Sequence[ir.Value]:
                begin = loops.add(inner[0], _times(p, stride))
                rows = range(0, stride * count * radix, stride * count)
                results = butterfly([load(loops.add(begin, loops.index(row))) for row in rows])
                begin = loops.add(inner[0], _times(p, stride * radix))
                for k, value in enumerate(results):
                    turned = times(value, twiddles[k - 1]) if k and count > 1 else value
                    values = store(turned, values, loops.add(begin, loops.index(stride * k)))
                return values

            return loops.nest([stride], values, element)

        return loops.nest([count], target, group)


def scratch(length: int, lanes: int, element: ir.Type) -> Values:
    """A pair of buffers for so many rows."""
    return [loops.empty([length, lanes], element) for _ in range(2)]


def reader(pair: Values, lanes: int) -> Load:
    """What reads rows of a pair of buffers."""

    def read(row: ir.Value) -> Complex:
        position = [row, loops.index(0)]
        return Complex(*(vectors.read(half, position, lanes) for half in pair))

    return read


def write(value: Complex, pair: Values, row: ir.Value) -> Values:
    """The pair with a row written."""
    position = [row, loops.index(0)]
    return [vectors.write(part, half, position) for part, half in zip(value, pair, strict=True)]


def root(table: ir.Value, position: ir.Value, lanes: int) -> Complex:
    """One of a table of roots by parts, in all lanes."""
    parts = (loops.extract(table, [loops.index(part), position]) for part in range(2))
    return Complex(*(vectors.broadcast(part, lanes) for part in parts))


def neighbours(table: ir.Value, position: Values, lanes: int) -> Complex:
    """Neighbours of a table of roots by parts."""
    parts = (vectors.read(table, [loops.index(part), *position], lanes) for part in range(2))
    return Complex(*parts)


@functools.cache
def radices(length: int, registers: int) -> tuple[int, ...]:
    """The factors of `length` that one pass each is for: as few as there are registers for."""

    def cost(found: tuple[int, ...]) -> tuple[float, int]:
        spilled = (max(0.0, 2 * radix - _SPARE_PART * registers) / radix for radix in found)
        return len(found) + sum(spilled), max(found, default=1)

    return min(_products(length, length), key=cost)


def _products(length: int, largest: int) -> Iterator[tuple[int, ...]]:
    """The ways to write `length` as radices in descending order."""
    if length == 1:
        yield ()
    for radix in range(min(length, largest), 1, -1):
        if length % radix == 0 and (radix <= _LARGEST_RADIX or radix in FACTORS):
            for rest in _products(length // radix, radix):
                yield (radix, *rest)


def stage_roots(length: int, registers: int) -> np.ndarray:
    """The roots of all passes one after another: [p, k] for k from 1 to the radix less one."""
    parts, remaining = [], length
    for radix in radices(length, registers):
        size, remaining = remaining, remaining // radix
        exponents = np.multiply.outer(np.arange(remaining), np.arange(1, radix))
        parts.append(roots(exponents, size).reshape(-1))
    return np.concatenate(parts)


def _times(value: ir.Value, factor: int) -> ir.Value:
    return loops.multiply(value, loops.index(factor))
