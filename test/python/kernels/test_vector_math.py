"""Accuracy of the expansions in `kernels/vector_math.py`, in units in the last place (ulp)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import jax
import numpy as np
import pytest
from jax import export, lax
from jax import numpy as jnp
from programs import Case, parameter, run
from scipy import special

import stepwell

SAMPLES = 40_000


@dataclass(frozen=True)
class Range:
    """A function, its float64 reference, a range of arguments, the error in ulp that it states."""

    name: str
    function: Callable[..., jax.Array]
    reference: Callable[..., np.ndarray]
    arguments: np.ndarray
    ulp: float


def linear(low: float, high: float) -> np.ndarray:
    return np.linspace(low, high, SAMPLES).astype(np.float32)


def logarithmic(low: float, high: float) -> np.ndarray:
    return np.exp(np.linspace(np.log(low), np.log(high), SAMPLES)).astype(np.float32)


def both_signs(values: np.ndarray) -> np.ndarray:
    return np.concatenate([-values[::-1], values])


def exponentials_and_sum(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Those of x less the largest, which are taken by a function of their own."""
    exponentials = jnp.exp(x - x.max())
    return exponentials, exponentials.sum()


def mish(x: np.ndarray) -> np.ndarray:
    return x * np.tanh(np.logaddexp(x, 0))


RANGES = [
    Range("exp", jnp.exp, np.exp, linear(-87.3, 88.7), 1.5),
    Range("exp-subnormal", jnp.exp, np.exp, linear(-103.9, -87.3), 1),
    Range("exp-small", jnp.exp, np.exp, both_signs(logarithmic(1e-30, 1)), 1.5),
    Range("exp-nonpositive", lambda x: exponentials_and_sum(x)[0], np.exp, linear(-87.3, 0), 1.5),
    Range("log", jnp.log, np.log, logarithmic(1.2e-38, 3e38), 1),
    Range("log-near-1", jnp.log, np.log, linear(0.5, 2), 1),
    Range("log-subnormal", jnp.log, np.log, logarithmic(1e-44, 1.1e-38), 1),
    Range("tanh", jnp.tanh, np.tanh, linear(-12, 12), 2),
    Range("tanh-small", jnp.tanh, np.tanh, both_signs(logarithmic(1e-30, 1)), 2),
    Range("erf", lax.erf, special.erf, linear(-6, 6), 2),
    Range("erf-small", lax.erf, special.erf, both_signs(logarithmic(1e-30, 1)), 2),
    Range("sin", jnp.sin, np.sin, linear(-100, 100), 2),
    Range("sin-far", jnp.sin, np.sin, linear(-8190, 8190), 2),
    Range("sin-small", jnp.sin, np.sin, both_signs(logarithmic(1e-30, 1)), 2),
    Range("cos", jnp.cos, np.cos, linear(-100, 100), 2),
    Range("cos-far", jnp.cos, np.cos, linear(-8190, 8190), 2),
    Range("log1p", jnp.log1p, np.log1p, linear(-0.9999, 100), 1.5),
    Range("log1p-small", jnp.log1p, np.log1p, both_signs(logarithmic(1e-30, 0.5)), 1.5),
    Range("log1p-large", jnp.log1p, np.log1p, logarithmic(1, 3e38), 1.5),
    Range("expm1", jnp.expm1, np.expm1, linear(-80, 88), 2),
    Range("expm1-small", jnp.expm1, np.expm1, both_signs(logarithmic(1e-30, 1)), 2),
    Range("mish", jax.nn.mish, mish, linear(-80, 30), 4),
    Range("mish-small", jax.nn.mish, mish, both_signs(logarithmic(1e-30, 1)), 4),
    Range("atan", jnp.arctan, np.arctan, linear(-20, 20), 2),
    Range("atan-small", jnp.arctan, np.arctan, both_signs(logarithmic(1e-30, 1)), 2),
    Range("atan-large", jnp.arctan, np.arctan, both_signs(logarithmic(1, 3e38)), 2),
    Range("rsqrt", lax.rsqrt, lambda x: 1 / np.sqrt(x), logarithmic(1.2e-38, 3e38), 1.5),
    Range("sqrt", jnp.sqrt, np.sqrt, logarithmic(1.2e-38, 3e38), 0.5),
]

SPECIAL = np.array(
    [np.nan, np.inf, -np.inf, 0.0, -1.0, 1.0, 200.0, -200.0, 1e-45, 88.8, -104.1], np.float32
)
SPECIAL_VALUES: dict[str, tuple[Callable[..., jax.Array], Callable[..., np.ndarray]]] = {
    "exp": (jnp.exp, np.exp),
    "log": (jnp.log, np.log),
    "tanh": (jnp.tanh, np.tanh),
    "erf": (lax.erf, special.erf),
    "log1p": (jnp.log1p, np.log1p),
    "expm1": (jnp.expm1, np.expm1),
    "rsqrt": (lax.rsqrt, lambda x: 1 / np.sqrt(x)),
    "sqrt": (jnp.sqrt, np.sqrt),
    "logistic": (lax.logistic, special.expit),
    "sin": (jnp.sin, np.sin),
    "cos": (jnp.cos, np.cos),
    "atan": (jnp.arctan, np.arctan),
    "mish": (jax.nn.mish, mish),
}

BASES = np.array([0.0, 0.5, 1.0, 2.0, 3.7, 100.0, -1.0, -2.0, -3.5, np.inf, np.nan], np.float32)
EXPONENTS = np.array([0.0, 1.0, -1.0, 0.5, 2.0, 3.0, -2.5, 10.0, 17.0, np.nan], np.float32)
POWER_TOLERANCE = 6e-8 * 17 * np.log(100)
"""The stated error of a power grows as 6e-8 |y log x|."""


ANGLE_DTYPES = ("float32", "float16", "bfloat16")


def pairs(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """All pairs of special numbers, numbers of all sizes with quotients of all sizes, numbers right
    below multiples of others, and multiples."""
    random = np.random.default_rng(0)
    special_ones = [0.0, -0.0, 1.0, -1.0, 1e-7, 3.0, np.inf, -np.inf, np.nan, 65504.0]
    x, y = (a.reshape(-1) for a in np.meshgrid(special_ones, special_ones))
    sizes = 10.0 ** random.uniform(-6, 4, (2, 5000)) * random.choice([-1, 1], (2, 5000))
    count = random.integers(1, 250, 5000)
    kind = jnp.dtype(dtype)
    step = random.uniform(0.25, 8, 5000).astype(kind)
    multiple = (count * step.astype(np.float64)).astype(kind)
    below = np.nextafter(multiple, np.zeros((), kind))
    return (
        np.concatenate([x.astype(kind), sizes[0].astype(kind), multiple, below]),
        np.concatenate([y.astype(kind), sizes[1].astype(kind), step, step]),
    )


@functools.cache
def results() -> dict[str, np.ndarray]:
    """Everything of this file from one compilation."""
    cases = [Case(r.name, r.function, (r.arguments,)) for r in RANGES]
    cases += [Case(f"special-{n}", f, (SPECIAL,)) for n, (f, _) in SPECIAL_VALUES.items()]
    x, y = (a.reshape(-1).copy() for a in np.meshgrid(BASES, EXPONENTS))
    cases.append(Case("power", jnp.power, (x, y)))
    cases += [Case(f"atan2-{d}", lax.atan2, pairs(d)) for d in ANGLE_DTYPES]
    cases += [Case(f"remainder-{d}", lax.rem, pairs(d)) for d in ANGLE_DTYPES]
    return {case.name: outputs[0] for case, outputs in zip(cases, run(cases), strict=True)}


def ulps(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """|got - want| in units in the last place of float32 at `want`."""
    return np.abs(got.astype(np.float64) - want) / np.spacing(np.abs(want).astype(np.float32))


@pytest.mark.parametrize("name", [parameter(r.name) for r in RANGES])
def test_error(name: str) -> None:
    tested = next(r for r in RANGES if r.name == name)
    error = ulps(results()[name], tested.reference(tested.arguments.astype(np.float64)))
    worst = int(np.argmax(error))
    assert error[worst] <= tested.ulp, f"{error[worst]:.2f} ulp at {tested.arguments[worst]!r}"


@pytest.mark.parametrize("name", [parameter(f"special-{name}") for name in SPECIAL_VALUES])
def test_special_values(name: str) -> None:
    with np.errstate(all="ignore"):
        want = SPECIAL_VALUES[name.removeprefix("special-")][1](SPECIAL.astype(np.float64))
        want = want.astype(np.float32)
    np.testing.assert_allclose(results()[name], want, rtol=1e-6, atol=2e-38)


@pytest.mark.parametrize("name", [parameter("power")])
def test_power(name: str) -> None:
    x, y = (a.reshape(-1) for a in np.meshgrid(BASES, EXPONENTS))
    with np.errstate(all="ignore"):
        want = np.power(x.astype(np.float64), y.astype(np.float64)).astype(np.float32)
    np.testing.assert_allclose(results()[name], want, rtol=POWER_TOLERANCE)


@pytest.mark.parametrize("dtype", ANGLE_DTYPES)
def test_remainder(dtype: str) -> None:
    x, y = pairs(dtype)
    got = results()[f"remainder-{dtype}"].astype(np.float64)
    with np.errstate(all="ignore"):
        want = np.fmod(x.astype(np.float64), y.astype(np.float64))
    np.testing.assert_array_equal(got, want)
    known = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got[known]), np.signbit(want[known]))


@pytest.mark.parametrize("dtype", ANGLE_DTYPES)
def test_angle(dtype: str) -> None:
    y, x = pairs(dtype)
    got = results()[f"atan2-{dtype}"]
    want = np.arctan2(y.astype(np.float64), x.astype(np.float64))
    known = ~np.isnan(want)
    np.testing.assert_array_equal(np.isnan(got.astype(np.float64)), ~known)
    got, want = got[known], want[known]
    np.testing.assert_array_equal(np.signbit(got), np.signbit(want))
    spacing = np.spacing(np.abs(want).astype(got.dtype)).astype(np.float64)
    error = np.abs(got.astype(np.float64) - want) / spacing
    assert np.max(error) <= (2 if dtype == "float32" else 0.52)


@pytest.mark.parametrize("name", ["exp", "tanh"])
def test_without_avx512(name: str) -> None:
    """What machines with AVX2 take, of all arguments that the ranges have, and special ones."""
    function, reference = SPECIAL_VALUES[name]
    ranges = [r.arguments for r in RANGES if r.name.startswith(name)]
    x = np.concatenate([*ranges, SPECIAL])
    exported = export.export(jax.jit(function), platforms=["cpu"])(x)
    result = stepwell.compile(exported, target="x86_64-v3", threads=1)(x)[0]
    with np.errstate(all="ignore"):
        want = reference(x.astype(np.float64))
        single, error = want.astype(np.float32), ulps(result, want)
    finite = np.isfinite(single)
    assert np.max(error[finite]) <= 2
    np.testing.assert_array_equal(result[~finite], single[~finite])
