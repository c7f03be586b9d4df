"""StableHLO operations at edges that JAX does not reach, against exact numbers."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from scipy import special

import stepwell

COUNT = 300


def _exact_power(base: int, exponent: int, info: np.iinfo) -> int:
    if exponent < 0:
        return {1: 1, -1: 1 - 2 * (exponent & 1)}.get(base, 0)
    value = pow(base, exponent, 1 << info.bits)
    return value - (1 << info.bits) if value > info.max else value


@pytest.mark.parametrize("kind", ["i8", "ui8", "ui16", "i32", "i64"])
def test_power_of_integers_with_any_exponent(kind: str) -> None:
    dtype = np.dtype(kind.replace("ui", "uint") if "u" in kind else kind.replace("i", "int"))
    info, generator = np.iinfo(dtype), np.random.default_rng(0)
    x, y = generator.integers(info.min, info.max, (2, COUNT), dtype, endpoint=True)
    x[:50] = generator.integers(0, 4, 50)
    if info.min:
        x[25:50] = -x[:25]
    y[100:150] = generator.integers(0, 9, 50)
    y[150:] //= 2
    y[:2] = info.min, info.max
    kind = f"tensor<{COUNT}x{kind}>"
    (got,) = stepwell.compile(
        f"func.func @main(%x: {kind}, %y: {kind}) -> {kind} {{"
        f" %r = stablehlo.power %x, %y : {kind} return %r : {kind} }}"
    )(x, y)
    want = [_exact_power(int(a), int(b), info) for a, b in zip(x, y, strict=True)]
    np.testing.assert_array_equal(got, np.array(want, dtype))


def test_arithmetic_shift_of_unsigned_nibbles() -> None:
    """The upper bit of the nibble is repeated, as of unsigned bytes that of the byte."""
    x = np.arange(16).astype(ml_dtypes.uint4)
    kind = "tensor<16xui4>"
    (got,) = stepwell.compile(
        f"func.func @main(%x: {kind}, %y: {kind}) -> {kind} {{"
        f" %r = stablehlo.shift_right_arithmetic %x, %y : {kind} return %r : {kind} }}"
    )(x, np.full(16, 1, ml_dtypes.uint4))
    want = [code >> 1 | code & 8 for code in range(16)]
    np.testing.assert_array_equal(np.asarray(got).astype(np.int32), want)


def test_inverse_of_error_function_in_double() -> None:
    """Within five units in the last place; SciPy's is within one or two of them."""
    generator = np.random.default_rng(0)
    inside = [generator.uniform(-1, 1, 500), np.exp(generator.uniform(-700, 0, 200))]
    near_one = 1 - np.exp(generator.uniform(-36, 0, 500))
    x = np.concatenate([*inside, near_one, [0.0, -0.0, 1, -1, 2, np.nan]])
    kind = f"tensor<{len(x)}xf64>"
    (got,) = stepwell.compile(
        f"func.func @main(%x: {kind}) -> {kind} {{"
        f" %r = chlo.erf_inv %x : {kind} -> {kind} return %r : {kind} }}"
    )(x)
    want = special.erfinv(x)
    finite = np.isfinite(want)
    np.testing.assert_array_equal(got[~finite], want[~finite])
    error = np.abs(got[finite] - want[finite]) / np.spacing(np.abs(want[finite]))
    assert error.max() <= 6
    assert np.signbit(got[-5])
