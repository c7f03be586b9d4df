"""Images of few channels on tensor cores: zeros and the pixels of a step fill chunks of them."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from emulator import Emulator
from jax import lax
from models import compile_for_gpu, load_on_emulator
from products import integers

CASES = {
    "stem": ((2, 23, 30, 3), (7, 7), (2, 2), "SAME"),
    "plain": ((1, 18, 17, 3), (3, 3), (1, 1), "SAME"),
    "one-channel": ((1, 20, 24, 1), (5, 5), (2, 2), "VALID"),
    "uneven-steps": ((1, 20, 19, 3), (4, 3), (1, 2), ((2, 1), (0, 1))),
    "five-channels": ((1, 16, 16, 5), (4, 4), (4, 4), "VALID"),
    "signals": ((2, 300, 3), (9,), (3,), "SAME"),
}
_NAMES = {3: ("NWC", "WIO", "NWC"), 4: ("NHWC", "HWIO", "NHWC")}


@pytest.mark.parametrize("dtype", [np.float16, np.float32], ids=["f16", "tf32"])
@pytest.mark.parametrize("name", CASES)
def test_convolution(name: str, dtype: type, emulator: Emulator) -> None:
    shape, window, steps, padding = CASES[name]
    x = integers(*shape, seed=1, dtype=dtype)
    w = integers(*window, shape[-1], 64, seed=2, dtype=dtype)

    def convolve(x: jax.Array, w: np.ndarray | jax.Array) -> jax.Array:
        return lax.conv_general_dilated(
            x, w, steps, padding, dimension_numbers=_NAMES[len(shape)],
            preferred_element_type=np.float32,
        )  # fmt: skip

    expected = np.asarray(convolve(x.astype(np.float32), w.astype(np.float32)))
    module = jax.export.export(jax.jit(lambda x: convolve(x, w)))(x).mlir_module()
    compiled = compile_for_gpu(module, precision="tf32")
    (got,) = load_on_emulator(compiled, emulator)(x)
    np.testing.assert_array_equal(got, expected)
    (text,) = (t for t in compiled.kernels.values() if "mma" in t)
    assert "cp.async" in text


def test_strict_precision_adds_no_zeros(emulator: Emulator) -> None:
    """An infinity beside the window reaches no other result."""
    x = np.ones((1, 16, 16, 3), np.float16)
    x[0, 3, 3] = np.inf
    w = np.ones((3, 3, 3, 64), np.float16)

    def convolve(x: jax.Array) -> jax.Array:
        return lax.conv_general_dilated(
            x, w, (2, 2), "VALID", dimension_numbers=_NAMES[4], preferred_element_type=np.float32
        )

    compiled = compile_for_gpu(
        jax.export.export(jax.jit(convolve))(x).mlir_module(), precision="strict"
    )
    (got,) = load_on_emulator(compiled, emulator)(x)
    np.testing.assert_array_equal(got, convolve(x))
