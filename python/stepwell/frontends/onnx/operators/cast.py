"""Changes of the element type: Cast, CastLike, BitCast."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx

from stepwell import dtypes
from stepwell.dialects import stablehlo as hlo
from stepwell.frontends.onnx.node import Node, Tensor
from stepwell.frontends.onnx.registry import operator
from stepwell.mlir import ir

_E8M0 = np.dtype(ml_dtypes.float8_e8m0fnu)


@operator("Cast")
def cast(node: Node, x: Tensor) -> ir.Value:
    """To the type `to`. Floats of 8 bits take `saturate` (default: yes) and round half to even;
    float8e8m0 takes `round_mode` (default: up)."""
    return _cast(node, x.value, target_dtype(node, "to"))


@operator("CastLike")
def cast_like(node: Node, x: Tensor, target: Tensor) -> ir.Value:
    """As Cast, to the type of the second input."""
    return _cast(node, x.value, target.dtype)


@operator("BitCast")
def bit_cast(node: Node, x: Tensor) -> ir.Value:
    """The bits read as another type of the same width; booleans are bytes."""
    kind = target_dtype(node, "to")
    if dtypes.bits(kind) != dtypes.bits(x.dtype):
        node.unsupported(f"{x.dtype} and {kind} have different widths")
    value = x.value
    if x.dtype == np.bool_:
        value = hlo.convert(value, np.uint8)
    if kind == np.bool_:
        return hlo.convert(hlo.bitcast_convert(value, np.uint8), np.bool_)
    return value if hlo.dtype(value) == kind else hlo.bitcast_convert(value, kind)


def target_dtype(node: Node, attribute: str) -> np.dtype:
    """The dtype that integer attribute `attribute` names."""
    code = node.integer(attribute, onnx.TensorProto.UNDEFINED)
    if code not in onnx.TensorProto.DataType.values():
        node.unsupported(f"{attribute}={code} is no type of elements")
    if code in (onnx.TensorProto.UNDEFINED, onnx.TensorProto.STRING):
        node.unsupported(f"{attribute}={onnx.TensorProto.DataType.Name(code)} is not supported")
    return np.dtype(onnx.helper.tensor_dtype_to_np_dtype(code))


def saturating_convert(value: ir.Value, kind: np.dtype) -> ir.Value:
    """Floats `value` converted to `kind`, limited to its finite numbers; NaN stays NaN."""
    lowest, highest = dtypes.limits(kind)
    wide = hlo.dtype(value)
    if dtypes.is_small(wide):
        value, wide = hlo.convert(value, np.float32), np.dtype(np.float32)
    if dtypes.limits(wide)[1] > highest:
        value = hlo.clamp(hlo.full(lowest, [], wide), value, hlo.full(highest, [], wide))
    return hlo.convert(value, kind)


def _cast(node: Node, value: ir.Value, kind: np.dtype) -> ir.Value:
    source = hlo.dtype(value)
    if source == kind:
        return value
    if not (dtypes.is_small(kind) and dtypes.is_float(kind)):
        if dtypes.bits(kind) < 8 and dtypes.is_float(source):
            value = hlo.convert(value, np.int32)  # of which the lowest bits are taken
        return hlo.convert(value, kind)
    if not dtypes.is_float(source):
        value = hlo.convert(value, np.float32)
    saturate = bool(node.integer("saturate", 1))
    if kind == _E8M0:
        return _to_power_of_two(value, saturate, node.text("round_mode", "up"))
    return saturating_convert(value, kind) if saturate else hlo.convert(value, kind)


def _to_power_of_two(value: ir.Value, saturate: bool, mode: str) -> ir.Value:
    """float8e8m0, whose code is the exponent of f32: its mantissa is rounded away by `mode`.

    Saturated, what is too large becomes the greatest power and what is too small the least; else
    both become NaN.
    """
    wide = hlo.convert(value, np.float32)
    bits = hlo.and_(
        hlo.bitcast_convert(wide, np.int32), hlo.full(0x7FFFFFFF, hlo.shape(value), np.int32)
    )

    def number(constant: int) -> ir.Value:
        return hlo.full_like(bits, constant)

    # f32 keeps 2 ** -127, whose code is 0, as a subnormal number with the mantissa's highest bit.
    least, two_least = number(0x400000), number(0x800000)
    exponent = hlo.shift_right_logical(bits, number(23))
    fraction = hlo.and_(bits, number(0x7FFFFF))
    if mode == "up":
        above = hlo.compare(fraction, number(0), "GT")
        above_least = hlo.compare(bits, least, "GT")
    elif mode == "nearest":
        above = hlo.compare(fraction, least, "GE")
        above_least = hlo.compare(bits, number(0x600000), "GE")
    else:
        above = above_least = hlo.full(False, hlo.shape(value), np.bool_)
    above = hlo.select(hlo.compare(bits, two_least, "LT"), above_least, above)
    code = hlo.add(exponent, hlo.convert(above, np.int32))
    nan = hlo.compare(wide, wide, "NE")
    if saturate:
        code = hlo.minimum(code, number(254))
    else:
        too_small = hlo.compare(bits, least, "LT")
        nan = hlo.or_(nan, too_small)
    code = hlo.minimum(hlo.select(nan, number(255), code), number(255))
    return hlo.bitcast_convert(hlo.convert(code, np.uint8), _E8M0)
