"""Discrete Fourier transforms of a few vectors of complex numbers, by parts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from stepwell.mlir import ir
from stepwell.passes.linalg import _vectors as vectors


class Complex(NamedTuple):
    """A vector of complex numbers by parts."""

    real: ir.Value
    imaginary: ir.Value


def add(x: Complex, y: Complex) -> Complex:
    """x + y."""
    return Complex(*(vectors.add(a, b) for a, b in zip(x, y, strict=True)))


def subtract(x: Complex, y: Complex) -> Complex:
    """x - y."""
    return Complex(*(vectors.subtract(a, b) for a, b in zip(x, y, strict=True)))


def conjugate(x: Complex) -> Complex:
    """x with its imaginary part negated."""
    return Complex(x.real, vectors.negate(x.imaginary))


def _over_i(x: Complex) -> Complex:
    """x / i."""
    return Complex(x.imaginary, vectors.negate(x.real))


def times(x: Complex, y: Complex) -> Complex:
    """x * y."""
    real = vectors.fma(x.real, y.real, vectors.negate(vectors.multiply(x.imaginary, y.imaginary)))
    return Complex(real, vectors.fma(x.real, y.imaginary, vectors.multiply(x.imaginary, y.real)))


def butterfly(x: Sequence[Complex]) -> list[Complex]:
    """sum over k of x[k] exp(-2 pi i j k / n), for each j."""
    count = len(x)
    if count == 2:
        return [add(*x), subtract(*x)]
    if count == 4:
        return _of_four(x)
    first = next(f for f in (4, *range(2, count + 1)) if count % f == 0)
    return _of_odd(x) if first == count else _of_product(x, first)


def _of_product(x: Sequence[Complex], first: int) -> list[Complex]:
    """x[j1 second + j2] along j1, times roots of unity, and along j2 (Cooley and Tukey, 1965)."""
    count, second = len(x), len(x) // first
    columns = [butterfly(x[start::second]) for start in range(second)]
    result = list(x)
    for k in range(first):
        row = [_turned(columns[j][k], j * k, count) for j in range(second)]
        result[k::first] = butterfly(row)
    return result


def _turned(x: Complex, exponent: int, count: int) -> Complex:
    """x exp(-2 pi i exponent / count), for at most half a turn or no multiple of a quarter."""
    if exponent == 0:
        return x
    if 4 * exponent == count:
        return _over_i(x)
    if 2 * exponent == count:
        return Complex(*(vectors.negate(part) for part in x))
    angle = 2 * math.pi * exponent / count
    cosine, sine = (vectors.full(f, x.real) for f in (math.cos(angle), -math.sin(angle)))
    return times(x, Complex(cosine, sine))


def _of_four(x: Sequence[Complex]) -> list[Complex]:
    even, odd = add(x[0], x[2]), add(x[1], x[3])
    difference, turned = subtract(x[0], x[2]), subtract(x[1], x[3])
    # difference - i turned and difference + i turned.
    minus = Complex(
        vectors.add(difference.real, turned.imaginary),
        vectors.subtract(difference.imaginary, turned.real),
    )
    plus = Complex(
        vectors.subtract(difference.real, turned.imaginary),
        vectors.add(difference.imaginary, turned.real),
    )
    return [add(even, odd), minus, subtract(even, odd), plus]


def _of_odd(x: Sequence[Complex]) -> list[Complex]:
    """x[k] and x[n - k] meet the same cosine, and sines of opposite signs."""
    count = len(x)
    half = range(1, count // 2 + 1)
    sums = {k: add(x[k], x[count - k]) for k in half}
    differences = {k: _over_i(subtract(x[k], x[count - k])) for k in half}
    total = x[0]
    for k in half:
        total = add(total, sums[k])
    result = [total] * count
    for j in half:
        even, odd = x[0], None
        for k in half:
            angle = 2 * math.pi * (j * k % count) / count
            even = _plus_scaled(even, sums[k], math.cos(angle))
            odd = _plus_scaled(odd, differences[k], math.sin(angle))
        assert odd is not None
        result[j], result[count - j] = add(even, odd), subtract(even, odd)
    return result


def _plus_scaled(total: Complex | None, x: Complex, factor: float) -> Complex:
    if total is None:
        return Complex(*(vectors.scaled(part, factor) for part in x))
    return Complex(
        *(
            vectors.fma(part, vectors.full(factor, part), rest)
            for part, rest in zip(x, total, strict=True)
        )
    )
