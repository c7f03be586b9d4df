"""Gathers of constants, and products of tables, worked out when a model is compiled: beside XLA."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import stepwell

jax = pytest.importorskip("jax")
jnp, lax = jax.numpy, jax.lax

RANDOM = np.random.default_rng(0)
DATA = RANDOM.standard_normal((5, 6, 7)).astype(np.float32)
ROWS = RANDOM.integers(0, 6, (5, 3, 7))
PLACES = RANDOM.integers(-2, 8, (4, 2))  # some out of bounds


def clipped(offset: tuple, collapsed: tuple, axes: tuple, sizes: tuple) -> Callable:
    numbers = lax.GatherDimensionNumbers(offset, collapsed, axes)
    return lambda x: lax.gather(x, jnp.asarray(PLACES), numbers, sizes, mode="clip")


def of_bytes(dtype: type) -> Callable:
    """Indices of a type that the length does not fit, of two elements each."""
    numbers = lax.GatherDimensionNumbers((1,), (), (0,))
    places = np.array([[0], [100], [127]], dtype)
    return lambda x: lax.gather(
        jnp.tile(x.reshape(-1), 2), jnp.asarray(places), numbers, (2,), mode="clip"
    )


GATHERS = {
    "int8": of_bytes(np.int8),
    "uint8": of_bytes(np.uint8),
    "vectors": lambda x: x[jnp.array([[0, 4], [2, 3]])],
    "scalar": lambda x: x[jnp.array(3)],
    "elements": lambda x: jnp.take_along_axis(x, jnp.asarray(ROWS), 1),
    "batches": lambda x: jax.vmap(lambda a, i: a[i])(x, jnp.array([0, 1, 5, 3, 2])),
    "points": lambda x: x[1:3, jnp.array([0, 5]), 2],
    "windows": clipped((1, 2), (1,), (0, 1), (2, 1, 7)),
    "all-dimensions": clipped((1, 2, 3), (), (1, 2), (5, 2, 3)),
}


def kernels_and_result(function: Callable) -> tuple[list[str], np.ndarray]:
    """The kinds of the kernels of `function` of a number, and its result for 2."""
    two = np.float32(2)
    exe = stepwell.compile(jax.export.export(jax.jit(function))(two), threads=1)
    return [kernel.strategy for kernel in exe.kernels], exe(two)[0]


@pytest.mark.parametrize("name", GATHERS)
def test_gathers(name: str) -> None:
    def function(y: jax.Array) -> jax.Array:
        return GATHERS[name](jnp.asarray(DATA)) + y

    kinds, result = kernels_and_result(function)
    assert kinds == ["elementwise"]
    np.testing.assert_allclose(result, jax.jit(function)(np.float32(2)), rtol=1e-6)


@pytest.mark.parametrize("rows", [100, 1000])
def test_products_of_tables(rows: int) -> None:
    """A table of sines is larger than what it is made of, and so not stored; its product with
    weights is, unless it is larger than these."""
    weights = RANDOM.standard_normal((512, 256)).astype(np.float32)

    def function(y: jax.Array) -> jax.Array:
        table = jnp.sin(jnp.arange(rows)[:, None] * (jnp.arange(512) / 512 + 0.1))
        return table @ weights + y

    kinds, result = kernels_and_result(function)
    assert ("contraction" in kinds) == (rows * 256 > weights.size)
    expected = jax.jit(function)(np.float32(2))
    np.testing.assert_allclose(result, expected, atol=2e-4)  # 512 terms about 1
