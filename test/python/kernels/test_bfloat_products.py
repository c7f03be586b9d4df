"""Products of bf16, which CPUs with AVX512-BF16 multiply two at a time and sum in f32.

The products themselves are exact in f32, so that sums differ by their order alone; a result of bf16
is rounded once.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from programs import normal

import stepwell

BFLOAT = ml_dtypes.bfloat16
WITH, WITHOUT = "x86_64-v4+vnni+bf16", "x86_64-v4+vnni"

SINGLE, ROUNDED = 2e-6, 1 / 256
"""Of the largest number in the result: a few roundings of f32; half a unit of bf16."""


def bfloats(*shape: int, seed: int = 0) -> np.ndarray:
    return normal(*shape, seed=seed).astype(BFLOAT)


def assert_near(got: np.ndarray, expected: np.ndarray, tolerance: float) -> None:
    bound = tolerance * np.abs(expected).max()
    np.testing.assert_allclose(got.astype(np.float64), expected, rtol=tolerance, atol=bound)


@pytest.mark.parametrize("kind", [jnp.float32, jnp.bfloat16])
def test_matrix_products(kind: type) -> None:
    """Weights of the function are packed, operands of the call brought into words; odd sums and
    narrow results are multiplied in f32."""
    sizes = [(1, 64, 130), (33, 600, 130), (33, 3, 40), (7, 64, 7)]
    xs = [bfloats(m, k) for m, k, _ in sizes]
    ws = [bfloats(k, n, seed=1) for _, k, n in sizes]

    def products(*arrays: jax.Array) -> list[jax.Array]:
        return [
            jnp.matmul(x, y, preferred_element_type=kind)
            for x, w, given in zip(arrays[: len(xs)], ws, arrays[len(xs) :], strict=True)
            for y in (w, given)
        ]

    results = stepwell.compile(jax.jit(products).lower(*xs, *ws), threads=1)(*xs, *ws)
    tolerance = SINGLE if kind == jnp.float32 else ROUNDED
    for number, got in enumerate(results):
        x, w = (arrays[number // 2].astype(np.float64) for arrays in (xs, ws))
        assert got.dtype == np.dtype(kind)
        assert_near(got, x @ w, tolerance)


@pytest.mark.parametrize("side", [1, 3])
def test_convolutions(side: int) -> None:
    """With a bias and an activation; windows are summed in f32, by Winograd's algorithm."""
    x, w = bfloats(2, 9, 10, 24), bfloats(side, side, 24, 40, seed=1)
    bias = bfloats(40, seed=2)

    def layer(x: jax.Array) -> jax.Array:
        y = jax.lax.conv_general_dilated(
            x,
            w.astype(x.dtype),
            (1, 1),
            "SAME",
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
            preferred_element_type=jnp.float32,
        )
        return jax.nn.relu(y + bias.astype(np.float32))

    (got,) = stepwell.compile(jax.jit(layer).lower(x), threads=1)(x)
    expected = np.asarray(layer(jnp.asarray(x.astype(np.float32))))
    assert_near(got, expected, SINGLE * 4)


def test_instructions() -> None:
    x, w = bfloats(8, 64), bfloats(64, 32)
    lowered = jax.jit(lambda x: x @ w).lower(x)
    kernels = {
        target: str(stepwell.lower(lowered, target=target).step("affine"))
        for target in (WITH, WITHOUT)
    }
    assert "dpbf16ps.512" in kernels[WITH]
    assert "dpbf16ps" not in kernels[WITHOUT]
