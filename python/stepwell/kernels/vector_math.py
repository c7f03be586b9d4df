"""Transcendental functions as arithmetic on f32 vectors or scalars.

Errors are stated against the exact function in units in the last place (ulp) of the result, over
all finite f32 arguments unless a range is given. NaN goes in and comes out."""

from __future__ import annotations

import math as _math

from stepwell.mlir import dialect, ir

arith = dialect("arith")
math = dialect("math")
vector = dialect("vector")

NONPOSITIVE = "kernel.nonpositive"
"""On `math.exp`: its argument is never positive."""

_LOG2_E = 1.44269504088896341
LN2_HIGH, LN2_LOW = 0.693359375, -2.12194440e-4
"""ln 2 in two parts (Cody and Waite): n times the first is exact for |n| < 2^15."""

_OEQ, _OGT, _OGE, _OLT, _UNO = 1, 2, 3, 4, 14
_SLT = 2
_FLOOR_EXPONENT, _CEIL_EXPONENT = -105.0, 90.0
"""e to these is zero and infinity in f32."""
_VANISHING_EXPONENT = -88.0
"""e to this is below the least normal float."""
_BIAS = 127
_ROUNDING = 1.5 * 2**23 + _BIAS
"""Added to a float less than 2^21, it rounds it to an integer n; the low nine bits are then those
of n + 127, the exponent field of 2^n."""

_EXP = (1.3863756641e-3, 8.3675091410e-3, 4.1667238773e-2, 1.6666533803e-1, 0.5)
"""(e^r - 1 - r) / r^2 for |r| <= ln 2 / 2, fitted for the least error relative to e^r: 3.6e-9."""
_LOG = (7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
        -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1)  # fmt: skip
_ATAN = (-1.7935890688e-3, 1.0914460709e-2, -3.1177577603e-2, 5.7957326469e-2, -8.4034348679e-2,
         1.0952180542e-1, -1.4264240694e-1, 1.9998548193e-1, -3.3333299086e-1)  # fmt: skip
"""(atan(t) / t - 1) / t^2 in t^2 for 0 <= t <= 1, fitted for the least error relative to atan(t):
2.6e-9, and 1.7e-8 once the coefficients are rounded."""
_PI, _PI_REST = 3.1415927410125732, -8.742277657347586e-8
"""pi in two parts."""
_TANH_LIMIT = 10.0
"""Where tanh rounds to 1."""
_EXPM1_FLOOR, _EXPM1_CEIL = -20.0, 89.0
"""Where e^x - 1 rounds to -1, and is above the largest float."""
_LINEAR = 2.0**-26
"""Below it e^x - 1 and log(1 + x) round to x."""


def like(kind: ir.Type, element: ir.Type) -> ir.Type:
    """`element`, in as many lanes as `kind` has."""
    if isinstance(kind, ir.VectorType):
        return ir.VectorType.get(list(kind.shape), element)
    return element


def constant(kind: ir.Type, value: float | int) -> ir.Value:
    """A constant of a scalar or vector type."""
    element = kind.element_type if isinstance(kind, ir.VectorType) else kind
    scalar: ir.Attribute
    if isinstance(element, ir.IntegerType):
        scalar = ir.IntegerAttr.get(element, int(value))
    else:
        scalar = ir.FloatAttr.get(element, float(value))
    if isinstance(kind, ir.VectorType):
        scalar = ir.DenseElementsAttr.get_splat(kind, scalar)
    return arith.ConstantOp(kind, scalar).result


def multiply_add(a: ir.Value, b: ir.Value, c: ir.Value | float) -> ir.Value:
    """a * b + c, rounded once."""
    addend = c if isinstance(c, ir.Value) else constant(a.type, c)
    return math.FmaOp(a, b, addend).result


def any_lane(condition: ir.Value) -> ir.Value:
    """Whether an i1, or one of a vector of them, is true; of vectors with more dimensions true."""
    if not isinstance(condition.type, ir.VectorType):
        return condition
    kind = ir.VectorType(condition.type)
    if len(kind.shape) != 1:
        return arith.ConstantOp(kind.element_type, 1).result
    return vector.ReductionOp(kind.element_type, vector.CombiningKind.OR, condition).result


def polynomial(x: ir.Value, coefficients: tuple[float, ...]) -> ir.Value:
    """Horner's scheme, highest power first."""
    value = constant(x.type, coefficients[0])
    for coefficient in coefficients[1:]:
        value = multiply_add(value, x, coefficient)
    return value


def _scale(x: ir.Value, factor: float) -> ir.Value:
    return arith.MulFOp(x, constant(x.type, factor)).result


def _where(predicate: int, x: ir.Value, bound: float, then: ir.Value, other: ir.Value) -> ir.Value:
    condition = arith.CmpFOp(predicate, x, constant(x.type, bound)).result
    return arith.SelectOp(condition, then, other).result


def _clamp(x: ir.Value, low: float, high: float) -> ir.Value:
    """x within bounds; NaN stays."""
    x = _where(_OLT, x, low, constant(x.type, low), x)
    return _where(_OGT, x, high, constant(x.type, high), x)


def _integer(kind: ir.Type) -> ir.Type:
    return like(kind, ir.IntegerType.get_signless(32))


def _bits(x: ir.Value) -> ir.Value:
    return arith.BitcastOp(_integer(x.type), x).result


def _to_exponent(n: ir.Value) -> ir.Value:
    """The low bits of n, moved to the exponent field."""
    return arith.ShLIOp(n, constant(n.type, 23)).result


def _times_power(x: ir.Value, exponent: ir.Value) -> ir.Value:
    """x with `exponent` added to its exponent field: x * 2^n, when that is normal."""
    return arith.BitcastOp(x.type, arith.AddIOp(_bits(x), exponent).result).result


_SCALEF = {
    (4, "f32"): ("llvm.x86.avx512.mask.scalef.ps.128", 8),
    (8, "f32"): ("llvm.x86.avx512.mask.scalef.ps.256", 8),
    (16, "f32"): ("llvm.x86.avx512.mask.scalef.ps.512", 16),
    (2, "f64"): ("llvm.x86.avx512.mask.scalef.pd.128", 8),
    (4, "f64"): ("llvm.x86.avx512.mask.scalef.pd.256", 8),
    (8, "f64"): ("llvm.x86.avx512.mask.scalef.pd.512", 8),
}
"""By lanes and type: AVX-512's x * 2^n for floats n, and the bits of its mask."""

_CURRENT_ROUNDING = 4


def _lanes(kind: ir.Type) -> tuple[int, str] | None:
    if isinstance(kind, ir.VectorType) and len(kind.shape) == 1:
        return kind.shape[0], str(kind.element_type)
    return None


def has_scalef(kind: ir.Type) -> bool:
    """Whether `scalef` takes values of this type."""
    return _lanes(kind) in _SCALEF


def scalef(x: ir.Value, n: ir.Value) -> ir.Value:
    """x * 2^n for floats n, in one instruction that rounds where the result is subnormal."""
    name, bits = _SCALEF[(x.type.shape[0], str(x.type.element_type))]
    mask = constant(ir.IntegerType.get_signless(bits), -1)
    operands = [x, n, x, mask]
    if name.endswith("512"):
        operands.append(constant(ir.IntegerType.get_signless(32), _CURRENT_ROUNDING))
    return ir.Operation.create(
        "llvm.call_intrinsic",
        results=[x.type],
        operands=operands,
        attributes={
            "intrin": ir.StringAttr.get(name),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(operands), 0]),
            "op_bundle_sizes": ir.DenseI32ArrayAttr.get([]),
        },
    ).results[0]


def exp(x: ir.Value, *, avx512: bool = False) -> ir.Value:
    """e^x, within 1.5 ulp, subnormal results included; above the largest float infinity. `avx512`
    allows its instructions."""
    x = _clamp(x, _FLOOR_EXPONENT, _CEIL_EXPONENT)
    minus_one, rounded = _exp_parts(x, _ROUNDING)
    p = arith.AddFOp(minus_one, constant(x.type, 1.0)).result
    if avx512 and has_scalef(x.type):
        return scalef(p, arith.SubFOp(rounded, constant(x.type, _ROUNDING)).result)
    return _times_power_of_two(p, x, rounded)


def times_exp(factor: ir.Value, x: ir.Value, rest: ir.Value) -> ir.Value:
    """factor * e^(x + rest) for x <= 0, a far smaller `rest` and a factor near one, subnormal
    results included; the factor adds one rounding to the error of the exponential, 0.6 ulp."""
    x = _where(_OLT, x, _FLOOR_EXPONENT, constant(x.type, _FLOOR_EXPONENT), x)
    minus_one, rounded = _exp_parts(x, _ROUNDING, rest)
    return _times_power_of_two(multiply_add(factor, minus_one, factor), x, rounded)


def _times_power_of_two(p: ir.Value, x: ir.Value, rounded: ir.Value) -> ir.Value:
    """p * 2^n with n = x / ln 2, `rounded` as `_exp_parts` has it."""
    # 2^n in two factors, so that a subnormal result is rounded once and a large one overflows.
    half = _bits(multiply_add(x, constant(x.type, _LOG2_E / 2), _ROUNDING))
    rest = arith.SubIOp(_bits(rounded), half).result
    factor = arith.BitcastOp(x.type, _to_exponent(half)).result
    return arith.MulFOp(_times_power(p, _to_exponent(rest)), factor).result


def exp_of_nonpositive(x: ir.Value) -> ir.Value:
    """e^x for x <= 0, within 1.5 ulp; 0 below 2^-126.5."""
    x = _where(_OLT, x, _VANISHING_EXPONENT, constant(x.type, _VANISHING_EXPONENT), x)
    minus_one, rounded = _exp_parts(x, _ROUNDING)
    power = arith.BitcastOp(x.type, _to_exponent(_bits(rounded))).result
    return multiply_add(power, minus_one, power)


def _exp_parts(
    x: ir.Value, rounding: float, rest: ir.Value | None = None
) -> tuple[ir.Value, ir.Value]:
    """p and `rounding` + n with e^(x + rest) = (1 + p) 2^n, where n is integral."""
    rounded = multiply_add(x, constant(x.type, _LOG2_E), rounding)
    n = arith.SubFOp(rounded, constant(x.type, rounding)).result
    r = multiply_add(n, constant(x.type, -LN2_HIGH), x)
    r = multiply_add(n, constant(x.type, -LN2_LOW), r)
    if rest is not None:
        r = arith.AddFOp(r, rest).result
    square = arith.MulFOp(r, r).result
    return multiply_add(polynomial(r, _EXP), square, r), rounded


def expm1(x: ir.Value) -> ir.Value:
    """e^x - 1, within 2 ulp: 2^n p + (2^n - 1), by halves of both, so that 2^n is a float."""
    bounded = _clamp(x, _EXPM1_FLOOR, _EXPM1_CEIL)
    minus_one, rounded = _exp_parts(bounded, _ROUNDING)
    bits = arith.SubIOp(_bits(rounded), constant(_integer(x.type), 1)).result
    half = arith.BitcastOp(x.type, _to_exponent(bits)).result
    less_half = arith.SubFOp(half, constant(x.type, 0.5)).result
    result = _scale(multiply_add(half, minus_one, less_half), 2.0)
    return _where(_OLT, math.AbsFOp(x).result, _LINEAR, x, result)


def log(x: ir.Value) -> ir.Value:
    """Natural logarithm, within 1 ulp for normal x; log(0) is -infinity, of negatives NaN."""
    scaled = _where(_OLT, x, 1.17549435e-38, _scale(x, 8388608.0), x)
    m, exponent = _log_parts(scaled)
    n = arith.SIToFPOp(x.type, exponent).result
    tiny = arith.SubFOp(n, constant(x.type, 23.0)).result
    n = _where(_OLT, x, 1.17549435e-38, tiny, n)
    return _log_special(x, _log_sum(m, n))


def log1p(x: ir.Value) -> ir.Value:
    """log(1 + x), within 1.5 ulp: of u = 1 + x, and what u has lost goes to its mantissa."""
    u = arith.AddFOp(x, constant(x.type, 1.0)).result
    lost = arith.SubFOp(x, arith.SubFOp(u, constant(x.type, 1.0)).result).result
    m, exponent = _log_parts(u)
    # 2^-n, and nothing for the largest n, where nothing is lost
    zero = constant(exponent.type, 0)
    field = arith.SubIOp(constant(exponent.type, _BIAS), exponent).result
    field = arith.MaxSIOp(field, zero).result
    lost = arith.MulFOp(lost, arith.BitcastOp(x.type, _to_exponent(field)).result).result
    whole = arith.AddFOp(m, lost).result
    rest = arith.SubFOp(lost, arith.SubFOp(whole, m).result).result
    result = _log_sum(whole, arith.SIToFPOp(x.type, exponent).result, rest)
    result = _log_special(u, result)
    return _where(_OLT, math.AbsFOp(x).result, _LINEAR, x, result)


def _log_parts(x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """(m, n) with x = (1 + m) 2^n, 1 + m between sqrt(1/2) and sqrt(2), for positive normal x."""
    bits = _bits(x)
    kind = bits.type
    shifted = arith.SubIOp(bits, constant(kind, 0x3F3504F3)).result
    exponent = arith.ShRSIOp(shifted, constant(kind, 23)).result
    mantissa = arith.SubIOp(bits, _to_exponent(exponent)).result
    one = constant(x.type, 1.0)
    return arith.SubFOp(arith.BitcastOp(x.type, mantissa).result, one).result, exponent


def _log_sum(m: ir.Value, n: ir.Value, rest: ir.Value | None = None) -> ir.Value:
    """log(1 + m + rest) + n log 2, for a far smaller `rest`."""
    square = arith.MulFOp(m, m).result
    cubic = arith.MulFOp(arith.MulFOp(polynomial(m, _LOG), m).result, square).result
    tail = multiply_add(n, constant(m.type, LN2_LOW), cubic)
    tail = multiply_add(square, constant(m.type, -0.5), tail)
    if rest is not None:
        tail = arith.AddFOp(tail, rest).result
    return multiply_add(n, constant(m.type, LN2_HIGH), arith.AddFOp(m, tail).result)


def _log_special(x: ir.Value, result: ir.Value) -> ir.Value:
    """`result`, but what the logarithm of x is where x is zero, negative, infinite or NaN."""
    result = _where(_OEQ, x, 0.0, constant(x.type, -_math.inf), result)
    result = _where(_OLT, x, 0.0, constant(x.type, _math.nan), result)
    result = _where(_OEQ, x, _math.inf, x, result)
    nan = arith.CmpFOp(_UNO, x, x).result
    return arith.SelectOp(nan, x, result).result


def atan2(y: ir.Value, x: ir.Value) -> ir.Value:
    """The angle of the point (x, y), within 2 ulp, in [-pi, pi]; signs of zeros count."""
    height, width = math.AbsFOp(y).result, math.AbsFOp(x).result
    steep = arith.CmpFOp(_OGT, height, width).result
    large = arith.SelectOp(steep, height, width).result
    small = arith.SelectOp(steep, width, height).result
    t = arith.DivFOp(small, large).result
    t = _where(_OEQ, large, 0.0, constant(x.type, 0.0), t)
    t = _where(_OEQ, small, _math.inf, constant(x.type, 1.0), t)
    square = arith.MulFOp(t, t).result
    angle = multiply_add(arith.MulFOp(polynomial(square, _ATAN), square).result, t, t)
    angle = arith.SelectOp(steep, _subtracted_from_pi(angle, 0.5), angle).result
    backward = arith.CmpIOp(_SLT, _bits(x), constant(_integer(x.type), 0)).result
    angle = arith.SelectOp(backward, _subtracted_from_pi(angle, 1.0), angle).result
    unordered = arith.CmpFOp(_UNO, x, y).result
    result = math.CopySignOp(angle, y).result
    return arith.SelectOp(unordered, constant(x.type, _math.nan), result).result


def _subtracted_from_pi(angle: ir.Value, factor: float) -> ir.Value:
    """factor * pi - angle."""
    rest = arith.SubFOp(constant(angle.type, _PI_REST * factor), angle).result
    return arith.AddFOp(rest, constant(angle.type, _PI * factor)).result


def tanh(x: ir.Value) -> ir.Value:
    """Hyperbolic tangent, within 2.5 ulp: m / (m + 2) with m = e^2|x| - 1, from the series in which
    the one is left out, so that small results keep their digits."""
    size = math.AbsFOp(x).result
    bounded = _where(_OGT, size, _TANH_LIMIT, constant(x.type, _TANH_LIMIT), size)
    minus_one, rounded = _exp_parts(_scale(bounded, 2.0), _ROUNDING)
    power = arith.BitcastOp(x.type, _to_exponent(_bits(rounded))).result
    less_one = arith.SubFOp(power, constant(x.type, 1.0)).result
    grown = multiply_add(power, minus_one, less_one)
    quotient = arith.DivFOp(grown, arith.AddFOp(grown, constant(x.type, 2.0)).result).result
    return math.CopySignOp(quotient, x).result


def rsqrt(x: ir.Value) -> ir.Value:
    """1 / sqrt(x), within 1.5 ulp."""
    return arith.DivFOp(constant(x.type, 1.0), math.SqrtOp(x).result).result


def extend_bfloat16(x: ir.Value) -> ir.Value:
    """bf16 to f32 by moving its bits, which hides the narrow type from LLVM: it would take a
    maximum of two extended values in bf16, through a library."""
    half = arith.BitcastOp(like(x.type, ir.IntegerType.get_signless(16)), x).result
    kind = _integer(x.type)
    bits = arith.ShLIOp(arith.ExtUIOp(kind, half).result, constant(kind, 16)).result
    return arith.BitcastOp(like(x.type, ir.F32Type.get()), bits).result


def exact_bfloat16(x: ir.Value) -> ir.Value:
    """f32 whose low bits are zeros as bf16."""
    return _upper_half(_bits(x), x.type)


def _upper_half(bits: ir.Value, kind: ir.Type) -> ir.Value:
    top = arith.ShRUIOp(bits, constant(bits.type, 16)).result
    half = arith.TruncIOp(like(kind, ir.IntegerType.get_signless(16)), top).result
    return arith.BitcastOp(like(kind, ir.BF16Type.get()), half).result


def truncate_to_bfloat16(x: ir.Value) -> ir.Value:
    """f32 rounded to the nearest bf16, ties to even, by integer arithmetic on the bits."""
    kind = _integer(x.type)
    bits = arith.BitcastOp(kind, x).result
    odd = arith.AndIOp(arith.ShRUIOp(bits, constant(kind, 16)).result, constant(kind, 1)).result
    rounded = arith.AddIOp(bits, arith.AddIOp(odd, constant(kind, 0x7FFF)).result).result
    nan = arith.CmpFOp(_UNO, x, x).result
    quiet = arith.OrIOp(bits, constant(kind, 0x400000)).result
    return _upper_half(arith.SelectOp(nan, quiet, rounded).result, x.type)


def to_integer(x: ir.Value, kind: ir.Type, *, signed: bool) -> ir.Value:
    """f32 or f64 towards zero as `kind`, integers of the same lanes: numbers out of its range give
    its bounds, NaN gives 0, as in XLA."""
    element = kind.element_type if isinstance(kind, ir.VectorType) else kind
    width = ir.IntegerType(element).width
    low, high = _limits(width, signed)
    digits = 24 if like(x.type, ir.F32Type.get()) == x.type else 53
    is_exact = width <= digits
    bounded = _where(_OGT, x, low, x, constant(x.type, low))
    if is_exact:
        bounded = _where(_OLT, bounded, high, bounded, constant(x.type, high))
    wide = like(kind, ir.IntegerType.get_signless(max(width, 32)))
    convert = arith.FPToSIOp if signed or width < 32 else arith.FPToUIOp
    result = convert(wide, bounded).result
    if not is_exact:
        above = arith.CmpFOp(_OGE, x, constant(x.type, high + 1)).result
        most = constant(wide, high if signed else -1)
        result = arith.SelectOp(above, most, result).result
    if signed:
        nan = arith.CmpFOp(_UNO, x, x).result
        result = arith.SelectOp(nan, constant(wide, 0), result).result
    return arith.TruncIOp(kind, result).result if width < 32 else result


def _limits(width: int, signed: bool) -> tuple[int, int]:
    """The least and the largest integer of `width` bits."""
    return (-(1 << width - 1), (1 << width - 1) - 1) if signed else (0, (1 << width) - 1)


def by_way_of_integer(x: ir.Value, width: int, *, signed: bool) -> ir.Value:
    """f32 as the number that `to_integer` makes of it with so many bits, 16 at most."""
    low, high = _limits(width, signed)
    bounded = _where(_OGT, x, low, x, constant(x.type, low))
    bounded = _where(_OLT, bounded, high, bounded, constant(x.type, high))
    whole = math.TruncOp(bounded).result
    if not signed:
        return whole
    nan = arith.CmpFOp(_UNO, x, x).result
    return arith.SelectOp(nan, constant(x.type, 0), whole).result


def round_to_odd(x: ir.Value) -> ir.Value:
    """f64 to f32 with the last bit set when inexact, so that rounding again is as rounding once."""
    kind = _integer(x.type)
    single = like(x.type, ir.F32Type.get())
    nearest = arith.TruncFOp(single, x).result
    back = arith.ExtFOp(x.type, nearest).result
    exact = arith.CmpFOp(_OEQ, back, x).result
    bits = arith.BitcastOp(kind, nearest).result
    size = math.AbsFOp(back).result
    grew = arith.CmpFOp(_OGT, size, math.AbsFOp(x).result).result
    toward_zero = arith.SelectOp(grew, arith.SubIOp(bits, constant(kind, 1)).result, bits).result
    odd = arith.OrIOp(toward_zero, constant(kind, 1)).result
    ordered = arith.CmpFOp(_UNO, x, x).result
    infinite = arith.CmpFOp(_OEQ, size, constant(x.type, _math.inf)).result
    keep = arith.OrIOp(arith.OrIOp(exact, ordered).result, infinite).result
    return arith.BitcastOp(single, arith.SelectOp(keep, bits, odd).result).result
