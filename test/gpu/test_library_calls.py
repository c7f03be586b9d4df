"""Functions of LAPACK, which the host calls between kernels, on the emulated driver."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.scipy.linalg as jsl
import numpy as np
import pytest
from emulator import Emulator
from jax import lax
from jax import numpy as jnp
from models import compile_for_gpu, load_on_emulator
from test_graphs import graphs

import stepwell
from stepwell.errors import ArtifactError
from stepwell.launch import CALL, instructions
from stepwell.runtime import library_functions
from stepwell.runtime.cuda_executable import CudaExecutable


def matrices(*shape: int, dtype: str = "float32", seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    values = generator.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        values = values + 1j * generator.standard_normal(shape)
    return values.astype(dtype)


def exported(function: Callable, *inputs: np.ndarray) -> object:
    with jax.enable_x64(True):
        shapes = [jax.ShapeDtypeStruct(x.shape, x.dtype) for x in inputs]
        return jax.export.export(jax.jit(function), platforms=["cpu"])(*shapes)


def assert_as_on_cpus(function: Callable, emulator: Emulator, *inputs: np.ndarray) -> list[str]:
    """Two calls give what the CPU gives, from the same functions of LAPACK: integers exactly,
    others within 100 roundings of the largest element. Returns what is called on the host."""
    model = exported(function, *inputs)
    compiled = compile_for_gpu(model)
    executable = load_on_emulator(compiled, emulator)
    want = stepwell.compile(model)(*inputs)
    for got in (executable(*inputs), executable(*inputs)):
        for one, other in zip(got, want, strict=True):
            assert one.dtype == other.dtype
            if one.dtype.kind in "biu":
                np.testing.assert_array_equal(one, other)
            else:
                scale = max(1.0, float(np.max(np.abs(other), initial=0)))
                atol = 100 * float(np.finfo(one.dtype).eps) * scale
                np.testing.assert_allclose(one, other, rtol=0, atol=atol)
    return [text.split(": ")[1] for text in compiled.remarks]


def factors(a: jax.Array) -> object:
    """LU, QR, singular values and vectors of a batch."""
    return lax.linalg.lu(a), jnp.linalg.qr(a), jnp.linalg.svd(a, full_matrices=False)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_factors(dtype: str, emulator: Emulator) -> None:
    """Buffers that a function updates, working memory, numbers of several sizes, and batches."""
    called = assert_as_on_cpus(factors, emulator, matrices(3, 6, 4, dtype=dtype))
    prefix = {"float32": "s", "float64": "d", "complex64": "c", "complex128": "z"}[dtype]
    assert f"lapack.{prefix}getrf is called on the host" in called
    assert f"lapack.{prefix}gesdd is called on the host" in called


def test_permutations(emulator: Emulator) -> None:
    """What a loop makes of pivots in one block: each thread reads what others wrote before a
    barrier."""
    pivots = np.array([[3, 5, 2, 4], [1, 1, 3, 3], [2, 4, 5, 3]], np.int32)
    assert_as_on_cpus(lambda p: lax.linalg.lu_pivots_to_permutation(p, 6), emulator, pivots)


def test_eigenvalues(emulator: Emulator) -> None:
    """Symmetric, general and Schur's form; one matrix and none."""

    def spectra(a: jax.Array) -> object:
        return jnp.linalg.eigh(a + a.mT), jnp.linalg.eig(a), jsl.schur(a)

    assert_as_on_cpus(spectra, emulator, matrices(5, 5))
    assert_as_on_cpus(jnp.linalg.eigvalsh, emulator, matrices(0, 5, 5))
    assert_as_on_cpus(jnp.linalg.svd, emulator, matrices(2, 3, 0))


def test_complex_factors_and_systems(emulator: Emulator) -> None:
    """Cholesky factors and triangular systems of complex matrices are LAPACK's, too."""
    a, b = matrices(4, 4, dtype="complex64"), matrices(4, 2, dtype="complex64", seed=1)
    positive = a @ a.conj().T + 4 * np.eye(4, dtype=np.complex64)

    def solve(a: jax.Array, b: jax.Array) -> jax.Array:
        return jsl.solve_triangular(jnp.linalg.cholesky(a), b, lower=True)

    called = assert_as_on_cpus(solve, emulator, positive, b)
    assert called == ["lapack.cpotrf is called on the host", "blas.ctrsm is called on the host"]


def test_between_kernels(emulator: Emulator) -> None:
    """Kernels write what a function reads, and read what it writes; calls follow one another in the
    same memory of the host; weights are operands."""
    weight = matrices(8, 8, seed=4)

    def layers(x: jax.Array) -> jax.Array:
        for _ in range(3):
            q, r = jnp.linalg.qr(jnp.tanh(x @ weight))
            x = q @ weight + jnp.linalg.solve(weight, r)
        return x

    assert_as_on_cpus(layers, emulator, matrices(8, 8, seed=5))
    assert graphs(emulator) == 0


def test_in_loops_and_branches(emulator: Emulator) -> None:
    """A loop of the host calls again, in a branch; what was read in the last step is not kept."""

    def iterate(a: jax.Array) -> jax.Array:
        def step(i: jax.Array, a: jax.Array) -> jax.Array:
            q, r = jnp.linalg.qr(a)
            return lax.cond(i % 2 == 0, lambda: r @ q, lambda: jnp.linalg.inv(a))

        return lax.fori_loop(0, 5, step, a)

    assert_as_on_cpus(iterate, emulator, matrices(6, 6) + 4 * np.eye(6, dtype=np.float32))


def test_profile_times_calls(emulator: Emulator) -> None:
    a = matrices(2, 4, 4)
    compiled = compile_for_gpu(exported(lambda a: jnp.linalg.eigvalsh(jnp.sin(a)), a))
    executable = load_on_emulator(compiled, emulator)
    profile = executable.profile(a)
    assert [kernel for kernel, _ in profile] == list(executable.kernels)
    (call,) = (kernel for kernel, _ in profile if kernel.strategy == "library-call")
    assert call.name == "library_call_0"
    assert all(time > 0 for _, time in profile)


def test_without_page_locked_memory(emulator: Emulator) -> None:
    """The driver copies by way of its own where the system has none left."""
    emulator.configure(pinned=False)
    assert_as_on_cpus(factors, emulator, matrices(2, 4, 4))


def test_damaged_calls(emulator: Emulator) -> None:
    """Numbers of functions, counts, and places beyond what there is are seen before a call."""
    compiled = compile_for_gpu(exported(jnp.linalg.eigvalsh, matrices(3, 3)))
    load_on_emulator(compiled, emulator)
    program = compiled.artifact.manifest.cuda
    assert program is not None
    (at,) = (at for operation, at in instructions(program.code) if operation == CALL)
    for place, value in ((1, 7), (2, -1), (3, 1 << 40), (5, 25), (9, -8)):
        code = list(program.code)
        code[at + place] = value
        object.__setattr__(program, "code", tuple(code))
        with pytest.raises(stepwell.Error, match=f"the launch program is damaged at position {at}"):
            CudaExecutable(compiled.artifact)
        code[at + place] = 0


def test_missing_scipy_is_said(monkeypatch: pytest.MonkeyPatch, emulator: Emulator) -> None:
    compiled = compile_for_gpu(exported(jnp.linalg.eigvalsh, matrices(3, 3)))
    monkeypatch.setattr(library_functions, "_MODULES", {"lapack": "a_module_that_is_not_there"})
    with pytest.raises(ArtifactError, match="calls ssyevd of LAPACK, which SciPy provides"):
        load_on_emulator(compiled, emulator)
