"""Numbers as the sum of two tensors of f64, good to about 2^-104 (T. J. Dekker, "A floating-point
technique for extending the available precision", Numerische Mathematik 18, 1971), and with them the
logarithm of a complex number to about 2^-66 of its parts.

No product may be fused with a sum here (`ROUNDED`): the error of each is computed from its value.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.kernels.evaluate import ROUNDED
from stepwell.mlir import ir

_UPPER_BITS = -(1 << 27)
_MANTISSA_BITS = 52
_SQRT_HALF_BITS = 0x3FE6A09E667F3BCD
_LN2 = (0.6931471803691238, 1.9082149292705877e-10)
"""ln 2; whole multiples up to 2^20 of the first part are exact."""
_EIGHTH_TURN = (0.7853981633970761, 3.7217737402433116e-13)
"""pi / 4; small whole multiples of the first part are exact."""


class Double(NamedTuple):
    """A tensor of numbers, each high + low, with low below the last bit of high."""

    high: ir.Value
    low: ir.Value


def rounded_product(x: ir.Value, y: ir.Value) -> ir.Value:
    """x * y, never fused with a sum that it goes into."""
    product = hlo.multiply(x, y)
    product.owner.attributes[ROUNDED] = ir.UnitAttr.get()
    return product


def exact_sum(x: ir.Value, y: ir.Value) -> Double:
    """x + y without error."""
    total = hlo.add(x, y)
    moved = hlo.subtract(total, x)
    lost = hlo.subtract(x, hlo.subtract(total, moved))
    return Double(total, hlo.add(lost, hlo.subtract(y, moved)))


def exact_product(x: ir.Value, y: ir.Value) -> Double:
    """x * y without error."""
    product = rounded_product(x, y)
    (a, b), (c, d) = _halves(x), _halves(y)
    error = hlo.subtract(rounded_product(a, c), product)
    error = hlo.add(hlo.add(error, rounded_product(a, d)), rounded_product(b, c))
    return Double(product, hlo.add(error, rounded_product(b, d)))


def _halves(x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """x as a sum of two numbers of 26 bits, the lower one with a sign."""
    bits = hlo.bitcast_convert(x, np.dtype(np.int64))
    bits = hlo.add(bits, hlo.full_like(bits, -_UPPER_BITS // 2))
    upper = hlo.and_(bits, hlo.full_like(bits, _UPPER_BITS))
    high = hlo.bitcast_convert(upper, np.dtype(np.float64))
    return high, hlo.subtract(x, high)


def add(x: Double, y: Double) -> Double:
    """x + y."""
    high, error = exact_sum(x.high, y.high)
    return exact_sum(high, hlo.add(error, hlo.add(x.low, y.low)))


def negate(x: Double) -> Double:
    """-x."""
    return Double(hlo.negate(x.high), hlo.negate(x.low))


def multiply(x: Double, y: Double) -> Double:
    """x * y."""
    high, error = exact_product(x.high, y.high)
    cross = hlo.add(rounded_product(x.high, y.low), rounded_product(x.low, y.high))
    return exact_sum(high, hlo.add(error, cross))


def scale(x: Double, factor: ir.Value) -> Double:
    """x * factor."""
    high, error = exact_product(x.high, factor)
    return exact_sum(high, hlo.add(error, rounded_product(x.low, factor)))


def divide(x: Double, y: Double) -> Double:
    """x / y."""
    first = hlo.divide(x.high, y.high)
    rest = add(x, negate(scale(y, first)))
    return exact_sum(first, hlo.divide(rest.high, y.high))


def choose(condition: ir.Value, x: Double, y: Double) -> Double:
    """x where `condition` holds, else y."""
    return Double(hlo.select(condition, x.high, y.high), hlo.select(condition, x.low, y.low))


def complex_logarithm(real: ir.Value, imaginary: ir.Value) -> tuple[Double, Double]:
    """log|z| and the angle of z in (-pi, pi], for finite z other than 0, of tensors of f64."""
    size = hlo.maximum(hlo.abs(real), hlo.abs(imaginary))
    exponent = hlo.minimum(exponent_of(size), hlo.full(1000, hlo.shape(size), np.dtype(np.int64)))
    factor = power_of_two(hlo.negate(exponent))
    x, y = rounded_product(real, factor), rounded_product(imaginary, factor)
    square = add(exact_product(x, x), exact_product(y, y))
    return _half_logarithm(square, exponent), _angle(x, y)


def squares_and(x: ir.Value, y: ir.Value, z: ir.Value) -> ir.Value:
    """x^2 + y^2 + z to the last place or two, however much cancels: all terms of the sum but the
    least are added without error."""
    p, q = exact_product(x, x), exact_product(y, y)
    total, error = exact_sum(p.high, q.high)
    excess, more = exact_sum(total, z)
    low, lost = exact_sum(p.low, q.low)
    rest, left = exact_sum(error, low)
    high, last = exact_sum(excess, rest)
    return hlo.add(high, hlo.add(hlo.add(more, last), hlo.add(lost, left)))


def exponent_of(x: ir.Value) -> ir.Value:
    """The exponent of positive x, at least -1022."""
    bits = hlo.bitcast_convert(x, np.dtype(np.int64))
    biased = hlo.shift_right_logical(bits, hlo.full_like(bits, _MANTISSA_BITS))
    return hlo.subtract(hlo.maximum(biased, hlo.full_like(bits, 1)), hlo.full_like(bits, 1023))


def power_of_two(n: ir.Value) -> ir.Value:
    """2^n within the exponents of normal numbers."""
    biased = hlo.add(n, hlo.full_like(n, 1023))
    bits = hlo.shift_left(biased, hlo.full_like(n, _MANTISSA_BITS))
    return hlo.bitcast_convert(bits, np.dtype(np.float64))


def _half_logarithm(square: Double, exponent: ir.Value) -> Double:
    """log(square) / 2 + exponent log 2: with 2^k m = square, m near 1, and s = (m - 1) / (m + 1),
    log(m) / 2 is s + s^3 / 3 + s^5 / 5 + ..."""
    bits = hlo.bitcast_convert(square.high, np.dtype(np.int64))
    moved = hlo.subtract(bits, hlo.full_like(bits, _SQRT_HALF_BITS))
    k = hlo.shift_right_arithmetic(moved, hlo.full_like(bits, _MANTISSA_BITS))
    factor = power_of_two(hlo.negate(k))
    high, low = (rounded_product(part, factor) for part in square)
    one = hlo.full_like(high, 1.0)
    excess = exact_sum(hlo.subtract(high, one), low)
    two = Double(hlo.full_like(high, 2.0), hlo.full_like(high, 0.0))
    s = divide(excess, add(two, excess))
    series = _odd_series(s, [1 / (2 * n + 1) for n in range(16)], 2)
    twice = hlo.add(exponent, exponent)
    halves = hlo.convert(hlo.add(k, twice), np.float64)
    ln2 = [rounded_product(halves, hlo.full_like(high, part / 2)) for part in _LN2]
    return add(exact_sum(*ln2), series)


def _angle(x: ir.Value, y: ir.Value) -> Double:
    """n pi / 4 +- atan of a fraction below tan(pi / 8)."""
    width, height = hlo.abs(x), hlo.abs(y)
    steep = hlo.compare(height, width, "GT")
    large, small = hlo.maximum(width, height), hlo.minimum(width, height)
    limit = rounded_product(large, hlo.full_like(large, math.sqrt(2) - 1))
    far = hlo.compare(small, limit, "GT")
    zero = hlo.full_like(large, 0.0)
    difference, total = exact_sum(small, hlo.negate(large)), exact_sum(small, large)
    fraction = divide(
        choose(far, difference, Double(small, zero)), choose(far, total, Double(large, zero))
    )
    angle = _odd_series(fraction, [(-1) ** n / (2 * n + 1) for n in range(26)], 3)
    turns = hlo.select(far, hlo.full_like(large, 1.0), zero)
    angle = choose(steep, negate(angle), angle)
    turns = hlo.select(steep, hlo.subtract(hlo.full_like(large, 2.0), turns), turns)
    sign = hlo.bitcast_convert(x, np.dtype(np.int64))
    backward = hlo.compare(sign, hlo.full_like(sign, 0), "LT")
    angle = choose(backward, negate(angle), angle)
    turns = hlo.select(backward, hlo.subtract(hlo.full_like(large, 4.0), turns), turns)
    base = [rounded_product(turns, hlo.full_like(large, part)) for part in _EIGHTH_TURN]
    angle = add(exact_sum(*base), angle)
    sign = hlo.bitcast_convert(y, np.dtype(np.int64))
    below = hlo.compare(sign, hlo.full_like(sign, 0), "LT")
    return choose(below, negate(angle), angle)


def _odd_series(x: Double, coefficients: list[float], exact: int) -> Double:
    """x (c0 + c1 x^2 + c2 x^4 + ..), the first `exact` terms behind c0 = 1 with both parts; each
    c_n is +-1 / (2 n + 1)."""
    square = multiply(x, x)
    z = square.high
    total = hlo.full_like(z, coefficients[-1])
    for coefficient in coefficients[-2:exact:-1]:
        total = hlo.add(rounded_product(total, z), hlo.full_like(z, coefficient))
    tail = Double(total, hlo.full_like(z, 0.0))
    for n in range(exact, -1, -1):
        high = coefficients[n]
        low = math.fsum([math.copysign(1.0, high), *[-high] * (2 * n + 1)]) / (2 * n + 1)
        constant = Double(hlo.full_like(z, high), hlo.full_like(z, low))
        tail = add(constant, multiply(tail, square))
    return multiply(tail, x)
