"""Networks whose first layers run on a part of the batch at a time, against XLA."""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np
import pytest
from jax import lax
from jax import numpy as jnp

import stepwell

BATCH, SIDE, CHANNELS = 4, 96, 64
"""Activations of 9.4 MB, of which a cache of 8 MB holds those of one image."""

TARGET = "x86_64-v3"
"""Whether parts gain depends on the machine's memory: here it is one of a known machine."""


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def conv(x, w, stride: int = 1):
    layout = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(x, w, (stride, stride), "SAME", dimension_numbers=layout)


def filters(side: int, inputs: int, outputs: int, seed: int) -> np.ndarray:
    return normal(side, side, inputs, outputs, seed=seed) / np.float32(side * np.sqrt(inputs))


WIDE = filters(3, CHANNELS, CHANNELS, 1)
NARROW = filters(1, CHANNELS, CHANNELS, 2)
LAST = filters(3, CHANNELS, 32, 3)


def residual(x, bias):
    """Weights are constants; the bias differs from image to image."""
    y = jnp.maximum(conv(x, WIDE) + bias, 0)
    y = conv(y, NARROW) + x
    return jnp.maximum(conv(jnp.maximum(y, 0), LAST, 2), 0).mean((1, 2))


def pooled(x, w):
    """A weight is an argument; pooling, padding, slices and concatenation between layers."""
    y = lax.reduce_window(conv(x, w), -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
    y = jnp.concatenate([y[..., :40], jnp.tanh(y[..., 8:])], -1)[:, 1:, ::2]
    y = jnp.pad(y, ((0, 0), (1, 0), (2, 1), (0, 0)))
    return y.reshape(BATCH, -1, 96) @ filters(1, 96, 5, 4)[0, 0]


def also_between(x):
    """What the first part makes is a result too, and read in another part."""
    y = conv(jnp.maximum(conv(x, NARROW), 0), NARROW)
    z = conv(y, LAST, 8)
    return y, jnp.transpose(z, (1, 0, 2, 3)), z + 1


IMAGE = normal(BATCH, SIDE, SIDE, CHANNELS)
PROGRAMS = [
    (residual, (IMAGE, normal(BATCH, 1, 1, CHANNELS, seed=5))),
    (pooled, (IMAGE, WIDE)),
    (also_between, (IMAGE,)),
]


@pytest.mark.parametrize(
    ("function", "arguments"), PROGRAMS, ids=lambda v: getattr(v, "__name__", "")
)
def test_parts(function, arguments) -> None:
    exported = jax.export.export(jax.jit(function))(*arguments)
    lowered = stepwell.lower(exported, target=TARGET)
    lowered.step("linalg")
    assert "scf.while" in str(lowered)  # else this tests nothing
    exe = stepwell.compile(exported, target=TARGET, threads=1)
    _assert_right(exe, function, arguments)


@pytest.mark.parametrize(
    ("function", "arguments"), PROGRAMS, ids=lambda v: getattr(v, "__name__", "")
)
def test_images_of_threads(function, arguments, tmp_path: Path) -> None:
    """Each of two threads has images of its own; so it is if more or fewer run the artifact."""
    exported = jax.export.export(jax.jit(function))(*arguments)
    lowered = stepwell.lower(exported, target=TARGET, threads=2)
    lowered.step("affine")
    assert "stepwell.parts = array<i64: 2" in str(lowered)
    exe = stepwell.compile(exported, target=TARGET, threads=2)
    for _ in range(10):
        _assert_right(exe, function, arguments)
    assert len(exe.profile(*arguments)) > BATCH  # traced, it is a loop like others
    _assert_right(exe, function, arguments)
    exe.save(tmp_path / "model.stepwell")
    for threads in (1, 3):
        _assert_right(
            stepwell.load(tmp_path / "model.stepwell", threads=threads), function, arguments
        )


def _assert_right(exe, function, arguments) -> None:
    expected = jax.tree.leaves(jax.jit(function)(*arguments))
    for result, value in zip(exe(*arguments), expected, strict=True):
        np.testing.assert_allclose(result, value, rtol=2e-4, atol=2e-4)  # sums of 576 terms


def test_more_threads_than_images() -> None:
    """Parts of the batch would be too small to share: it stays whole."""
    exported = jax.export.export(jax.jit(residual))(*PROGRAMS[0][1])
    lowered = stepwell.lower(exported, target=TARGET, threads=16 * BATCH)
    lowered.step("linalg")
    assert "scf.while" not in str(lowered)
