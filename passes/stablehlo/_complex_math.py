"""Functions of complex numbers as functions of their real and imaginary parts.

Transcendental functions of f32 are computed in f64 where cancellation or overflow would cost more
than a rounding; logarithms and powers of f64 in two parts (`_double_double`). Formulas: Abramowitz
and Stegun, Handbook of Mathematical Functions, chapter 4; square roots: W. Kahan, Branch cuts for
complex elementary functions (1987).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.mlir import ir
from stepwell.passes.stablehlo import _double_double as double_double
from stepwell.passes.stablehlo._complex_arithmetic import (
    Pair,
    add,
    all_finite,
    choose,
    compare_to,
    constant,
    divide,
    divide_parts,
    in_f64,
    is_ordinary,
    magnitude,
    maximum,
    minimum,
    multiply,
    negate,
    plain_multiply,
    scaled,
    subtract,
    times_real,
)

_LARGEST_EXPONENT = 709.0
"""e to this is finite in f64."""


class _Hyperbolic(NamedTuple):
    """Hyperbolic cosine and sine, both to be multiplied by `scale`: alone they may overflow."""

    cosh: ir.Value
    sinh: ir.Value
    scale: ir.Value

    def part(self, size: ir.Value, direction: ir.Value) -> ir.Value:
        """size * direction, `size` being `cosh` or `sinh`."""
        return _times(size, direction, self.scale)


def _hyperbolic(x: ir.Value) -> _Hyperbolic:
    """Of the size of `x`, from e^x, without cancellation near zero, and from the square of e^(x/2)
    where e^x may overflow."""
    size = hlo.abs(x)
    grown = hlo.exponential(size)
    shrunk = hlo.divide(hlo.full_like(size, 1.0), grown)
    cosh = scaled(hlo.add(grown, shrunk), 0.5)
    less = hlo.exponential_minus_one(size)
    near = hlo.add(less, hlo.divide(less, hlo.add(less, hlo.full_like(less, 1.0))))
    far = hlo.subtract(grown, shrunk)
    sinh = scaled(hlo.select(compare_to(size, "LT", 1.0), near, far), 0.5)
    root = hlo.exponential(scaled(size, 0.5))
    huge = compare_to(size, "GT", _LARGEST_EXPONENT)
    cosh, sinh = (hlo.select(huge, scaled(root, 0.5), value) for value in (cosh, sinh))
    scale = hlo.select(huge, root, hlo.full_like(root, 1.0))
    return _Hyperbolic(cosh, _with_sign(sinh, x), scale)


def _times(size: ir.Value, direction: ir.Value, scale: ir.Value | None = None) -> ir.Value:
    """size * direction * scale, zero where the direction is: infinities have no share in it."""
    product = hlo.multiply(size, direction)
    product = hlo.multiply(product, scale) if scale is not None else product
    return hlo.select(compare_to(direction, "EQ", 0.0), _with_sign(direction, size), product)


@in_f64
def exponential(x: Pair) -> Pair:
    """e^x; the square of e^(x/2) where that alone stays finite."""
    huge = compare_to(x.real, "GT", _LARGEST_EXPONENT)
    first = hlo.exponential(hlo.select(huge, scaled(x.real, 0.5), x.real))
    second = hlo.select(huge, first, hlo.full_like(first, 1.0))
    cosine, sine = hlo.cosine(x.imaginary), hlo.sine(x.imaginary)
    low = compare_to(x.real, "EQ", -math.inf)

    def part(direction: ir.Value) -> ir.Value:
        value = hlo.multiply(_times(first, direction), second)
        value = hlo.select(compare_to(direction, "EQ", 0.0), direction, value)
        return hlo.select(low, hlo.full_like(value, 0.0), value)

    real_line = compare_to(x.imaginary, "EQ", 0.0)
    imaginary = hlo.select(real_line, x.imaginary, part(sine))
    return Pair(hlo.select(real_line, hlo.exponential(x.real), part(cosine)), imaginary)


@in_f64
def exponential_minus_one(x: Pair) -> Pair:
    """e^x - 1: expm1(a) cos b - 2 sin(b/2)^2 and e^a sin b."""
    half = hlo.sine(scaled(x.imaginary, 0.5))
    less = hlo.exponential_minus_one(x.real)
    real = hlo.subtract(
        hlo.multiply(less, hlo.cosine(x.imaginary)), hlo.multiply(scaled(half, 2.0), half)
    )
    real_line = compare_to(x.imaginary, "EQ", 0.0)
    sine = hlo.sine(x.imaginary)
    imaginary = _times(hlo.exponential(x.real), sine)
    return Pair(hlo.select(real_line, less, real), hlo.select(real_line, x.imaginary, imaginary))


def _log_magnitude(x: Pair) -> ir.Value:
    """log |x|, a and b its larger and smaller part: near 1 by (a - 1)(a + 1) + b^2."""
    first, second = hlo.abs(x.real), hlo.abs(x.imaginary)
    large, small = hlo.maximum(first, second), hlo.minimum(first, second)
    ratio = hlo.divide(small, large)
    ratio = hlo.select(compare_to(large, "EQ", 0.0), hlo.full_like(ratio, 0.0), ratio)
    far = hlo.add(hlo.log(large), scaled(hlo.log_plus_one(hlo.multiply(ratio, ratio)), 0.5))
    one = hlo.full_like(large, 1.0)
    excess = hlo.add(
        hlo.multiply(hlo.subtract(large, one), hlo.add(large, one)), hlo.multiply(small, small)
    )
    near = scaled(hlo.log_plus_one(excess), 0.5)
    close = hlo.and_(compare_to(large, "GT", 0.5), compare_to(large, "LT", 2.0))
    length = hlo.select(close, near, far)
    infinite = compare_to(large, "EQ", math.inf)
    infinite = hlo.or_(infinite, compare_to(first, "EQ", math.inf))
    infinite = hlo.or_(infinite, compare_to(second, "EQ", math.inf))
    return hlo.select(infinite, hlo.full_like(large, math.inf), length)


@in_f64
def _log(x: Pair) -> Pair:
    return Pair(_log_magnitude(x), hlo.atan2(x.imaginary, x.real))


def log(x: Pair) -> Pair:
    """The principal logarithm: log |x| and the angle in (-pi, pi]. Of numbers of f64 the square of
    |x|, near one, has two parts."""
    if hlo.dtype(x.real) != np.float64:
        return _log(x)
    length, _ = double_double.complex_logarithm(x.real, x.imaginary)
    excess = double_double.squares_and(x.real, x.imaginary, hlo.full_like(x.real, -1.0))
    near = compare_to(hlo.abs(excess), "LT", 0.5)
    real = hlo.select(near, scaled(hlo.log_plus_one(excess), 0.5), length.high)
    plain = _log(x)
    return Pair(hlo.select(is_ordinary(x), real, plain.real), plain.imaginary)


def _excess(x: Pair) -> ir.Value:
    """|1 + x|^2 - 1 = a (2 + a) + b^2."""
    two = hlo.full_like(x.real, 2.0)
    return hlo.add(
        hlo.multiply(x.real, hlo.add(x.real, two)), hlo.multiply(x.imaginary, x.imaginary)
    )


def _log_plus_one(x: Pair, excess: ir.Value) -> Pair:
    moved = Pair(hlo.add(x.real, hlo.full_like(x.real, 1.0)), x.imaginary)
    small = compare_to(hlo.abs(excess), "LT", 0.5)
    real = hlo.select(small, scaled(hlo.log_plus_one(excess), 0.5), _log_magnitude(moved))
    return Pair(real, hlo.atan2(x.imaginary, moved.real))


def log_plus_one(x: Pair) -> Pair:
    """log(1 + x): the logarithm of |1 + x|^2 - 1 = a (2 + a) + b^2 where that is small; of numbers
    of f64 that sum has two parts."""
    if hlo.dtype(x.real) != np.float64:
        return in_f64(lambda wide: _log_plus_one(wide, _excess(wide)))(x)
    excess = double_double.squares_and(x.real, x.imaginary, hlo.add(x.real, x.real))
    return _log_plus_one(x, excess)


def _power_of_two_by_size(x: Pair, huge: float, tiny: float) -> ir.Value:
    """`huge` where |x| may overflow, `tiny` where a part of it has few digits, else 1."""
    size = hlo.maximum(hlo.abs(x.real), hlo.abs(x.imaginary))
    factor = hlo.full_like(size, 1.0)
    factor = hlo.select(compare_to(size, "GT", 2.0**1000), hlo.full_like(size, huge), factor)
    return hlo.select(compare_to(size, "LT", 2.0**-900), hlo.full_like(size, tiny), factor)


@in_f64
def sqrt(x: Pair) -> Pair:
    """The root with a real part that is not negative."""
    factor = _power_of_two_by_size(x, 2.0**-4, 2.0**108)
    back = _power_of_two_by_size(x, 2.0**2, 2.0**-54)
    return times_real(_sqrt(times_real(x, factor)), back)


def _sqrt(x: Pair) -> Pair:
    size = magnitude(x)
    half = hlo.sqrt(scaled(hlo.add(scaled(size, 0.5), scaled(hlo.abs(x.real), 0.5)), 1.0))
    other = hlo.divide(hlo.abs(x.imaginary), scaled(half, 2.0))
    zero = compare_to(size, "EQ", 0.0)
    other = hlo.select(zero, hlo.full_like(other, 0.0), other)
    right = compare_to(x.real, "GE", 0.0)
    real = hlo.select(right, half, other)
    imaginary = _with_sign(hlo.select(right, other, half), x.imaginary)
    infinite = compare_to(hlo.abs(x.imaginary), "EQ", math.inf)
    both = Pair(hlo.full_like(real, math.inf), x.imaginary)
    unbounded = compare_to(hlo.abs(x.real), "EQ", math.inf)
    zeros = hlo.full_like(real, 0.0)
    wide = hlo.full_like(real, math.inf)
    axis = Pair(
        hlo.select(right, wide, zeros), _with_sign(hlo.select(right, zeros, wide), x.imaginary)
    )
    axis = choose(hlo.is_finite(x.imaginary), axis, Pair(real, imaginary))
    return choose(infinite, both, choose(unbounded, axis, Pair(real, imaginary)))


def _with_sign(size: ir.Value, sign: ir.Value) -> ir.Value:
    """`size`, negative where the sign bit of `sign` is set."""
    negative = hlo.compare(hlo.bitcast_convert(sign, _bits(sign)), _zero_bits(sign), "LT")
    return hlo.select(negative, hlo.negate(size), size)


def _bits(x: ir.Value) -> np.dtype:
    return np.dtype(f"i{hlo.dtype(x).itemsize}")


def _zero_bits(x: ir.Value) -> ir.Value:
    return hlo.full(0, hlo.shape(x), _bits(x))


@in_f64
def rsqrt(x: Pair) -> Pair:
    """1 / sqrt(x), which is the conjugate of sqrt(x) by |x|."""
    y = times_real(x, _power_of_two_by_size(x, 2.0**-4, 2.0**108))
    back = _power_of_two_by_size(x, 2.0**-2, 2.0**54)
    root, size = _sqrt(y), magnitude(y)
    quotient = Pair(hlo.divide(root.real, size), hlo.divide(hlo.negate(root.imaginary), size))
    return choose(
        is_ordinary(x), times_real(quotient, back), divide_parts(constant(x, 1.0), sqrt(x))
    )


@in_f64
def cbrt(x: Pair) -> Pair:
    """The root of the magnitude, in the direction of a third of the angle."""
    factor = _power_of_two_by_size(x, 2.0**-6, 2.0**108)
    back = _power_of_two_by_size(x, 2.0**2, 2.0**-36)
    length = hlo.multiply(hlo.unary("cbrt", magnitude(times_real(x, factor))), back)
    angle = hlo.atan2(x.imaginary, x.real)
    third = hlo.divide(angle, hlo.full_like(angle, 3.0))
    return Pair(_times(length, hlo.cosine(third)), _times(length, hlo.sine(third)))


@in_f64
def sine(x: Pair) -> Pair:
    """sin a cosh b + i cos a sinh b."""
    of = _hyperbolic(x.imaginary)
    return Pair(of.part(of.cosh, hlo.sine(x.real)), of.part(of.sinh, hlo.cosine(x.real)))


@in_f64
def cosine(x: Pair) -> Pair:
    """cos a cosh b - i sin a sinh b."""
    of = _hyperbolic(x.imaginary)
    imaginary = hlo.negate(of.part(of.sinh, hlo.sine(x.real)))
    return Pair(of.part(of.cosh, hlo.cosine(x.real)), imaginary)


@in_f64
def sinh(x: Pair) -> Pair:
    """sinh a cos b + i cosh a sin b."""
    of = _hyperbolic(x.real)
    real = of.part(of.sinh, hlo.cosine(x.imaginary))
    return Pair(real, of.part(of.cosh, hlo.sine(x.imaginary)))


@in_f64
def cosh(x: Pair) -> Pair:
    """cosh a cos b + i sinh a sin b."""
    of = _hyperbolic(x.real)
    real = of.part(of.cosh, hlo.cosine(x.imaginary))
    return Pair(real, of.part(of.sinh, hlo.sine(x.imaginary)))


@in_f64
def tanh(x: Pair) -> Pair:
    """With t = tan b, s = sinh a, c = cosh a, d = 1 + t^2: (c s d + i t) / (1 + d s^2) (Kahan); for
    large |a| the real part is +-1 and the imaginary one 4 sin b cos b e^(-2|a|). Numbers that are
    not finite are as C has them (ISO C, G.6.2.6)."""
    cosh, sinh, _ = _hyperbolic(x.real)
    sin, cos = hlo.sine(x.imaginary), hlo.cosine(x.imaginary)
    tangent = hlo.divide(sin, cos)
    one = hlo.full_like(sinh, 1.0)
    d = hlo.add(one, hlo.multiply(tangent, tangent))
    whole = hlo.add(one, hlo.multiply(d, hlo.multiply(sinh, sinh)))
    near = Pair(
        hlo.divide(hlo.multiply(hlo.multiply(cosh, sinh), d), whole), hlo.divide(tangent, whole)
    )
    size = hlo.abs(x.real)
    slope = hlo.multiply(scaled(sin, 4.0), cos)
    known = hlo.compare(slope, slope, "EQ")
    infinite = compare_to(size, "EQ", math.inf)
    far = Pair(
        hlo.select(hlo.or_(known, infinite), hlo.sign(x.real), slope),
        _times(
            hlo.exponential(scaled(size, -2.0)),
            hlo.select(hlo.and_(infinite, hlo.not_(known)), hlo.full_like(slope, 0.0), slope),
        ),
    )
    result = choose(compare_to(size, "GT", 20.0), far, near)
    level = compare_to(x.imaginary, "EQ", 0.0)
    return Pair(result.real, hlo.select(level, x.imaginary, result.imaginary))


@in_f64
def tan(x: Pair) -> Pair:
    """-i tanh(i x)."""
    turned = tanh(Pair(hlo.negate(x.imaginary), x.real))
    return Pair(turned.imaginary, hlo.negate(turned.real))


@in_f64
def logistic(x: Pair) -> Pair:
    """1 / (1 + e^-x)."""
    grown = exponential(negate(x))
    one = constant(x, 1.0)
    return divide(one, add(one, grown))


@in_f64
def sign(x: Pair) -> Pair:
    """x / |x|, zero for zero."""
    x = times_real(x, _power_of_two_by_size(x, 2.0**-4, 2.0**108))
    size = magnitude(x)
    zero = compare_to(size, "EQ", 0.0)
    unit = Pair(hlo.divide(x.real, size), hlo.divide(x.imaginary, size))
    return choose(zero, constant(x, 0.0), unit)


def power(x: Pair, y: Pair) -> Pair:
    """e^(y log x); x^0 is 1, and 0^y is 0 for a positive real part of y."""
    nothing = hlo.and_(compare_to(x.real, "EQ", 0.0), compare_to(x.imaginary, "EQ", 0.0))
    if hlo.dtype(x.real) == np.float64:
        ordinary = hlo.and_(hlo.and_(all_finite(x), all_finite(y)), hlo.not_(nothing))
        result = choose(ordinary, _power_of_finite(x, y), exponential(plain_multiply(y, _log(x))))
    else:
        result = _power_in_f64(x, y)
    result = choose(hlo.and_(nothing, compare_to(y.real, "GT", 0.0)), constant(x, 0.0), result)
    never = hlo.and_(compare_to(y.real, "EQ", 0.0), compare_to(y.imaginary, "EQ", 0.0))
    return choose(never, constant(x, 1.0), result)


@in_f64
def _power_in_f64(x: Pair, y: Pair) -> Pair:
    return exponential(plain_multiply(y, _log(x)))


def _power_of_finite(x: Pair, y: Pair) -> Pair:
    """e^r (cos t + i sin t), where r and t, parts of y log x, have two parts each: an error of r or
    t is one of the result, relative to its size."""
    length, angle = double_double.complex_logarithm(x.real, x.imaginary)
    r = double_double.add(
        double_double.scale(length, y.real),
        double_double.negate(double_double.scale(angle, y.imaginary)),
    )
    t = double_double.add(
        double_double.scale(angle, y.real), double_double.scale(length, y.imaginary)
    )
    huge = compare_to(hlo.abs(r.high), "GT", 700.0)
    first = hlo.exponential(hlo.select(huge, scaled(r.high, 0.5), r.high))
    second = hlo.select(huge, first, hlo.full_like(first, 1.0))
    cosine, sine = hlo.cosine(t.high), hlo.sine(t.high)
    real = hlo.subtract(cosine, hlo.multiply(t.low, sine))
    imaginary = hlo.add(sine, hlo.multiply(t.low, cosine))
    return Pair(
        *(
            _times(first, hlo.add(part, hlo.multiply(part, r.low)), second)
            for part in (real, imaginary)
        )
    )


@in_f64
def atan2(y: Pair, x: Pair) -> Pair:
    """-i log((x + i y) / sqrt(x^2 + y^2))."""
    point = Pair(hlo.subtract(x.real, y.imaginary), hlo.add(x.imaginary, y.real))
    length = sqrt(add(plain_multiply(x, x), plain_multiply(y, y)))
    angle = _log(divide_parts(point, length))
    return Pair(angle.imaginary, hlo.negate(angle.real))


FUNCTIONS: dict[str, Callable[..., Pair]] = {
    "add": add,
    "subtract": subtract,
    "negate": negate,
    "multiply": multiply,
    "divide": divide,
    "exponential": exponential,
    "exponential_minus_one": exponential_minus_one,
    "log": log,
    "log_plus_one": log_plus_one,
    "sqrt": sqrt,
    "rsqrt": rsqrt,
    "cbrt": cbrt,
    "sine": sine,
    "cosine": cosine,
    "sinh": sinh,
    "cosh": cosh,
    "tan": tan,
    "tanh": tanh,
    "logistic": logistic,
    "maximum": maximum,
    "minimum": minimum,
    "sign": sign,
    "power": power,
    "atan2": atan2,
}
"""Elementwise functions to complex numbers by the name of their op."""
