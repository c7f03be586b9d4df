"""Transposes by tiles: every element arrives, of every width, also where tiles are cut off."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from emulator import Emulator
from jax import numpy as jnp
from models import compile_for_gpu, load_on_emulator

SHAPES = {
    (40, 70): (1, 0),
    (64, 32): (1, 0),
    (3, 33, 65): (0, 2, 1),
    (8, 5, 34): (2, 1, 0),
    (9, 10, 11, 12): (0, 3, 1, 2),
}


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "bool", "int64"])
@pytest.mark.parametrize("shape", SHAPES)
def test_transpose(shape: tuple[int, ...], dtype: str, emulator: Emulator) -> None:
    x = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    if dtype == "bool":
        x = np.random.default_rng(0).random(shape) < 0.5
    with jax.enable_x64(True):
        function = jax.jit(lambda x: jnp.transpose(x, SHAPES[shape]))
        module = str(jax.export.export(function)(x).mlir_module())
    compiled = compile_for_gpu(module)
    (text,) = compiled.kernels.values()
    assert "barrier" in text
    executable = load_on_emulator(compiled, emulator)
    for backwards in (False, True):
        emulator.configure(backwards=backwards)
        np.testing.assert_array_equal(executable(x)[0], x.transpose(SHAPES[shape]))


def test_padded_transpose(emulator: Emulator) -> None:
    """The tiles go where they belong inside of what is around them."""
    x = np.arange(2 * 34 * 9 * 11, dtype=np.float32).reshape(2, 34, 9, 11)
    widths = [(0, 0), (1, 1), (2, 0), (0, 0)]
    function = jax.jit(lambda x: jnp.pad(x.transpose(0, 2, 3, 1), widths, constant_values=-1))
    compiled = compile_for_gpu(str(jax.export.export(function)(x).mlir_module()))
    (text,) = compiled.kernels.values()
    assert "barrier" in text
    (result,) = load_on_emulator(compiled, emulator)(x)
    wanted = np.pad(x.transpose(0, 2, 3, 1), widths, constant_values=-1)
    np.testing.assert_array_equal(result, wanted)
