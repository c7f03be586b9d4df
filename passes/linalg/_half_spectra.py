"""Real signals by way of complex transforms of half their length M.

Of z[j] = x[2 j] + i x[2 j + 1], transformed to Z, and the spectrum X of x, with w = exp(-pi i / M):

    X[k] = (Z[k] + conj Z[M - k]) / 2 - i w^k (Z[k] - conj Z[M - k]) / 2    (Z[M] is Z[0])
    Z[k] = (X[k] + conj X[M - k]) / 2 + i w^-k (X[k] - conj X[M - k]) / 2

(H. V. Sorensen et al., "Real-valued fast Fourier transform algorithms", 1987). Transforms are the
lanes of rows, or neighbours of one transform are.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stepwell.dialects.fourier import roots
from stepwell.mlir import ir
from stepwell.passes.linalg import _loops as loops
from stepwell.passes.linalg import _vectors as vectors
from stepwell.passes.linalg._butterflies import Complex, add, conjugate, subtract, times
from stepwell.passes.linalg._fourier_passes import neighbours, reader, root, write
from stepwell.passes.linalg._loops import Values


def turns(length: int, *, inverse: bool) -> np.ndarray:
    """What the differences are multiplied by, for k from 0 to `length`; of an inverse transform
    divided by that."""
    forward = -0.5j * roots(np.arange(length + 1), 2 * length)
    return forward.conj() / length if inverse else forward


def combined(x: Complex, opposite: Complex, turn: Complex, scale: float) -> Complex:
    """scale (x + conj opposite) + turn (x - conj opposite)."""
    mirrored = conjugate(opposite)
    even, odd = add(x, mirrored), times(subtract(x, mirrored), turn)
    return Complex(
        *(
            vectors.fma(part, vectors.full(scale, part), rest)
            for part, rest in zip(even, odd, strict=True)
        )
    )


def exchanged(x: Complex) -> Complex:
    """x with its parts exchanged."""
    return Complex(x.imaginary, x.real)


def spectrum_of_rows(
    source: Values, target: Values, table: ir.Value, length: int, lanes: int
) -> tuple[Values, Values]:
    """Both pairs of scratch, the second with the rows of X from the rows of Z in the first."""
    first = reader(source, lanes)(loops.index(0))
    source = write(first, source, loops.index(length))
    read = reader(source, lanes)

    def combine(point: Values, values: Values) -> Sequence[ir.Value]:
        opposite = loops.subtract(loops.index(length), point[0])
        turn = root(table, point[0], lanes)
        return write(combined(read(point[0]), read(opposite), turn, 0.5), values, point[0])

    return source, loops.nest([length + 1], target, combine)


def packed_rows(
    source: Values, target: Values, table: ir.Value, length: int, lanes: int
) -> tuple[Values, Values]:
    """Both pairs of scratch, the second with the rows of Z, its parts exchanged, from the rows of X
    in the first. Imaginary parts of its first and its last row do not count."""
    for row in (0, length):
        real = reader(source, lanes)(loops.index(row)).real
        source = write(Complex(real, vectors.full(0.0, real)), source, loops.index(row))
    read, scale = reader(source, lanes), 0.5 / length

    def combine(point: Values, values: Values) -> Sequence[ir.Value]:
        opposite = loops.subtract(loops.index(length), point[0])
        turn = root(table, point[0], lanes)
        value = combined(read(point[0]), read(opposite), turn, scale)
        return write(exchanged(value), values, point[0])

    return source, loops.nest([length], target, combine)


def spectrum_of_line(
    source: Values, start: ir.Value, length: int, table: ir.Value, lanes: int
) -> Complex:
    """A vector of X from `start` on; `source` holds Z by parts."""
    opposite = loops.subtract(loops.index(length + 1 - lanes), start)
    ahead = Complex(*(vectors.read(part, [start], lanes) for part in source))
    behind = Complex(*(vectors.backwards(vectors.read(p, [opposite], lanes)) for p in source))
    return combined(ahead, behind, neighbours(table, [start], lanes), 0.5)


def packed_line(
    source: ir.Value, outer: ir.Value, start: ir.Value, length: int, table: ir.Value, lanes: int
) -> Complex:
    """A vector of Z, its parts exchanged, from `start` on; `source[outer]` holds X, the parts of
    each number side by side."""

    def parts(begin: ir.Value) -> Complex:
        position = [outer, loops.multiply(begin, loops.index(2))]
        return Complex(*vectors.even_and_odd(vectors.read(source, position, 2 * lanes)))

    ahead = parts(start)
    opposite = parts(loops.subtract(loops.index(length + 1 - lanes), start))
    behind = Complex(*(vectors.backwards(part) for part in opposite))
    at_start = loops.compare(start, "EQ", loops.index(0))
    idle = loops.choose(at_start, loops.index(1), loops.index(0))
    ahead, behind = (
        Complex(x.real, vectors.without_first(x.imaginary, idle)) for x in (ahead, behind)
    )
    turn = neighbours(table, [start], lanes)
    return exchanged(combined(ahead, behind, turn, 0.5 / length))
