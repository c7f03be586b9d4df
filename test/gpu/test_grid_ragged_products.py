"""Products of rows with the matrix of their group on the emulator."""

from __future__ import annotations

import jax
import numpy as np
from emulator import Emulator
from jax import lax
from models import compile_for_gpu, load_on_emulator


def test_grouped(emulator: Emulator) -> None:
    """A batch of products on tensor cores, and every kernel on a whole grid."""
    random = np.random.default_rng(1)
    x = random.integers(-3, 4, (512, 32)).astype(np.float16)
    w = random.integers(-3, 4, (8, 32, 64)).astype(np.float16)
    sizes = np.array([100, 3, 0, 64, 129, 1, 200, 5], np.int32)
    module = jax.export.export(jax.jit(lax.ragged_dot), platforms=["cpu"])(x, w, sizes)
    compiled = compile_for_gpu(str(module.mlir_module()))
    assert not compiled.remarks
    assert any("mma" in text for text in compiled.kernels.values())
    (got,) = load_on_emulator(compiled, emulator)(x, w, sizes)
    np.testing.assert_array_equal(got, np.asarray(jax.jit(lax.ragged_dot)(x, w, sizes)))
