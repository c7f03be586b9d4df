"""Floats of 8 bits and fewer as bits in bytes: exact conversions in integer arithmetic.

The formats are those of MLIR's types (`FN`: no infinities; `UZ`: no negative zero, whose code is
NaN; `FNU`: no infinities, unsigned), defined by the OCP specifications of 8-bit floats and
microscaling formats, and by Noune et al. 2022 (arXiv:2206.02915) for `FNUZ`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.mlir import ir


class Special(Enum):
    """What the codes beyond the finite numbers mean."""

    IEEE = auto()  # the greatest exponent: infinities and NaN
    FN = auto()  # all ones: NaN
    FNUZ = auto()  # the sign alone: NaN
    FINITE = auto()  # there are none


@dataclass(frozen=True)
class Format:
    """A sign, `exponent` bits and `mantissa` bits, from the highest bit of the code down."""

    exponent: int
    mantissa: int
    bias: int
    special: Special

    @property
    def sign(self) -> int:
        """The sign's bit."""
        return 1 << (self.exponent + self.mantissa)

    @property
    def infinity(self) -> int:
        """The code after the greatest finite number's."""
        if self.special is Special.IEEE:
            return ((1 << self.exponent) - 1) << self.mantissa
        return self.sign - 1 if self.special is Special.FN else self.sign

    @property
    def nan(self) -> int:
        """The code of NaN, its sign left out. Formats without NaN make it a zero of the other
        sign, as ml_dtypes does."""
        if self.special is Special.IEEE:
            return self.infinity | 1 << (self.mantissa - 1)
        return self.infinity

    @property
    def overflow(self) -> int:
        """What rounds to beyond the greatest finite number becomes this code."""
        return self.infinity - 1 if self.special is Special.FINITE else self.infinity


E8M0 = "f8E8M0FNU"
"""Powers of two, 2 ** (code - 127), the code 255 being NaN; without sign, zero and mantissa."""

FORMATS = {
    "f8E3M4": Format(3, 4, 3, Special.IEEE),
    "f8E4M3": Format(4, 3, 7, Special.IEEE),
    "f8E4M3FN": Format(4, 3, 7, Special.FN),
    "f8E4M3FNUZ": Format(4, 3, 8, Special.FNUZ),
    "f8E4M3B11FNUZ": Format(4, 3, 11, Special.FNUZ),
    "f8E5M2": Format(5, 2, 15, Special.IEEE),
    "f8E5M2FNUZ": Format(5, 2, 16, Special.FNUZ),
    "f6E2M3FN": Format(2, 3, 1, Special.FINITE),
    "f6E3M2FN": Format(3, 2, 3, Special.FINITE),
    "f4E2M1FN": Format(2, 1, 1, Special.FINITE),
}


@dataclass(frozen=True)
class _Source:
    """The IEEE format that is rounded from, and the integers that hold its bits."""

    mantissa: int
    bias: int
    width: int
    integer: np.dtype
    float: np.dtype


_SINGLE = _Source(23, 127, 32, np.dtype(np.int32), np.dtype(np.float32))
_DOUBLE = _Source(52, 1023, 64, np.dtype(np.int64), np.dtype(np.float64))

_F32_INFINITY, _F32_NAN = 0x7F800000, 0x7FC00000


def decode(code: ir.Value, kind: str) -> ir.Value:
    """The ui8 codes `code` of MLIR type `kind` as f32, exactly."""
    bits = hlo.convert(code, np.int32)
    if kind == E8M0:
        return _decode_exponent(bits)
    form = FORMATS[kind]
    magnitude = hlo.and_(bits, hlo.full_like(bits, form.sign - 1))
    shift = _SINGLE.mantissa - form.mantissa
    scaled = hlo.shift_left(magnitude, hlo.full_like(bits, shift))
    rebias = (_SINGLE.bias - form.bias) << _SINGLE.mantissa
    normal = hlo.add(scaled, hlo.full_like(bits, rebias))
    # A subnormal number counts steps; integers to floats is cheaper than denormal arithmetic.
    count = hlo.convert(magnitude, np.float32)
    step = hlo.full_like(count, 2.0 ** (1 - form.bias - form.mantissa))
    subnormal = hlo.bitcast_convert(hlo.multiply(count, step), np.int32)
    value = hlo.select(_compare(magnitude, "LT", 1 << form.mantissa), subnormal, normal)
    if form.special is Special.IEEE:
        beyond = hlo.or_(scaled, hlo.full_like(bits, _F32_INFINITY))
        value = hlo.select(_compare(magnitude, "GE", form.infinity), beyond, value)
    elif form.special is Special.FN:
        nan = hlo.full_like(bits, _F32_NAN)
        value = hlo.select(_compare(magnitude, "EQ", form.nan), nan, value)
    elif form.special is Special.FNUZ:
        nan = hlo.full_like(bits, _F32_NAN)
        value = hlo.select(_compare(bits, "EQ", form.nan), nan, value)
    sign = hlo.and_(bits, hlo.full_like(bits, form.sign))
    moved = hlo.full_like(bits, 31 - form.exponent - form.mantissa)
    return hlo.bitcast_convert(hlo.or_(value, hlo.shift_left(sign, moved)), np.float32)


def encode(value: ir.Value, kind: str) -> ir.Value:
    """`value`, f32 or f64, rounded to the nearest (ties to even) ui8 code of MLIR type `kind`.

    What is too large becomes an infinity, or NaN in formats without; where there is no NaN
    either, the greatest number.
    """
    source = _DOUBLE if hlo.dtype(value) == _DOUBLE.float else _SINGLE
    if kind == E8M0:
        return _encode_exponent(hlo.convert(value, np.float32))
    form = FORMATS[kind]
    bits = hlo.bitcast_convert(value, source.integer)
    magnitude = hlo.and_(bits, hlo.full_like(bits, (1 << (source.width - 1)) - 1))
    normal = _round_normal(magnitude, form, source)
    # Added to a number whose last bit is worth one subnormal step, the value is rounded to steps.
    anchor = 2.0 ** (source.mantissa + 1 - form.bias - form.mantissa)
    absolute = hlo.bitcast_convert(magnitude, source.float)
    anchored = hlo.add(absolute, hlo.full_like(absolute, anchor))
    offset = int(np.array(anchor, source.float).view(source.integer))
    steps = hlo.subtract(hlo.bitcast_convert(anchored, source.integer), hlo.full_like(bits, offset))
    least_normal = (source.bias - form.bias + 1) << source.mantissa
    code = hlo.select(_compare(magnitude, "LT", least_normal), steps, normal)
    overflow = hlo.full_like(code, form.overflow)
    code = hlo.select(_compare(code, "GE", form.infinity), overflow, code)
    infinity = ((1 << (source.width - 1 - source.mantissa)) - 1) << source.mantissa
    is_nan = _compare(magnitude, "GT", infinity)
    code = hlo.select(is_nan, hlo.full_like(code, form.nan), code)
    down = hlo.full_like(bits, source.width - 1 - form.exponent - form.mantissa)
    sign = hlo.and_(hlo.shift_right_logical(bits, down), hlo.full_like(bits, form.sign))
    signed = hlo.xor(code, sign)
    if form.special is Special.FNUZ:
        unsigned = hlo.or_(_compare(code, "EQ", 0), _compare(code, "EQ", form.nan))
        signed = hlo.select(unsigned, code, signed)
    return hlo.convert(signed, np.uint8)


def _round_normal(magnitude: ir.Value, form: Format, source: _Source) -> ir.Value:
    """The code of numbers not below the least normal one: mantissas cut short, ties to even."""
    drop = source.mantissa - form.mantissa
    by = hlo.full_like(magnitude, drop)
    last = hlo.and_(hlo.shift_right_logical(magnitude, by), hlo.full_like(magnitude, 1))
    rebias = (source.bias - form.bias) << source.mantissa
    rounded = hlo.add(magnitude, hlo.full_like(magnitude, (1 << (drop - 1)) - 1 - rebias))
    return hlo.shift_right_arithmetic(hlo.add(rounded, last), by)


def _decode_exponent(bits: ir.Value) -> ir.Value:
    value = hlo.shift_left(bits, hlo.full_like(bits, _SINGLE.mantissa))
    least = hlo.full_like(bits, 1 << (_SINGLE.mantissa - 1))  # 2 ** -127 is subnormal in f32
    value = hlo.select(_compare(bits, "EQ", 0), least, value)
    value = hlo.select(_compare(bits, "EQ", 255), hlo.full_like(bits, _F32_NAN), value)
    return hlo.bitcast_convert(value, np.float32)


def _encode_exponent(value: ir.Value) -> ir.Value:
    """To the nearest power of two, ties up; NaN for zero, negatives and what is too large."""
    bits = hlo.bitcast_convert(value, np.int32)
    half = hlo.full_like(bits, 1 << (_SINGLE.mantissa - 1))
    mantissa = hlo.full_like(bits, _SINGLE.mantissa)
    nearest = hlo.shift_right_logical(hlo.add(bits, half), mantissa)
    # Below 2 ** -126 the numbers are subnormal in f32: 1.5 * 2 ** -127 and above are rounded up.
    small = hlo.convert(_compare(bits, "GE", 0x600000), np.int32)
    code = hlo.select(_compare(bits, "LT", 1 << _SINGLE.mantissa), small, nearest)
    nan = hlo.full_like(bits, 255)
    code = hlo.minimum(code, nan)
    return hlo.convert(hlo.select(_compare(bits, "LE", 0), nan, code), np.uint8)


def _compare(value: ir.Value, direction: str, number: int) -> ir.Value:
    return hlo.compare(value, hlo.full_like(value, number), direction)
