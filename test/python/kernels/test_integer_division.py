"""Quotients and remainders of integers, against XLA: equal, also where nothing is right (by zero,
the least by -1)."""

from __future__ import annotations

import contextlib

import jax
import numpy as np
import pytest
from jax import lax

import stepwell

COUNT = 5000

TYPES = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")


@pytest.mark.parametrize("dtype", TYPES)
def test_quotients_and_remainders(dtype: str) -> None:
    """Of all pairs of extremes, of any numbers, and of multiples and their neighbours."""
    limits = np.iinfo(dtype)
    extremes = np.array([limits.min, limits.min + 1, limits.max, limits.max - 1, 0, 1, 2], dtype)
    if limits.min:
        extremes = np.append(extremes, np.array([-1, -2], dtype))
    some, others = map(np.ravel, np.meshgrid(extremes, extremes))
    random = np.random.default_rng(0)
    x, y = random.integers(limits.min, limits.max, (2, COUNT), dtype, endpoint=True)
    step = random.integers(1, int(limits.max) ** 0.5, COUNT, dtype)
    multiple = (x // step * step).astype(dtype)
    numerators = [some, x, x, multiple, multiple - 1, multiple + 1]
    divisors = [others, y, step, step, step, step]

    def divided(x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
        return lax.div(x, y), lax.rem(x, y)

    wide = jax.enable_x64(True) if dtype.endswith("64") else contextlib.nullcontext()
    with wide:
        feed = np.concatenate(numerators), np.concatenate(divisors)
        results = stepwell.jit(divided)(*feed)
        wanted = jax.jit(divided)(*feed)
    for result, expected in zip(results, wanted, strict=True):
        np.testing.assert_array_equal(result, expected)
