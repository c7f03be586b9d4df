"""Functions of complex numbers whose real and imaginary part, each by itself, are within 3 units in
the last place of what mpmath computes with 400 digits: the distance from the unit circle, of which
the logarithm is, may have few of the digits that its terms have."""

from __future__ import annotations

from collections.abc import Callable

import mpmath
import numpy as np
import pytest
from test_special_functions import run, ulps

COUNT = 40
LIMIT = 3.0
KINDS = {"complex<f64>": np.complex128, "complex<f32>": np.complex64}


def _log_plus_one(z: mpmath.mpc) -> mpmath.mpc:
    return mpmath.log(1 + z)


def _sign(z: mpmath.mpc) -> mpmath.mpc:
    return z / abs(z)


FUNCTIONS: dict[str, Callable[[mpmath.mpc], mpmath.mpc]] = {
    "stablehlo.exponential": mpmath.exp,
    "stablehlo.log": mpmath.log,
    "stablehlo.log_plus_one": _log_plus_one,
    "stablehlo.sqrt": mpmath.sqrt,
    "stablehlo.sign": _sign,
    "chlo.asin": mpmath.asin,
    "chlo.acosh": mpmath.acosh,
    "chlo.asinh": mpmath.asinh,
}

UPSTREAM = ("chlo.asin", "chlo.acosh", "chlo.asinh")
"""Of complex<f64> as upstream writes them: within 4."""


def samples(dtype: np.dtype) -> np.ndarray:
    """Around zero, close to the unit circle and its image one to the left, close to one and i on
    either side, of all magnitudes, and the greatest and least."""
    random, info = np.random.default_rng(0), np.finfo(dtype)
    angle = random.uniform(-np.pi, np.pi, COUNT)
    circle = np.exp(1j * angle)
    signs = random.choice([-1, 1], (8, COUNT))
    step = np.exp2(random.uniform(np.log2(info.eps), -1, (2, COUNT)))
    least, most = np.log2(info.tiny), np.log2(float(info.max))
    sizes = signs[:2] * np.exp2(random.uniform(least, most, (2, COUNT)))
    large = signs[2:4] * float(info.max) * random.uniform(0.1, 1, (2, COUNT))
    small = signs[4:6] * float(info.tiny) * random.uniform(0, 4, (2, COUNT))
    parts = [
        random.uniform(-3, 3, (2, COUNT)),
        random.uniform(-12, 12, (2, COUNT)),
        (circle.real, circle.imag),
        (circle.real - 1, circle.imag),
        (signs[6] * (1 + step[0]), signs[7] * step[1]),
        (signs[7] * step[1], signs[6] * (1 + step[0])),
        sizes,
        large,
        small,
    ]
    real, imaginary = np.concatenate([np.stack(pair) for pair in parts], 1)
    return (real + 1j * imaginary).astype(dtype)


def worst(got: np.ndarray, want: list[mpmath.mpc]) -> tuple[float, int]:
    """The greater error of both parts, and where it is."""
    errors = np.maximum(
        ulps(got.real, [value.real for value in want]),
        ulps(got.imag, [value.imag for value in want]),
    )
    return float(errors.max()), int(errors.argmax())


def exact(value: np.complexfloating) -> mpmath.mpc:
    return mpmath.mpc(float(value.real), float(value.imag))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_parts(name: str, kind: str) -> None:
    x = samples(np.dtype(KINDS[kind]))
    if name == "stablehlo.exponential":
        x = x[(np.abs(x.real) < 80) & (np.abs(x.imag) < 1e6)]
    got = run(name, kind, x)
    with mpmath.workdps(400):
        want = [mpmath.mpc(FUNCTIONS[name](exact(value))) for value in x]
        error, place = worst(got, want)
    limit = LIMIT + (kind == "complex<f64>" and name in UPSTREAM)
    assert error <= limit, (error, x[place], got[place])


@pytest.mark.parametrize("kind", KINDS)
def test_quotients(kind: str) -> None:
    """Where the parts of neither number are too small to be multiplied."""
    x = samples(np.dtype(KINDS[kind]))[: 6 * COUNT]
    y = np.random.default_rng(1).permutation(x)
    got = run("stablehlo.divide", kind, x, y)
    with mpmath.workdps(400):
        want = [exact(a) / exact(b) for a, b in zip(x, y, strict=True)]
        error, place = worst(got, want)
    assert error <= LIMIT, (error, x[place], y[place], got[place])


def test_products_that_do_not_overflow() -> None:
    """Finite differences of products of which each is infinite, and signs of infinities."""
    x = np.array([1 + 1j, 1e232 + 1e97j, 9.5 + 6.5j, 1e300], np.complex128)
    y = np.array([1.5e308 + 1.5e308j, -1.3e308 + 5e307j, 1e308 + 1.7e308j, 1e-300j], np.complex128)
    got = run("stablehlo.multiply", "complex<f64>", x, y)
    with mpmath.workdps(60):
        want = [exact(a) * exact(b) for a, b in zip(x, y, strict=True)]
        error, place = worst(got, want)
    assert error <= LIMIT, (error, got[place])
    np.testing.assert_array_equal(np.sign(got.real), [float(mpmath.sign(w.real)) for w in want])
