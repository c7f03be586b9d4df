"""Cholesky factors and triangular systems on the emulator: blocks of 32 rows on the whole grid."""

from __future__ import annotations

import jax
import jax.scipy.linalg as jsl
import numpy as np
import pytest
from emulator import Emulator
from jax import numpy as jnp
from models import compile_for_gpu, load_on_emulator
from test_lint import assembled, needs_ptxas

import stepwell
from stepwell.inspection.gpu_lint import lint
from stepwell.targets.nvidia import TARGETS, NvidiaTarget


def run(program: str, emulator: Emulator, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
    """The results of kernels that all run on a whole grid."""
    compiled = compile_for_gpu(program)
    assert compiled.remarks == []
    return load_on_emulator(compiled, emulator)(*inputs)


def exported(function: object, *inputs: np.ndarray) -> str:
    return str(jax.export.export(jax.jit(function), platforms=["cpu"])(*inputs).mlir_module())


def positive(*shape: int, dtype: type = np.float32) -> np.ndarray:
    """Positive definite matrices."""
    values = np.random.default_rng(0).standard_normal(shape)
    return (values @ values.swapaxes(-1, -2) + shape[-1] * np.eye(shape[-1])).astype(dtype)


def triangle(*shape: int, lower: bool, dtype: type = np.float32) -> np.ndarray:
    """Triangles with a strong diagonal, and NaN on the other side of it, which nobody reads."""
    values = np.random.default_rng(1).standard_normal(shape) / shape[-1] + np.eye(shape[-1])
    other = np.full(shape, np.nan)
    other = np.triu(other, 1) if lower else np.tril(other, -1)
    return (values + other).astype(dtype)


def without_nan(x: np.ndarray) -> np.ndarray:
    return np.where(np.isnan(x), 0, x).astype(np.float64)


def assert_near(got: np.ndarray, want: np.ndarray, like: np.ndarray) -> None:
    """Within 20 roundings of the largest element."""
    tolerance = 20 * float(np.finfo(like.dtype).eps) * np.max(np.abs(want))
    np.testing.assert_allclose(got, want, rtol=0, atol=tolerance)


@pytest.mark.parametrize(
    ("shape", "lower", "dtype"),
    [
        ((3, 5, 5), True, np.float32),
        ((32, 32), False, np.float32),
        ((2, 70, 70), True, np.float32),
        ((96, 96), False, np.float64),
    ],
)
def test_cholesky(shape: tuple[int, ...], lower: bool, dtype: type, emulator: Emulator) -> None:
    """One block, a batch of them, and several with a part of one; the other triangle is NaN."""
    a = positive(*shape, dtype=dtype)
    kind = f"tensor<{'x'.join(map(str, shape))}x{np.dtype(dtype).name.replace('loat', '')}>"
    program = f"""func.func @main(%a: {kind}) -> {kind} {{
      %r = stablehlo.cholesky %a, lower = {str(lower).lower()} : {kind}
      return %r : {kind} }}"""
    (got,) = run(program, emulator, a + 0 * triangle(*shape, lower=lower, dtype=dtype))
    want = np.linalg.cholesky(a.astype(np.float64))
    assert_near(got, want if lower else want.swapaxes(-1, -2), a)


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("transposed", [True, False])
def test_triangular_systems(left: bool, lower: bool, transposed: bool, emulator: Emulator) -> None:
    """Many small ones, and a large one with more right-hand sides than a block of threads."""
    small, large = triangle(3, 7, 7, lower=lower), triangle(1, 75, 75, lower=lower)
    generator = np.random.default_rng(2)
    shapes = [(3, 7, 2), (1, 75, 66)]
    targets = [generator.standard_normal(shape).astype(np.float32) for shape in shapes]
    targets = targets if left else [b.swapaxes(-1, -2).copy() for b in targets]
    inputs = (small, targets[0], large, targets[1])
    kinds = [f"tensor<{'x'.join(map(str, x.shape))}xf32>" for x in inputs]
    options = f"""{{left_side = {str(left).lower()}, lower = {str(lower).lower()},
      unit_diagonal = false,
      transpose_a = #stablehlo<transpose {"TRANSPOSE" if transposed else "NO_TRANSPOSE"}>}}"""
    program = f"""func.func @main(%a: {kinds[0]}, %b: {kinds[1]}, %c: {kinds[2]}, %d: {kinds[3]})
        -> ({kinds[1]}, {kinds[3]}) {{
      %r = "stablehlo.triangular_solve"(%a, %b) {options} : ({kinds[0]}, {kinds[1]}) -> {kinds[1]}
      %s = "stablehlo.triangular_solve"(%c, %d) {options} : ({kinds[2]}, {kinds[3]}) -> {kinds[3]}
      return %r, %s : {kinds[1]}, {kinds[3]} }}"""
    results = run(program, emulator, *inputs)
    for got, matrix, target in zip(results, (small, large), targets, strict=True):
        matrix = without_nan(matrix)
        matrix = matrix.swapaxes(-1, -2) if transposed else matrix
        product = matrix @ got if left else got @ matrix
        assert_near(product, target.astype(np.float64), target)


def test_functions_of_jax(emulator: Emulator) -> None:
    """LAPACK's functions by name: a factor, a system with it, and where there is no factor."""
    a = positive(2, 40, 40)
    b = np.random.default_rng(3).standard_normal((2, 40, 3)).astype(np.float32)

    def solve(a: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array]:
        factor = jnp.linalg.cholesky(a)
        half = jsl.solve_triangular(factor, b, lower=True)
        return factor, jsl.solve_triangular(factor, half, lower=True, trans=1)

    compiled = compile_for_gpu(exported(solve, a, b))
    assert compiled.remarks == []
    executable = load_on_emulator(compiled, emulator)
    factor, x = executable(a, b)
    for got, want in zip((factor, x), jax.jit(solve)(a, b), strict=True):
        assert_near(got, np.asarray(want), a)
    a[1, 20, 20] = -1
    got, want = executable(a, b)[0], np.asarray(jnp.linalg.cholesky(a))
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_array_equal(got[0], factor[0])


@needs_ptxas
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.cpu)
def test_kernels_of_every_architecture(target: NvidiaTarget) -> None:
    """Nothing is spilled, of one block of each."""

    def solve(a: jax.Array, b: jax.Array) -> jax.Array:
        return jsl.solve_triangular(jnp.linalg.cholesky(a), b, lower=True)

    program = exported(solve, positive(32, 32), np.zeros((32, 40), np.float32))
    kernels = assembled(stepwell.lower(program, target="cuda:sm_90a").step("affine"), target)
    assert [finding for kernel in kernels for finding in lint(kernel, target)] == []
