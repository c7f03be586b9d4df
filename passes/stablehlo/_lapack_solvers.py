"""Factorisations and solvers: what LAPACK's functions are passed for JAX's custom calls."""

from __future__ import annotations

from stepwell.dialects import stablehlo as hlo
from stepwell.kernels.library_call import Buffer
from stepwell.mlir import ir
from stepwell.passes.stablehlo._lapack_call import (
    BLOCK,
    BLOCK_REFLECTORS,
    LapackCall,
    char,
    if_complex,
    leading,
)


def getrf(call: LapackCall) -> list[ir.Value]:
    m, n = call.shape(0)[-2:]
    return call.run(
        "lapack", "getrf", m, n, call.updated(0, 0), leading(m), call.result(1), call.result(2)
    )


def potrf(call: LapackCall) -> list[ir.Value]:
    n = call.shape(0)[-1]
    uplo = char(call.letter("uplo", "LU"))
    return call.run("lapack", "potrf", uplo, n, call.updated(0, 0), leading(n), call.result(1))


def trsm(call: LapackCall) -> list[ir.Value]:
    m, n = call.shape(1)[-2:]
    known = {"side": "LR", "uplo": "LU", "trans_x": "NTC", "diag": "NU"}
    letters = [call.letter(name, values) for name, values in known.items()]
    size = m if letters[0] == "L" else n
    if call.shape(0)[-1] != size:
        raise call.refusal(f"a matrix of {call.shape(0)[-1]} rows cannot be divided by")
    matrix, right = call.operand(0), call.updated(1, 0)
    letters = map(char, letters)
    return call.run("blas", "trsm", *letters, m, n, 1.0, matrix, leading(size), right, leading(m))


def geqrf(call: LapackCall) -> list[ir.Value]:
    m, n = call.shape(0)[-2:]
    size = max(n, 1) * BLOCK
    return call.run(
        "lapack",
        "geqrf",
        m,
        n,
        call.updated(0, 0),
        leading(m),
        call.result(1),
        call.work(size),
        size,
        call.integer_work(1),
    )


def geqp3(call: LapackCall) -> list[ir.Value]:
    m, n = call.shape(0)[-2:]
    size = 2 * n + (n + 1) * BLOCK
    return call.run(
        "lapack",
        "geqp3",
        m,
        n,
        call.updated(0, 0),
        leading(m),
        call.updated(1, 1),
        call.result(2),
        call.work(size),
        size,
        *if_complex(call, lambda: call.real_work(2 * n)),
        call.integer_work(1),
    )


def orgqr(call: LapackCall) -> list[ir.Value]:
    m, n = call.shape(0)[-2:]
    size = max(n, 1) * BLOCK
    return call.run(
        "lapack",
        "ungqr" if call.is_complex else "orgqr",
        m,
        n,
        call.shape(1)[-1],
        call.updated(0, 0),
        leading(m),
        call.operand(1),
        call.work(size),
        size,
        call.integer_work(1),
    )


def ormqr(call: LapackCall) -> list[ir.Value]:
    m, n = call.shape(2)[-2:]
    left, transpose = call.option("left"), call.option("transpose")
    turned = "C" if call.is_complex else "T"
    if call.shape(0)[-2] != (m if left else n):
        raise call.refusal(f"reflectors of {call.shape(0)[-2]} elements do not fit")
    size = max(n if left else m, 1) * BLOCK + BLOCK_REFLECTORS
    return call.run(
        "lapack",
        "unmqr" if call.is_complex else "ormqr",
        char("L" if left else "R"),
        char(turned if transpose else "N"),
        m,
        n,
        call.shape(1)[-1],
        call.operand(0),
        leading(m if left else n),
        call.operand(1),
        call.updated(2, 0),
        leading(m),
        call.work(size),
        size,
        call.integer_work(1),
    )


def gtsv(call: LapackCall) -> list[ir.Value]:
    """The lower diagonal begins with an element that counts for nothing."""
    n, columns = call.shape(3)[-2:]
    lower = call.updated(0, 0)
    return call.run(
        "lapack",
        "gtsv",
        n,
        columns,
        Buffer(lower.kind, lower.number, 2 if call.is_complex else 1),
        call.updated(1, 1),
        call.updated(2, 2),
        call.updated(3, 3),
        leading(n),
        call.result(4),
    )


def solve_perturbed(call: LapackCall) -> list[ir.Value]:
    """Tridiagonal systems whose matrix may be singular, as inverse iteration has them: a matrix is
    factored once, then each column solved with pivots that are perturbed where they are tiny."""
    *outer, n, columns = call.shape(3)
    diagonal, upper, lower = (call.updated(number, None) for number in (1, 2, 0))
    second = call.real_result([*outer, max(n - 2, 1)])
    swaps = call.integer_result([*outer, n])
    call.run(
        "lapack",
        "lagtf",
        n,
        diagonal,
        0.0,
        upper,
        Buffer(lower.kind, lower.number, 1),
        0.0,
        second,
        swaps,
        call.integer_work(1),
    )
    solve = LapackCall(call.op, call.prefix, call.batch * columns, column_major=True)

    def repeated(buffer: Buffer) -> Buffer:
        value = call.raw(buffer)
        shape = [*outer, columns, hlo.shape(value)[-1]]
        dims = [*range(len(outer)), len(outer) + 1]
        return solve.given(hlo.broadcast_in_dim(value, shape, dims))

    below = repeated(lower)
    least = hlo.full(0.0, [*outer, columns], call.part)  # that of a pivot, which is written there
    return solve.run(
        "lapack",
        "lagts",
        -1,
        n,
        repeated(diagonal),
        repeated(upper),
        Buffer(below.kind, below.number, 1),
        repeated(second),
        repeated(swaps),
        solve.updated(3, 0),
        solve.overwritten(least),
        solve.integer_work(1),
    )
