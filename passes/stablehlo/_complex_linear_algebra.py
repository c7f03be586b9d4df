"""Cholesky factors and triangular systems of complex matrices, by their real and imaginary parts.

Loops over rows or columns, with products of all batches at once. Algorithms: Golub and Van Loan,
Matrix Computations, 4.2 (by columns) and 3.1 (row-oriented substitution).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.mlir import ir
from stepwell.passes.stablehlo import _complex_arithmetic as arithmetic
from stepwell.passes.stablehlo._complex_arithmetic import Pair


def adjoint(x: Pair) -> Pair:
    """The conjugate transpose of the last two dimensions."""
    turned = transposed(x)
    return Pair(turned.real, hlo.negate(turned.imaginary))


def transposed(x: Pair) -> Pair:
    """The last two dimensions exchanged."""
    rank = len(hlo.shape(x.real))
    order = [*range(rank - 2), rank - 1, rank - 2]
    return Pair(*(hlo.transpose(part, order) for part in x))


def cholesky(matrix: Pair, lower: bool) -> Pair:
    """The factor of Hermitian matrices [..., n, n], of which one triangle is read."""
    if not lower:
        return adjoint(cholesky(adjoint(matrix), True))
    shape = hlo.shape(matrix.real)
    size, axis = shape[-1], len(shape) - 1
    column_shape = [*shape[:-1], 1]
    rows = hlo.iota(column_shape, axis - 1, np.int32)

    def step(j: ir.Value, factor: Pair) -> Pair:
        row = adjoint(_taken(factor, j, axis - 1))
        rest = arithmetic.subtract(_taken(matrix, j, axis), _product(factor, row))
        pivot = hlo.sqrt(_taken(Pair(rest.real, rest.real), j, axis - 1).real)
        pivot = hlo.broadcast_in_dim(pivot, column_shape, range(axis + 1))
        at = hlo.broadcast_in_dim(j, column_shape, [])
        zero = hlo.full_like(rest.real, 0.0)
        below = hlo.compare(rows, at, "GE")
        diagonal = hlo.compare(rows, at, "EQ")
        real = hlo.select(below, hlo.divide(rest.real, pivot), zero)
        imaginary = hlo.select(below, hlo.divide(rest.imaginary, pivot), zero)
        imaginary = hlo.select(diagonal, zero, imaginary)
        return _updated(factor, Pair(real, imaginary), j, axis)

    return _loop(size, arithmetic.constant(matrix, 0.0), step)


def triangular_solve(matrix: Pair, right: Pair, lower: bool, unit_diagonal: bool) -> Pair:
    """X of matrix X = right, [..., n, n] and [..., n, k]; one triangle of the matrix is read."""
    rank = len(hlo.shape(matrix.real))
    axis = rank - 2
    if not lower:
        turned = Pair(*(hlo.reverse(part, [rank - 2, rank - 1]) for part in matrix))
        sides = Pair(*(hlo.reverse(part, [axis]) for part in right))
        solved = triangular_solve(turned, sides, True, unit_diagonal)
        return Pair(*(hlo.reverse(part, [axis]) for part in solved))
    shape = hlo.shape(matrix.real)
    columns = hlo.iota([*shape[:-2], 1, shape[-1]], rank - 1, np.int32)
    row_shape = [*hlo.shape(right.real)[:-2], 1, hlo.shape(right.real)[-1]]

    def step(i: ir.Value, solved: Pair) -> Pair:
        row = _taken(matrix, i, axis)
        pivot = _taken(row, i, rank - 1)
        before = hlo.compare(columns, hlo.broadcast_in_dim(i, hlo.shape(columns), []), "LT")
        row = arithmetic.choose(before, row, arithmetic.constant(row, 0.0))
        value = arithmetic.subtract(_taken(right, i, axis), _product(row, solved))
        if not unit_diagonal:
            spread = [hlo.broadcast_in_dim(part, row_shape, range(rank)) for part in pivot]
            value = arithmetic.divide(value, Pair(*spread))
        return _updated(solved, value, i, axis)

    return _loop(shape[-1], arithmetic.constant(right, 0.0), step)


def _loop(count: int, start: Pair, step: Callable[[ir.Value, Pair], Pair]) -> Pair:
    def more(i: ir.Value, real: ir.Value, imaginary: ir.Value) -> ir.Value:
        return hlo.compare(i, hlo.full_like(i, count), "LT")

    def body(i: ir.Value, real: ir.Value, imaginary: ir.Value) -> list[ir.Value]:
        return [hlo.add(i, hlo.full_like(i, 1)), *step(i, Pair(real, imaginary))]

    _, real, imaginary = hlo.while_loop([hlo.full(0, [], np.int32), *start], more, body)
    return Pair(real, imaginary)


def _starts(index: ir.Value, axis: int, rank: int) -> list[ir.Value]:
    zero = hlo.full_like(index, 0)
    return [index if d == axis else zero for d in range(rank)]


def _taken(x: Pair, index: ir.Value, axis: int) -> Pair:
    """One row or column, its dimension kept."""
    shape = hlo.shape(x.real)
    sizes = [1 if d == axis else n for d, n in enumerate(shape)]
    starts = _starts(index, axis, len(shape))
    return Pair(*(hlo.dynamic_slice(part, starts, sizes) for part in x))


def _updated(x: Pair, value: Pair, index: ir.Value, axis: int) -> Pair:
    starts = _starts(index, axis, len(hlo.shape(x.real)))
    parts = zip(x, value, strict=True)
    return Pair(*(hlo.dynamic_update_slice(part, new, starts) for part, new in parts))


def _product(x: Pair, y: Pair) -> Pair:
    rank = len(hlo.shape(x.real))
    batch = list(range(rank - 2))

    def of(a: ir.Value, b: ir.Value) -> ir.Value:
        return hlo.dot_general(a, b, ([rank - 1], [rank - 2]), (batch, batch))

    return Pair(
        hlo.subtract(of(x.real, y.real), of(x.imaginary, y.imaginary)),
        hlo.add(of(x.real, y.imaginary), of(x.imaginary, y.real)),
    )
