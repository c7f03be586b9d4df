"""Reductions to few results in parts: the same numbers, on a grid of more than a few blocks."""

from __future__ import annotations

from collections.abc import Callable

import jax
import numpy as np
import pytest
from emulator import Emulator
from jax import numpy as jnp
from models import compile_for_gpu, load_on_emulator

from stepwell.passes.stablehlo import split_long_reductions

RANDOM = np.random.default_rng(3)


def integers(*shape: int, dtype: type = np.float32) -> np.ndarray:
    """Small numbers, whose sums are exact in any order."""
    return RANDOM.integers(-4, 5, shape).astype(dtype)


def norm_gradient(x: jax.Array, d: jax.Array) -> jax.Array:
    """What a layer norm's scale gets: sums of columns of a product."""
    return (x * d).sum(0)


CASES: dict[str, tuple[Callable[..., jax.Array], tuple[np.ndarray, ...]]] = {
    "sum": (lambda x: (x * 2).sum(), (integers(96, 1024),)),
    "largest": (lambda x: jnp.max(x), (integers(3, 1 << 15, dtype=np.int32),)),
    "least-unsigned": (lambda x: jnp.min(x), (
        RANDOM.integers(7, 2**32, 1 << 16).astype(np.uint32),)),
    "any": (lambda x: (x > 3).any(), (integers(1 << 16),)),
    "all": (lambda x: (x > -5).all(), (integers(1 << 16),)),
    "product": (lambda x: jnp.prod(x), (RANDOM.choice([-1.0, 1.0], 1 << 16).astype(np.float32),)),
    "norm-gradient": (norm_gradient, (integers(4096, 24), integers(4096, 24))),
    "images": (lambda x: x.sum((0, 2, 3)), (integers(3, 5, 7, 9),)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_same_as_jax(name: str, emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(split_long_reductions, "MANY", 1 << 16)
    function, arrays = CASES[name]
    module = jax.export.export(jax.jit(function), platforms=["cpu"])(*arrays).mlir_module()
    compiled = compile_for_gpu(str(module))
    assert not compiled.remarks
    assert len(compiled.kernels) == 2
    (got,) = load_on_emulator(compiled, emulator)(*arrays)
    np.testing.assert_array_equal(got, np.asarray(jax.jit(function)(*arrays)))


def test_bodies_of_several_operations(emulator: Emulator) -> None:
    def logarithm_of_sum(x: jax.Array) -> jax.Array:
        return jax.lax.reduce(x, np.float32(-np.inf), jnp.logaddexp, (1,))

    x = RANDOM.standard_normal((3, 300)).astype(np.float32)
    module = jax.export.export(jax.jit(logarithm_of_sum), platforms=["cpu"])(x).mlir_module()
    compiled = compile_for_gpu(str(module))
    assert not compiled.remarks
    (got,) = load_on_emulator(compiled, emulator)(x)
    # Nine roundings in a row, of numbers below 8.
    np.testing.assert_allclose(got, np.asarray(logarithm_of_sum(x)), rtol=1e-6, atol=1e-6)
