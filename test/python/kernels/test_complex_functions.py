"""Accuracy of functions of complex numbers: the distance to the exact value by its magnitude, in
units of the type's epsilon, against 80-bit floats."""

from __future__ import annotations

import numpy as np
import pytest

import stepwell

RNG = np.random.default_rng(0)
KINDS = {"f32": np.complex64, "f64": np.complex128}
LIMIT = 2.0


def spread(kind: str, size: float) -> np.ndarray:
    """Numbers of the square up to `size` in both parts, and as many of all magnitudes below."""
    even = RNG.uniform(-size, size, (2, 2000))
    small = np.sign(even) * np.exp(RNG.uniform(-30, np.log(size), (2, 2000)))
    real, imaginary = np.concatenate([even, small], 1)
    return (real + 1j * imaginary).astype(KINDS[kind])


def run(name: str, kind: str, *arguments: np.ndarray) -> np.ndarray:
    tensor = f"tensor<{arguments[0].size}xcomplex<{kind}>>"
    names = [f"%a{i}" for i in range(len(arguments))]
    head = ", ".join(f"{n}: {tensor}" for n in names)
    types = ", ".join([tensor] * len(names))
    text = f"""func.func @main({head}) -> {tensor} {{
      %0 = "{name}"({", ".join(names)}) : ({types}) -> {tensor}
      return %0 : {tensor}
    }}"""
    return stepwell.compile(text, threads=1)(*arguments)[0]


def error(result: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """Zero where the exact value is no normal number of the result's type."""
    limits = np.finfo(result.dtype)
    size = np.abs(exact)
    normal = (size > limits.tiny / limits.eps) & (size < limits.max)
    distance = np.abs(np.where(normal, result - exact, 0)) / np.where(normal, size, 1)
    return distance / limits.eps


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1.0, 80.0, 711.0])
@pytest.mark.parametrize("name", ["chlo.cosh", "chlo.sinh", "stablehlo.cosine", "stablehlo.sine"])
def test_hyperbolic_and_circular(name: str, size: float, kind: str) -> None:
    """Up to where hyperbolic functions of f64 overflow."""
    x = spread(kind, size)
    reference = {"cosine": np.cos, "sine": np.sin, "cosh": np.cosh, "sinh": np.sinh}
    exact = reference[name.partition(".")[2]](x.astype(np.clongdouble))
    result = run(name, kind, x)
    worst = int(np.argmax(error(result, exact)))
    assert error(result, exact)[worst] <= LIMIT, (x[worst], result[worst], exact[worst])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_power(kind: str) -> None:
    """Numbers of all magnitudes, parts of all ratios, and exponents that keep the result a number:
    an error of its logarithm, which is up to 600, is a relative one of the result."""
    rng = np.random.default_rng(0)
    most = 280 if kind == "f64" else 30
    size = 10 ** rng.uniform(-most, most, (2, 2000)) * rng.choice([-1, 1], (2, 2000))
    turn = np.exp(1j * rng.uniform(-np.pi, np.pi, 2000))
    near = turn + np.abs(size[1]) ** -0.125
    x = np.concatenate([size[0] + 1j * size[1], size[0] * turn, turn, near])
    wanted = rng.uniform(-2 * most, 2 * most, x.size) + 1j * rng.uniform(-50, 50, x.size)
    x = x.astype(KINDS[kind])
    y = (wanted / np.log(x)).astype(KINDS[kind])
    y[::3] = rng.uniform(-2, 2, y[::3].size)
    exact = np.exp(y.astype(np.clongdouble) * np.log(x.astype(np.clongdouble)))
    result = run("stablehlo.power", kind, x, y)
    worst = int(np.argmax(error(result, exact)))
    assert error(result, exact)[worst] <= LIMIT, (x[worst], y[worst], result[worst], exact[worst])


@pytest.mark.parametrize("name", ["cosh", "sinh"])
def test_special_values(name: str) -> None:
    """C, annex G, where it tells a sign."""
    inf, nan = np.inf, np.nan
    parts = [(0.0, 0.0), (-0.0, 0.0), (0.0, -0.0), (inf, 0.0), (-inf, 0.0), (inf, -0.0),
             (-inf, 1.0), (inf, 3.0), (-2.0, 0.0), (0.0, 1.0), (nan, 1.0)]  # fmt: skip
    x = np.array([complex(*pair) for pair in parts])
    want = getattr(np, name)(x)
    got = run(f"chlo.{name}", "f64", x)
    for result, expected in ((got.real, want.real), (got.imag, want.imag)):
        np.testing.assert_allclose(result, expected, rtol=1e-15)
        number = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(result)[number], np.signbit(expected)[number])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["tanh", "tan"])
def test_tangents_that_are_not_finite(name: str, kind: str) -> None:
    """C, annex G, which says the same of tan by way of i tan z = tanh i z."""
    inf, nan = np.inf, np.nan
    parts = [(inf, 30.0), (-inf, 2.0), (inf, -0.0), (inf, inf), (-inf, nan), (2.0, inf)]
    parts += [(30.0, inf), (-30.0, nan), (nan, 0.0), (nan, -0.0), (nan, 1.0), (nan, nan)]
    x = np.array([complex(*pair[:: 1 if name == "tanh" else -1]) for pair in parts], KINDS[kind])
    got, want = run(f"stablehlo.{name}", kind, x), getattr(np, name)(x)
    np.testing.assert_array_equal(got.real, want.real)
    np.testing.assert_array_equal(got.imag, want.imag)
    told = np.array([np.isfinite(pair[1]) for pair in parts])
    for result, expected in ((got.real, want.real), (got.imag, want.imag)):
        number = told & ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(result)[number], np.signbit(expected)[number])
