"""Cumulative reductions on the emulator: parallel in all elements, and as exact as on CPUs."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from emulator import Emulator
from jax import lax
from models import compile_for_gpu, load_on_emulator
from test_scans import composed, recurrence, recurrence_inputs

ADD = {np.float32: 1e-6, np.float16: 2e-3}
"""Sums are accumulated in wider types and rounded once."""


def run_all(function: object, emulator: Emulator, *inputs: np.ndarray) -> tuple[np.ndarray, ...]:
    """The results of kernels that all run on a whole grid."""
    module = jax.export.export(jax.jit(function), platforms=["cpu"])(*inputs).mlir_module()
    compiled = compile_for_gpu(str(module))
    assert compiled.remarks == []
    return load_on_emulator(compiled, emulator)(*inputs)


def run(function: object, x: np.ndarray, emulator: Emulator) -> np.ndarray:
    """The first of them, of one input."""
    return run_all(function, emulator, x)[0]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(("shape", "axis"), [((1100, 3), 0), ((2, 33), 1), ((2, 64, 2), 1)])
@pytest.mark.parametrize("dtype", ADD)
def test_sums(
    dtype: type, shape: tuple[int, ...], axis: int, reverse: bool, emulator: Emulator
) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    got = run(lambda x: lax.cumsum(x, axis=axis, reverse=reverse), x, emulator)
    ordered = np.flip(x, axis) if reverse else x
    want = np.cumsum(ordered.astype(np.float64), axis=axis)
    want = np.flip(want, axis) if reverse else want
    np.testing.assert_allclose(got, want, rtol=ADD[dtype], atol=ADD[dtype])


def test_maxima_and_integers(emulator: Emulator) -> None:
    x = np.random.default_rng(1).integers(-(2**31), 2**31, (3, 90), dtype=np.int64)
    x = x.astype(np.int32)
    got = run(lambda x: lax.cummax(x, axis=1), x, emulator)
    np.testing.assert_array_equal(got, np.maximum.accumulate(x, axis=1))
    got = run(lambda x: lax.cumsum(x, axis=1), x, emulator)
    np.testing.assert_array_equal(got, np.cumsum(x, axis=1, dtype=np.int64).astype(np.int32))


@pytest.mark.parametrize("reverse", [False, True])
def test_bodies_of_several_operations(reverse: bool, emulator: Emulator) -> None:
    """Logarithms of sums of exponentials; three levels of blocks, and rows behind."""
    x = 20 * np.random.default_rng(2).standard_normal((2, 1100, 2)).astype(np.float32)
    got = run(lambda x: lax.cumlogsumexp(x, axis=1, reverse=reverse), x, emulator)
    ordered = np.flip(x, 1) if reverse else x
    want = np.logaddexp.accumulate(ordered.astype(np.float64), axis=1)
    # Some tens of roundings of numbers up to 80.
    np.testing.assert_allclose(got, np.flip(want, 1) if reverse else want, rtol=2e-6, atol=2e-5)


@pytest.mark.parametrize("reverse", [False, True])
def test_several_operands(reverse: bool, emulator: Emulator) -> None:
    """A linear recurrence, as state space models have it."""
    a, b = recurrence_inputs(150)
    function = composed(150, reverse)
    want = recurrence(a, b, reverse)
    for got, expected in zip(run_all(function, emulator, a, b), want, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=2e-6)


def test_unknown_start(emulator: Emulator) -> None:
    """What comes before the first element is added once, whatever blocks there are."""
    x = np.random.default_rng(4).standard_normal((3, 100)).astype(np.float16)
    start = np.array(3.5, np.float16)

    def function(x: jax.Array, start: jax.Array) -> jax.Array:
        return lax.reduce_window(x, start, lax.add, (1, 100), (1, 1), ((0, 0), (99, 0)))

    (got,) = run_all(function, emulator, x, start)
    np.testing.assert_allclose(got, np.cumsum(x.astype(np.float64), axis=1) + 3.5, rtol=1e-3)


def test_what_stays_on_one_block(emulator: Emulator) -> None:
    """A cumulative reduction inside a loop with little work is a part of the loop's kernel."""
    x = np.random.default_rng(5).standard_normal(40).astype(np.float32)

    def function(x: jax.Array) -> jax.Array:
        return lax.fori_loop(0, 3, lambda i, x: lax.cumlogsumexp(x), x)

    module = jax.export.export(jax.jit(function), platforms=["cpu"])(x).mlir_module()
    compiled = compile_for_gpu(str(module))
    assert any("one block" in remark for remark in compiled.remarks)
    want = x.astype(np.float64)
    for _ in range(3):
        want = np.logaddexp.accumulate(want)
    np.testing.assert_allclose(load_on_emulator(compiled, emulator)(x)[0], want, rtol=1e-5)
