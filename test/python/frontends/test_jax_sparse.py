"""Sparse matrices of JAX, `jax.experimental.sparse`, against dense ones in numpy."""

from __future__ import annotations

import numpy as np
import pytest

import stepwell

jax = pytest.importorskip("jax")

from jax.experimental import sparse  # noqa: E402

RNG = np.random.default_rng(0)
KINDS = [np.float32, np.int32, np.complex64]
TOLERANCE = 1e-5  # sums of eight products of order ten, in another order


def matrix(rows: int, columns: int, kind: type) -> np.ndarray:
    """Two of three elements are zero, and the first and the fourth row."""
    dense = np.where(RNG.random((rows, columns)) < 0.3, RNG.uniform(-5, 5, (rows, columns)), 0)
    dense[:4:3] = 0
    return dense.astype(kind)


@pytest.mark.parametrize("kind", KINDS)
def test_products_of_sparse_rows(kind: type) -> None:
    """With places for more elements than there are, none, and a dense vector."""

    def function(a: jax.Array, x: jax.Array) -> list[jax.Array]:
        rows = sparse.BCSR.fromdense(a, nse=60)
        none = sparse.BCSR.fromdense(a[:, :0], nse=0)
        return [rows @ x, rows @ x[:, 0], none @ x[:0]]

    a, x = matrix(9, 8, kind), RNG.uniform(-5, 5, (8, 3)).astype(kind)
    assert "cpu_csr_sparse_dense_ffi" in jax.jit(function).lower(a, x).as_text()
    wanted = [a @ x, a @ x[:, 0], np.zeros((9, 3), kind)]
    for got, want in zip(stepwell.jit(function)(a, x), wanted, strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=TOLERANCE, atol=TOLERANCE)


def test_elements_outside_of_the_rows_do_not_count() -> None:
    """Whatever they are: the first row starts behind the first element, the last one ends before
    the last."""
    data = np.array([np.nan, 1, 2, 3, np.inf], np.float32)
    columns, starts = np.array([0, 1, 0, 1, 9], np.int32), np.array([1, 3, 3, 4], np.int32)
    x = np.array([[10.0, 1.0], [100.0, 2.0]], np.float32)

    def function(*parts: jax.Array) -> jax.Array:
        *rows, x = parts
        return sparse.BCSR(tuple(rows), shape=(3, 2)) @ x

    got = stepwell.jit(function)(data, columns, starts, x)
    np.testing.assert_array_equal(got, np.array([[120, 4], [0, 0], [300, 6]], np.float32))


def test_product_of_two_sparse_matrices() -> None:
    def function(a: jax.Array, b: jax.Array) -> jax.Array:
        return (sparse.BCOO.fromdense(a, nse=50) @ sparse.BCOO.fromdense(b, nse=16)).todense()

    a, b = matrix(9, 8, np.float32), matrix(8, 3, np.float32)
    got = stepwell.jit(function)(a, b)
    np.testing.assert_allclose(got, a @ b, rtol=TOLERANCE, atol=TOLERANCE)
