"""Reductions of several operands on the whole grid: exact, and of equal elements the first."""

from __future__ import annotations

from collections.abc import Callable

import jax
import numpy as np
import pytest
from emulator import Emulator
from jax import lax
from jax import numpy as jnp
from models import compile_for_gpu, load_on_emulator

RANDOM = np.random.default_rng(5)


def levels(*shape: int) -> np.ndarray:
    """Numbers of which many are equal."""
    return RANDOM.integers(-9, 10, shape).astype(np.float32)


def with_nan() -> np.ndarray:
    x = levels(4, 700)
    x[1, 650], x[1, 400] = np.nan, np.nan
    return x


def both(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Largest and smallest element of a plane, and the number of the first that is it."""
    numbers = lax.broadcasted_iota(jnp.int32, x.shape, 1)
    start = (np.float32(-np.inf), np.int32(-1))

    def later(a: tuple[jax.Array, ...], b: tuple[jax.Array, ...]) -> tuple[jax.Array, jax.Array]:
        keeps = a[0] >= b[0]
        return jnp.where(keeps, a[0], b[0]), jnp.where(keeps, a[1], b[1])

    return lax.reduce((x, numbers), start, later, (1,))


def pool_with_places(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    numbers = lax.iota(jnp.int32, x.size).reshape(x.shape)

    def larger(a: tuple[jax.Array, ...], b: tuple[jax.Array, ...]) -> tuple[jax.Array, jax.Array]:
        keeps = (a[0] > b[0]) | ((a[0] == b[0]) & (a[1] < b[1]))
        return jnp.where(keeps, a[0], b[0]), jnp.where(keeps, a[1], b[1])

    start = (np.float32(-np.inf), np.int32(x.size))
    sizes = (1, 3, 2, 1), (1, 2, 2, 1), [(0, 0), (1, 1), (0, 1), (0, 0)]
    return lax.reduce_window((x, numbers), start, larger, *sizes)


CASES: dict[str, tuple[Callable[..., object], np.ndarray]] = {
    "vocabulary": (lambda x: jnp.argmax(x, -1), levels(2, 5025)),
    "even": (lambda x: jnp.argmin(x, -1), levels(3, 512)),
    "not-a-number": (lambda x: jnp.argmax(x, -1), with_nan()),
    "columns": (lambda x: jnp.argmax(x, 0), levels(37, 6)),
    "everything": (lambda x: jnp.argmax(x), levels(7, 53)),
    "in-order": (both, levels(3, 97)),
    "pool": (pool_with_places, levels(2, 8, 9, 3)),
    "one": (lambda x: jnp.argmax(x, 1), levels(3, 1)),
}


@pytest.mark.parametrize("name", CASES)
def test_same_as_jax(name: str, emulator: Emulator) -> None:
    function, x = CASES[name]
    module = jax.export.export(jax.jit(function), platforms=["cpu"])(x).mlir_module()
    compiled = compile_for_gpu(str(module))
    assert not compiled.remarks
    want = jax.tree.leaves(jax.jit(function)(x))
    for got, expected in zip(load_on_emulator(compiled, emulator)(x), want, strict=True):
        np.testing.assert_array_equal(got, np.asarray(expected))


def test_one_kernel_a_step() -> None:
    """Value and place leave each step together: 5025 elements, 335, 37, 3, 1."""
    function, x = CASES["vocabulary"]
    module = jax.export.export(jax.jit(function), platforms=["cpu"])(x).mlir_module()
    assert len(compile_for_gpu(str(module)).kernels) == 4
