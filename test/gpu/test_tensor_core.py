"""Contractions on tensor cores: every tile, operand type and layout, with rows, columns and sums
that nothing divides. Integers, whose products and sums every type holds: results are exact."""

from __future__ import annotations

import jax
import ml_dtypes
import numpy as np
import pytest
from emulator import Emulator
from jax import lax
from models import Compiled, compile_for_gpu, load_on_emulator

BF16 = ml_dtypes.bfloat16
SUMS = {np.float16: np.float32, BF16: np.float32, np.float32: np.float32, np.int8: np.int32}


def integers(*shape: int, seed: int, dtype: type) -> np.ndarray:
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(dtype)


def product(a: np.ndarray, b: np.ndarray, dims: tuple) -> object:
    """dot_general in the type that sums have."""
    out = SUMS[a.dtype.type]
    function = jax.jit(lambda a, b: lax.dot_general(a, b, dims, preferred_element_type=out))
    return jax.export.export(function)(a, b).mlir_module()


def check(model: object, inputs: list[np.ndarray], expected: np.ndarray, emulator: Emulator,
          target: str = "cuda:sm_80") -> Compiled:  # fmt: skip
    compiled = compile_for_gpu(str(model), target, precision="tf32")
    executable = load_on_emulator(compiled, emulator)
    assert any(".mma." in text for text in compiled.kernels.values())
    for backwards in (False, True):
        emulator.configure(backwards=backwards)
        np.testing.assert_array_equal(executable(*inputs)[0].astype(expected.dtype), expected)
    return compiled


ROWS = {  # dimensions of lhs and rhs, by what is contiguous in them
    "kk": ((0, 2, 1), (0, 2, 1)),
    "kn": ((0, 2, 1), (0, 1, 2)),
    "mk": ((0, 1, 2), (0, 2, 1)),
    "mn": ((0, 1, 2), (0, 1, 2)),
}


@pytest.mark.parametrize("dtype", SUMS, ids=lambda dtype: np.dtype(dtype).name)
@pytest.mark.parametrize("layout", ["kk", "kn", "mk", "mn"])
@pytest.mark.parametrize("sizes", [(2, 72, 96, 80), (1, 37, 51, 45)], ids=["chunks", "odd"])
def test_layout(dtype: type, layout: str, sizes: tuple[int, ...], emulator: Emulator) -> None:
    """Operands that lie along k, or along rows and columns; whole chunks, and not."""
    batch, m, k, n = sizes
    a, b = integers(batch, m, k, seed=1, dtype=dtype), integers(batch, k, n, seed=2, dtype=dtype)
    expected = np.matmul(a.astype(np.float64), b.astype(np.float64))
    left, right = 2, 1
    if layout[0] == "m":
        a, left = a.swapaxes(1, 2).copy(), 1
    if layout[1] == "k":
        b, right = b.swapaxes(1, 2).copy(), 2
    model = product(a, b, (((left,), (right,)), ((0,), (0,))))
    check(model, [a, b], expected, emulator)
