"""The functions of LAPACK that JAX calls on CPUs, each by what its custom call says.

Operands, results and configuration are those of JAX's lowering rules (jax/_src/lax/linalg.py, jax
0.10); arguments and least sizes of working memory those of the LAPACK Users' Guide, with room for
blocks of 64 columns.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.errors import LoweringError
from stepwell.kernels.library_call import Buffer
from stepwell.mlir import ir
from stepwell.passes.stablehlo._lapack_call import LapackCall

Routine = Callable[[LapackCall], "list[ir.Value]"]

_BLOCK = 64
_BLOCK_REFLECTORS = 65 * 64
"""Elements of the triangular factor that newer versions put at the end of the working memory."""


def _leading(size: int) -> int:
    """A leading dimension is 1 at least."""
    return max(size, 1)


def _char(letter: str) -> str:
    return f"char {letter}"


def _complex(call: LapackCall, buffer: Callable[[], Buffer]) -> list[Buffer]:
    """An argument that functions of complex matrices have alone."""
    return [buffer()] if call.is_complex else []


def _getrf(call: LapackCall) -> list[ir.Value]:
    m, n = call.shape(0)[-2:]
    return call.run(
        "lapack", "getrf", m, n, call.updated(0, 0), _leading(m), call.result(1), call.result(2)
    )


def _potrf(call: LapackCall) -> list[ir.Value]:
    n = call.shape(0)[-1]
    uplo = _char(call.letter("uplo"))
    return call.run("lapack", "potrf", uplo, n, call.updated(0, 0), _leading(n), call.result(1))


def _trsm(call: LapackCall) -> list[ir.Value]:
    m, n = call.shape(1)[-2:]
    letters = [call.letter(name) for name in ("side", "uplo", "trans_x", "diag")]
    size = m if letters[0] == "L" else n
    matrix, right = call.operand(0), call.updated(1, 0)
    letters = map(_char, letters)
    return call.run("blas", "trsm", *letters, m, n, 1.0, matrix, _leading(size), right, _leading(m))


def _geqrf(call: LapackCall) -> list[ir.Value]:
    m, n = call.shape(0)[-2:]
    size = max(n, 1) * _BLOCK
    return call.run(
        "lapack",
        "geqrf",
        m,
        n,
        call.updated(0, 0),
        _leading(m),
        call.result(1),
        call.work(size),
        size,
        call.integer_work(1),
    )


def _geqp3(call: LapackCall) -> list[ir.Value]:
    m, n = call.shape(0)[-2:]
    size = 2 * n + (n + 1) * _BLOCK
    return call.run(
        "lapack",
        "geqp3",
        m,
        n,
        call.updated(0, 0),
        _leading(m),
        call.updated(1, 1),
        call.result(2),
        call.work(size),
        size,
        *_complex(call, lambda: call.real_work(2 * n)),
        call.integer_work(1),
    )


def _orgqr(call: LapackCall) -> list[ir.Value]:
    m, n = call.shape(0)[-2:]
    size = max(n, 1) * _BLOCK
    return call.run(
        "lapack",
        "ungqr" if call.is_complex else "orgqr",
        m,
        n,
        call.shape(1)[-1],
        call.updated(0, 0),
        _leading(m),
        call.operand(1),
        call.work(size),
        size,
        call.integer_work(1),
    )


def _ormqr(call: LapackCall) -> list[ir.Value]:
    m, n = call.shape(2)[-2:]
    left, transpose = call.option("left"), call.option("transpose")
    turned = "C" if call.is_complex else "T"
    size = max(n if left else m, 1) * _BLOCK + _BLOCK_REFLECTORS
    return call.run(
        "lapack",
        "unmqr" if call.is_complex else "ormqr",
        _char("L" if left else "R"),
        _char(turned if transpose else "N"),
        m,
        n,
        call.shape(1)[-1],
        call.operand(0),
        _leading(m if left else n),
        call.operand(1),
        call.updated(2, 0),
        _leading(m),
        call.work(size),
        size,
        call.integer_work(1),
    )


def _gesdd(call: LapackCall) -> list[ir.Value]:
    m, n = call.shape(0)[-2:]
    small, large = min(m, n), max(m, n)
    mode = call.letter("mode")
    vectors = mode != "N"
    size = 3 * small + large + 7 * small + _BLOCK * (m + n)
    reals = 7 * small
    if vectors:
        size += 4 * small * small
        reals = max(5 * small * small + 7 * small, 2 * large * small + 2 * small**2 + small)
    return call.run(
        "lapack",
        "gesdd",
        _char(mode),
        m,
        n,
        call.updated(0, 0),
        _leading(m),
        call.result(1),
        *_singular_vectors(call, vectors),
        call.work(size),
        size,
        *_complex(call, lambda: call.real_work(reals)),
        call.integer_work(8 * small),
        call.result(4),
    )


def _gesvd(call: LapackCall) -> list[ir.Value]:
    m, n = call.shape(0)[-2:]
    small, large = min(m, n), max(m, n)
    mode = call.letter("mode")
    size = max(3 * small + large, 5 * small) + small * small + _BLOCK * (m + n)
    return call.run(
        "lapack",
        "gesvd",
        _char(mode),
        _char(mode),
        m,
        n,
        call.updated(0, 0),
        _leading(m),
        call.result(1),
        *_singular_vectors(call, mode != "N"),
        call.work(size),
        size,
        *_complex(call, lambda: call.real_work(5 * small)),
        call.result(4),
    )


def _singular_vectors(call: LapackCall, wanted: bool) -> list[Buffer | int]:
    """Left and right vectors with their leading dimensions."""
    if not wanted:
        return [call.work(1), 1, call.work(1), 1]
    right = hlo.shape(call.op.results[3])[-2]
    return [call.result(2), _leading(call.shape(0)[-2]), call.result(3), _leading(right)]


def _syevd(call: LapackCall) -> list[ir.Value]:
    n = call.shape(0)[-1]
    size = (2 * n + n * n if call.is_complex else 1 + 6 * n + 2 * n * n) + _BLOCK * n + 1
    reals, integers = 1 + 5 * n + 2 * n * n, 3 + 5 * n
    return call.run(
        "lapack",
        "heevd" if call.is_complex else "syevd",
        _char(call.letter("mode")),
        _char(call.letter("uplo")),
        n,
        call.updated(0, 0),
        _leading(n),
        call.result(1),
        call.work(size),
        size,
        *([call.real_work(reals), reals] if call.is_complex else []),
        call.integer_work(integers),
        integers,
        call.result(2),
    )


def _geev(call: LapackCall) -> list[ir.Value]:
    """As JAX's kernel does: a matrix that is not finite is not looked at, and counts as failed.
    Vectors of real matrices come packed, a conjugate pair in two columns."""
    n = call.shape(0)[-1]
    matrix, finite = _finite_or_zero(call.op.operands[0])
    wanted = [call.letter(name) == "V" for name in ("compute_left", "compute_right")]
    first = 1 if call.is_complex else 2  # of the vectors, behind the eigenvalues
    shape = [*call.shape(0)[:-2], n, n]

    def vectors(side: int) -> Buffer:
        if not wanted[side]:
            return call.work(1)
        return call.result(first + side) if call.is_complex else call.real_result(shape)

    size = (4 + 2 * _BLOCK) * max(n, 1)
    start = call.updated(0, None, matrix)
    values = [call.result(number) for number in range(first)]
    sides = [vectors(0), vectors(1)]
    results = call.run(
        "lapack",
        "geev",
        *(_char("V" if side else "N") for side in wanted),
        n,
        start,
        _leading(n),
        *values,
        sides[0],
        _leading(n),
        sides[1],
        _leading(n),
        call.work(size),
        size,
        *_complex(call, lambda: call.real_work(2 * n)),
        call.result(first + 2),
    )
    if not call.is_complex:
        for side in range(2):
            if wanted[side]:
                packed = call.raw(sides[side])
                results[first + side] = _unpacked(packed, results[1])
    failed = hlo.full_like(results[-1], -4)
    results[-1] = hlo.select(finite, results[-1], failed)
    return results


def _finite_or_zero(matrix: ir.Value) -> tuple[ir.Value, ir.Value]:
    """`matrix`, zero where it is not finite throughout; and where it is, [...]."""
    shape = hlo.shape(matrix)
    if isinstance(hlo.element_type(matrix), ir.ComplexType):
        halves = [hlo.unary(part, matrix) for part in ("real", "imag")]
        finite = hlo.and_(*(hlo.is_finite(half) for half in halves))
        zero = hlo.full_like(halves[0], 0.0)
        zero = hlo.binary("complex", zero, zero)
    else:
        finite = hlo.is_finite(matrix)
        zero = hlo.full_like(matrix, 0.0)
    dims = [len(shape) - 2, len(shape) - 1]
    finite = hlo.reduce(finite, hlo.full(True, [], np.bool_), dims, "and")
    everywhere = hlo.broadcast_in_dim(finite, shape, range(len(shape) - 2))
    return hlo.select(everywhere, matrix, zero), finite


def _unpacked(packed: ir.Value, imaginary: ir.Value) -> ir.Value:
    """Eigenvectors [..., n (row), n (column)] of `packed` [..., n (column), n (row)], whose vectors
    of a conjugate pair, the one with a positive `imaginary` part first, are x + iy and x - iy of
    two rows x and y."""
    shape = hlo.shape(packed)
    rank, n = len(shape), shape[-1]
    axis = rank - 2
    zeros = hlo.full_like(packed, 0.0)
    if n == 0:
        return hlo.binary("complex", zeros, zeros)
    row = [1 if d == axis else size for d, size in enumerate(shape)]
    blank = hlo.full(0.0, row, hlo.dtype(packed))

    def part(start: int, stop: int) -> ir.Value:
        begin = [start if d == axis else 0 for d in range(rank)]
        end = [stop if d == axis else size for d, size in enumerate(shape)]
        return hlo.slice(packed, begin, end)

    following = hlo.concatenate([part(1, n), blank], axis)
    before = hlo.concatenate([blank, part(0, n - 1)], axis)
    spread = hlo.broadcast_in_dim(imaginary, shape, range(rank - 1))
    is_first = hlo.compare(spread, zeros, "GT")
    is_second = hlo.compare(spread, zeros, "LT")
    real = hlo.select(is_second, before, packed)
    turned = hlo.select(is_second, hlo.negate(packed), zeros)
    vectors = hlo.binary("complex", real, hlo.select(is_first, following, turned))
    return hlo.transpose(vectors, [*range(rank - 2), rank - 1, rank - 2])


def _gees(call: LapackCall) -> list[ir.Value]:
    if call.letter("sort") != "N":
        raise LoweringError(f"{call.name}: eigenvalues cannot be sorted by a selection")
    n = call.shape(0)[-1]
    mode = call.letter("mode")
    last = 2 if call.is_complex else 3  # of the eigenvalues
    size = (3 + 2 * _BLOCK) * max(n, 1)
    schur_form = call.updated(0, 0)
    vectors = call.result(1) if mode == "V" else call.work(1)
    values = [call.result(number) for number in range(2, last + 1)]
    return call.run(
        "lapack",
        "gees",
        _char(mode),
        _char("N"),
        None,
        n,
        schur_form,
        _leading(n),
        call.result(last + 1),
        *values,
        vectors,
        _leading(n),
        call.work(size),
        size,
        *_complex(call, lambda: call.real_work(n)),
        None,
        call.result(last + 2),
    )


def _gehrd(call: LapackCall) -> list[ir.Value]:
    n = call.shape(0)[-1]
    size = max(n, 1) * _BLOCK + _BLOCK_REFLECTORS
    return call.run(
        "lapack",
        "gehrd",
        n,
        call.option("low"),
        call.option("high"),
        call.updated(0, 0),
        _leading(n),
        call.result(1),
        call.work(size),
        size,
        call.result(2),
    )


def _sytrd(call: LapackCall) -> list[ir.Value]:
    n = call.shape(0)[-1]
    size = max(n, 1) * _BLOCK
    return call.run(
        "lapack",
        "hetrd" if call.is_complex else "sytrd",
        _char(call.letter("uplo")),
        n,
        call.updated(0, 0),
        _leading(n),
        call.result(1),
        call.result(2),
        call.result(3),
        call.work(size),
        size,
        call.result(4),
    )


def _gtsv(call: LapackCall) -> list[ir.Value]:
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
        _leading(n),
        call.result(4),
    )


def _solve_perturbed(call: LapackCall) -> list[ir.Value]:
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
    solve = LapackCall(call.op, call.prefix, 3)
    solve.batch = call.batch * columns

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


ROUTINES: dict[str, Routine] = {
    "geev": _geev,
    "gees": _gees,
    "gehrd": _gehrd,
    "geqp3": _geqp3,
    "geqrf": _geqrf,
    "gesdd": _gesdd,
    "gesvd": _gesvd,
    "getrf": _getrf,
    "gtsv": _gtsv,
    "heevd": _syevd,
    "hetrd": _sytrd,
    "orgqr": _orgqr,
    "ormqr": _ormqr,
    "potrf": _potrf,
    "syevd": _syevd,
    "sytrd": _sytrd,
    "trsm": _trsm,
    "ungqr": _orgqr,
    "unmqr": _ormqr,
}
"""What replaces the results of a custom call, by the name of the function without its prefix."""

UNTYPED: dict[str, Routine] = {
    "ProductOfElementaryHouseholderReflectors": _orgqr,
    "Qr": _geqrf,
    "tridiagonal_solve_perturbed_ffi": _solve_perturbed,
}
"""The same of targets that do not name a type; those without layouts are row-major."""

PRIMARY = {"gtsv": 3, "tridiagonal_solve_perturbed_ffi": 3, "trsm": 1}
"""The operand that the batch is read from, where it is not the first."""
