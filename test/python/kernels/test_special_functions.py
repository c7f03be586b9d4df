"""Real functions of StableHLO and CHLO within 3 units in the last place (ulp) of what mpmath
computes with 60 digits, of f16 and bf16 within one: as the official suites of StableHLO ask."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import ml_dtypes
import mpmath
import numpy as np
import pytest

import stepwell

KINDS = {"f64": np.float64, "f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
LIMITS = {"f64": 3.0, "f32": 3.0, "f16": 1.0, "bf16": 1.0}
COUNT = 60
"""Samples of each range, and near each place."""


@dataclass(frozen=True)
class Function:
    """A function, its reference, ranges of its argument, and places near which to look closely:
    zeros, poles, and where formulas change. `orders` are values of a first argument."""

    reference: Callable[..., mpmath.mpf]
    ranges: tuple[tuple[float, float], ...]
    places: tuple[float, ...] = ()
    magnitudes: bool = True
    """Whether arguments of all magnitudes are looked at."""
    orders: tuple[float, ...] = ()


def _log_of_gamma(x: mpmath.mpf) -> mpmath.mpf:
    return mpmath.loggamma(x).real


def _power(x: mpmath.mpf, y: mpmath.mpf) -> mpmath.mpf:
    return mpmath.power(y, x)


def _i1e(x: mpmath.mpf) -> mpmath.mpf:
    return mpmath.besseli(1, x) * mpmath.exp(-abs(x))


def _logistic(x: mpmath.mpf) -> mpmath.mpf:
    return 1 / (1 + mpmath.exp(-x))


ZERO_OF_DIGAMMA = 1.4616321449683623
FUNCTIONS = {
    "chlo.erf": Function(mpmath.erf, ((-6, 6),), (0.5, 1, 1.1)),
    "chlo.erfc": Function(mpmath.erfc, ((-6, 10), (8, 28)), (0.5, 1), magnitudes=False),
    "chlo.erf_inv": Function(mpmath.erfinv, ((-1, 1),), (0.5, 0.993, 1), magnitudes=False),
    "chlo.lgamma": Function(_log_of_gamma, ((-2, 9), (0, 300)), (0.7, 1, 2, 8, -1, -2 + 2**-10)),
    "chlo.digamma": Function(mpmath.digamma, ((-0.4, 9), (0, 300)), (ZERO_OF_DIGAMMA, 1, 8)),
    "chlo.bessel_i1e": Function(_i1e, ((-12, 12), (-300, 300)), (4, 10), magnitudes=False),
    "chlo.sinh": Function(mpmath.sinh, ((-11, 11), (-710, 710)), (1,)),
    "chlo.cosh": Function(mpmath.cosh, ((-11, 11), (-710, 710))),
    "chlo.acos": Function(mpmath.acos, ((-1, 1),), (0.5, 1)),
    "chlo.acosh": Function(mpmath.acosh, ((1, 20), (1, 1e4)), (1,), magnitudes=False),
    "chlo.asin": Function(mpmath.asin, ((-1, 1),), (0.5, 1)),
    "chlo.asinh": Function(mpmath.asinh, ((-3, 3), (-1e4, 1e4))),
    "chlo.atan": Function(mpmath.atan, ((-3, 3), (-1e4, 1e4))),
    "chlo.atanh": Function(mpmath.atanh, ((-0.99, 0.99),), (0.5,)),
    "stablehlo.logistic": Function(_logistic, ((-17, 9), (-110, 40), (-745, 0))),
    "stablehlo.power": Function(
        _power, ((0.5, 2), (0.01, 20)), (1,), orders=(0.5, 3, -7.3, 50, -61.7)
    ),
}


def samples(function: Function, dtype: np.dtype) -> np.ndarray:
    """Finite numbers of `dtype` in the ranges, near the places and of all magnitudes."""
    random, info = np.random.default_rng(0), ml_dtypes.finfo(dtype)
    found = [random.uniform(low, high, COUNT) for low, high in function.ranges]
    for place in function.places:
        steps = np.exp2(random.uniform(np.log2(float(info.eps)), -2, COUNT))
        found.append(place * (1 + steps * random.choice([-1, 1], COUNT)))
    if function.magnitudes:
        sizes = np.exp2(random.uniform(np.log2(float(info.smallest_subnormal)), 0, COUNT))
        found.append(sizes * (1 if function.orders else random.choice([-1, 1], COUNT)))
    low, high = min(low for low, _ in function.ranges), max(high for _, high in function.ranges)
    values = np.concatenate(found)
    values = values[(values >= low) & (values <= high)]
    return values[np.abs(values) < float(info.max)].astype(dtype)


def run(name: str, kind: str, *arguments: np.ndarray) -> np.ndarray:
    tensor = f"tensor<{arguments[0].size}x{kind}>"
    names = [f"%a{i}" for i in range(len(arguments))]
    head = ", ".join(f"{n}: {tensor}" for n in names)
    types = ", ".join([tensor] * len(names))
    text = f"""func.func @main({head}) -> {tensor} {{
      %0 = "{name}"({", ".join(names)}) : ({types}) -> {tensor}
      return %0 : {tensor}
    }}"""
    return stepwell.compile(text, threads=1)(*arguments)[0]


def ulps(got: np.ndarray, want: list[mpmath.mpf]) -> np.ndarray:
    """Distances in units in the last place; zero where a value beyond the largest is infinite."""
    info = ml_dtypes.finfo(got.dtype)
    distances = []
    for value, exact in zip(got.astype(np.float64), want, strict=True):
        if abs(exact) > float(info.max):
            distances.append(0.0 if np.isinf(value) else 1.0)
            continue
        exponent = mpmath.frexp(exact)[1] - 1 - info.nmant if exact else -2000
        unit = max(mpmath.ldexp(1, exponent), mpmath.mpf(float(info.smallest_subnormal)))
        distances.append(float(abs(mpmath.mpf(value) - exact) / unit))
    return np.array(distances)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_error(name: str, kind: str) -> None:
    function = FUNCTIONS[name]
    x = samples(function, np.dtype(KINDS[kind]))
    arguments = [x]
    if function.orders:
        order = np.resize(np.array(function.orders, x.dtype), x.size)
        arguments = [x, order]
    got = run(name, kind, *arguments)
    with mpmath.workdps(60):
        points = zip(*(a.astype(np.float64) for a in arguments[::-1]), strict=True)
        want = [mpmath.mpf(function.reference(*map(mpmath.mpf, point))) for point in points]
        error = ulps(got, want)
    worst = int(np.argmax(error))
    assert error[worst] <= LIMITS[kind], (error[worst], [a[worst] for a in arguments], got[worst])


SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1, -2, 2], np.float64)
INF, NAN = np.inf, np.nan
SPECIAL_VALUES = {
    "chlo.erf": [0.0, -0.0, 1, -1, NAN],
    "chlo.erfc": [1, 1, 0.0, 2, NAN],
    "chlo.erf_inv": [0.0, -0.0, NAN, NAN, NAN, INF, -INF, NAN, NAN],
    "chlo.lgamma": [INF, INF, INF, INF, NAN, 0.0, INF, INF, 0.0],
    "chlo.digamma": [NAN, NAN, INF, NAN, NAN],
    "chlo.bessel_i1e": [0.0, -0.0, 0.0, -0.0, NAN],
    "chlo.sinh": [0.0, -0.0, INF, -INF, NAN],
    "chlo.cosh": [1, 1, INF, INF, NAN],
    "stablehlo.logistic": [0.5, 0.5, 1, 0.0, NAN],
}


@pytest.mark.parametrize("kind", ["f64", "f32"])
@pytest.mark.parametrize("name", SPECIAL_VALUES)
def test_special_values(name: str, kind: str) -> None:
    want = np.array(SPECIAL_VALUES[name])
    got = run(name, kind, SPECIAL.astype(KINDS[kind]))[: want.size]
    np.testing.assert_array_equal(got, want)
    signed = want == 0
    if name != "chlo.lgamma":
        np.testing.assert_array_equal(np.signbit(got[signed]), np.signbit(want[signed]))


@pytest.mark.parametrize("kind", KINDS)
def test_polygamma(kind: str) -> None:
    """Of f32 and narrower floats; of f64 the zeta function is within 8 units."""
    dtype = np.dtype(KINDS[kind])
    order = np.resize(np.arange(6), 120).astype(dtype)
    x = np.random.default_rng(0).uniform(0.5, 30, 120).astype(dtype)
    got = run("chlo.polygamma", kind, order, x)
    with mpmath.workdps(60):
        want = [mpmath.psi(int(n), mpmath.mpf(float(v))) for n, v in zip(order, x, strict=True)]
        assert ulps(got, want).max() <= max(LIMITS[kind], 8.0 * (kind == "f64"))


def test_functions_of_half_precision_after_one_another() -> None:
    """The sine is of double precision inside: it is rounded to f16 once, by no library."""
    text = """func.func @main(%x: tensor<f16>, %y: tensor<3xf16>) -> tensor<3xf16> {
      %0 = stablehlo.sine %x : tensor<f16>
      %1 = stablehlo.tanh %0 : tensor<f16>
      %2 = stablehlo.broadcast_in_dim %1, dims = [] : (tensor<f16>) -> tensor<3xf16>
      %3 = stablehlo.multiply %2, %y : tensor<3xf16>
      return %3 : tensor<3xf16>
    }"""
    x, y = np.array(-2, np.float16), np.array([1, -2, 0.5], np.float16)
    (result,) = stepwell.compile(text)(x, y)
    sine = np.sin(x.astype(np.float64)).astype(np.float16)
    want = np.tanh(sine.astype(np.float64)).astype(np.float16) * y
    np.testing.assert_allclose(result, want, rtol=2e-3)  # two units in the last place
