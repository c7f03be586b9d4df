"""Discrete Fourier transforms of two to twenty-three vectors of complex numbers, by parts."""

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


def _add(x: Complex, y: Complex) -> Complex:
    return Complex(*(vectors.add(a, b) for a, b in zip(x, y, strict=True)))


def _subtract(x: Complex, y: Complex) -> Complex:
    return Complex(*(vectors.subtract(a, b) for a, b in zip(x, y, strict=True)))


def _over_i(x: Complex) -> Complex:
    """x / i."""
    return Complex(x.imaginary, vectors.negate(x.real))


def times(x: Complex, y: Complex) -> Complex:
    """x * y."""
    real = vectors.fma(x.real, y.real, vectors.negate(vectors.multiply(x.imaginary, y.imaginary)))
    return Complex(real, vectors.fma(x.real, y.imaginary, vectors.multiply(x.imaginary, y.real)))


def butterfly(x: Sequence[Complex]) -> list[Complex]:
    """sum over k of x[k] exp(-2 pi i j k / n), for each j."""
    if len(x) == 2:
        return [_add(*x), _subtract(*x)]
    if len(x) == 4:
        return _of_four(x)
    return _of_odd(x)


def _of_four(x: Sequence[Complex]) -> list[Complex]:
    even, odd = _add(x[0], x[2]), _add(x[1], x[3])
    difference, turned = _subtract(x[0], x[2]), _subtract(x[1], x[3])
    # difference - i turned and difference + i turned.
    minus = Complex(
        vectors.add(difference.real, turned.imaginary),
        vectors.subtract(difference.imaginary, turned.real),
    )
    plus = Complex(
        vectors.subtract(difference.real, turned.imaginary),
        vectors.add(difference.imaginary, turned.real),
    )
    return [_add(even, odd), minus, _subtract(even, odd), plus]


def _of_odd(x: Sequence[Complex]) -> list[Complex]:
    """x[k] and x[n - k] meet the same cosine, and sines of opposite signs."""
    count = len(x)
    half = range(1, count // 2 + 1)
    sums = {k: _add(x[k], x[count - k]) for k in half}
    differences = {k: _over_i(_subtract(x[k], x[count - k])) for k in half}
    total = x[0]
    for k in half:
        total = _add(total, sums[k])
    result = [total] * count
    for j in half:
        even, odd = x[0], None
        for k in half:
            angle = 2 * math.pi * (j * k % count) / count
            even = _plus_scaled(even, sums[k], math.cos(angle))
            odd = _plus_scaled(odd, differences[k], math.sin(angle))
        assert odd is not None
        result[j], result[count - j] = _add(even, odd), _subtract(even, odd)
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
