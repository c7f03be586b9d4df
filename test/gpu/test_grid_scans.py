"""Cumulative reductions on the emulator: parallel in all elements, and as exact as on CPUs."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from emulator import Emulator
from jax import lax
from models import compile_for_gpu, load_on_emulator

ADD = {np.float32: 1e-6, np.float16: 2e-3}
"""Sums are accumulated in wider types and rounded once."""


def run(function: object, x: np.ndarray, emulator: Emulator) -> np.ndarray:
    """The result of kernels that all run on a whole grid."""
    module = jax.export.export(jax.jit(function), platforms=["cpu"])(x).mlir_module()
    compiled = compile_for_gpu(str(module))
    assert compiled.remarks == []
    return load_on_emulator(compiled, emulator)(x)[0]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("shape", "axis"), [((1100, 3), 0), ((2, 33), 1), ((2, 64, 2), 1)])
@pytest.mark.parametrize("dtype", ADD)
def test_sums(
    dtype: type, shape: tuple[int, ...], axis: int, reverse: bool, emulator: Emulator
) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    got = run(lambda x: lax.cumsum(x, axis=axis, reverse=reverse), x, emulator)
    ordered = np.flip(x, axis) if reverse else x
    want = np.cumsum(ordered.astype(np.float64), axis=axis)
    want = np.flip(want, axis) if reverse else want
    np.testing.assert_allclose(got, want, rtol=ADD[dtype], atol=ADD[dtype])


def test_maxima_and_integers(emulator: Emulator) -> None:
    x = np.random.default_rng(1).integers(-(2**31), 2**31, (3, 90), dtype=np.int64)
    x = x.astype(np.int32)
    got = run(lambda x: lax.cummax(x, axis=1), x, emulator)
    np.testing.assert_array_equal(got, np.maximum.accumulate(x, axis=1))
    got = run(lambda x: lax.cumsum(x, axis=1), x, emulator)
    np.testing.assert_array_equal(got, np.cumsum(x, axis=1, dtype=np.int64).astype(np.int32))
