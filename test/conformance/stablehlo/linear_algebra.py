"""Factorisations, solvers and what stands on them: calls of LAPACK, which XLA makes too.

XLA's LAPACK is the same, SciPy's; results agree but for the arithmetic around the calls. Vectors
that are unique only up to their sign or order therefore agree, too.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
from jax import lax

from .case import case, numbers

TYPES = (np.float32, np.float64, np.complex64, np.complex128)


def matrix(*shape: int, dtype: type = np.float32) -> np.ndarray:
    """Random matrices."""
    real = np.dtype(dtype).type(0).real.dtype
    values = numbers(*shape, dtype=real)
    if np.dtype(dtype).kind == "c":
        values = values + 1j * numbers(*shape, dtype=real, low=-2, high=2)
    return values.astype(dtype)


def hermitian(*shape: int, dtype: type = np.float32) -> np.ndarray:
    """Positive definite matrices."""
    values = matrix(*shape, dtype=dtype)
    product = values @ values.swapaxes(-1, -2).conj() + shape[-1] * np.eye(shape[-1])
    return product.astype(dtype)


for _type in TYPES:
    _name = np.dtype(_type).name
    case(f"lu_{_name}", lax.linalg.lu, matrix(2, 5, 3, dtype=_type))
    case(f"lu_wide_{_name}", lax.linalg.lu, matrix(3, 5, dtype=_type))
    case(f"lapack_cholesky_{_name}", jnp.linalg.cholesky, hermitian(2, 4, 4, dtype=_type))
    case(f"qr_{_name}", lambda a: jnp.linalg.qr(a), matrix(2, 5, 3, dtype=_type))
    case(f"qr_full_{_name}", lambda a: jnp.linalg.qr(a, mode="complete"), matrix(5, 3, dtype=_type))
    case(f"eigh_{_name}", jnp.linalg.eigh, hermitian(2, 4, 4, dtype=_type))
    # Vectors that LAPACK computes with as much working memory are the same to the last bits.
    case(
        f"eigh_in_blocks_{_name}",
        jnp.linalg.eigh,
        hermitian(50, 50, dtype=_type),
        tolerance=4 * float(np.finfo(_type).eps) / 50,
    )
    case(f"eig_{_name}", jnp.linalg.eig, matrix(2, 5, 5, dtype=_type))
    case(
        f"eig_left_{_name}",
        lambda a: lax.linalg.eig(a, compute_left_eigenvectors=True),
        matrix(4, 4, dtype=_type),
    )
    case(f"eigvals_{_name}", jnp.linalg.eigvals, matrix(4, 4, dtype=_type))
    case(f"svd_{_name}", lambda a: jnp.linalg.svd(a), matrix(2, 5, 3, dtype=_type))
    case(
        f"svd_thin_{_name}",
        lambda a: jnp.linalg.svd(a, full_matrices=False),
        matrix(3, 5, dtype=_type),
    )
    case(
        f"svd_values_{_name}",
        lambda a: jnp.linalg.svd(a, compute_uv=False),
        matrix(5, 3, dtype=_type),
    )
    case(f"schur_{_name}", jsl.schur, matrix(4, 4, dtype=_type))
    case(f"hessenberg_{_name}", lambda a: jsl.hessenberg(a, calc_q=True), matrix(4, 4, dtype=_type))
    case(f"tridiagonal_{_name}", lax.linalg.tridiagonal, hermitian(2, 4, 4, dtype=_type))
    case(
        f"tridiagonal_solve_{_name}",
        lax.linalg.tridiagonal_solve,
        matrix(2, 5, dtype=_type),
        matrix(2, 5, dtype=_type) + _type(6),
        matrix(2, 5, dtype=_type) * _type(0.5),
        matrix(2, 5, 3, dtype=_type),
    )
    case(
        f"householder_product_{_name}",
        lax.linalg.householder_product,
        matrix(2, 5, 3, dtype=_type),
        matrix(2, 3, dtype=_type),
    )
    for _left in (True, False):
        case(
            f"lapack_triangular_solve_{'left' if _left else 'right'}_{_name}",
            lambda a, b, left=_left: lax.linalg.triangular_solve(
                a, b, left_side=left, lower=True, transpose_a=True, conjugate_a=True
            ),
            hermitian(2, 4, 4, dtype=_type),
            matrix(2, 4, 4, dtype=_type),
        )
    case(f"inv_{_name}", jnp.linalg.inv, hermitian(4, 4, dtype=_type))
    case(
        f"solve_{_name}",
        jnp.linalg.solve,
        hermitian(3, 4, 4, dtype=_type),
        matrix(3, 4, 2, dtype=_type),
    )
    case(f"det_{_name}", jnp.linalg.det, matrix(2, 4, 4, dtype=_type))

A, TALL, SPD = matrix(4, 4), matrix(6, 3), hermitian(4, 4)

case("slogdet", jnp.linalg.slogdet, A)
case("lstsq", lambda a, b: jnp.linalg.lstsq(a, b)[0], TALL, matrix(6, 2))
case("pinv", jnp.linalg.pinv, TALL)
case("matrix_rank", jnp.linalg.matrix_rank, TALL)
case("cond_number", jnp.linalg.cond, A)
case("norm_spectral", lambda a: jnp.linalg.norm(a, ord=2), A)
case("norm_nuclear", lambda a: jnp.linalg.norm(a, ord="nuc"), A)
case("matrix_power", lambda a: jnp.linalg.matrix_power(a, -3), SPD)
case("expm", jsl.expm, A)
case("sqrtm", jsl.sqrtm, hermitian(4, 4, dtype=np.float64))
case("sylvester", jsl.solve_sylvester, SPD, SPD, A)
case("polar", lambda a: jsl.polar(a), A)
case("lu_solve", lambda a, b: jsl.lu_solve(jsl.lu_factor(a), b), A, numbers(4))
case("lu_scipy", lambda a: jsl.lu(a), A)
case("cho_solve", lambda a, b: jsl.cho_solve(jsl.cho_factor(a), b), SPD, numbers(4))
case(
    "eigh_tridiagonal",
    lambda d, e: jsl.eigh_tridiagonal(d, e, eigvals_only=True),
    numbers(6),
    numbers(5),
)
case("approximate_max", lambda x: lax.approx_max_k(x, 3), numbers(4, 9))
case("approximate_min", lambda x: lax.approx_min_k(x, 3, reduction_dimension=0), numbers(9, 4))

case("grad_solve", jax.grad(lambda a, b: jnp.sum(jnp.linalg.solve(a, b) ** 2)), SPD, matrix(4, 2))
case("grad_det", jax.grad(jnp.linalg.det), A)
case(
    "grad_qr",
    jax.grad(lambda a: sum(jnp.sum(jnp.sin(x)) for x in jnp.linalg.qr(a))),
    TALL.astype(np.float64),
)
case(
    "grad_svd",
    jax.grad(lambda a: sum(jnp.sum(jnp.abs(x)) for x in jnp.linalg.svd(a, full_matrices=False))),
    TALL.astype(np.float64),
)
case(
    "grad_eigh",
    jax.grad(lambda a: sum(jnp.sum(jnp.abs(x)) for x in jnp.linalg.eigh(a))),
    SPD.astype(np.float64),
)
case("grad_cholesky", jax.grad(lambda a: jnp.sum(jnp.linalg.cholesky(a))), SPD)
case("jacobian_inv", jax.jacobian(jnp.linalg.inv), hermitian(3, 3))

case(
    "lapack_in_while",
    lambda a: lax.while_loop(
        lambda c: c[0] < 4,
        lambda c: (c[0] + 1, jnp.linalg.solve(c[1], a) + jnp.linalg.qr(c[1])[0]),
        (0, a),
    ),
    SPD,
)
case(
    "lapack_in_scan",
    lambda a, bs: lax.scan(
        lambda c, b: (jnp.linalg.cholesky(c @ c.T / 10 + SPD), jnp.linalg.solve(c, b)), a, bs
    ),
    SPD,
    numbers(5, 4),
)
for _p in (-1.0, 1.0):
    case(
        f"lapack_in_cond_{_p > 0}",
        lambda p, a: lax.cond(p > 0, jnp.linalg.inv, lambda a: a * 2, a),
        np.float32(_p),
        SPD,
    )
case("lapack_vmap", jax.vmap(jnp.linalg.solve), hermitian(40, 3, 3), numbers(40, 3))
case("lapack_in_map", lambda a: lax.map(jnp.linalg.eigh, a), hermitian(3, 4, 4))

case("lapack_empty_lu", lax.linalg.lu, matrix(0, 0))
case("lapack_empty_batch", jnp.linalg.eig, matrix(0, 3, 3))
case("lapack_empty_eig", jnp.linalg.eig, matrix(0, 0))
case("lapack_empty_columns", lambda a: jnp.linalg.qr(a, mode="complete"), matrix(4, 0))
case("lapack_empty_sides", jnp.linalg.solve, SPD, matrix(4, 0))
case("lapack_indefinite", jnp.linalg.cholesky, np.stack([SPD, -SPD]))
case("lapack_singular", jnp.linalg.inv, np.ones((3, 3), np.float32))
case(
    "lapack_not_finite",
    jnp.linalg.eig,
    np.stack([matrix(3, 3), np.full((3, 3), np.nan, np.float32)]),
)

case("portable_qr", lambda a: jnp.linalg.qr(a), matrix(2, 5, 3))
case("portable_qr_complex", lambda a: jnp.linalg.qr(a), matrix(5, 3, dtype=np.complex64))
