"""Cumulative reductions of many elements."""

from __future__ import annotations

from collections.abc import Callable

import jax
import numpy as np
import pytest
from jax import export, lax

import stepwell

LENGTH = 100_000


def run(function: Callable[[jax.Array], jax.Array], x: np.ndarray) -> np.ndarray:
    """The result of the compiled function."""
    exported = export.export(jax.jit(function), platforms=["cpu"])(x)
    return stepwell.compile(exported, threads=1)(x)[0]


@pytest.mark.parametrize("reverse", [False, True])
def test_sums_are_rounded_once(reverse: bool) -> None:
    """Within one unit in the last place of the exact sum: sums of f32 are accumulated in f64."""
    x = np.random.default_rng(0).standard_normal((LENGTH, 3)).astype(np.float32)
    result = run(lambda x: lax.cumsum(x, axis=0, reverse=reverse), x)
    ordered = x[::-1] if reverse else x
    want = np.cumsum(ordered.astype(np.longdouble), axis=0)[:: -1 if reverse else 1]
    assert np.max(np.abs(result - want) / np.spacing(np.abs(want).astype(np.float32))) <= 1


@pytest.mark.parametrize("axis", [0, 1])
def test_maxima_are_exact(axis: int) -> None:
    x = np.random.default_rng(1).standard_normal((300, 70)).astype(np.float32)
    result = run(lambda x: lax.cummax(x, axis=axis), x)
    np.testing.assert_array_equal(result, np.maximum.accumulate(x, axis=axis))


def test_integers_wrap_around() -> None:
    x = np.random.default_rng(2).integers(-(2**31), 2**31, LENGTH, dtype=np.int64).astype(np.int32)
    result = run(lambda x: lax.cumsum(x, axis=0), x)
    np.testing.assert_array_equal(result, np.cumsum(x, dtype=np.int64).astype(np.int32))
