"""One call of a Fourier transform: what it is of, and how its lanes are read and written."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.dialects.fourier import roots
from stepwell.mlir import ir
from stepwell.passes.base import State
from stepwell.passes.linalg import _half_spectra as half_spectra
from stepwell.passes.linalg import _loops as loops
from stepwell.passes.linalg import _vectors as vectors
from stepwell.passes.linalg._butterflies import Complex
from stepwell.passes.linalg._fourier_passes import Passes, stage_roots, write
from stepwell.passes.linalg._loops import Values

LONGEST = 4096
"""Transforms of this length, a vector of them, stay in the second level of the cache."""

_STAYING = 64
"""Those of this length stay in the first one."""

_MOVED = 1.4
"""How many times as long transforms take that do not."""


class FourierCall:
    """Sizes, lanes, and tables of roots of unity, which are constants at the beginning of the
    function. `length` complex numbers are transformed, `given` are read and `made` are written."""

    def __init__(self, op: ir.Operation, function: ir.Operation, state: State) -> None:
        self.source = op.operands[0]
        self.shape = loops.shape_of(op.results[0])
        self.element = loops.element_of(self.source)
        self.inverse = ir.BoolAttr(op.attributes["inverse"]).value
        self.outer, count, self.inner, parts = loops.shape_of(self.source)
        self.from_real, self.to_real = parts == 1, self.shape[-1] == 1
        self.length = count // 2 if self.from_real else count - self.to_real
        self.given, self.made = self.length + self.to_real, self.length + self.from_real
        self.registers = state.target.vector_registers
        double = isinstance(self.element, ir.F64Type)
        kind = np.dtype(np.float64 if double else np.float32)
        moved = 2 * self.outer * (self.given + self.made) * kind.itemsize
        self.streams = moved > state.target.l3_bytes // 2
        """Whether source and result are in no cache that is near."""
        widest = state.target.vector_lanes // (2 if double else 1)
        self.first = self._first_factor(widest)
        """N1 of a transform that is split, else 1."""
        self.second = self.length // self.first
        self.lanes = widest
        if self.first == 1:
            others = self.inner if self.inner > 1 else min(self.outer, self.length)
            self.lanes = power_of_two(min(widest, others))

        def constant(values: np.ndarray) -> ir.Value:
            parts = np.stack([np.real(values), np.imag(values)]).astype(kind)
            return hlo.constant(parts, state.weights, "roots")

        entry = function.regions[0].blocks[0]
        with ir.InsertionPoint.at_block_begin(entry), op.location:
            sizes = sorted({self.first, self.second} - {1})
            self.tables = {n: constant(stage_roots(n, self.registers)) for n in sizes}
            if self.first > 1:
                exponents = np.multiply.outer(np.arange(self.first), np.arange(self.second))
                self.twiddles = constant(roots(exponents, self.length))
            if self.from_real or self.to_real:
                self.turns = constant(half_spectra.turns(self.length, inverse=self.to_real))

    def _first_factor(self, lanes: int) -> int:
        """N1 of two factors of at least `lanes`, of which blocks of `lanes` leave little over; 1
        where lanes had better be whole transforms."""
        sizes = range(lanes, self.length // lanes + 1)
        divisors = [first for first in sizes if self.length % first == 0]
        if self.inner > 1 or not divisors:
            return 1

        def excess(size: int) -> float:
            return blocks(size, lanes) * lanes / size

        def cost(first: int) -> tuple[float, int]:
            second = self.length // first
            return excess(first) + excess(second), abs(first - second)

        best = min(divisors, key=cost)
        whole = excess(self.outer) * (_MOVED if self.length > _STAYING else 1.0)
        return best if self.length > LONGEST or cost(best)[0] / 2 < whole else 1

    def passes(self, length: int) -> Passes:
        """The passes of transforms of a `length` that there is a table for."""
        return Passes(length, self.lanes, self.registers, self.element, self.tables.get(length))

    def start(self, block: ir.Value, size: int) -> ir.Value:
        """Where a block begins; the last one ends where the dimension does."""
        start = loops.multiply(block, loops.index(self.lanes))
        if size % self.lanes == 0:
            return start
        return loops.minimum(start, loops.index(size - self.lanes))

    def apart(self, both: ir.Value) -> Complex:
        """Numbers by parts that lie side by side, as a forward transform takes them."""
        parts = Complex(*vectors.even_and_odd(both))
        return half_spectra.exchanged(parts) if self.inverse and not self.to_real else parts

    def together(self, value: Complex) -> ir.Value:
        """The inverse of `apart` for results; those of inverse transforms are scaled."""
        if not self.inverse:
            return vectors.interleaved(*value)
        scale = 1 if self.to_real else 1 / self.length
        return vectors.interleaved(*(vectors.scaled(x, scale) for x in reversed(value)))

    def load_squares(
        self, load: Callable[[ir.Value, ir.Value], Complex], length: int, pair: Values
    ) -> Values:
        """Rows, of which `load` gives the lanes from a start on, to the lanes of scratch."""

        def square(number: Values, values: Values) -> Values:
            start = self.start(number[0], length)
            rows = [load(loops.index(lane), start) for lane in range(self.lanes)]
            columns = [vectors.transposed([row[part] for row in rows]) for part in range(2)]
            for j, parts in enumerate(zip(*columns, strict=True)):
                values = write(Complex(*parts), values, loops.add(start, loops.index(j)))
            return values

        return loops.nest([blocks(length, self.lanes)], pair, square)


def twice(value: ir.Value) -> ir.Value:
    """2 value."""
    return loops.multiply(value, loops.index(2))


def blocks(size: int, lanes: int) -> int:
    """How many blocks of `lanes` cover a dimension."""
    return -(-size // lanes)


def power_of_two(limit: int) -> int:
    """The greatest power of two up to `limit`."""
    return 1 << (limit.bit_length() - 1)
