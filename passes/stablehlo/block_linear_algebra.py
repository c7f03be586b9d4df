"""`block-linear-algebra`: for GPUs, cholesky and triangular_solve of more than 32 rows as loops
over blocks of 32 rows, with products between them.

    %x = stablehlo.triangular_solve %a, %b {left_side, lower, NO_TRANSPOSE} : 1024x1024, 1024x64

    while i < 32:
      s = b[rows of i] - a[rows of i] . x                  // x is zero where it is not known yet
      x[rows of i] = triangular_solve a[block i, i], s     // 32 rows: a kernel of its own

A Cholesky factor L is made column by column of blocks, all that stands below at once:

    while i < 32:
      s = a[:, columns of i] - L . L[rows of i]'           // L is zero where it is not known yet
      L[:, columns of i] = the solution of x cholesky(s[rows of i])' = s, on and below the diagonal

Matrices whose rows are no multiple of 32 get rows and columns of the identity at their end. Only
the named triangle decides. 16-bit floats are computed in f32.

Algorithm: the left-looking ones of Dongarra, Duff, Sorensen and van der Vorst, Numerical Linear
Algebra for High-Performance Computers, 5.4.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.kernels.triangular import BLOCK
from stepwell.mlir import ir, nested_operations
from stepwell.passes.base import Pass, State
from stepwell.passes.linalg.legalize_linear_algebra import (
    System,
    flag,
    solve_form,
    solve_operation,
    turned,
    wide,
)
from stepwell.targets.nvidia import NvidiaTarget


@dataclass(frozen=True)
class BlockLinearAlgebra(Pass):
    """Rewrite every large cholesky and triangular_solve of real matrices; nothing on CPUs."""

    name: ClassVar[str] = "block-linear-algebra"
    anchor: ClassVar[str] = "func.func"

    def run(self, op: ir.Operation, state: State) -> None:
        if not isinstance(state.target, NvidiaTarget):
            return
        for child in nested_operations(op):
            rewrite = _REWRITES.get(child.name)
            if rewrite is None or not _is_large(child):
                continue
            with ir.InsertionPoint(child), child.location:
                child.results[0].replace_all_uses_with(rewrite(child))
            child.erase()


def _is_large(op: ir.Operation) -> bool:
    matrix = op.operands[0]
    real = isinstance(hlo.element_type(matrix), ir.FloatType)
    return real and hlo.shape(matrix)[-1] > BLOCK and 0 not in hlo.shape(op.results[0])


def _triangular_solve(op: ir.Operation) -> ir.Value:
    return solve_form(op, _solve_in_blocks)


def _solve_in_blocks(system: System) -> ir.Value:
    matrix, target = system.operands
    size, columns = hlo.shape(target)[-2:]
    whole = -(-size // BLOCK) * BLOCK
    row, column = _places(matrix)
    named = hlo.compare(row, column, "GE" if system.lower else "LE")
    matrix = hlo.select(named, matrix, hlo.full_like(matrix, 0))
    matrix, target = _with_identity(matrix, whole), _longer(target, [whole, columns])

    def step(number: ir.Value, solution: ir.Value) -> ir.Value:
        row = _times_block(number if system.lower else _from_end(number, whole))
        rows = _window(matrix, (row, None), [BLOCK, whole])
        wanted = _window(target, (row, None), [BLOCK, columns])
        rest = hlo.subtract(wanted, _product(rows, solution))
        block = _window(matrix, (row, row), [BLOCK, BLOCK])
        found = solve_operation(System((block, rest), system.lower, system.unit))
        return _updated(solution, found, (row, None))

    solution = _loop(whole, hlo.full_like(target, 0), step)
    return _window(solution, (None, None), [size, columns])


def _cholesky(op: ir.Operation) -> ir.Value:
    matrix, lower = wide(op.operands[0]), flag(op, "lower")
    size = hlo.shape(matrix)[-1]
    whole = -(-size // BLOCK) * BLOCK
    matrix = _with_identity(matrix if lower else turned(matrix), whole)
    rows, columns = _places(_window(matrix, (None, None), [whole, BLOCK]))

    def step(number: ir.Value, factor: ir.Value) -> ir.Value:
        first = _times_block(number)
        known = _window(factor, (first, None), [BLOCK, whole])
        wanted = _window(matrix, (None, first), [whole, BLOCK])
        rest = hlo.subtract(wanted, _product(factor, turned(known)))
        block = _window(rest, (first, None), [BLOCK, BLOCK])
        attributes = {"lower": ir.BoolAttr.get(True)}
        pivot = ir.Operation.create(
            "stablehlo.cholesky", [block.type], [block], attributes
        ).results[0]
        found = turned(solve_operation(System((pivot, turned(rest)), True, False)))
        diagonal = hlo.add(columns, hlo.broadcast_in_dim(first, hlo.shape(columns), ()))
        found = hlo.select(hlo.compare(rows, diagonal, "GE"), found, hlo.full_like(found, 0))
        return _updated(factor, found, (None, first))

    factor = _loop(whole, hlo.full_like(matrix, 0), step)
    factor = _window(factor, (None, None), [size, size])
    return hlo.convert(factor if lower else turned(factor), hlo.dtype(op.operands[0]))


_REWRITES: dict[str, Callable[[ir.Operation], ir.Value]] = {
    "stablehlo.cholesky": _cholesky,
    "stablehlo.triangular_solve": _triangular_solve,
}


# --- Blocks ---------------------------------------------------------------------------------------


def _loop(rows: int, initial: ir.Value, step: Callable[[ir.Value, ir.Value], ir.Value]) -> ir.Value:
    """`step(i, value)` gives the next value, for each block i of `rows`."""
    count = hlo.full(rows // BLOCK, (), np.int32)

    def body(number: ir.Value, value: ir.Value) -> list[ir.Value]:
        return [hlo.add(number, hlo.full(1, (), np.int32)), step(number, value)]

    start = [hlo.full(0, (), np.int32), initial]
    return hlo.while_loop(start, lambda number, _: hlo.compare(number, count, "LT"), body)[1]


def _times_block(number: ir.Value) -> ir.Value:
    return hlo.multiply(number, hlo.full(BLOCK, (), np.int32))


def _from_end(number: ir.Value, rows: int) -> ir.Value:
    return hlo.subtract(hlo.full(rows // BLOCK - 1, (), np.int32), number)


def _places(value: ir.Value) -> tuple[ir.Value, ir.Value]:
    """The row and the column of each element."""
    shape = hlo.shape(value)
    rank = len(shape)
    return hlo.iota(shape, rank - 2, np.int32), hlo.iota(shape, rank - 1, np.int32)


Place = tuple[ir.Value | None, ir.Value | None]
"""Where a window of a matrix begins; None for its first row or column."""


def _starts(value: ir.Value, place: Place) -> list[ir.Value]:
    zero = hlo.full(0, (), np.int32)
    outer = [zero] * (len(hlo.shape(value)) - 2)
    return [*outer, *(zero if start is None else start for start in place)]


def _window(value: ir.Value, place: Place, sizes: list[int]) -> ir.Value:
    """A part of each matrix."""
    shape = [*hlo.shape(value)[:-2], *sizes]
    if place[0] is None and place[1] is None:
        return hlo.slice(value, [0] * len(shape), shape)
    return hlo.dynamic_slice(value, _starts(value, place), shape)


def _updated(value: ir.Value, part: ir.Value, place: Place) -> ir.Value:
    return hlo.dynamic_update_slice(value, part, _starts(value, place))


def _product(lhs: ir.Value, rhs: ir.Value) -> ir.Value:
    rank = len(hlo.shape(lhs))
    batch = list(range(rank - 2))
    return hlo.dot_general(lhs, rhs, ([rank - 1], [rank - 2]), (batch, batch))


def _longer(value: ir.Value, sizes: list[int]) -> ir.Value:
    """Matrices with zeros at their ends, to be of `sizes`."""
    *batch, rows, columns = hlo.shape(value)
    if [rows, columns] == sizes:
        return value
    highs = [*[0] * len(batch), sizes[0] - rows, sizes[1] - columns]
    return hlo.pad(value, hlo.full(0, (), hlo.dtype(value)), [0] * len(highs), highs)


def _with_identity(matrix: ir.Value, size: int) -> ir.Value:
    """Square matrices with the identity at their ends, to be of `size` rows."""
    before = hlo.shape(matrix)[-1]
    if before == size:
        return matrix
    longer = _longer(matrix, [size, size])
    row, column = _places(longer)
    added = hlo.and_(
        hlo.compare(row, column, "EQ"), hlo.compare(row, hlo.full_like(row, before), "GE")
    )
    return hlo.select(added, hlo.full_like(longer, 1), longer)
