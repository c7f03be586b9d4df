"""The forms of reductions over outer dimensions, exact on integers, forwards and backwards: a
thread an output, vectors of outputs, slices of long reductions that meet in shared memory."""

from __future__ import annotations

from collections.abc import Callable

import jax
import numpy as np
import pytest
from emulator import Emulator
from jax import lax
from jax import numpy as jnp
from models import compile_for_gpu, load_on_emulator

from stepwell.kernels.gpu.reduction import SLICES


def integers(*shape: int) -> np.ndarray:
    return np.random.default_rng(7).integers(-8, 9, shape).astype(np.float32)


def pool(x: jax.Array) -> jax.Array:
    return lax.reduce_window(x, -np.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


SLICED, WIDE, PLAIN = "barrier", "<4 x float>", ""
"""What the LLVM IR of each form has."""

CASES: dict[str, tuple[Callable[[jax.Array], jax.Array], np.ndarray, str]] = {
    "sum-of-columns": (lambda x: x.sum(0), integers(203, 70), SLICED),
    "sum-of-few-columns": (lambda x: x.sum(0) * 2 + 1, integers(1000, 3), SLICED),
    "max-of-columns": (lambda x: x.max(0), integers(64, 33), SLICED),
    "global-pool": (lambda x: jnp.maximum(x.sum((1, 2)), 0), integers(2, 9, 9, 40), SLICED),
    "matrix-vector": (lambda x: x @ jnp.arange(100, dtype="float32"), integers(70, 100), PLAIN),
    "pool": (pool, integers(2, 64, 64, 64), WIDE),
    "short-sum": (lambda x: x.sum(0), integers(5, 77), PLAIN),
}


@pytest.mark.parametrize("name", CASES)
def test_form(name: str, emulator: Emulator) -> None:
    function, x, mark = CASES[name]
    compiled = compile_for_gpu(str(jax.export.export(jax.jit(function))(x).mlir_module()))
    assert any(mark in text for text in compiled.kernels.values())
    executable = load_on_emulator(compiled, emulator)
    for backwards in (False, True):
        emulator.configure(backwards=backwards)
        np.testing.assert_array_equal(executable(x)[0], np.asarray(function(jnp.asarray(x))))


def test_slices_are_warps() -> None:
    assert 1 < SLICES <= 32
