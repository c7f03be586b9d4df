"""Fourier transforms on GPUs: products with constant matrices that all blocks share, beside numpy
in double precision."""

from __future__ import annotations

from collections.abc import Callable

import jax
import numpy as np
import pytest
from emulator import Emulator
from models import compile_for_gpu, load_on_emulator

TRANSFORMS: dict[str, tuple[Callable, Callable, tuple[int, ...], type]] = {
    "long": (jax.numpy.fft.fft, np.fft.fft, (1, 4096), np.complex64),
    "inverse": (jax.numpy.fft.ifft, np.fft.ifft, (3, 1536), np.complex64),
    "real": (jax.numpy.fft.rfft, np.fft.rfft, (5, 1000), np.float32),
    "back to real": (jax.numpy.fft.irfft, np.fft.irfft, (2, 301), np.complex64),
    "two dimensions": (jax.numpy.fft.fft2, np.fft.fft2, (2, 24, 36), np.complex64),
    "a prime": (jax.numpy.fft.fft, np.fft.fft, (1, 521), np.complex64),
}
"""jax's function and numpy's, and the operand."""


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms(name: str, emulator: Emulator) -> None:
    """No kernel runs on one block; within 1e-6 of the largest number, in f32."""
    function, reference, shape, kind = TRANSFORMS[name]
    parts = np.random.default_rng(0).standard_normal((2, *shape))
    x = (parts[0] + 1j * parts[1] if kind is np.complex64 else parts[0]).astype(kind)
    module = str(jax.export.export(jax.jit(function))(x).mlir_module())
    compiled = compile_for_gpu(module)
    assert not compiled.remarks
    (got,) = load_on_emulator(compiled, emulator)(x)
    expected = reference(x.astype(np.complex128 if kind is np.complex64 else np.float64))
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize("name", ["long", "real", "back to real"])
def test_precision_tf32_keeps_f32(name: str) -> None:
    """Products would be of tf32: the passes over the elements stay, in f32."""
    function, _, shape, kind = TRANSFORMS[name]
    module = str(jax.export.export(jax.jit(function))(np.zeros(shape, kind)).mlir_module())
    compiled = compile_for_gpu(module, precision="tf32")
    assert not any("mma" in text for text in compiled.kernels.values())
