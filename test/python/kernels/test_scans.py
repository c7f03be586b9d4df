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


def recurrence_inputs(length: int) -> tuple[np.ndarray, np.ndarray]:
    """Factors and summands of two linear recurrences."""
    generator = np.random.default_rng(3)
    factors = generator.uniform(0.5, 1, (2, length)).astype(np.float32)
    return factors, generator.standard_normal((2, length)).astype(np.float32)


def composed(length: int, reverse: bool) -> Callable[..., tuple[jax.Array, ...]]:
    """The maps y -> a y + b up to each element (or from it on), composed from left to right: a
    cumulative reduction of two operands whose body does not commute."""
    pads = ((0, 0), (0, length - 1) if reverse else (length - 1, 0))

    def compose(before: tuple, after: tuple) -> tuple:
        return after[0] * before[0], after[0] * before[1] + after[1]

    def function(a: jax.Array, b: jax.Array) -> tuple[jax.Array, ...]:
        start = np.float32(1), np.float32(0)
        return lax.reduce_window((a, b), start, compose, (1, length), (1, 1), pads)

    return function


def recurrence(a: np.ndarray, b: np.ndarray, reverse: bool) -> tuple[np.ndarray, np.ndarray]:
    """What `composed` means, in f64."""
    products, sums = np.empty((2, *a.shape))
    for i in range(a.shape[1]):
        product, total = np.ones(len(a)), np.zeros(len(a))
        for j in range(i, a.shape[1]) if reverse else range(i + 1):
            product, total = a[:, j] * product, a[:, j] * total + b[:, j].astype(np.float64)
        products[:, i], sums[:, i] = product, total
    return products, sums


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", [20, 100])
def test_bodies_that_do_not_commute(length: int, reverse: bool) -> None:
    a, b = recurrence_inputs(length)
    module = export.export(jax.jit(composed(length, reverse)))(a, b).mlir_module()
    want = recurrence(a, b, reverse)
    for got, expected in zip(stepwell.compile(str(module))(a, b), want, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=2e-6)
