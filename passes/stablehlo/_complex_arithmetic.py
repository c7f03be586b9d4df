"""Arithmetic of complex numbers by parts: sums, products, quotients, sizes, comparisons.

A number is a pair of tensors of f32 or f64. Products and quotients of f32 are computed in f64 where
cancellation or overflow would cost more than a rounding; quotients of f64 in two parts
(`_double_double`). Quotients: R. L. Smith, Algorithm 116, CACM 5 (1962).
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

_HUGE_SINGLE = 2.0**60
"""Squares of f32 up to here, and of their inverses, are normal numbers."""


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
    plain = plain_multiply(x, y)
    if hlo.dtype(x.real) != np.float64:
        return plain
    factors = [_factor_of_huge(value) for value in (x, y)]
    shrunk = plain_multiply(*(times_real(v, f) for v, f in zip((x, y), factors, strict=True)))
    for factor in factors:
        shrunk = Pair(*(hlo.divide(part, factor) for part in shrunk))
    return Pair(*(hlo.select(hlo.is_finite(p), p, q) for p, q in zip(plain, shrunk, strict=True)))


def _factor_of_huge(x: Pair) -> ir.Value:
    """2^-520 where products with parts of `x` may overflow, else 1."""
    size = hlo.maximum(hlo.abs(x.real), hlo.abs(x.imaginary))
    small, one = hlo.full_like(size, 2.0**-520), hlo.full_like(size, 1.0)
    return hlo.select(compare_to(size, "GT", 2.0**510), small, one)


def plain_multiply(x: Pair, y: Pair) -> Pair:
    """x * y as `multiply`, but for overflow."""
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


def compare_to(x: ir.Value, direction: str, bound: float) -> ir.Value:
    """How each number of `x` compares to one number."""
    return hlo.compare(x, hlo.full_like(x, bound), direction)


def scaled(x: ir.Value, factor: float) -> ir.Value:
    """Real numbers by one factor."""
    return hlo.multiply(x, hlo.full_like(x, factor))


def magnitude(x: Pair) -> ir.Value:
    """sqrt(re^2 + im^2) without overflow in between."""
    first, second = hlo.abs(x.real), hlo.abs(x.imaginary)
    large, small = hlo.maximum(first, second), hlo.minimum(first, second)
    ratio = hlo.divide(small, large)
    root = hlo.sqrt(hlo.add(hlo.full_like(ratio, 1.0), hlo.multiply(ratio, ratio)))
    length = hlo.multiply(large, root)
    length = hlo.select(compare_to(large, "EQ", 0.0), large, length)
    infinite = hlo.or_(compare_to(first, "EQ", math.inf), compare_to(second, "EQ", math.inf))
    return hlo.select(infinite, hlo.full_like(large, math.inf), length)


def absolute(x: Pair) -> ir.Value:
    """|x|, real. Of f32 by the squares of the parts, both times a power of two where the larger
    one's square would be no normal number."""
    if hlo.dtype(x.real) == np.float64:
        return magnitude(x)
    first, second = hlo.abs(x.real), hlo.abs(x.imaginary)
    large = hlo.select(hlo.compare(first, second, "LT"), second, first)
    huge, tiny = compare_to(large, "GT", _HUGE_SINGLE), compare_to(large, "LT", 1 / _HUGE_SINGLE)

    def by_size(of_huge: float, of_tiny: float) -> ir.Value:
        factor = hlo.select(tiny, hlo.full_like(large, of_tiny), hlo.full_like(large, 1.0))
        return hlo.select(huge, hlo.full_like(large, of_huge), factor)

    first, second = times_real(Pair(first, second), by_size(2.0**-100, 2.0**100))
    length = hlo.sqrt(hlo.add(hlo.multiply(first, first), hlo.multiply(second, second)))
    length = hlo.multiply(length, by_size(2.0**100, 2.0**-100))
    infinite = hlo.or_(compare_to(first, "EQ", math.inf), compare_to(second, "EQ", math.inf))
    return hlo.select(infinite, hlo.full_like(length, math.inf), length)


def divide(x: Pair, y: Pair) -> Pair:
    """x / y; by zero as the real quotients of the parts, which are infinite or NaN. Of finite
    numbers those of the products of x and the conjugate of y, which are exact for f32 in f64; in
    f64 their sums have two parts, and both numbers are scaled by powers of two."""
    if hlo.dtype(x.real) != np.float64:
        return _divide_singles(x, y)
    ordinary = hlo.and_(is_ordinary(x), is_ordinary(y))
    return choose(ordinary, _divide_doubled(x, y), divide_parts(x, y))


def _divide_singles(x: Pair, y: Pair) -> Pair:
    """x / y of f32 in f64. An infinite y is replaced by its signs, and the result by zeros of the
    same signs; for y zero see `divide`."""
    infinite = hlo.or_(*(compare_to(hlo.abs(part), "EQ", math.inf) for part in y))
    y = choose(infinite, Pair(*(_unit(part) for part in y)), y)
    (a, b), (c, d) = (Pair(*(hlo.convert(part, np.float64) for part in v)) for v in (x, y))
    whole = hlo.add(hlo.multiply(c, c), hlo.multiply(d, d))
    zero = compare_to(whole, "EQ", 0.0)
    real = hlo.add(hlo.multiply(a, c), hlo.multiply(b, d))
    imaginary = hlo.subtract(hlo.multiply(b, c), hlo.multiply(a, d))
    inverse = hlo.divide(hlo.full_like(whole, 1.0), hlo.select(zero, c, whole))
    inverse = hlo.select(infinite, hlo.full_like(inverse, 0.0), inverse)
    quotient = times_real(choose(zero, Pair(a, b), Pair(real, imaginary)), inverse)
    return Pair(*(hlo.convert(part, hlo.dtype(x.real)) for part in quotient))


def _unit(part: ir.Value) -> ir.Value:
    """1 of an infinite part and 0 of others, with their signs."""
    sign = hlo.select(
        compare_to(part, "GT", 0.0), hlo.full_like(part, 1.0), hlo.full_like(part, -1.0)
    )
    return hlo.select(compare_to(hlo.abs(part), "EQ", math.inf), sign, scaled(part, 0.0))


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
        quotient = times_real(quotient, double_double.power_of_two(part))
    return quotient


def is_ordinary(x: Pair) -> ir.Value:
    """Whether `x` is finite and not zero."""
    nothing = hlo.and_(compare_to(x.real, "EQ", 0.0), compare_to(x.imaginary, "EQ", 0.0))
    return hlo.and_(all_finite(x), hlo.not_(nothing))


def _near_one(x: Pair) -> tuple[ir.Value, ir.Value, ir.Value]:
    """The parts of 2^-n x, the larger between one and two for x of f64 other than zero, and n."""
    size = hlo.maximum(hlo.abs(x.real), hlo.abs(x.imaginary))
    tiny = compare_to(size, "LT", 2.0**-900)
    lifted = hlo.select(tiny, hlo.full_like(size, 2.0**108), hlo.full_like(size, 1.0))
    x = times_real(x, lifted)
    n = double_double.exponent_of(hlo.multiply(size, lifted))
    # The factor of the greatest exponent, 2^-1023, would not be a normal number.
    n = hlo.minimum(n, hlo.full_like(n, 1022))
    x = times_real(x, double_double.power_of_two(hlo.negate(n)))
    raised = hlo.select(tiny, hlo.full_like(n, 108), hlo.full_like(n, 0))
    return x.real, x.imaginary, hlo.subtract(n, raised)


@in_f64
def divide_parts(x: Pair, y: Pair) -> Pair:
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
    zero = hlo.and_(compare_to(y.real, "EQ", 0.0), compare_to(y.imaginary, "EQ", 0.0))
    by_zero = Pair(hlo.divide(x.real, y.real), hlo.divide(x.imaginary, y.real))
    unbounded = hlo.and_(compare_to(hlo.abs(large), "EQ", math.inf), all_finite(x))
    vanishing = _product_with_signs(x, y)
    return choose(zero, by_zero, choose(unbounded, vanishing, quotient))


def all_finite(x: Pair) -> ir.Value:
    """Whether both parts are finite."""
    return hlo.and_(hlo.is_finite(x.real), hlo.is_finite(x.imaginary))


def _product_with_signs(x: Pair, y: Pair) -> Pair:
    """A finite number by an infinite one: zeros with the signs of x * conj(signs of y)."""
    box = Pair(_unit(y.real), hlo.negate(_unit(y.imaginary)))
    product = plain_multiply(x, box)
    return Pair(scaled(product.real, 0.0), scaled(product.imaginary, 0.0))


def times_real(x: Pair, factor: ir.Value) -> Pair:
    """x by a real factor."""
    return Pair(hlo.multiply(x.real, factor), hlo.multiply(x.imaginary, factor))


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
