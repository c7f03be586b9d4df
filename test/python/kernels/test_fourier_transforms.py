"""Accuracy of Fourier transforms of all forms: rows, columns, in two steps, by other transforms."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from jax import export
from jax import numpy as jnp

import stepwell

SHAPES: dict[str, tuple[tuple[int, ...], int]] = {
    "rows": ((40, 60), -1),
    "rows of a few lanes": ((3, 16), -1),
    "columns": ((5, 128, 3), 1),
    "columns of one": ((3, 1, 5), 1),
    "columns of many": ((2, 77, 21), 1),
    "two steps": ((2, 30030), -1),
    "two equal steps": ((4096,), -1),
    "rows of a prime length": ((40, 17), -1),
    "columns of prime factors": ((2, 19 * 23, 5), 1),
    "a matrix": ((5, 37), -1),
    "a convolution": ((1, 1013), -1),
    "lanes of their own": ((20, 400), -1),
    "streamed": ((700, 1024), -1),
}
REAL = {
    "one number": (5, 2),
    "rows": (20, 32),
    "rows of a few lanes": (3, 28),
    "lanes of their own": (4, 512),
    "blocks that overlap": (20, 800),
    "streamed": (1100, 1536),
    "two steps": (2, 30030),
    "an odd length": (4, 75),
}
ERROR = {"complex64": 4e-7, "complex128": 2e-15}
"""Relative to the largest result: a few roundings for each of up to 13 passes. The convolution that
makes transforms of prime lengths has three transforms of eight times the length."""


@pytest.mark.parametrize("target", ["x86_64-v3", "host"])
@pytest.mark.parametrize("kind", list(ERROR))
@pytest.mark.parametrize("name", list(SHAPES))
def test_error(name: str, kind: str, target: str) -> None:
    shape, axis = SHAPES[name]
    rng = np.random.default_rng(len(name))
    x = (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(kind)
    with jax.enable_x64(True):

        def both(x: jax.Array) -> tuple[jax.Array, jax.Array]:
            return jnp.fft.fft(x, axis=axis), jnp.fft.ifft(x, axis=axis)

        exported = export.export(jax.jit(both), platforms=["cpu"])(x)
    results = stepwell.compile(exported, target=target, threads=1)(x)
    exact = x.astype(np.complex128)
    wanted = np.fft.fft(exact, axis=axis), np.fft.ifft(exact, axis=axis)
    for result, want in zip(results, wanted, strict=True):
        assert result.dtype == kind
        assert np.max(np.abs(result - want)) <= ERROR[kind] * np.max(np.abs(want))


@pytest.mark.parametrize("target", ["x86_64-v3", "host"])
@pytest.mark.parametrize("kind", list(ERROR))
@pytest.mark.parametrize("name", list(REAL))
def test_error_of_half_spectra(name: str, kind: str, target: str) -> None:
    """Imaginary parts of the ends of half a spectrum do not count."""
    shape = REAL[name]
    length = shape[-1]
    rng = np.random.default_rng(len(name))
    x = rng.standard_normal(shape).astype(np.dtype(kind).type(0).real.dtype)
    half = (shape[0], length // 2 + 1)
    spectrum = (rng.standard_normal(half) + 1j * rng.standard_normal(half)).astype(kind)
    with jax.enable_x64(True):

        def both(x: jax.Array, spectrum: jax.Array) -> tuple[jax.Array, jax.Array]:
            return jnp.fft.rfft(x), jnp.fft.irfft(spectrum, length)

        exported = export.export(jax.jit(both), platforms=["cpu"])(x, spectrum)
    results = stepwell.compile(exported, target=target, threads=1)(x, spectrum)
    wanted = (
        np.fft.rfft(x.astype(np.float64)),
        np.fft.irfft(spectrum.astype(np.complex128), length),
    )
    for result, want in zip(results, wanted, strict=True):
        assert np.max(np.abs(result - want)) <= ERROR[kind] * np.max(np.abs(want))
