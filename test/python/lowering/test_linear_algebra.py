"""Linear algebra of JAX by the properties that define it: calls of LAPACK in compiled models.

`test/conformance` compares each with XLA. Here factors multiply to the matrix, vectors are
orthonormal; and artifacts are saved, loaded, split by level and run where SciPy is missing. The
tolerance is 100 roundings for matrices of up to 40 rows.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import stepwell
from stepwell.errors import ArtifactError
from stepwell.lowering import Lowered
from stepwell.runtime import library_functions

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
import jax.scipy.linalg as jsl  # noqa: E402
from jax import export, lax  # noqa: E402

TYPES = ("float32", "complex64")
DOUBLES = ("float64", "complex128")


def matrices(*shape: int, dtype: str, seed: int = 0) -> np.ndarray:
    """Random matrices of any dtype."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        values = values + 1j * rng.standard_normal(shape)
    return values.astype(dtype)


def adjoint(a: np.ndarray) -> np.ndarray:
    """The conjugate transpose of each matrix."""
    return a.swapaxes(-1, -2).conj()


def assert_close(actual: np.ndarray, wanted: np.ndarray) -> None:
    """Compare within 100 roundings of the largest element."""
    tolerance = 100 * np.finfo(actual.dtype).eps
    scale = max(1.0, float(np.max(np.abs(wanted), initial=0)))
    np.testing.assert_allclose(actual, wanted, rtol=0, atol=tolerance * scale)


def assert_orthonormal(vectors: np.ndarray) -> None:
    """The columns of each matrix are of length one and at right angles."""
    identity = np.broadcast_to(
        np.eye(vectors.shape[-1]), (*vectors.shape[:-2], *vectors.shape[-1:] * 2)
    )
    assert_close(adjoint(vectors) @ vectors, identity)


def exported(function: Callable, *arguments: np.ndarray):
    """The exported function; 64-bit types stay what they are."""
    with jax.enable_x64(True):
        shapes = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in arguments]
        return export.export(jax.jit(function), platforms=["cpu"])(*shapes)


def run(function: Callable, *arguments: np.ndarray) -> tuple[np.ndarray, ...]:
    """Compile and run twice, with the same results."""
    executable = stepwell.compile(exported(function, *arguments), threads=2)
    first, second = executable(*arguments), executable(*arguments)
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, other)
    return first


@pytest.mark.parametrize("dtype", TYPES + DOUBLES)
@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (2, 20, 4, 4)])
def test_lu(dtype, shape):
    a = matrices(*shape, dtype=dtype)
    lu, pivots, permutation = run(lax.linalg.lu, a)
    k = min(shape[-2:])
    lower = np.tril(lu, -1)[..., :k] + np.eye(shape[-2], k, dtype=dtype)
    rows = np.take_along_axis(a, permutation[..., None], axis=-2)
    assert_close(lower @ np.triu(lu)[..., :k, :], rows)
    assert pivots.min() >= 0
    assert pivots.max() < shape[-2]


@pytest.mark.parametrize("dtype", TYPES + DOUBLES)
@pytest.mark.parametrize("mode", ["reduced", "complete"])
def test_qr(dtype, mode):
    a = matrices(3, 40, 5, dtype=dtype)
    q, r = run(lambda a: jnp.linalg.qr(a, mode=mode), a)
    assert q.shape == (3, 40, 5 if mode == "reduced" else 40)
    assert_orthonormal(q)
    assert_close(q @ r, a)
    assert_close(r, np.triu(r))


@pytest.mark.parametrize("dtype", TYPES + DOUBLES)
@pytest.mark.parametrize(("rows", "columns"), [(7, 4), (4, 7)])
@pytest.mark.parametrize("full", [False, True])
def test_svd(dtype, rows, columns, full):
    a = matrices(2, rows, columns, dtype=dtype)
    u, s, vh = run(lambda a: jnp.linalg.svd(a, full_matrices=full), a)
    assert s.dtype == a.real.dtype
    assert (np.diff(s) <= 0).all()
    assert_orthonormal(u)
    assert_orthonormal(adjoint(vh))
    assert_close(u[..., :4] * s[:, None, :] @ vh[:, :4], a)
    (values,) = run(lambda a: jnp.linalg.svd(a, compute_uv=False), a)
    assert_close(values, s)


@pytest.mark.parametrize("dtype", TYPES + DOUBLES)
def test_eigh_and_tridiagonal(dtype):
    a = matrices(2, 6, 6, dtype=dtype)
    a = a + adjoint(a)
    values, vectors = run(jnp.linalg.eigh, a)
    assert_orthonormal(vectors)
    assert_close(vectors * values[:, None, :] @ adjoint(vectors), a)
    _, diagonal, beside, _ = run(lax.linalg.tridiagonal, a)
    for number in range(2):
        tri = np.diag(diagonal[number]) + np.diag(beside[number], 1) + np.diag(beside[number], -1)
        assert_close(np.linalg.eigvalsh(tri).astype(values.dtype), values[number])


@pytest.mark.parametrize("dtype", TYPES + DOUBLES)
def test_eig_has_conjugate_pairs(dtype):
    a = matrices(3, 6, 6, dtype=dtype)
    values, left, right = run(lambda a: lax.linalg.eig(a, compute_left_eigenvectors=True), a)
    assert np.any(values.imag != 0)
    assert_close(a @ right, right * values[:, None, :])
    assert_close(adjoint(left) @ a, values[:, :, None] * adjoint(left))
    assert_close(np.linalg.norm(right, axis=1), np.ones((3, 6)))


@pytest.mark.parametrize("dtype", TYPES + DOUBLES)
def test_schur_and_hessenberg(dtype):
    a = matrices(6, 6, dtype=dtype)
    for function in (jsl.schur, lambda a: jsl.hessenberg(a, calc_q=True)):
        form, vectors = run(function, a)
        assert_orthonormal(vectors)
        assert_close(vectors @ form @ adjoint(vectors), a)
        assert_close(np.tril(form, -2), np.zeros_like(form))


@pytest.mark.parametrize("dtype", TYPES + DOUBLES)
def test_cholesky_and_solves(dtype):
    a = matrices(2, 5, 5, dtype=dtype)
    a = a @ adjoint(a) + 5 * np.eye(5, dtype=dtype)
    b = matrices(2, 5, 3, dtype=dtype, seed=1)
    (factor,) = run(jnp.linalg.cholesky, a)
    assert_close(factor @ adjoint(factor), a)
    (x,) = run(jnp.linalg.solve, a, b)
    assert_close(a @ x, b)
    (y,) = run(lambda a, b: jsl.solve_triangular(a, b, lower=True, trans=2), factor, b)
    assert_close(adjoint(factor) @ y, b)


def portable(function: Callable, *arguments: np.ndarray) -> np.ndarray:
    """The result of `function` by operations of StableHLO, not by calls of LAPACK."""
    with jax.enable_x64(True):
        shapes = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in arguments]
        model = export.export(jax.jit(function), platforms=["tpu"])(*shapes)
    return stepwell.compile(model, threads=1)(*arguments)[0]


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
@pytest.mark.parametrize("size", [1, 3, 37, 64])
def test_cholesky_without_a_library(dtype, size):
    a = matrices(2, size, size, dtype=dtype)
    a = a @ adjoint(a) + size * np.eye(size, dtype=dtype)
    beside = np.where(np.triu(np.ones((size, size)), 1), np.nan, 0).astype(dtype)  # not read
    factor = portable(lambda a: lax.linalg.cholesky(a, symmetrize_input=False), a + beside)
    assert_close(factor @ adjoint(factor), a)
    assert_close(np.triu(factor, 1), np.zeros_like(factor))


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("transposed", [True, False])
@pytest.mark.parametrize("sides", [1, 5, 40])
def test_triangular_solve_without_a_library(lower, left, transposed, sides):
    size = 23
    a = matrices(2, size, size, dtype="float64") * 0.1 + np.eye(size)
    part = np.tril if lower else np.triu
    b = matrices(2, *((size, sides) if left else (sides, size)), dtype="float64", seed=1)
    for unit in (False, True):
        solve = lambda a, b, unit=unit: lax.linalg.triangular_solve(  # noqa: E731
            a, b, left_side=left, lower=lower, transpose_a=transposed, unit_diagonal=unit
        )
        x = portable(solve, np.where(part(np.ones_like(a)), a, np.nan), b)
        matrix = part(a, -1 if lower else 1) + np.eye(size) if unit else part(a)
        matrix = matrix.swapaxes(-1, -2) if transposed else matrix
        assert_close(matrix @ x if left else x @ matrix, b)


def test_pivoted_qr_and_column_solves_by_jit():
    a = matrices(5, 4, dtype="float32")
    q, r, order = stepwell.jit(lambda a: jsl.qr(a, pivoting=True))(a)
    assert_orthonormal(q)
    assert_close(q @ r, a[:, order])
    diagonal, beside = matrices(6, dtype="float32"), matrices(5, dtype="float32", seed=1)
    values, vectors = stepwell.jit(jsl.eigh_tridiagonal)(diagonal, beside)
    tri = np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1)
    assert_close(tri @ vectors, vectors * values)
    assert_orthonormal(vectors)


def test_failures_are_what_jax_makes_of_them():
    positive = np.eye(3, dtype=np.float32) * 4
    (factor,) = run(jnp.linalg.cholesky, np.stack([positive, -positive]))
    assert_close(factor[0], np.eye(3, dtype=np.float32) * 2)
    assert np.isnan(factor[1][np.tril_indices(3)]).all()
    infinite = np.full((3, 3), np.inf, np.float32)
    values, vectors = run(jnp.linalg.eig, np.stack([positive, infinite]))
    assert_close(values[0], np.full(3, 4 + 0j, np.complex64))
    assert np.isnan(values[1]).all()
    assert np.isnan(vectors[1]).all()


def test_operands_stay_what_they_are():
    """A function overwrites its matrix: a copy of what is read again, or is an input."""
    a = matrices(4, 4, dtype="float32") + 4 * np.eye(4, dtype=np.float32)
    before = a.copy()
    inverse, product = run(lambda a: (jnp.linalg.inv(a), a @ jnp.linalg.inv(a)), a)
    np.testing.assert_array_equal(a, before)
    assert_close(inverse @ a, np.eye(4, dtype=np.float32))
    assert_close(product, np.eye(4, dtype=np.float32))


def test_calls_in_loops_and_branches():
    a = matrices(4, 4, dtype="float64")
    a = a @ a.T + 4 * np.eye(4)

    def function(a, n):
        def body(state):
            i, x = state
            x = lax.cond(i % 2 == 0, jnp.linalg.inv, lambda x: jnp.linalg.qr(x)[1], x)
            return i + 1, x

        return lax.while_loop(lambda state: state[0] < n, body, (0, a))[1]

    lowered = stepwell.lower(exported(function, a, np.int32(3)), target="cpu")
    host = str(lowered.step("affine"))
    assert "scf.while" in host[: host.index("func.func private")]
    executable = lowered.compile()
    wanted = a
    for count in range(4):
        (actual,) = executable(a, np.int32(count))
        assert_close(actual, wanted)
        wanted = np.linalg.inv(wanted) if count % 2 == 0 else np.linalg.qr(wanted)[1]


def test_gradients_agree_with_differences():
    a = matrices(4, 4, dtype="float64")

    def function(a):
        q, r = jnp.linalg.qr(a)
        s = jnp.linalg.svd(a, compute_uv=False)
        w = jnp.linalg.eigvalsh(a @ a.T)
        return jnp.sum(jnp.sin(q) + r) + jnp.sum(s**3) + jnp.sum(w**2) + jnp.linalg.det(a)

    direction = matrices(4, 4, dtype="float64", seed=1)
    (gradient,) = run(jax.grad(function), a)
    step = 1e-5
    (above,), (below,) = (run(function, a + sign * step * direction) for sign in (1, -1))
    difference = (above - below) / (2 * step)
    np.testing.assert_allclose(np.sum(gradient * direction), difference, rtol=1e-6)


def test_saved_artifact_names_its_functions(tmp_path):
    a = matrices(3, 4, 4, dtype="float64")
    executable = stepwell.compile(exported(jnp.linalg.inv, a))
    executable.save(tmp_path / "inv.stepwell")
    loaded = stepwell.load(tmp_path / "inv.stepwell")
    assert set(loaded.artifact.manifest.functions) == {"lapack.dgetrf", "blas.dtrsm"}
    np.testing.assert_array_equal(loaded(a)[0], executable(a)[0])


@pytest.mark.parametrize("level", ["linalg", "affine", "llvm"])
def test_compilation_goes_on_from_each_level(level, tmp_path):
    a = matrices(3, 4, 4, dtype="float32")
    lowered = stepwell.lower(exported(jnp.linalg.inv, a), target="cpu").step(level)
    path = tmp_path / "model.mlir"
    lowered.save(path)
    resumed = Lowered.resume(path.read_text(), level, weights=f"{path}.safetensors")
    assert_close(resumed.compile()(a)[0] @ a, np.broadcast_to(np.eye(4), (3, 4, 4)))


def test_model_without_lapack_does_not_load_scipy(tmp_path):
    x = np.ones(4, np.float32)
    stepwell.compile(exported(jnp.sin, x)).save(tmp_path / "sin.stepwell")
    code = (
        "import sys, numpy, stepwell; "
        f"stepwell.load({str(tmp_path / 'sin.stepwell')!r})(numpy.ones(4, numpy.float32)); "
        "print('scipy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_missing_scipy_is_said(monkeypatch, tmp_path):
    a = matrices(4, 4, dtype="float32")
    stepwell.compile(exported(jnp.linalg.inv, a)).save(tmp_path / "inv.stepwell")
    for name in library_functions._MODULES.values():
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ArtifactError, match=r"inv\.stepwell calls sgetrf of LAPACK.*install scipy"):
        stepwell.load(tmp_path / "inv.stepwell")


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        ("lapack.nothing", "LAPACK, which the installed SciPy does not have"),
        ("fftw.plan", "of a library that is not known here"),
    ],
)
def test_unknown_functions_are_named(function, sentence):
    with pytest.raises(ArtifactError, match=sentence):
        library_functions.address(function, Path("model.stepwell"))


def test_unknown_call_of_lapack_is_named():
    text = """
    func.func @main(%a: tensor<4x4xf32>) -> tensor<4x4xf32> {
      %0 = stablehlo.custom_call @lapack_sgghrd_ffi(%a)
          : (tensor<4x4xf32>) -> tensor<4x4xf32> loc("gghrd_3")
      return %0 : tensor<4x4xf32>
    }
    """
    with pytest.raises(stepwell.LoweringError, match=r"gghrd_3: .*@lapack_sgghrd_ffi is not supp"):
        stepwell.compile(text)
