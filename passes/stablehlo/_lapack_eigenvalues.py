"""Eigenvalues and singular values: what LAPACK's functions are passed for JAX's custom calls."""

from __future__ import annotations

import numpy as np

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

_BLOCK_OF_SYTRD = 32
"""Columns that the reduction to tridiagonal form takes at a time, as ILAENV says."""


def gesdd(call: LapackCall) -> list[ir.Value]:
    m, n = call.shape(0)[-2:]
    small, large = min(m, n), max(m, n)
    mode = call.letter("mode", "ASN")
    vectors = mode != "N"
    size = 3 * small + large + 7 * small + BLOCK * (m + n)
    reals = 7 * small
    if vectors:
        size += 4 * small * small
        reals = max(5 * small * small + 7 * small, 2 * large * small + 2 * small**2 + small)
    return call.run(
        "lapack",
        "gesdd",
        char(mode),
        m,
        n,
        call.updated(0, 0),
        leading(m),
        call.result(1),
        *_singular_vectors(call, mode),
        call.work(size),
        size,
        *if_complex(call, lambda: call.real_work(reals)),
        call.integer_work(8 * small),
        call.result(4),
    )


def gesvd(call: LapackCall) -> list[ir.Value]:
    m, n = call.shape(0)[-2:]
    small, large = min(m, n), max(m, n)
    mode = call.letter("mode", "ASN")
    size = max(3 * small + large, 5 * small) + small * small + BLOCK * (m + n)
    return call.run(
        "lapack",
        "gesvd",
        char(mode),
        char(mode),
        m,
        n,
        call.updated(0, 0),
        leading(m),
        call.result(1),
        *_singular_vectors(call, mode),
        call.work(size),
        size,
        *if_complex(call, lambda: call.real_work(5 * small)),
        call.result(4),
    )


def _singular_vectors(call: LapackCall, mode: str) -> list[Buffer | int]:
    """Left and right vectors, as many as `mode` says, with their leading dimensions."""
    if mode == "N":
        return [call.work(1), 1, call.work(1), 1]
    m, n = call.shape(0)[-2:]
    given = hlo.shape(call.op.results[2])[-1], hlo.shape(call.op.results[3])[-2]
    if given != ((m, n) if mode == "A" else (min(m, n),) * 2):
        raise call.refusal(f"{given[0]} and {given[1]} vectors are not what mode {mode} gives")
    return [call.result(2), leading(m), call.result(3), leading(given[1])]


def syevd(call: LapackCall) -> list[ir.Value]:
    """With the working memory that LAPACK itself asks for, so that it works by the same blocks as
    in other systems."""
    n = call.shape(0)[-1]
    if call.is_complex:
        size = max(2 * n + n * n, n + _BLOCK_OF_SYTRD * n, 1)
    else:
        size = max(1 + 6 * n + 2 * n * n, 2 * n + _BLOCK_OF_SYTRD * n)
    reals, integers = 1 + 5 * n + 2 * n * n, 3 + 5 * n
    return call.run(
        "lapack",
        "heevd" if call.is_complex else "syevd",
        char(call.letter("mode", "NV")),
        char(call.letter("uplo", "LU")),
        n,
        call.updated(0, 0),
        leading(n),
        call.result(1),
        call.work(size),
        size,
        *([call.real_work(reals), reals] if call.is_complex else []),
        call.integer_work(integers),
        integers,
        call.result(2),
    )


def geev(call: LapackCall) -> list[ir.Value]:
    """As JAX's kernel does: a matrix that is not finite is not looked at, and counts as failed.
    Vectors of real matrices come packed, a conjugate pair in two columns."""
    n = call.shape(0)[-1]
    matrix, finite = _finite_or_zero(call.op.operands[0])
    wanted = [call.letter(name, "NV") == "V" for name in ("compute_left", "compute_right")]
    first = 1 if call.is_complex else 2  # of the vectors, behind the eigenvalues
    shape = [*call.shape(0)[:-2], n, n]

    def vectors(side: int) -> Buffer:
        if not wanted[side]:
            return call.work(1)
        return call.result(first + side) if call.is_complex else call.real_result(shape)

    size = (4 + 2 * BLOCK) * max(n, 1)
    start = call.updated(0, None, matrix)
    values = [call.result(number) for number in range(first)]
    sides = [vectors(0), vectors(1)]
    results = call.run(
        "lapack",
        "geev",
        *(char("V" if side else "N") for side in wanted),
        n,
        start,
        leading(n),
        *values,
        sides[0],
        leading(n),
        sides[1],
        leading(n),
        call.work(size),
        size,
        *if_complex(call, lambda: call.real_work(2 * n)),
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


def gees(call: LapackCall) -> list[ir.Value]:
    call.letter("sort", "N")  # S would call back which eigenvalues are to come first
    n = call.shape(0)[-1]
    mode = call.letter("mode", "NV")
    last = 2 if call.is_complex else 3  # of the eigenvalues
    size = (3 + 2 * BLOCK) * max(n, 1)
    schur_form = call.updated(0, 0)
    vectors = call.result(1) if mode == "V" else call.work(1)
    values = [call.result(number) for number in range(2, last + 1)]
    return call.run(
        "lapack",
        "gees",
        char(mode),
        char("N"),
        None,
        n,
        schur_form,
        leading(n),
        call.result(last + 1),
        *values,
        vectors,
        leading(n),
        call.work(size),
        size,
        *if_complex(call, lambda: call.real_work(n)),
        None,
        call.result(last + 2),
    )


def gehrd(call: LapackCall) -> list[ir.Value]:
    n = call.shape(0)[-1]
    size = max(n, 1) * BLOCK + BLOCK_REFLECTORS
    return call.run(
        "lapack",
        "gehrd",
        n,
        call.option("low"),
        call.option("high"),
        call.updated(0, 0),
        leading(n),
        call.result(1),
        call.work(size),
        size,
        call.result(2),
    )


def sytrd(call: LapackCall) -> list[ir.Value]:
    n = call.shape(0)[-1]
    size = max(n, 1) * BLOCK
    return call.run(
        "lapack",
        "hetrd" if call.is_complex else "sytrd",
        char(call.letter("uplo", "LU")),
        n,
        call.updated(0, 0),
        leading(n),
        call.result(1),
        call.result(2),
        call.result(3),
        call.work(size),
        size,
        call.result(4),
    )
