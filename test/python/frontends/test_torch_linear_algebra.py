"""Linear algebra of PyTorch, compiled, against PyTorch itself, by results that are unique."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("scipy")

from torch_comparison import compare  # noqa: E402

import stepwell  # noqa: E402
from stepwell.frontends.torch import backend  # noqa: E402

linalg = torch.linalg


def _matrices(*shape, dtype=torch.float32):
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(0))


def _definite(*shape, dtype=torch.float32):
    x = _matrices(*shape, dtype=dtype)
    return x @ x.mH / shape[-1] + torch.eye(shape[-1], dtype=dtype)


def _factorisations(tall, wide, definite):
    """What is unique up to signs is shown by products."""
    found = []
    for x in (tall, wide):
        for full in (True, False):
            u, s, v = linalg.svd(x, full_matrices=full)
            found += [s, u[..., : s.shape[-1]] * s.unsqueeze(-2) @ v[..., : s.shape[-1], :]]
            found += [u.mH @ u, v @ v.mH]
        for mode in ("reduced", "complete"):
            q, r = linalg.qr(x, mode)
            found += [q @ r, q.mH @ q, r.tril(-1)]
        p, lower, upper = linalg.lu(x)
        found += [p, lower, upper, *linalg.lu_factor(x), linalg.svdvals(x)]
        found.append(linalg.qr(x, "r")[1].abs())
    values, vectors = linalg.eigh(definite)
    found += [values, vectors * values.unsqueeze(-2) @ vectors.mH]
    found += [linalg.eigvalsh(definite.triu(), "U"), linalg.cholesky(definite)]
    found.append(linalg.cholesky(definite.tril(), upper=False))
    values, vectors = linalg.eig(definite + wide[..., :4, :4])
    found.append(vectors * values.unsqueeze(-2) @ linalg.inv(vectors))
    return found


def test_factorisations():
    compare(_factorisations, _matrices(2, 5, 3), _matrices(4, 6), _definite(2, 4, 4))


def _solvers(x, definite, b):
    factor, lu = linalg.cholesky(definite), linalg.lu_factor(x)
    vector = b[0, :, 0]
    return (
        linalg.solve(x, b),
        linalg.solve(x, b.mT, left=False),
        linalg.solve(x[0], vector),
        linalg.solve(x[0], b),
        linalg.inv(x),
        torch.inverse(definite),
        *(linalg.lu_solve(*lu, b, adjoint=adjoint) for adjoint in (False, True)),
        linalg.lu_solve(*lu, b.mT, left=False),
        linalg.solve_triangular(factor, b, upper=False),
        linalg.solve_triangular(factor.mH, b.mT, upper=True, left=False),
        linalg.solve_triangular(factor[:1], b, upper=False, unitriangular=True),
        *torch.triangular_solve(b, x.triu(), transpose=True),
        torch.cholesky_solve(b, factor),
        torch.cholesky_solve(b, factor.mH, upper=True),
        torch.cholesky_inverse(factor),
        linalg.det(x),
        *linalg.slogdet(x),
        torch.logdet(definite),
        linalg.matrix_power(x, -2),
    )


@pytest.mark.filterwarnings("ignore:torch.triangular_solve is deprecated")
def test_solvers():
    x = _matrices(2, 4, 4) + 2 * torch.eye(4)
    compare(_solvers, x, _definite(2, 4, 4), _matrices(2, 4, 3))


def _of_complex_numbers(x, b):
    u, s, v = linalg.svd(x, full_matrices=False)
    q, r = linalg.qr(x)
    definite = x @ x.mH + torch.eye(3)
    return (
        u * s @ v,
        q @ r,
        *linalg.lu(x),
        linalg.eigvalsh(definite),
        linalg.eigvals(x).sum(),
        linalg.lu_solve(*linalg.lu_factor(x), b, adjoint=True),
        torch.cholesky_solve(b, linalg.cholesky(definite)),
        *linalg.slogdet(x),
    )


def test_complex_matrices():
    dtype = torch.complex64
    compare(_of_complex_numbers, _matrices(3, 3, dtype=dtype), _matrices(3, 2, dtype=dtype))


def _what_stands_on_them(x, tall, definite):
    reflectors, factors = torch.geqrf(tall)
    return (
        linalg.pinv(tall),
        linalg.pinv(definite, hermitian=True),
        linalg.matrix_rank(tall @ tall.mT),
        linalg.matrix_norm(tall, "nuc"),
        linalg.matrix_norm(tall, 2),
        linalg.cond(definite),
        linalg.householder_product(reflectors, factors) @ reflectors[:3].triu(),
        torch.ormqr(reflectors, factors, tall, transpose=True).tril(-1),
        linalg.matrix_exp(x),
        linalg.matrix_exp(torch.stack([x * 9, x * 0, x.triu()])),
        linalg.vector_norm(tall, 3, 0),
    )


def test_what_stands_on_factorisations():
    dtype = torch.float64
    x = _matrices(4, 4, dtype=dtype)
    x = x - x.mT  # its exponential turns, and is no number that grows
    compare(_what_stands_on_them, x, _matrices(5, 3, dtype=dtype), _definite(4, 4, dtype=dtype))


def _least_squares(tall, b):
    wide = tall.mT
    exact = linalg.lstsq(tall, b, driver="gels")
    return (
        *linalg.lstsq(tall, b),
        *exact,
        linalg.lstsq(wide, wide @ b).solution,
        linalg.lstsq(tall, b[..., 0]).solution,
    )


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_least_squares(dtype):
    compare(_least_squares, _matrices(2, 5, 3, dtype=dtype), _matrices(2, 5, 2, dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_least_squares_of_dependent_columns(dtype):
    """The shortest solution, that of the pseudoinverse. PyTorch's own answer varies: in one of two
    hundred calls it takes such a matrix to have full rank."""

    class Module(torch.nn.Module):
        def forward(self, x, b):
            found = linalg.lstsq(x, b)
            return found.solution, found.rank

    x, b = _matrices(2, 5, 3, dtype=dtype), _matrices(2, 5, 2, dtype=dtype)
    singular = torch.cat([x, x[..., :1]], -1)
    solution, rank = stepwell.compile(Module(), (singular, b))(singular.numpy(), b.numpy())
    expected = linalg.pinv(singular, rtol=1e-10) @ b
    np.testing.assert_allclose(solution, expected.numpy(), rtol=1e-10, atol=1e-12)
    np.testing.assert_array_equal(rank, [3, 3])


def test_matrices_that_have_no_factorisation_give_nan():
    singular = np.ones((2, 2), np.float32)

    class Module(torch.nn.Module):
        def forward(self, x):
            return linalg.inv(x), linalg.cholesky(-x), linalg.solve(x, x)

    good = 3 * torch.eye(2) - 1
    module = stepwell.compile(Module(), (good - 4,))
    assert all(np.isnan(result).all() for result in module(singular))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_under_torch_compile_they_raise():
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: linalg.inv(x @ x) * 2, backend=backend.stepwell)
    x = _definite(3, 3)
    torch.testing.assert_close(compiled(x), linalg.inv(x @ x) * 2, atol=1e-4, rtol=1e-4)
    with pytest.raises(RuntimeError, match="singular"):
        compiled(torch.ones(3, 3))


def test_gradients():
    torch._dynamo.reset()

    def function(x, definite):
        u, s, v = linalg.svd(x)
        q, r = linalg.qr(x)
        return (
            (u * s @ v).sin().sum()
            + s.square().sum()
            + (q @ r).cos().sum()
            + linalg.eigh(definite)[0].square().sum()
            + linalg.slogdet(x)[1]
        )

    results = []
    for run in (torch.compile(function, backend=backend.stepwell), function):
        leaves = [_definite(4, 4).requires_grad_(), _definite(4, 4).requires_grad_()]
        run(*leaves).backward()
        results.append([leaf.grad for leaf in leaves])
    torch.testing.assert_close(*results, atol=1e-4, rtol=1e-3)
