"""Functions of complex numbers as functions of their real and imaginary parts.

A number is a pair of tensors of f32 or f64. Products, quotients and transcendental functions of
f32 are computed in f64 where cancellation or overflow would cost more than a rounding; quotients,
logarithms and powers of f64 in two parts (`_double_double`). Formulas: Abramowitz and Stegun,
Handbook of Mathematical Functions, chapter 4; quotients: R. L. Smith, Algorithm 116, CACM 5 (1962);
square roots: W. Kahan, Branch cuts for complex elementary functions (1987).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.mlir import ir
from stepwell.passes.stablehlo import _double_double as double_double
from stepwell.passes.stablehlo._double_double import rounded_product


class Pair(NamedTuple):
    """A tensor of complex numbers by parts."""

    real: ir.Value
    imaginary: ir.Value


def add(x: Pair, y: Pair) -> Pair:
    """x + y."""
    return Pair(hlo.add(x.real, y.real), hlo.add(x.imaginary, y.imaginary))


def subtract(x: Pair, y: Pair) -> Pair:
    """x - y."""
    return Pair(hlo.subtract(x.real, y.real), hlo.subtract(x.imaginary, y.imaginary))


def negate(x: Pair) -> Pair:
    """-x."""
    return Pair(hlo.negate(x.real), hlo.negate(x.imaginary))


def multiply(x: Pair, y: Pair) -> Pair:
    """x * y. Of two products one is rounded, the other fused with it where the target has such an
    instruction: the same ones as in XLA's code for CPUs, so that results agree to the last bit. In
    f64 they do not overflow where their sum would not."""
    plain = _multiply(x, y)
    if hlo.dtype(x.real) != np.float64:
        return plain
    factors = [_factor_of_huge(value) for value in (x, y)]
    scaled = _multiply(*(_by(v, f) for v, f in zip((x, y), factors, strict=True)))
    for factor in factors:
        scaled = Pair(*(hlo.divide(part, factor) for part in scaled))
    return Pair(*(hlo.select(hlo.is_finite(p), p, q) for p, q in zip(plain, scaled, strict=True)))


def _factor_of_huge(x: Pair) -> ir.Value:
    """2^-520 where products with parts of `x` may overflow, else 1."""
    size = hlo.maximum(hlo.abs(x.real), hlo.abs(x.imaginary))
    small, one = hlo.full_like(size, 2.0**-520), hlo.full_like(size, 1.0)
    return hlo.select(_is(size, "GT", 2.0**510), small, one)


def _multiply(x: Pair, y: Pair) -> Pair:
    return Pair(
        hlo.subtract(hlo.multiply(x.real, y.real), rounded_product(x.imaginary, y.imaginary)),
        hlo.add(hlo.multiply(x.imaginary, y.real), rounded_product(x.real, y.imaginary)),
    )


def rounded_multiply(x: Pair, y: Pair) -> Pair:
    """x * y, each real product rounded by itself: a term of a sum of few products."""
    return Pair(
        hlo.subtract(rounded_product(x.real, y.real), rounded_product(x.imaginary, y.imaginary)),
        hlo.add(rounded_product(x.real, y.imaginary), rounded_product(x.imaginary, y.real)),
    )


def constant(like: Pair, real: float, imaginary: float = 0.0) -> Pair:
    """One number in the shape of `like`."""
    return Pair(hlo.full_like(like.real, real), hlo.full_like(like.real, imaginary))


def choose(condition: ir.Value, x: Pair, y: Pair) -> Pair:
    """x where `condition` holds, else y."""
    return Pair(
        hlo.select(condition, x.real, y.real), hlo.select(condition, x.imaginary, y.imaginary)
    )


def in_f64(function: Callable[..., Pair]) -> Callable[..., Pair]:
    """`function` computed in f64 and rounded to the type of its arguments."""

    def wide(*arguments: Pair) -> Pair:
        kind = hlo.dtype(arguments[0].real)
        widened = [Pair(*(hlo.convert(part, np.float64) for part in a)) for a in arguments]
        return Pair(*(hlo.convert(part, kind) for part in function(*widened)))

    wide.__doc__ = function.__doc__
    return wide


def _is(x: ir.Value, direction: str, bound: float) -> ir.Value:
    return hlo.compare(x, hlo.full_like(x, bound), direction)


def _scaled(x: ir.Value, factor: float) -> ir.Value:
    return hlo.multiply(x, hlo.full_like(x, factor))


def _magnitude(x: Pair) -> ir.Value:
    """sqrt(re^2 + im^2) without overflow in between."""
    first, second = hlo.abs(x.real), hlo.abs(x.imaginary)
    large, small = hlo.maximum(first, second), hlo.minimum(first, second)
    ratio = hlo.divide(small, large)
    root = hlo.sqrt(hlo.add(hlo.full_like(ratio, 1.0), hlo.multiply(ratio, ratio)))
    length = hlo.multiply(large, root)
    length = hlo.select(_is(large, "EQ", 0.0), large, length)
    infinite = hlo.or_(_is(first, "EQ", math.inf), _is(second, "EQ", math.inf))
    return hlo.select(infinite, hlo.full_like(large, math.inf), length)


def absolute(x: Pair) -> ir.Value:
    """|x|, real."""
    kind = hlo.dtype(x.real)
    wide = Pair(hlo.convert(x.real, np.float64), hlo.convert(x.imaginary, np.float64))
    return hlo.convert(_magnitude(wide), kind)


def divide(x: Pair, y: Pair) -> Pair:
    """x / y; by zero as the real quotients of the parts, which are infinite or NaN. Of finite
    numbers those of the products of x and the conjugate of y, which are exact for f32 in f64; in
    f64 their sums have two parts, and both numbers are scaled by powers of two."""
    ordinary = hlo.and_(_is_ordinary(x), _is_ordinary(y))
    quotient = _divide_doubled if hlo.dtype(x.real) == np.float64 else _divide_exact
    return choose(ordinary, quotient(x, y), _divide_parts(x, y))


@in_f64
def _divide_exact(x: Pair, y: Pair) -> Pair:
    (a, b), (c, d) = x, y
    real = hlo.add(hlo.multiply(a, c), hlo.multiply(b, d))
    imaginary = hlo.subtract(hlo.multiply(b, c), hlo.multiply(a, d))
    whole = hlo.add(hlo.multiply(c, c), hlo.multiply(d, d))
    return Pair(hlo.divide(real, whole), hlo.divide(imaginary, whole))


def _divide_doubled(x: Pair, y: Pair) -> Pair:
    (a, b, first), (c, d, second) = _near_one(x), _near_one(y)
    product = double_double.exact_product
    real = double_double.add(product(a, c), product(b, d)).high
    imaginary = double_double.add(product(b, c), double_double.negate(product(a, d))).high
    whole = double_double.add(product(c, c), product(d, d)).high
    exponent = hlo.subtract(first, second)
    bound = hlo.full_like(exponent, 2000)  # 2^2000 and its inverse leave no number
    exponent = hlo.clamp(hlo.negate(bound), exponent, bound)
    half = hlo.shift_right_arithmetic(exponent, hlo.full_like(exponent, 1))
    quotient = Pair(hlo.divide(real, whole), hlo.divide(imaginary, whole))
    for part in (half, hlo.subtract(exponent, half)):
        quotient = _by(quotient, double_double.power_of_two(part))
    return quotient


def _is_ordinary(x: Pair) -> ir.Value:
    """Whether `x` is finite and not zero."""
    nothing = hlo.and_(_is(x.real, "EQ", 0.0), _is(x.imaginary, "EQ", 0.0))
    return hlo.and_(_all_finite(x), hlo.not_(nothing))


def _near_one(x: Pair) -> tuple[ir.Value, ir.Value, ir.Value]:
    """The parts of 2^-n x, the larger between one and two for x of f64 other than zero, and n."""
    size = hlo.maximum(hlo.abs(x.real), hlo.abs(x.imaginary))
    tiny = _is(size, "LT", 2.0**-900)
    lifted = hlo.select(tiny, hlo.full_like(size, 2.0**108), hlo.full_like(size, 1.0))
    x = _by(x, lifted)
    n = double_double.exponent_of(hlo.multiply(size, lifted))
    # The factor of the greatest exponent, 2^-1023, would not be a normal number.
    n = hlo.minimum(n, hlo.full_like(n, 1022))
    x = _by(x, double_double.power_of_two(hlo.negate(n)))
    raised = hlo.select(tiny, hlo.full_like(n, 108), hlo.full_like(n, 0))
    return x.real, x.imaginary, hlo.subtract(n, raised)


@in_f64
def _divide_parts(x: Pair, y: Pair) -> Pair:
    """R. L. Smith's quotient, and what stands for that of zeros and infinities."""
    steep = hlo.compare(hlo.abs(y.real), hlo.abs(y.imaginary), "LT")
    large = hlo.select(steep, y.imaginary, y.real)
    small = hlo.select(steep, y.real, y.imaginary)
    ratio = hlo.divide(small, large)
    whole = hlo.add(large, hlo.multiply(small, ratio))
    first = hlo.select(steep, x.imaginary, x.real)
    second = hlo.select(steep, x.real, x.imaginary)
    real = hlo.divide(hlo.add(first, hlo.multiply(second, ratio)), whole)
    cross = hlo.subtract(second, hlo.multiply(first, ratio))
    imaginary = hlo.divide(hlo.select(steep, hlo.negate(cross), cross), whole)
    quotient = Pair(real, imaginary)
    zero = hlo.and_(_is(y.real, "EQ", 0.0), _is(y.imaginary, "EQ", 0.0))
    by_zero = Pair(hlo.divide(x.real, y.real), hlo.divide(x.imaginary, y.real))
    unbounded = hlo.and_(_is(hlo.abs(large), "EQ", math.inf), _all_finite(x))
    vanishing = _product_with_signs(x, y)
    return choose(zero, by_zero, choose(unbounded, vanishing, quotient))


def _all_finite(x: Pair) -> ir.Value:
    return hlo.and_(hlo.is_finite(x.real), hlo.is_finite(x.imaginary))


def _product_with_signs(x: Pair, y: Pair) -> Pair:
    """A finite number by an infinite one: zeros with the signs of x * conj(signs of y)."""

    def unit(part: ir.Value) -> ir.Value:
        size = hlo.select(
            _is(hlo.abs(part), "EQ", math.inf), hlo.full_like(part, 1.0), hlo.full_like(part, 0.0)
        )
        return hlo.multiply(size, hlo.sign(part))

    box = Pair(unit(y.real), hlo.negate(unit(y.imaginary)))
    product = _multiply(x, box)
    return Pair(_scaled(product.real, 0.0), _scaled(product.imaginary, 0.0))


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
    cosh = _scaled(hlo.add(grown, shrunk), 0.5)
    less = hlo.exponential_minus_one(size)
    near = hlo.add(less, hlo.divide(less, hlo.add(less, hlo.full_like(less, 1.0))))
    far = hlo.subtract(grown, shrunk)
    sinh = _scaled(hlo.select(_is(size, "LT", 1.0), near, far), 0.5)
    root = hlo.exponential(_scaled(size, 0.5))
    huge = _is(size, "GT", _LARGEST_EXPONENT)
    cosh, sinh = (hlo.select(huge, _scaled(root, 0.5), value) for value in (cosh, sinh))
    scale = hlo.select(huge, root, hlo.full_like(root, 1.0))
    return _Hyperbolic(cosh, _with_sign(sinh, x), scale)


def _times(size: ir.Value, direction: ir.Value, scale: ir.Value | None = None) -> ir.Value:
    """size * direction * scale, zero where the direction is: infinities have no share in it."""
    product = hlo.multiply(size, direction)
    product = hlo.multiply(product, scale) if scale is not None else product
    return hlo.select(_is(direction, "EQ", 0.0), _with_sign(direction, size), product)


@in_f64
def exponential(x: Pair) -> Pair:
    """e^x; the square of e^(x/2) where that alone stays finite."""
    huge = _is(x.real, "GT", _LARGEST_EXPONENT)
    first = hlo.exponential(hlo.select(huge, _scaled(x.real, 0.5), x.real))
    second = hlo.select(huge, first, hlo.full_like(first, 1.0))
    cosine, sine = hlo.cosine(x.imaginary), hlo.sine(x.imaginary)
    low = _is(x.real, "EQ", -math.inf)

    def part(direction: ir.Value) -> ir.Value:
        value = hlo.multiply(_times(first, direction), second)
        value = hlo.select(_is(direction, "EQ", 0.0), direction, value)
        return hlo.select(low, hlo.full_like(value, 0.0), value)

    real_line = _is(x.imaginary, "EQ", 0.0)
    imaginary = hlo.select(real_line, x.imaginary, part(sine))
    return Pair(hlo.select(real_line, hlo.exponential(x.real), part(cosine)), imaginary)


@in_f64
def exponential_minus_one(x: Pair) -> Pair:
    """e^x - 1: expm1(a) cos b - 2 sin(b/2)^2 and e^a sin b."""
    half = hlo.sine(_scaled(x.imaginary, 0.5))
    less = hlo.exponential_minus_one(x.real)
    real = hlo.subtract(
        hlo.multiply(less, hlo.cosine(x.imaginary)), hlo.multiply(_scaled(half, 2.0), half)
    )
    real_line = _is(x.imaginary, "EQ", 0.0)
    sine = hlo.sine(x.imaginary)
    imaginary = _times(hlo.exponential(x.real), sine)
    return Pair(hlo.select(real_line, less, real), hlo.select(real_line, x.imaginary, imaginary))


def _log_magnitude(x: Pair) -> ir.Value:
    """log |x|, a and b its larger and smaller part: near 1 by (a - 1)(a + 1) + b^2."""
    first, second = hlo.abs(x.real), hlo.abs(x.imaginary)
    large, small = hlo.maximum(first, second), hlo.minimum(first, second)
    ratio = hlo.divide(small, large)
    ratio = hlo.select(_is(large, "EQ", 0.0), hlo.full_like(ratio, 0.0), ratio)
    far = hlo.add(hlo.log(large), _scaled(hlo.log_plus_one(hlo.multiply(ratio, ratio)), 0.5))
    one = hlo.full_like(large, 1.0)
    excess = hlo.add(
        hlo.multiply(hlo.subtract(large, one), hlo.add(large, one)), hlo.multiply(small, small)
    )
    near = _scaled(hlo.log_plus_one(excess), 0.5)
    close = hlo.and_(_is(large, "GT", 0.5), _is(large, "LT", 2.0))
    length = hlo.select(close, near, far)
    infinite = _is(large, "EQ", math.inf)
    infinite = hlo.or_(infinite, _is(first, "EQ", math.inf))
    infinite = hlo.or_(infinite, _is(second, "EQ", math.inf))
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
    near = _is(hlo.abs(excess), "LT", 0.5)
    real = hlo.select(near, _scaled(hlo.log_plus_one(excess), 0.5), length.high)
    plain = _log(x)
    return Pair(hlo.select(_is_ordinary(x), real, plain.real), plain.imaginary)


def _excess(x: Pair) -> ir.Value:
    """|1 + x|^2 - 1 = a (2 + a) + b^2."""
    two = hlo.full_like(x.real, 2.0)
    return hlo.add(
        hlo.multiply(x.real, hlo.add(x.real, two)), hlo.multiply(x.imaginary, x.imaginary)
    )


def _log_plus_one(x: Pair, excess: ir.Value) -> Pair:
    moved = Pair(hlo.add(x.real, hlo.full_like(x.real, 1.0)), x.imaginary)
    small = _is(hlo.abs(excess), "LT", 0.5)
    real = hlo.select(small, _scaled(hlo.log_plus_one(excess), 0.5), _log_magnitude(moved))
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
    factor = hlo.select(_is(size, "GT", 2.0**1000), hlo.full_like(size, huge), factor)
    return hlo.select(_is(size, "LT", 2.0**-900), hlo.full_like(size, tiny), factor)


def _by(x: Pair, factor: ir.Value) -> Pair:
    return Pair(hlo.multiply(x.real, factor), hlo.multiply(x.imaginary, factor))


@in_f64
def sqrt(x: Pair) -> Pair:
    """The root with a real part that is not negative."""
    factor = _power_of_two_by_size(x, 2.0**-4, 2.0**108)
    back = _power_of_two_by_size(x, 2.0**2, 2.0**-54)
    return _by(_sqrt(_by(x, factor)), back)


def _sqrt(x: Pair) -> Pair:
    size = _magnitude(x)
    half = hlo.sqrt(_scaled(hlo.add(_scaled(size, 0.5), _scaled(hlo.abs(x.real), 0.5)), 1.0))
    other = hlo.divide(hlo.abs(x.imaginary), _scaled(half, 2.0))
    zero = _is(size, "EQ", 0.0)
    other = hlo.select(zero, hlo.full_like(other, 0.0), other)
    right = _is(x.real, "GE", 0.0)
    real = hlo.select(right, half, other)
    imaginary = _with_sign(hlo.select(right, other, half), x.imaginary)
    infinite = _is(hlo.abs(x.imaginary), "EQ", math.inf)
    both = Pair(hlo.full_like(real, math.inf), x.imaginary)
    unbounded = _is(hlo.abs(x.real), "EQ", math.inf)
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
    y = _by(x, _power_of_two_by_size(x, 2.0**-4, 2.0**108))
    back = _power_of_two_by_size(x, 2.0**-2, 2.0**54)
    root, size = _sqrt(y), _magnitude(y)
    quotient = Pair(hlo.divide(root.real, size), hlo.divide(hlo.negate(root.imaginary), size))
    return choose(_is_ordinary(x), _by(quotient, back), _divide_parts(constant(x, 1.0), sqrt(x)))


@in_f64
def cbrt(x: Pair) -> Pair:
    """The root of the magnitude, in the direction of a third of the angle."""
    factor = _power_of_two_by_size(x, 2.0**-6, 2.0**108)
    back = _power_of_two_by_size(x, 2.0**2, 2.0**-36)
    length = hlo.multiply(hlo.unary("cbrt", _magnitude(_by(x, factor))), back)
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
    large |a| the real part is +-1 and the imaginary one 4 sin b cos b e^(-2|a|)."""
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
    slope = hlo.multiply(_scaled(sin, 4.0), cos)
    far = Pair(
        hlo.sign(x.real),
        _times(hlo.exponential(_scaled(size, -2.0)), slope),
    )
    return choose(_is(size, "GT", 20.0), far, near)


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
    x = _by(x, _power_of_two_by_size(x, 2.0**-4, 2.0**108))
    size = _magnitude(x)
    zero = _is(size, "EQ", 0.0)
    unit = Pair(hlo.divide(x.real, size), hlo.divide(x.imaginary, size))
    return choose(zero, constant(x, 0.0), unit)


def power(x: Pair, y: Pair) -> Pair:
    """e^(y log x); x^0 is 1, and 0^y is 0 for a positive real part of y."""
    nothing = hlo.and_(_is(x.real, "EQ", 0.0), _is(x.imaginary, "EQ", 0.0))
    if hlo.dtype(x.real) == np.float64:
        ordinary = hlo.and_(hlo.and_(_all_finite(x), _all_finite(y)), hlo.not_(nothing))
        result = choose(ordinary, _power_of_finite(x, y), exponential(_multiply(y, _log(x))))
    else:
        result = _power_in_f64(x, y)
    result = choose(hlo.and_(nothing, _is(y.real, "GT", 0.0)), constant(x, 0.0), result)
    never = hlo.and_(_is(y.real, "EQ", 0.0), _is(y.imaginary, "EQ", 0.0))
    return choose(never, constant(x, 1.0), result)


@in_f64
def _power_in_f64(x: Pair, y: Pair) -> Pair:
    return exponential(_multiply(y, _log(x)))


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
    huge = _is(hlo.abs(r.high), "GT", 700.0)
    first = hlo.exponential(hlo.select(huge, _scaled(r.high, 0.5), r.high))
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
    length = sqrt(add(_multiply(x, x), _multiply(y, y)))
    angle = _log(_divide_parts(point, length))
    return Pair(angle.imaginary, hlo.negate(angle.real))


def compare(x: Pair, y: Pair, direction: str) -> ir.Value:
    """EQ or NE."""
    real = hlo.compare(x.real, y.real, direction)
    imaginary = hlo.compare(x.imaginary, y.imaginary, direction)
    return hlo.and_(real, imaginary) if direction == "EQ" else hlo.or_(real, imaginary)


def maximum(x: Pair, y: Pair) -> Pair:
    """The greater by real parts, of equal ones by imaginary parts; NaN wins."""
    return choose(hlo.and_(_comes_first(y, x), compare(y, y, "EQ")), x, _or_nan(x, y))


def minimum(x: Pair, y: Pair) -> Pair:
    """The lesser by real parts, of equal ones by imaginary parts; NaN wins."""
    return choose(hlo.and_(_comes_first(x, y), compare(x, x, "EQ")), x, _or_nan(x, y))


def _comes_first(x: Pair, y: Pair) -> ir.Value:
    """Whether x is less than y in lexicographic order."""
    return hlo.or_(
        hlo.compare(x.real, y.real, "LT"),
        hlo.and_(hlo.compare(x.real, y.real, "EQ"), hlo.compare(x.imaginary, y.imaginary, "LT")),
    )


def _or_nan(x: Pair, y: Pair) -> Pair:
    return choose(compare(x, x, "NE"), x, y)


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
