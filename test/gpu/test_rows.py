"""Softmax, norms and sums of rows of any length, by all ways in which threads share a row."""

from __future__ import annotations

from collections.abc import Callable

import jax
import numpy as np
import pytest
from emulator import Emulator
from jax import numpy as jnp
from models import compile_for_gpu, load_on_emulator

from stepwell.passes.stablehlo import split_long_reductions

RANDOM = np.random.default_rng(11)


def softmax(x: jax.Array) -> jax.Array:
    return jax.nn.softmax(x.astype(np.float32)).astype(x.dtype)


def layer_norm(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The norm, and the mean, of rows."""
    wide = x.astype(np.float32)
    mean = wide.mean(-1, keepdims=True)
    variance = jnp.square(wide - mean).mean(-1, keepdims=True)
    return ((wide - mean) * jax.lax.rsqrt(variance + 1e-5)).astype(x.dtype), mean[:, 0]


def sums(x: jax.Array) -> jax.Array:
    return jnp.square(x).sum(-1)


ROWS: dict[str, tuple[int, int, str]] = {
    "one-thread": (64, 4, "cuda:sm_90a"),
    "half-a-warp": (6, 64, "cuda:sm_90a"),
    "half-a-warp-and-rows-of-no-warp": (5, 64, "cuda:sm_90a"),
    "part-of-a-warp": (7, 100, "cuda:sm_90a"),
    "warp": (9, 768, "cuda:sm_90a"),
    "warp-with-a-rest": (3, 516, "cuda:sm_90a"),
    "warp-without-vectors": (3, 517, "cuda:sm_90a"),
    "block": (2, 4096, "cuda:sm_90a"),
    "block-with-a-rest": (2, 2060, "cuda:sm_90a"),
    "cluster": (2, 32768, "cuda:sm_90a"),
    "cluster-with-a-rest": (2, 9004, "cuda:sm_90a"),
    "more-than-a-cluster": (1, 140004, "cuda:sm_90a"),
    "more-than-a-block": (2, 40004, "cuda:sm_80"),
}  # fmt: skip
"""How many rows, their length, and the target."""


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("function", [softmax, layer_norm, sums])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_same_as_jax(
    name: str,
    function: Callable[[jax.Array], jax.Array],
    dtype: type,
    emulator: Emulator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(split_long_reductions, "LONG_ROW", 1 << 20)
    rows, length, target = ROWS[name]
    x = RANDOM.standard_normal((rows, length)).astype(dtype)
    module = jax.export.export(jax.jit(function), platforms=["cpu"])(x).mlir_module()
    compiled = compile_for_gpu(str(module), target=target)
    assert not compiled.remarks
    assert len(compiled.kernels) == 1
    got = load_on_emulator(compiled, emulator)(x)
    # What is computed in f32 differs by the order of its sums, what is rounded to f16 by one unit.
    tolerance = 2e-3 if dtype == np.float16 else 2e-6
    for one, other in zip(got, jax.tree.leaves(jax.jit(function)(x)), strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("target", "length"), [("cuda:sm_80", 3 << 13), ("cuda:sm_90a", 3 << 15)])
def test_many_lanes(target: str, length: int, emulator: Emulator) -> None:
    """A thread holds two vectors of bytes, whose sums are words."""
    x = RANDOM.integers(-128, 128, (17, length)).astype(np.int8)

    def sums_of_bytes(x: jax.Array) -> jax.Array:
        return x.astype(np.int32).sum(-1)

    module = jax.export.export(jax.jit(sums_of_bytes), platforms=["cpu"])(x).mlir_module()
    compiled = compile_for_gpu(str(module), target=target)
    (got,) = load_on_emulator(compiled, emulator)(x)
    np.testing.assert_array_equal(got, x.sum(-1, dtype=np.int32))
