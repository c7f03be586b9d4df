"""Accuracy of `kernels/vector_math_double.py` in units in the last place, against 80-bit floats."""

from __future__ import annotations

import numpy as np
import pytest

import stepwell

WIDE = np.longdouble
RNG = np.random.default_rng(0)


def spread(low: float, high: float) -> np.ndarray:
    """Numbers of [low, high), and as many of all magnitudes below."""
    size = max(abs(low), abs(high))
    even = RNG.uniform(low, high, 4000)
    return np.concatenate([even, np.sign(even) * np.exp(RNG.uniform(-40, np.log(size), 4000))])


FAR = np.exp(RNG.uniform(0, 709, 4000)) * RNG.choice([-1, 1], 4000)
POSITIVE = np.abs(spread(-1e300, 1e300)) + 1e-310
CASES = {
    "exponential": (np.exp, 1.0, spread(-745, 709.7)),
    "exponential_minus_one": (np.expm1, 2.0, spread(-50, 700)),
    "log": (np.log, 1.0, POSITIVE),
    "log_plus_one": (np.log1p, 1.5, np.concatenate([POSITIVE, RNG.uniform(-0.9999, 4, 8000)])),
    "tanh": (np.tanh, 3.0, spread(-25, 25)),
    "sine": (np.sin, 1.5, np.concatenate([spread(-1e5, 1e5), FAR])),
    "cosine": (np.cos, 1.5, np.concatenate([spread(-1e5, 1e5), FAR])),
    "tan": (np.tan, 3.0, np.concatenate([spread(-1000, 1000), FAR])),
    "cbrt": (np.cbrt, 2.0, spread(-1e100, 1e100)),
    "power": (np.power, 2.0, np.abs(spread(-20, 20)), spread(-15, 15)),
    "atan2": (np.arctan2, 2.5, spread(-20, 20), spread(-9, 9)),
}
SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 5e-324, -5e-324])


def run(name: str, arguments: list[np.ndarray]) -> np.ndarray:
    kind = f"tensor<{arguments[0].size}xf64>"
    names = [f"%a{i}" for i in range(len(arguments))]
    head = ", ".join(f"{n}: {kind}" for n in names)
    types = ", ".join([kind] * len(names))
    text = f"""func.func @main({head}) -> {kind} {{
      %0 = "stablehlo.{name}"({", ".join(names)}) : ({types}) -> {kind}
      return %0 : {kind}
    }}"""
    return stepwell.compile(text, threads=1)(*arguments)[0]


@pytest.mark.parametrize("name", CASES)
def test_error(name: str) -> None:
    reference, limit, *arguments = CASES[name]
    exact = reference(*(a.astype(WIDE) for a in arguments))
    with np.errstate(over="ignore"):
        rounded = exact.astype(np.float64)
    normal = np.isfinite(rounded) & (np.abs(rounded) > np.finfo(np.float64).tiny)
    error = np.abs(run(name, arguments) - exact) / np.spacing(np.abs(rounded))
    worst = int(np.argmax(np.where(normal, error, 0)))
    assert error[worst] <= limit, [a[worst] for a in arguments]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", CASES)
def test_special_values(name: str) -> None:
    reference, _, *arguments = CASES[name]
    special = [a.ravel() for a in np.meshgrid(*[SPECIAL] * len(arguments))]
    want = reference(*(a.astype(WIDE) for a in special)).astype(np.float64)
    got = run(name, special)
    np.testing.assert_allclose(got, want, rtol=1e-15, atol=0)
    number = ~np.isnan(want)
    np.testing.assert_array_equal(np.signbit(got)[number], np.signbit(want)[number])
