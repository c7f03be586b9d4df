"""Cumulative reductions of many elements."""

from __future__ import annotations

from collections.abc import Callable

import jax
import numpy as np
import pytest
from jax import export, lax

import stepwell
from stepwell.kernels.cpu import scan

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


SHAPES = [
    ((70,), 0),  # one row
    ((3, 70), 1),  # fewer rows than a tile has
    ((7, 70), 1),  # narrow tiles
    ((16, 64), 1),  # whole tiles
    ((37, 45), 1),  # parts of tiles along both
    ((40, 9), 1),  # rows shorter than a vector
    ((40, 3), 1),  # and than the smallest tile
    ((45, 37), 0),
    ((3, 45, 37), 1),
    ((2, 45, 200), 1),  # several blocks of columns, the last one smaller
    ((5, 4, 45), 2),
    ((4, 3, 0), 1),  # no elements
]
"""Shapes, and the dimension along which to accumulate."""

TYPES = ("float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint32")


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dtype", TYPES)
def test_all_types_and_shapes(dtype: str, reverse: bool) -> None:
    """Small whole numbers, of which all sums here are exact in every type but for f16, which is
    rounded once."""
    generator = np.random.default_rng(5)
    arrays = [generator.integers(0, 9, shape).astype(dtype) for shape, _ in SHAPES]
    axes = [axis for _, axis in SHAPES]

    def function(*arrays: jax.Array) -> list[jax.Array]:
        pairs = list(zip(arrays, axes, strict=True))
        sums = [_accumulated(lax.add, 0, x, axis, reverse) for x, axis in pairs]
        return sums + [_accumulated(lax.max, 0, x, axis, reverse) for x, axis in pairs]

    with jax.enable_x64(True):
        module = export.export(jax.jit(function))(*arrays).mlir_module()
    lowered = stepwell.lower(str(module)).step("affine")
    assert str(lowered).count('kernel.kind = "scan"') == 2 * (len(SHAPES) - 1)
    assert lowered.remarks == []
    results = lowered.compile()(*arrays)
    assert len(results) == 2 * len(SHAPES)
    for number, result in enumerate(results):
        x, axis = arrays[number % len(SHAPES)], axes[number % len(SHAPES)]
        x = np.flip(x, axis) if reverse else x
        if number < len(SHAPES):
            want = np.cumsum(x, axis, dtype=np.float64 if x.dtype.kind == "f" else x.dtype)
        else:
            want = np.maximum.accumulate(x, axis) if x.size else x
        want = np.flip(want, axis) if reverse else want
        assert result.dtype == x.dtype
        np.testing.assert_array_equal(
            result, want.astype(x.dtype), str(SHAPES[number % len(SHAPES)])
        )


def _accumulated(
    combine: Callable, start: int, x: jax.Array, axis: int, reverse: bool
) -> jax.Array:
    """`reduce_window` from one end of a dimension."""
    length, ones = x.shape[axis], (1,) * x.ndim
    window = tuple(length if d == axis else 1 for d in range(x.ndim))
    side = (0, length - 1) if reverse else (length - 1, 0)
    pads = tuple(side if d == axis else (0, 0) for d in range(x.ndim))
    return lax.reduce_window(x, np.array(start, x.dtype), combine, window, ones, pads)


@pytest.mark.parametrize("shape", [(20, 50), (50, 20)])
@pytest.mark.parametrize("axis", [0, 1])
def test_what_is_no_number(shape: tuple[int, ...], axis: int) -> None:
    """NaN stays from where it stands on, infinities of both signs become one, and of two zeros the
    positive one is the larger."""
    x = np.random.default_rng(6).standard_normal(shape).astype(np.float32)
    x[3, 7], x[9, 4], x[12, 4], x[17, 15] = np.nan, np.inf, -np.inf, np.nan
    x[:, 1] = x[1, :] = -0.0
    x[5, 1], x[1, 5] = 0.0, 0.0
    sums = run(lambda x: _accumulated(lax.add, 0, x, axis, False), x)
    want = np.cumsum(x, axis, dtype=np.float64)
    np.testing.assert_allclose(sums, want, rtol=1e-6, atol=1e-6)
    start = np.array(-np.inf, np.float32)
    most = run(lambda x: _accumulated(lax.max, start, x, axis, False), x)
    np.testing.assert_array_equal(most, np.maximum.accumulate(x, axis))
    zeros = most[:, 1] if axis == 0 else most[1]
    assert not np.signbit(zeros[5:][zeros[5:] == 0]).any()


def test_booleans() -> None:
    x = np.random.default_rng(7).random((33, 50)) < 0.02
    for axis in (0, 1):
        for reverse in (False, True):
            got = run(lambda x: _accumulated(lax.bitwise_or, 0, x, axis, reverse), x)  # noqa: B023
            want = np.flip(x, axis) if reverse else x
            want = np.logical_or.accumulate(want, axis)
            np.testing.assert_array_equal(got, np.flip(want, axis) if reverse else want)


@pytest.mark.parametrize("axis", [0, 1])
def test_what_is_computed_on_the_way(axis: int) -> None:
    """Elementwise operations before a scan are part of its kernel, also of other types."""
    x = np.random.default_rng(8).standard_normal((40, 50)).astype(np.float32)

    def function(x: jax.Array) -> jax.Array:
        return lax.cumsum((x * 2 > 1).astype(np.int32), axis=axis)

    module = export.export(jax.jit(function), platforms=["cpu"])(x).mlir_module()
    text = str(stepwell.lower(str(module)).step("affine"))
    assert text.count("kernel.kind =") == 1
    got = stepwell.compile(str(module))(x)[0]
    np.testing.assert_array_equal(got, np.cumsum(x * 2 > 1, axis=axis))


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


@pytest.mark.parametrize("shape", [(1, 31, 33), (31, 33), (16, 257)])
def test_what_follows_has_another_shape(shape: tuple[int, ...]) -> None:
    """The last tile overlaps the one before it, in rows and in columns."""
    x = np.random.default_rng(4).integers(-3, 4, shape).astype(np.int32)
    axis = len(shape) - 1
    exported = export.export(jax.jit(lambda x: -lax.cummin(x, axis=axis, reverse=True)))(x)
    lowered = stepwell.lower(exported).step("affine")
    assert not lowered.remarks  # one kernel, and no scalar loops
    want = -np.minimum.accumulate(x[..., ::-1], axis)[..., ::-1]
    np.testing.assert_array_equal(stepwell.compile(exported)(x)[0], want)


@pytest.mark.parametrize("reverse", [False, True])
def test_scalar_loops_go_the_same_way(reverse: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the kernel does not take becomes scalar loops."""

    def refuse(*_: object) -> None:
        raise stepwell.LoweringError("refused")

    monkeypatch.setattr(scan, "emit", refuse)
    x = np.random.default_rng(5).standard_normal((3, 40, 2)).astype(np.float32)
    exported = export.export(jax.jit(lambda x: lax.cummax(x, axis=1, reverse=reverse)))(x)
    lowered = stepwell.lower(exported).step("affine")
    assert "refused" in "".join(lowered.remarks)
    turned = x[:, ::-1] if reverse else x
    want = np.maximum.accumulate(turned, 1)[:, :: -1 if reverse else 1]
    np.testing.assert_array_equal(lowered.compile()(x)[0], want)
