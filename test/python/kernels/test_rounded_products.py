"""Precision "bf16": operands of products by weights are rounded to bf16, and sums are f32.

A product of two such numbers is exact in f32, so that sums differ by their order alone. Machines
without the instruction keep f32.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import ml_dtypes
import numpy as np
import pytest
from jax import lax
from jax import numpy as jnp
from programs import normal

import stepwell
from stepwell import targets
from stepwell.compiler import build

WITH, WITHOUT = "x86_64-v4+vnni+bf16", "x86_64-v4+vnni"
OPTIONS = {"precision": "bf16"}

SINGLE, ROUNDED = 3e-6, 1 / 128
"""Of the largest number in the result: roundings of f32; of bf16 in each operand."""


def rounded(array: np.ndarray) -> np.ndarray:
    """What this machine multiplies."""
    kept = array.dtype if not targets.host().bfloat_dot else ml_dtypes.bfloat16
    return array.astype(kept).astype(np.float64)


def assert_near(got: np.ndarray, expected: np.ndarray, tolerance: float) -> None:
    bound = tolerance * np.abs(expected).max()
    np.testing.assert_allclose(got, expected, rtol=0, atol=bound)


def compiled(function: Callable[..., jax.Array], *arrays: np.ndarray) -> np.ndarray:
    with jax.enable_x64(False):
        lowered = jax.jit(function).lower(*arrays)
    (got,) = stepwell.compile(lowered, options=OPTIONS, threads=1)(*arrays)
    assert got.dtype == np.float32
    return got


@pytest.mark.parametrize(("m", "k", "n"), [(1, 64, 130), (33, 600, 40), (128, 512, 64)])
def test_products(m: int, k: int, n: int) -> None:
    x, w = normal(m, k), normal(k, n, seed=1)
    assert_near(compiled(lambda x: x @ w, x), rounded(x) @ rounded(w), SINGLE)


def convolution(x: jax.Array, w: np.ndarray, stride: int) -> jax.Array:
    layout = ("NHWC", "HWIO", "NHWC")
    w = jnp.asarray(w, x.dtype)
    return lax.conv_general_dilated(x, w, (stride, stride), "SAME", dimension_numbers=layout)


@pytest.mark.parametrize(("side", "stride"), [(1, 1), (1, 2), (5, 3), (6, 2), (8, 2)])
def test_convolutions(side: int, stride: int) -> None:
    """That no algorithm shortens, behind a layer that makes the image and pads it."""
    x, w = normal(2, 17, 19, 24), normal(side, side, 24, 48, seed=1)
    expected = convolution(jnp.asarray(rounded(np.maximum(x, 0))), rounded(w), stride)
    got = compiled(lambda x: convolution(jnp.maximum(x, 0), w, stride), x)
    assert_near(got, np.asarray(expected), SINGLE)


@pytest.mark.parametrize("side", [3, 5, 9])
def test_convolution_that_winograd_may_compute(side: int) -> None:
    x, w = normal(1, 28, 28, 64), normal(side, side, 64, 64, seed=1)
    expected = convolution(jnp.asarray(x.astype(np.float64)), w.astype(np.float64), 1)
    assert_near(compiled(lambda x: convolution(x, w, 1), x), np.asarray(expected), ROUNDED)


def test_what_stays_as_it_is() -> None:
    """Products of two activations, groups, odd channels."""
    x, y, image = normal(16, 32), normal(32, 24, seed=1), normal(1, 9, 9, 3, seed=2)
    w = normal(3, 3, 3, 8, seed=3)
    assert_near(compiled(lambda x, y: x @ y, x, y), x.astype(np.float64) @ y, SINGLE)
    expected = convolution(jnp.asarray(image.astype(np.float64)), w.astype(np.float64), 2)
    got = compiled(lambda x: convolution(x, w, 2), image)
    assert_near(got, np.asarray(expected), SINGLE)


def test_instructions() -> None:
    """Where there are none, the compiler says so."""
    x, w, v = normal(2, 17, 19, 24), normal(3, 3, 24, 48, seed=1), normal(48, 16, seed=2)
    with jax.enable_x64(False):
        lowered = jax.jit(lambda x: convolution(x, w, 2) @ v).lower(x)
    walks = {t: stepwell.lower(lowered, target=t, options=OPTIONS) for t in (WITH, WITHOUT)}
    texts = {target: str(walk.step("affine")) for target, walk in walks.items()}
    kernels = texts[WITH].split("func.func private")
    assert sum("dpbf16ps.512" in kernel for kernel in kernels) == 2
    assert "bf16" not in texts[WITHOUT].replace(WITHOUT, "")
    assert any("does not multiply bf16" in remark for remark in walks[WITHOUT].remarks)
    exact = str(stepwell.lower(lowered, target=WITH).step("affine"))
    assert "dpbf16ps" not in exact


def test_machine_that_does_not_multiply_bfloats(caplog: pytest.LogCaptureFixture) -> None:
    x, w = normal(4, 64), normal(64, 32, seed=1)
    with jax.enable_x64(False):
        lowered = jax.jit(lambda x: x @ w).lower(x)
    build(lowered, "x86_64-v3", options=OPTIONS)
    assert "x86_64-v3 does not multiply bf16: products stay float32" in caplog.text
