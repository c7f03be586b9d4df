"""Transcendental functions as arithmetic on f64 vectors or scalars; those of f32 through them.

Errors are stated against the exact function in units in the last place (ulp) of the result. NaN
goes in and comes out. Polynomials are Taylor series, long enough for the reduced range, where
nothing else is said; argument reductions are those of W. J. Cody and W. Waite, "Software Manual for
the Elementary Functions" (1980), exact with fused multiply-add.
"""

from __future__ import annotations

import math as _math
from collections.abc import Callable

from stepwell.kernels.vector_math import any_lane, constant, has_scalef, like, polynomial, scalef
from stepwell.mlir import dialect, ir

arith = dialect("arith")
math = dialect("math")

_OEQ, _OGT, _OGE, _OLT, _UNO = 1, 2, 3, 4, 14
_LN2_HIGH, _LN2_LOW = 0.6931471803691238, 1.9082149292705877e-10
"""ln 2 in two parts: n times the first is exact for |n| < 2^20."""
_PI_HALVES = (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591833e-33)
_PI_LOW = 1.2246467991473532e-16
_MANTISSA_BITS = 52
_SQRT_HALF_BITS = 0x3FE6A09E667F3BCD
_LEAST_NORMAL = 2.2250738585072014e-308
_EXPONENTS = (-746.0, 710.0)
"""e to these is zero and infinity."""
_EXPM1_FLOOR = -40.0
"""Where e^x - 1 rounds to -1."""
_TANH_LIMIT = 20.0
"""Where tanh rounds to 1."""
_ROUNDING = 1.5 * 2**52 + 1023
"""Added to a float less than 2^50, it rounds it to an integer n; the low twelve bits are then those
of n + 1023, the exponent field of 2^n."""


def through_double(function: Callable[..., ir.Value]) -> Callable[..., ir.Value]:
    """`function` of f32, computed in f64 and rounded once: within 0.51 ulp."""

    def single(*operands: ir.Value) -> ir.Value:
        kind = operands[0].type
        wide = like(kind, ir.F64Type.get())
        widened = [arith.ExtFOp(wide, operand).result for operand in operands]
        return arith.TruncFOp(kind, function(*widened)).result

    return single


def _add(a: ir.Value, b: ir.Value | float) -> ir.Value:
    return arith.AddFOp(a, b if isinstance(b, ir.Value) else constant(a.type, b)).result


def _subtract(a: ir.Value, b: ir.Value) -> ir.Value:
    return arith.SubFOp(a, b).result


def _multiply(a: ir.Value, b: ir.Value | float) -> ir.Value:
    return arith.MulFOp(a, b if isinstance(b, ir.Value) else constant(a.type, b)).result


def _divide(a: ir.Value, b: ir.Value) -> ir.Value:
    return arith.DivFOp(a, b).result


def _fma(a: ir.Value, b: ir.Value | float, c: ir.Value | float) -> ir.Value:
    factor = b if isinstance(b, ir.Value) else constant(a.type, b)
    return math.FmaOp(a, factor, c if isinstance(c, ir.Value) else constant(a.type, c)).result


def _negate(a: ir.Value) -> ir.Value:
    return arith.NegFOp(a).result


def _compare(predicate: int, x: ir.Value, bound: ir.Value | float) -> ir.Value:
    other = bound if isinstance(bound, ir.Value) else constant(x.type, bound)
    return arith.CmpFOp(predicate, x, other).result


def _choose(condition: ir.Value, then: ir.Value | float, other: ir.Value) -> ir.Value:
    value = then if isinstance(then, ir.Value) else constant(other.type, then)
    return arith.SelectOp(condition, value, other).result


def _integer(kind: ir.Type) -> ir.Type:
    return like(kind, ir.IntegerType.get_signless(64))


def _bits(x: ir.Value) -> ir.Value:
    return arith.BitcastOp(_integer(x.type), x).result


def _to_exponent(n: ir.Value) -> ir.Value:
    """The low bits of n, moved to the exponent field."""
    return arith.ShLIOp(n, constant(n.type, _MANTISSA_BITS)).result


def _power_of_two(rounded: ir.Value) -> ir.Value:
    """2^n, when that is normal, of _ROUNDING + n."""
    return arith.BitcastOp(rounded.type, _to_exponent(_bits(rounded))).result


def _scaled(x: ir.Value, rounded: ir.Value, *, avx512: bool = False) -> ir.Value:
    """x * 2^n for x near one and _ROUNDING + n, a subnormal result rounded once."""
    n = _add(rounded, -_ROUNDING)
    if avx512 and has_scalef(x.type):
        return scalef(x, n)
    half = _fma(n, 0.5, _ROUNDING)
    rest = arith.SubIOp(_bits(rounded), _bits(half)).result
    scaled = arith.AddIOp(_bits(x), _to_exponent(rest)).result
    return _multiply(arith.BitcastOp(x.type, scaled).result, _power_of_two(half))


def _signed(size: ir.Value, sign: ir.Value) -> ir.Value:
    """`size`, which is not negative, with the sign of `sign`, on bits: LLVM takes copysign by the
    narrower type that `sign` may have been extended from, through a library."""
    kind = _integer(size.type)
    bit = arith.AndIOp(arith.BitcastOp(kind, sign).result, constant(kind, -(1 << 63))).result
    bits = arith.OrIOp(arith.BitcastOp(kind, size).result, bit).result
    return arith.BitcastOp(size.type, bits).result


def _clamped(x: ir.Value, low: float, high: float) -> ir.Value:
    x = _choose(_compare(_OLT, x, low), low, x)
    return _choose(_compare(_OGT, x, high), high, x)


_EXP = (2.0919526883209687e-09, 2.510921428216453e-08, 2.755725914106419e-07,
        2.7557243702649166e-06, 2.4801587340668924e-05, 0.00019841269886631242,
        0.0013888888888877432, 0.008333333333321428, 0.04166666666666668, 0.16666666666666677,
        0.5)  # fmt: skip
"""(e^r - 1 - r) / r^2 for |r| <= ln 2 / 2, a least-squares fit in Chebyshev points with
coefficients rounded one by one; its error relative to e^r - 1 is 2.7e-19."""


def exp(x: ir.Value, *, avx512: bool = False) -> ir.Value:
    """e^x, within 1 ulp, subnormal results included. `avx512` allows its instructions."""
    grown, rounded = _exp_parts(_clamped(x, *_EXPONENTS))
    return _scaled(_add(grown, 1.0), rounded, avx512=avx512)


def times_exp(factor: ir.Value, x: ir.Value, rest: ir.Value) -> ir.Value:
    """factor * e^(x + rest) for a far smaller `rest` and a factor near one, subnormal results
    included; the factor adds one rounding to the error of the exponential, 0.6 ulp."""
    grown, rounded = _exp_parts(_clamped(x, *_EXPONENTS), rest)
    return _scaled(_fma(factor, grown, factor), rounded)


def exp_of_nonpositive(x: ir.Value) -> ir.Value:
    """e^x for -700 <= x <= 0, within 1 ulp."""
    grown, rounded = _exp_parts(x)
    power = _power_of_two(rounded)
    return _fma(power, grown, power)


def _exp_parts(x: ir.Value, rest: ir.Value | None = None) -> tuple[ir.Value, ir.Value]:
    """p and _ROUNDING + n with e^(x + rest) = (1 + p) 2^n, where n is integral."""
    rounded = _fma(x, 1 / _math.log(2), _ROUNDING)
    n = _add(rounded, -_ROUNDING)
    r = _fma(n, -_LN2_LOW, _fma(n, -_LN2_HIGH, x))
    if rest is not None:
        r = _add(r, rest)
    return _fma(polynomial(r, _EXP), _multiply(r, r), r), rounded


def expm1(x: ir.Value) -> ir.Value:
    """e^x - 1, within 2 ulp: 2^n p + (2^n - 1), by halves of both, so that 2^n is a float."""
    grown, rounded = _exp_parts(_clamped(x, _EXPM1_FLOOR, _EXPONENTS[1]))
    half = _power_of_two(_add(rounded, -1.0))
    result = _multiply(_fma(half, grown, _add(half, -0.5)), 2.0)
    return _choose(_compare(_OLT, math.AbsFOp(x).result, 2.0**-54), x, result)


def _log_parts(x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """(f, k) with x = (1 + f) 2^k, 1 + f between sqrt(1/2) and sqrt(2), for positive finite x."""
    kind = _integer(x.type)
    tiny = _compare(_OLT, x, _LEAST_NORMAL)
    bits = arith.BitcastOp(kind, _choose(tiny, _multiply(x, 2.0**54), x)).result
    k = arith.ShRSIOp(
        arith.SubIOp(bits, constant(kind, _SQRT_HALF_BITS)).result, constant(kind, _MANTISSA_BITS)
    ).result
    mantissa = arith.SubIOp(bits, arith.ShLIOp(k, constant(kind, _MANTISSA_BITS)).result).result
    f = _add(arith.BitcastOp(x.type, mantissa).result, -1.0)
    exponent = arith.SIToFPOp(x.type, k).result
    return f, _choose(tiny, _add(exponent, -54.0), exponent)


_ATANH = tuple(2 / (2 * k + 1) for k in range(11, 0, -1))
"""(log((1 + s) / (1 - s)) - 2 s) / s^3 in s^2."""


def _log_special(x: ir.Value, result: ir.Value) -> ir.Value:
    result = _choose(_compare(_OEQ, x, 0.0), -_math.inf, result)
    result = _choose(_compare(_OLT, x, 0.0), _math.nan, result)
    result = _choose(_compare(_OEQ, x, _math.inf), x, result)
    return _choose(_compare(_UNO, x, x), x, result)


def _log_sum(f: ir.Value, k: ir.Value, correction: ir.Value | None = None) -> ir.Value:
    """log((1 + f) 2^k) + correction: f - (f^2/2 - s (f^2/2 + R)) with s = f / (2 + f)."""
    s = _divide(f, _add(f, 2.0))
    z = _multiply(s, s)
    series = _multiply(z, polynomial(z, _ATANH))
    half_square = _multiply(_multiply(f, f), 0.5)
    low = _fma(k, _LN2_LOW, _multiply(s, _add(half_square, series)))
    if correction is not None:
        low = _add(low, correction)
    return _fma(k, _LN2_HIGH, _subtract(f, _subtract(half_square, low)))


def log(x: ir.Value) -> ir.Value:
    """Natural logarithm, within 1 ulp; log(0) is -infinity, of negatives NaN."""
    f, k = _log_parts(x)
    return _log_special(x, _log_sum(f, k))


def log1p(x: ir.Value) -> ir.Value:
    """log(1 + x), within 1.5 ulp: log(u) plus what u = 1 + x has lost, over u."""
    u = _add(x, 1.0)
    small = _compare(_OLT, math.AbsFOp(x).result, 1.0)
    lost = _choose(
        small,
        _subtract(x, _add(u, -1.0)),
        _subtract(constant(x.type, 1.0), _subtract(u, x)),
    )
    f, k = _log_parts(u)
    result = _log_special(u, _log_sum(f, k, _divide(lost, u)))
    tiny = _compare(_OLT, math.AbsFOp(x).result, 2.0**-54)
    return _choose(tiny, x, result)


_TWO_THIRDS = (0.6666666666666666, 3.700743415417188e-17)


def _log_in_two_parts(x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """log x as a sum, good to 2^-64 of it, for positive finite x. Of the series 2 s + 2/3 s^3 + ...
    the first two terms have two parts each."""
    f, k = _log_parts(x)
    d = _add(f, 2.0)
    d_rest = _subtract(f, _add(d, -2.0))
    s = _divide(f, d)
    s_rest = _divide(_subtract(_fma(_negate(s), d, f), _multiply(s, d_rest)), d)
    z = _multiply(s, s)
    z_rest = _fma(_multiply(s, 2.0), s_rest, _fma(s, s, _negate(z)))
    cube = _multiply(z, s)
    cube_rest = _fma(z, s, _negate(cube))
    cube_rest = _fma(z, s_rest, _fma(z_rest, s, cube_rest))
    second = _multiply(cube, _TWO_THIRDS[0])
    second_rest = _fma(cube, _TWO_THIRDS[0], _negate(second))
    second_rest = _fma(cube, _TWO_THIRDS[1], _fma(cube_rest, _TWO_THIRDS[0], second_rest))
    series = _fma(_multiply(z, cube), polynomial(z, _ATANH[:-1]), second_rest)
    whole = _multiply(k, _LN2_HIGH)
    first, first_rest = _sum_in_two_parts(whole, _multiply(s, 2.0))
    high, high_rest = _sum_in_two_parts(first, second)
    low = _fma(k, _LN2_LOW, _fma(s_rest, 2.0, series))
    low = _add(low, _add(first_rest, high_rest))
    total = _add(high, low)
    return total, _add(_subtract(high, total), low)


def _sum_in_two_parts(x: ir.Value, y: ir.Value) -> tuple[ir.Value, ir.Value]:
    """x + y, rounded, and what that has lost."""
    total = _add(x, y)
    moved = _subtract(total, x)
    return total, _add(_subtract(x, _subtract(total, moved)), _subtract(y, moved))


def power(x: ir.Value, y: ir.Value) -> ir.Value:
    """x^y as e^(y log|x|) with the logarithm and the product in two parts, within 1.5 ulp; signs,
    zeros and infinities as IEEE 754 says of pow."""
    regular = _positive(x)
    high, low = _log_in_two_parts(regular)
    finite = _clamped(y, -1e300, 1e300)
    product = _multiply(finite, high)
    rest = _fma(finite, low, _fma(finite, high, _negate(product)))
    bounded = _compare(_OLT, math.AbsFOp(product).result, 745.0)
    rest = _choose(bounded, rest, constant(x.type, 0.0))
    grown, rounded = _exp_parts(_clamped(product, *_EXPONENTS), rest)
    return _special_powers(x, y, _scaled(_add(grown, 1.0), rounded))


def power_of_singles(x: ir.Value, y: ir.Value) -> ir.Value:
    """`power` of numbers that were f32: within 1e-13 of x^y, so that it rounds as x^y does but for
    one in a million."""
    finite = _clamped(y, -1e300, 1e300)
    return _special_powers(x, y, exp(_multiply(finite, log(_positive(x)))))


def _positive(x: ir.Value) -> ir.Value:
    """|x|, and 1 for zeros and infinities."""
    size = math.AbsFOp(x).result
    regular = _choose(_compare(_OEQ, size, 0.0), 1.0, size)
    return _choose(_compare(_OEQ, size, _math.inf), 1.0, regular)


def _special_powers(x: ir.Value, y: ir.Value, result: ir.Value) -> ir.Value:
    """x^y from |x|^y: signs, zeros, infinities and NaN."""
    size = math.AbsFOp(x).result
    upward = _compare(_OGT, y, 0.0)
    zero, infinity = constant(x.type, 0.0), constant(x.type, _math.inf)
    result = _choose(_compare(_OEQ, size, 0.0), _choose(upward, zero, infinity), result)
    result = _choose(_compare(_OEQ, size, _math.inf), _choose(upward, infinity, zero), result)
    integral = _compare(_OEQ, math.RoundEvenOp(y).result, y)
    half = _multiply(y, 0.5)
    even = _compare(_OEQ, math.RoundEvenOp(half).result, half)
    sign = arith.BitcastOp(_integer(x.type), x).result
    below = arith.CmpIOp(2, sign, constant(sign.type, 0)).result
    signed = _choose(even, result, _negate(result))
    special = arith.OrIOp(_compare(_OEQ, size, 0.0), _compare(_OEQ, size, _math.inf)).result
    fractional = _choose(special, result, constant(x.type, _math.nan))
    result = _choose(below, _choose(integral, signed, fractional), result)
    unordered = arith.OrIOp(_compare(_UNO, x, x), _compare(_UNO, y, y)).result
    result = _choose(unordered, _math.nan, result)
    endless = _compare(_OEQ, math.AbsFOp(y).result, _math.inf)
    alone = arith.AndIOp(endless, _compare(_OEQ, size, 1.0)).result
    result = _choose(alone, 1.0, result)
    result = _choose(_compare(_OEQ, x, 1.0), 1.0, result)
    return _choose(_compare(_OEQ, y, 0.0), 1.0, result)


def cbrt(x: ir.Value) -> ir.Value:
    """Cube root, within 2 ulp: e^(log|x| / 3), then one step of Newton's method."""
    size = math.AbsFOp(x).result
    guess = exp(_multiply(log(size), 1 / 3))
    square = _multiply(guess, guess)
    step = _multiply(_subtract(_divide(size, square), guess), 1 / 3)
    result = _signed(_add(guess, step), x)
    result = _choose(_compare(_OEQ, size, _math.inf), x, result)
    return _choose(_compare(_OEQ, x, 0.0), x, result)


def tanh(x: ir.Value) -> ir.Value:
    """Hyperbolic tangent, within 2.5 ulp: m / (m + 2) with m = e^2|x| - 1, from the series in which
    the one is left out, so that small results keep their digits."""
    size = math.AbsFOp(x).result
    bounded = _choose(_compare(_OGT, size, _TANH_LIMIT), _TANH_LIMIT, size)
    minus_one, rounded = _exp_parts(_multiply(bounded, 2.0))
    power = _power_of_two(rounded)
    grown = _fma(power, minus_one, _add(power, -1.0))
    return _signed(_divide(grown, _add(grown, 2.0)), x)


_SINE = tuple((-1) ** k / _math.factorial(2 * k + 1) for k in range(9, 0, -1))
_COSINE = tuple((-1) ** k / _math.factorial(2 * k) for k in range(9, 1, -1))


_TWO_OVER_PI = (
    0x28BE60DB9391054A, 0x7F09D5F47D4D3770, 0x36D8A5664F10E410, 0x7F9458EAF7AEF158,
    0x6DC91B8E909374B8, 0x01924BBA82746487, 0x3F877AC72C4A69CF, 0xBA208D7D4BAED121,
    0x3A671C09AD17DF90, 0x4E64758E60D4CE7D, 0x272117E2EF7E4A0E, 0xC7FE25FFF7816603,
    0xFBCBC462D6829B47, 0xDB4D9FB3C9F2C26D, 0xD3D18FD9A797FA8B, 0x5D49EEB1FAF97C5E,
    0xCF41CE7DE294A4BA, 0x9AFED7EC47E35742, 0x1580CC11BF1EDAEA,
)  # fmt: skip
"""The bits of 2 / pi from that of weight 2 on, in words of 64."""
_FAR = 2.0**52


def _reduced(x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """(r, n) with x = r + n pi/2, |r| <= pi/4, n modulo 4; far numbers only where there are any."""
    n = math.RoundEvenOp(_multiply(x, 2 / _math.pi)).result
    r = x
    for part in _PI_HALVES:
        r = _fma(n, -part, r)
    size = math.AbsFOp(x).result
    n = _choose(_compare(_OLT, size, _FAR), n, constant(x.type, 0.0))
    quarter = arith.FPToSIOp(_integer(x.type), n).result
    finite = _compare(_OLT, size, _math.inf)
    far = arith.AndIOp(_compare(_OGE, size, _FAR), finite).result
    branch = ir.Operation.create(
        "scf.if", operands=[any_lane(far)], results=[x.type, quarter.type], regions=2
    )
    with ir.InsertionPoint(branch.regions[0].blocks.append()):
        pairs = zip(_reduced_far(x), (r, quarter), strict=True)
        chosen = [arith.SelectOp(far, wide, near).result for wide, near in pairs]
        ir.Operation.create("scf.yield", operands=chosen)
    with ir.InsertionPoint(branch.regions[1].blocks.append()):
        ir.Operation.create("scf.yield", operands=[r, quarter])
    return branch.results[0], branch.results[1]


def _reduced_far(x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """`_reduced` for 2^52 <= |x| < infinity: the mantissa of x times those 192 bits of 2 / pi that
    make a difference (M. Payne and R. Hanek, "Radian reduction for trigonometric functions", ACM
    SIGNUM Newsletter 18, 1983)."""
    kind = _integer(x.type)

    def of(value: int) -> ir.Value:
        return constant(kind, value - (1 << 64) * (value >> 63))

    def left(value: ir.Value, by: ir.Value | int) -> ir.Value:
        return arith.ShLIOp(value, of(by) if isinstance(by, int) else by).result

    def right(value: ir.Value, by: ir.Value | int) -> ir.Value:
        return arith.ShRUIOp(value, of(by) if isinstance(by, int) else by).result

    def both(a: ir.Value, b: ir.Value) -> ir.Value:
        return arith.OrIOp(a, b).result

    bits = arith.BitcastOp(kind, math.AbsFOp(x).result).result
    mantissa = both(arith.AndIOp(bits, of((1 << _MANTISSA_BITS) - 1)).result, of(1 << 52))
    exponent = arith.SubIOp(right(bits, _MANTISSA_BITS), of(1023 + _MANTISSA_BITS)).result
    exponent = arith.MaxSIOp(exponent, of(0)).result
    words = [of(word) for word in _TWO_OVER_PI]
    for bit in (9, 8, 7, 6):
        taken = arith.AndIOp(exponent, of(1 << bit)).result
        moves = arith.CmpIOp(1, taken, of(0)).result
        step = 1 << bit - 6
        words = [
            arith.SelectOp(moves, after, word).result
            for word, after in zip(words[: 3 + step], words[step:], strict=False)
        ]
    shift = arith.AndIOp(exponent, of(63)).result
    rest = arith.SubIOp(of(63), shift).result
    first, second, third = (
        both(left(words[i], shift), right(right(words[i + 1], 1), rest)) for i in range(3)
    )
    low, carried = arith.MulUIExtendedOp(mantissa, second).results
    middle = arith.AddIOp(low, arith.MulUIExtendedOp(mantissa, third).results[1]).result
    wraps = arith.CmpIOp(6, middle, low).result
    top = arith.AddIOp(arith.MulIOp(mantissa, first).result, carried).result
    top = arith.AddIOp(top, arith.ExtUIOp(kind, wraps).result).result
    n = right(arith.AddIOp(top, of(1 << 61)).result, 62)
    fraction = both(left(top, 2), right(middle, 62))

    def as_float(value: ir.Value, scale: float) -> ir.Value:
        return _multiply(arith.SIToFPOp(x.type, value).result, scale)

    high = as_float(arith.ShRSIOp(fraction, of(32)).result, 2.0**-32)
    low = as_float(arith.AndIOp(fraction, of((1 << 32) - 1)).result, 2.0**-64)
    low = _add(low, as_float(right(left(middle, 2), 11), 2.0**-117))
    total = _add(high, low)
    lost = _subtract(low, _subtract(total, high))
    r = _multiply(total, _PI_HALVES[0])
    error = _fma(total, _PI_HALVES[0], _negate(r))
    error = _add(error, _fma(lost, _PI_HALVES[0], _multiply(total, _PI_HALVES[1])))
    r = _add(r, error)
    below = _compare(_OLT, x, 0.0)
    turned = arith.SubIOp(of(0), n).result
    return _choose(below, _negate(r), r), arith.SelectOp(below, turned, n).result


def _sine_and_cosine(x: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Sine and cosine of x less n pi/2, and n as integers."""
    r, n = _reduced(x)
    square = _multiply(r, r)
    sine = _fma(_multiply(polynomial(square, _SINE), square), r, r)
    tail = _multiply(polynomial(square, _COSINE), _multiply(square, square))
    half = _multiply(square, 0.5)
    whole = _subtract(constant(x.type, 1.0), half)
    lost = _subtract(_subtract(constant(x.type, 1.0), whole), half)
    cosine = _add(whole, _add(tail, lost))
    return sine, cosine, n


def _bit(n: ir.Value, mask: int) -> ir.Value:
    masked = arith.AndIOp(n, constant(n.type, mask)).result
    return arith.CmpIOp(1, masked, constant(n.type, 0)).result


def _quadrant(x: ir.Value, shift: int) -> ir.Value:
    sine, cosine, n = _sine_and_cosine(x)
    n = arith.AddIOp(n, constant(n.type, shift)).result
    value = arith.SelectOp(_bit(n, 1), cosine, sine).result
    return arith.SelectOp(_bit(n, 2), _negate(value), value).result


def sin(x: ir.Value) -> ir.Value:
    """Sine, within 1 ulp."""
    return _choose(_compare(_OEQ, x, 0.0), x, _quadrant(x, 0))


def cos(x: ir.Value) -> ir.Value:
    """Cosine, within 1 ulp."""
    return _quadrant(x, 1)


def tan(x: ir.Value) -> ir.Value:
    """Tangent, within 2.5 ulp."""
    sine, cosine, n = _sine_and_cosine(x)
    turned = _bit(n, 1)
    above = arith.SelectOp(turned, _negate(cosine), sine).result
    below = arith.SelectOp(turned, sine, cosine).result
    return _choose(_compare(_OEQ, x, 0.0), x, _divide(above, below))


_ATAN = tuple((-1) ** k / (2 * k + 1) for k in range(20, 0, -1))


def atan2(y: ir.Value, x: ir.Value) -> ir.Value:
    """The angle of the point (x, y), within 2 ulp, in [-pi, pi]; signs of zeros count."""
    height, width = math.AbsFOp(y).result, math.AbsFOp(x).result
    steep = _compare(_OGT, height, width)
    large = arith.SelectOp(steep, height, width).result
    small = arith.SelectOp(steep, width, height).result
    ratio = _divide(small, large)
    ratio = _choose(_compare(_OEQ, large, 0.0), 0.0, ratio)
    both = arith.AndIOp(_compare(_OEQ, small, _math.inf), _compare(_OEQ, large, _math.inf)).result
    ratio = _choose(both, 1.0, ratio)
    # atan(t) = pi/4 + atan((t - 1) / (t + 1)), of operands without rounding: (small - large) / ...
    far = _compare(_OGT, ratio, _math.sqrt(2) - 1)
    turned = _divide(_add(ratio, -1.0), _add(ratio, 1.0))
    t = arith.SelectOp(far, turned, ratio).result
    square = _multiply(t, t)
    angle = _fma(_multiply(polynomial(square, _ATAN), square), t, t)
    angle = _choose(far, _add(_add(angle, _PI_LOW / 4), _math.pi / 4), angle)
    complement = _add(_add(_negate(angle), _PI_LOW / 2), _math.pi / 2)
    angle = arith.SelectOp(steep, complement, angle).result
    sign = arith.BitcastOp(_integer(x.type), x).result
    backward = arith.CmpIOp(2, sign, constant(sign.type, 0)).result
    angle = _choose(backward, _add(_add(_negate(angle), _PI_LOW), _math.pi), angle)
    result = _signed(angle, y)
    unordered = arith.OrIOp(_compare(_UNO, x, x), _compare(_UNO, y, y)).result
    return _choose(unordered, _math.nan, result)
