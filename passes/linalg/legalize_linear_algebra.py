"""`legalize-linear-algebra`: cholesky and triangular_solve as loops over vectors of columns.

    %x = stablehlo.triangular_solve %a, %b {left_side, lower, NO_TRANSPOSE} : 8x8, 8x32

    for a strip of columns, for four rows %i.. of %x:
      %s.. = sum over k < %i of %a[%i.., k] * %x[k, strip]         // four sums read a row once
      %x[%i.., strip] = (%b[%i.., strip] - %s..) / diagonal, each row after those above it

A strip of %x lies in a buffer of its own, too, so that its rows are near each other. A Cholesky
factor L, of L L' = A, is computed by the same substitution: above its diagonal block, a strip of
columns of L' solves a system with the rows of L that are known. The block is factored row by row,
and the strip becomes rows of L. Other forms are made these by transposing operands and results.
Only the named triangle is read; the other one of a Cholesky factor is zero. 16-bit floats are
computed in f32. For GPUs, matrices of up to 32 rows in the host program become calls of kernels
(`kernels/gpu/triangular.py`), many matrices and right-hand sides in parallel; larger ones have been
cut in blocks of so many rows before (`block-linear-algebra`).

Algorithms: Golub and Van Loan, Matrix Computations, 3.1 and 4.2.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.kernels.triangular import ATTRIBUTE, BLOCK, KIND, Triangular
from stepwell.mlir import dialect, ir, nested_operations
from stepwell.passes.base import Pass, State
from stepwell.passes.linalg import _loops as loops
from stepwell.passes.linalg import _vectors as vectors
from stepwell.passes.linalg._fusion_graph import is_host_block
from stepwell.passes.linalg._kernel_calls import call_kernel
from stepwell.passes.linalg._loops import Values
from stepwell.targets.nvidia import NvidiaTarget

arith = dialect("arith")
math = dialect("math")

_ROWS = 4
"""So many rows are computed together: with two vectors each they leave registers free."""

_OPS = ("stablehlo.cholesky", "stablehlo.triangular_solve")


@dataclass(frozen=True)
class LegalizeLinearAlgebra(Pass):
    """Rewrite every cholesky and triangular_solve of real matrices inside a function."""

    name: ClassVar[str] = "legalize-linear-algebra"
    anchor: ClassVar[str] = "func.func"

    def run(self, op: ir.Operation, state: State) -> None:
        found = [
            child
            for child in nested_operations(op)
            if child.name in _OPS and _is_real(child.operands[0])
        ]
        on_gpu = isinstance(state.target, NvidiaTarget)
        for child in found:
            with ir.InsertionPoint(child), child.location:
                form = _cholesky_form if child.name == _OPS[0] else solve_form
                if on_gpu and _is_small(child):
                    form = _small_cholesky if child.name == _OPS[0] else _small_solve
                child.results[0].replace_all_uses_with(form(child))
            child.erase()
        lanes = 2 * state.target.vector_lanes
        loops.rewrite_operations(
            op,
            {
                _OPS[0]: lambda child: _cholesky(child, lanes),
                _OPS[1]: lambda child: _triangular_solve(child, lanes),
            },
        )


def flag(op: ir.Operation, name: str) -> bool:
    """Whether an operation has an attribute that says yes."""
    return name in op.attributes and ir.BoolAttr(op.attributes[name]).value


def _is_real(value: ir.Value) -> bool:
    return isinstance(loops.element_of(value), ir.FloatType)


# --- Forms ----------------------------------------------------------------------------------------


def turned(matrix: ir.Value) -> ir.Value:
    """The transpose of each matrix."""
    rank = len(hlo.shape(matrix))
    return hlo.transpose(matrix, [*range(rank - 2), rank - 1, rank - 2])


def wide(value: ir.Value) -> ir.Value:
    """Numbers of 32 bits at least."""
    return hlo.convert(value, np.float32) if hlo.dtype(value).itemsize < 4 else value


def _cholesky_form(op: ir.Operation) -> ir.Value:
    """The factor of `op` from the lower one of the matrix in the upper triangle: what `_cholesky`
    takes and makes."""
    lower, kind = flag(op, "lower"), hlo.dtype(op.operands[0])
    matrix = wide(op.operands[0])
    matrix = turned(matrix) if lower else matrix
    attributes = {"lower": ir.BoolAttr.get(True)}
    factor = ir.Operation.create(op.name, [matrix.type], [matrix], attributes).results[0]
    return hlo.convert(factor if lower else turned(factor), kind)


@dataclass(frozen=True)
class System:
    """The system a x = b of `operands` a and b, where a is `lower` or upper triangular, with ones
    on its diagonal for `unit`."""

    operands: tuple[ir.Value, ir.Value]
    lower: bool
    unit: bool


def solve_operation(system: System) -> ir.Value:
    """The solution of a system, by a triangular_solve."""
    attributes = {
        "left_side": ir.BoolAttr.get(True),
        "lower": ir.BoolAttr.get(system.lower),
        "unit_diagonal": ir.BoolAttr.get(system.unit),
        "transpose_a": ir.Attribute.parse("#stablehlo<transpose NO_TRANSPOSE>"),
    }
    kind = system.operands[1].type
    name = _OPS[1]
    return ir.Operation.create(name, [kind], list(system.operands), attributes).results[0]


def solve_form(op: ir.Operation, solve: Callable[[System], ir.Value] = solve_operation) -> ir.Value:
    """The solution of `op` from a system a x = b, solved by `solve`; x a = b is the transpose of
    a' x' = b'."""
    matrix, target = map(wide, op.operands)
    transposed = "NO_TRANSPOSE" not in str(op.attributes["transpose_a"])
    left = flag(op, "left_side")
    flipped = transposed == left
    matrix = turned(matrix) if flipped else matrix
    target = target if left else turned(target)
    lower = flag(op, "lower") != flipped
    solved = solve(System((matrix, target), lower, flag(op, "unit_diagonal")))
    return hlo.convert(solved if left else turned(solved), hlo.dtype(op.operands[1]))


# --- Kernels of GPUs ------------------------------------------------------------------------------


def _is_small(op: ir.Operation) -> bool:
    size = hlo.shape(op.operands[0])[-1]
    return is_host_block(op.block) and size <= BLOCK and 0 not in hlo.shape(op.results[0])


def _in_kernel(described: Triangular, *values: ir.Value) -> ir.Value:
    """What a kernel makes of the last of `values`; all are matrices, of the same batch."""
    shape = hlo.shape(values[-1])
    flat = [hlo.reshape(v, [prod(shape[:-2]), *hlo.shape(v)[-2:]]) for v in values]
    (result,) = call_kernel(KIND, ATTRIBUTE, described.to_attribute(), flat[:-1], flat[-1:])
    return hlo.reshape(result, shape)


def _small_cholesky(op: ir.Operation) -> ir.Value:
    matrix = wide(op.operands[0])
    lower = flag(op, "lower")
    factor = _in_kernel(Triangular(solves=False), matrix if lower else turned(matrix))
    return hlo.convert(factor if lower else turned(factor), hlo.dtype(op.operands[0]))


def _small_solve(op: ir.Operation) -> ir.Value:
    return solve_form(
        op, lambda made: _in_kernel(Triangular(True, made.lower, made.unit), *made.operands)
    )


# --- Substitution ---------------------------------------------------------------------------------

Scalar = Callable[[ir.Value, ir.Value], ir.Value]
"""The factor of a row of the solution in another row of the system, by their numbers."""


def _lanes(size: int, kind: ir.Type, most: int) -> int:
    """The greatest power of two up to `size`, and up to `most` for f32."""
    limit = most // 2 if isinstance(kind, ir.F64Type) else most
    return 1 << (min(size, limit).bit_length() - 1)


def _remainders(
    first: ir.Value, count: ir.Value, factor: Scalar, wanted: Values, known: ir.Value
) -> Values:
    """wanted[r] - sum over k < count of factor(first + r, k) * known[k]."""
    numbers = [loops.add(first, loops.index(r)) for r in range(len(wanted))]
    lanes = loops.shape_of(known)[1]

    def step(k: ir.Value, sums: Values) -> Sequence[ir.Value]:
        row = vectors.read(known, [k, loops.index(0)], lanes)
        return [
            vectors.fma(vectors.broadcast(factor(number, k), lanes), row, total)
            for number, total in zip(numbers, sums, strict=True)
        ]

    zeros = [vectors.full(0.0, value) for value in wanted]
    sums = loops.loop(loops.index(0), count, loops.index(1), zeros, step)
    return [vectors.subtract(*pair) for pair in zip(wanted, sums, strict=True)]


def _substituted(first: ir.Value, values: Values, factor: Scalar, unit: bool) -> Values:
    """Solve the triangle of the rows from `first` on, whose remainders are `values`."""
    lanes = ir.VectorType(values[0].type).shape[0]
    numbers = [loops.add(first, loops.index(r)) for r in range(len(values))]
    solved: Values = []
    for number, value in zip(numbers, values, strict=True):
        for other, known in zip(numbers, solved, strict=False):
            share = vectors.broadcast(factor(number, other), lanes)
            value = vectors.fma(vectors.negate(share), known, value)
        if not unit:
            pivot = vectors.broadcast(factor(number, number), lanes)
            value = arith.DivFOp(value, pivot).result
        solved.append(value)
    return solved


def _by_rows(
    size: int, carried: Sequence[ir.Value], body: Callable[[ir.Value, int, Values], Values]
) -> Values:
    """`body` for the first rows, the next ones and so on, and for those that are left."""
    whole = size - size % _ROWS
    result = loops.loop(
        loops.index(0),
        loops.index(whole),
        loops.index(_ROWS),
        carried,
        lambda first, values: body(first, _ROWS, values),
    )
    return body(loops.index(whole), size - whole, result) if size > whole else result


def _triangular_solve(op: ir.Operation, most: int) -> Values | None:
    matrix, target = op.operands
    if not _is_real(matrix):
        return None
    forward, unit = flag(op, "lower"), flag(op, "unit_diagonal")
    shape, kind = loops.shape_of(target), loops.element_of(target)
    size, columns = shape[-2:]
    lanes, last = _lanes(columns, kind, most), loops.index(size - 1)

    def numbered(step: ir.Value) -> ir.Value:
        return step if forward else loops.subtract(last, step)

    def strip(point: Values, carried: Values) -> Sequence[ir.Value]:
        *batch, number = point
        begin = loops.multiply(number, loops.index(lanes))
        begin = loops.minimum(begin, loops.index(columns - lanes))

        def factor(row: ir.Value, column: ir.Value) -> ir.Value:
            return loops.extract(matrix, [*batch, numbered(row), numbered(column)])

        def block(first: ir.Value, rows: int, carried: Values) -> Values:
            result, known = carried
            steps = [loops.add(first, loops.index(r)) for r in range(rows)]
            places = [[*batch, numbered(step), begin] for step in steps]
            wanted = [vectors.read(target, place, lanes) for place in places]
            rest = _remainders(first, first, factor, wanted, known)
            values = _substituted(first, rest, factor, unit)
            for value, step, place in zip(values, steps, places, strict=True):
                result = vectors.write(value, result, place)
                known = vectors.write(value, known, [step, loops.index(0)])
            return [result, known]

        return _by_rows(size, carried, block)

    start = [loops.empty(shape, kind), loops.empty([size, lanes], kind)]
    return loops.nest([*shape[:-2], -(-columns // lanes)], start, strip)[:1]


# --- Cholesky -------------------------------------------------------------------------------------


def _cholesky(op: ir.Operation, most: int) -> Values | None:
    """The lower factor, by strips of columns of the upper one, which become rows."""
    matrix = op.operands[0]
    if not _is_real(matrix):
        return None
    shape, kind = loops.shape_of(matrix), loops.element_of(matrix)
    size = shape[-1]
    lanes = max(_lanes(size, kind, most), _ROWS)
    padded = [*shape[:-2], *[-(-size // lanes) * lanes] * 2]
    if padded != shape:
        matrix = _copied(matrix, _cleared(padded, kind), shape)

    step, zero = loops.index(_ROWS), loops.index(0)

    def strip(point: Values, carried: Values) -> Sequence[ir.Value]:
        *batch, number = point
        begin = loops.multiply(number, loops.index(lanes))
        end = loops.add(begin, loops.index(lanes))
        result, known = carried

        def wanted(first: ir.Value) -> Values:
            rows = [loops.add(first, loops.index(r)) for r in range(_ROWS)]
            return [vectors.read(matrix, [*batch, row, begin], lanes) for row in rows]

        def above(first: ir.Value, carried: Values) -> Sequence[ir.Value]:
            def factor(row: ir.Value, column: ir.Value) -> ir.Value:
                return loops.extract(result, [*batch, row, column])

            values = _remainders(first, first, factor, wanted(first), carried[0])
            return [_with_rows(carried[0], first, _substituted(first, values, factor, False))]

        def beside(first: ir.Value, carried: Values) -> Sequence[ir.Value]:
            def factor(row: ir.Value, column: ir.Value) -> ir.Value:
                return loops.extract(carried[0], [column, loops.subtract(row, begin)])

            values = _remainders(first, begin, factor, wanted(first), carried[0])
            return [_with_rows(carried[0], first, values)]

        (known,) = loops.loop(zero, begin, step, [known], above)
        (known,) = loops.loop(begin, end, step, [known], beside)
        known = _factored(begin, end, lanes, known)
        return [_with_turned(known, result, batch, begin, end), known]

    start = [loops.empty(padded, kind), loops.empty([padded[-1], lanes], kind)]
    factor = loops.nest([*shape[:-2], padded[-1] // lanes], start, strip)[0]
    return [factor if padded == shape else _copied(factor, loops.empty(shape, kind), shape)]


def _with_rows(known: ir.Value, first: ir.Value, values: Values) -> ir.Value:
    for r, value in enumerate(values):
        known = vectors.write(value, known, [loops.add(first, loops.index(r)), loops.index(0)])
    return known


def _factored(begin: ir.Value, end: ir.Value, lanes: int, known: ir.Value) -> ir.Value:
    """The upper factor of the square block of the rows from `begin` on, in its place."""

    def row(i: ir.Value, carried: Values) -> Sequence[ir.Value]:
        (known,) = carried
        place, lane = [i, loops.index(0)], loops.subtract(i, begin)

        def step(k: ir.Value, rest: Values) -> Sequence[ir.Value]:
            share = vectors.broadcast(loops.extract(known, [k, lane]), lanes)
            other = vectors.read(known, [k, loops.index(0)], lanes)
            return [vectors.fma(vectors.negate(share), other, rest[0])]

        start = [vectors.read(known, place, lanes)]
        value = loops.loop(begin, i, loops.index(1), start, step)[0]
        known = vectors.write(value, known, place)
        root = math.SqrtOp(loops.extract(known, [i, lane])).result
        value = arith.DivFOp(value, vectors.broadcast(root, lanes)).result
        known = vectors.write(vectors.without_first(value, lane), known, place)
        return [loops.insert(root, known, [i, lane])]

    return loops.loop(begin, end, loops.index(1), [known], row)[0]


def _with_turned(
    known: ir.Value, result: ir.Value, batch: Values, begin: ir.Value, end: ir.Value
) -> ir.Value:
    """`result` with the columns of a strip as its rows, and zeros behind them."""
    kind, one = loops.element_of(result), loops.index(1)
    zero = arith.ConstantOp(kind, ir.FloatAttr.get(kind, 0.0)).result

    def row(i: ir.Value, carried: Values) -> Sequence[ir.Value]:
        def element(k: ir.Value, carried: Values) -> Sequence[ir.Value]:
            value = loops.extract(known, [k, loops.subtract(i, begin)])
            return [loops.insert(value, carried[0], [*batch, i, k])]

        def behind(k: ir.Value, carried: Values) -> Sequence[ir.Value]:
            return [loops.insert(zero, carried[0], [*batch, i, k])]

        carried = loops.loop(loops.index(0), end, one, carried, element)
        size = loops.index(loops.shape_of(result)[-1])
        return loops.loop(end, size, one, carried, behind)

    return loops.loop(begin, end, one, [result], row)[0]


def _cleared(shape: Sequence[int], kind: ir.Type) -> ir.Value:
    zero = arith.ConstantOp(kind, ir.FloatAttr.get(kind, 0.0)).result
    start = [loops.empty(shape, kind)]
    return loops.nest(shape, start, lambda at, values: [loops.insert(zero, values[0], at)])[0]


def _copied(source: ir.Value, target: ir.Value, shape: Sequence[int]) -> ir.Value:
    """`target` with the first elements, `shape`, of `source`."""
    return loops.nest(
        shape, [target], lambda at, values: [loops.insert(loops.extract(source, at), values[0], at)]
    )[0]
