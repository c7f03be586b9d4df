"""`legalize-linear-algebra`: cholesky by columns, triangular_solve by substitution.

    %l = stablehlo.cholesky %a, lower = true : tensor<8x8xf32>

    for %j, for %i = %j to 8: %s = %a[%i, %j] - sum over k < j of %l[%i, k] * %l[%j, k]
                              %l[%i, %j] = %i == %j ? sqrt(%s) : %s / %l[%j, %j]

Only the named triangle is read; the other one of a Cholesky factor is zero. Real element types.
Algorithms: Golub and Van Loan, Matrix Computations, 4.2 and 3.1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from stepwell.mlir import dialect, ir
from stepwell.passes.base import Pass, State
from stepwell.passes.linalg import _loops as loops
from stepwell.passes.linalg._loops import Values

arith = dialect("arith")
math = dialect("math")


@dataclass(frozen=True)
class LegalizeLinearAlgebra(Pass):
    """Rewrite every cholesky and triangular_solve of real matrices inside a function."""

    name: ClassVar[str] = "legalize-linear-algebra"
    anchor: ClassVar[str] = "func.func"

    def run(self, op: ir.Operation, state: State) -> None:
        loops.rewrite_operations(op, _REWRITES)


def _flag(op: ir.Operation, name: str) -> bool:
    return name in op.attributes and ir.BoolAttr(op.attributes[name]).value


def _is_real(value: ir.Value) -> bool:
    return isinstance(loops.element_of(value), ir.FloatType)


def _zero(kind: ir.Type) -> ir.Value:
    return arith.ConstantOp(kind, ir.FloatAttr.get(kind, 0.0)).result


def _minus_products(
    start: ir.Value,
    count: ir.Value,
    left: Callable[[ir.Value], ir.Value],
    right: Callable[[ir.Value], ir.Value],
) -> ir.Value:
    """start - sum over k < count of left(k) * right(k)."""

    def step(k: ir.Value, carried: Values) -> Sequence[ir.Value]:
        product = arith.MulFOp(left(k), right(k)).result
        return [arith.SubFOp(carried[0], product).result]

    return loops.loop(loops.index(0), count, loops.index(1), [start], step)[0]


def _cholesky(op: ir.Operation) -> Values | None:
    matrix = op.operands[0]
    if not _is_real(matrix):
        return None
    lower = _flag(op, "lower")
    shape = loops.shape_of(matrix)
    kind, size = loops.element_of(matrix), shape[-1]
    cleared = loops.nest(
        shape,
        [loops.empty(shape, kind)],
        lambda point, values: [loops.insert(_zero(kind), values[0], point)],
    )

    def factor(batch: Values, results: Values) -> Sequence[ir.Value]:
        def at(row: ir.Value, column: ir.Value) -> Values:
            return [*batch, row, column] if lower else [*batch, column, row]

        def column(j: ir.Value, by_column: Values) -> Sequence[ir.Value]:
            def entry(i: ir.Value, carried: Values) -> Sequence[ir.Value]:
                result = carried[0]
                rest = _minus_products(
                    loops.extract(matrix, at(i, j)),
                    j,
                    lambda k: loops.extract(result, at(i, k)),
                    lambda k: loops.extract(result, at(j, k)),
                )
                quotient = arith.DivFOp(rest, loops.extract(result, at(j, j))).result
                on_diagonal = loops.compare(i, "EQ", j)
                value = loops.choose(on_diagonal, math.SqrtOp(rest).result, quotient)
                return [loops.insert(value, result, at(i, j))]

            return loops.loop(j, loops.index(size), loops.index(1), by_column, entry)

        return loops.loop(loops.index(0), loops.index(size), loops.index(1), results, column)

    return loops.nest(shape[:-2], cleared, factor)


def _triangular_solve(op: ir.Operation) -> Values | None:
    matrix, target = op.operands
    if not _is_real(matrix):
        return None
    transposed = "NO_TRANSPOSE" not in str(op.attributes["transpose_a"])
    left, unit = _flag(op, "left_side"), _flag(op, "unit_diagonal")
    # x a = b is the transpose of a' x' = b': either transposition swaps the triangle.
    swapped = transposed == left
    forward = _flag(op, "lower") != swapped
    shape = loops.shape_of(target)
    size = loops.shape_of(matrix)[-1]
    one, last = loops.index(1), loops.index(size - 1)

    def solve(outer: Values, results: Values) -> Sequence[ir.Value]:
        *batch, side = outer

        def of_matrix(row: ir.Value, column: ir.Value) -> ir.Value:
            place = [column, row] if swapped else [row, column]
            return loops.extract(matrix, [*batch, *place])

        def at(position: ir.Value) -> Values:
            return [*batch, position, side] if left else [*batch, side, position]

        def numbered(step: ir.Value) -> ir.Value:
            return step if forward else loops.subtract(last, step)

        def substitute(number: ir.Value, carried: Values) -> Sequence[ir.Value]:
            i, result = numbered(number), carried[0]
            value = _minus_products(
                loops.extract(target, at(i)),
                number,
                lambda k: of_matrix(i, numbered(k)),
                lambda k: loops.extract(result, at(numbered(k))),
            )
            if not unit:
                value = arith.DivFOp(value, of_matrix(i, i)).result
            return [loops.insert(value, result, at(i))]

        return loops.loop(loops.index(0), loops.index(size), one, results, substitute)

    sides = shape[-1] if left else shape[-2]
    start = [loops.empty(shape, loops.element_of(target))]
    return loops.nest([*shape[:-2], sides], start, solve)


_REWRITES: dict[str, loops.Rewrite] = {
    "stablehlo.cholesky": _cholesky,
    "stablehlo.triangular_solve": _triangular_solve,
}
