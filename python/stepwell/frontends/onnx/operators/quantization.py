"""Linear quantization: QuantizeLinear, DequantizeLinear, and products of quantized tensors."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from stepwell import dtypes
from stepwell.dialects import stablehlo as hlo
from stepwell.frontends.onnx.node import Node, Tensor
from stepwell.frontends.onnx.operators.cast import saturating_convert, target_dtype
from stepwell.frontends.onnx.operators.contraction import matmul, matmul_integer
from stepwell.frontends.onnx.operators.convolution import conv_integer
from stepwell.frontends.onnx.registry import operator
from stepwell.frontends.onnx.shaping import along, broadcast, normalize_axis, reduce
from stepwell.mlir import ir

_UINT8 = np.dtype(np.uint8)
_FLOAT8 = tuple(
    np.dtype(kind)
    for kind in (
        ml_dtypes.float8_e4m3fn,
        ml_dtypes.float8_e4m3fnuz,
        ml_dtypes.float8_e5m2,
        ml_dtypes.float8_e5m2fnuz,
    )
)


def _spread(node: Node, parameter: Tensor, shape: tuple[int, ...], axis: int) -> ir.Value:
    """A scale or zero point for every element: per tensor, per index of `axis`, or per block."""
    if parameter.size == 1 and parameter.rank <= 1:
        return hlo.broadcast_in_dim(hlo.reshape(parameter.value, []), shape, [])
    axis = normalize_axis(axis, len(shape))
    block = node.integer("block_size", 0)
    if not block and parameter.shape == shape[axis : axis + 1]:
        return hlo.broadcast_in_dim(parameter.value, shape, [axis])
    blocks = [-(-n // block) if d == axis and block else n for d, n in enumerate(shape)]
    if not block or parameter.shape != tuple(blocks):
        node.unsupported(
            f"scales or zero points of shape {list(parameter.shape)} do not fit {list(shape)} "
            f"(axis {axis}, block_size {block})"
        )
    wide = [*blocks[: axis + 1], block, *blocks[axis + 1 :]]
    kept = [d for d in range(len(wide)) if d != axis + 1]
    merged = [n * block if d == axis else n for d, n in enumerate(blocks)]
    repeated = hlo.reshape(hlo.broadcast_in_dim(parameter.value, wide, kept), merged)
    return hlo.slice(repeated, [0] * len(shape), shape)


def _quantize(
    node: Node, scaled: ir.Value, zero: ir.Value | None, kind: np.dtype, saturate: bool = True
) -> ir.Value:
    """`saturate(round(scaled) + zero)`, rounding half to even; floats are rounded once, after."""
    if not (dtypes.is_integer(kind) or dtypes.is_float(kind)):
        node.unsupported(f"the zero point of the result is of {kind}, which is no number")
    wide = hlo.convert(scaled, np.float32)
    if dtypes.is_integer(kind):
        wide = hlo.round_nearest_even(wide)
    elif kind in _FLOAT8:
        zero = None
    if zero is not None:
        wide = hlo.add(wide, hlo.convert(zero, np.float32))
    return saturating_convert(wide, kind) if saturate else hlo.convert(wide, kind)


@operator("QuantizeLinear")
def quantize_linear(
    node: Node, x: Tensor, scale: Tensor, zero_point: Tensor | None = None
) -> ir.Value:
    """Divided in the type of the scale, or in `precision`; to the type of the zero point,
    `output_dtype` or uint8. `saturate` is for floats of 8 bits, whose zero point is zero."""
    axis = node.integer("axis", 1)
    if zero_point is not None:
        kind = zero_point.dtype
    else:
        kind = target_dtype(node, "output_dtype") if node.integer("output_dtype", 0) else _UINT8
    precision = scale.dtype
    if node.integer("precision", 0):
        precision = target_dtype(node, "precision")
    if dtypes.is_small(precision):
        precision = np.dtype(np.float32)
    factor = hlo.convert(_spread(node, scale, x.shape, axis), precision)
    scaled = hlo.divide(hlo.convert(x.value, precision), factor)
    zero = None if zero_point is None else _spread(node, zero_point, x.shape, axis)
    return _quantize(node, scaled, zero, kind, bool(node.integer("saturate", 1)))


@operator("DequantizeLinear")
def dequantize_linear(
    node: Node, x: Tensor, scale: Tensor, zero_point: Tensor | None = None
) -> ir.Value:
    """`(x - zero_point) * scale`, in `output_dtype` or the type of the scale."""
    axis = node.integer("axis", 1)
    kind = scale.dtype
    if node.integer("output_dtype", 0):
        kind = target_dtype(node, "output_dtype")
    value = hlo.convert(x.value, np.float32)
    if zero_point is not None:
        zero = _spread(node, zero_point, x.shape, axis)
        value = hlo.subtract(value, hlo.convert(zero, np.float32))
    factor = hlo.convert(_spread(node, scale, x.shape, axis), np.float32)
    return hlo.convert(hlo.multiply(value, factor), kind)


def _requantize(
    node: Node, accumulated: ir.Value, scales: tuple[ir.Value, ir.Value], y_scale: Tensor,
    y_zero: Tensor,
) -> ir.Value:  # fmt: skip
    """`accumulated * (a_scale * b_scale / y_scale) + y_zero`; all parameters already spread."""
    shape = hlo.shape(accumulated)
    product = hlo.multiply(*(hlo.convert(scale, np.float32) for scale in scales))
    divisor = hlo.convert(_along_rows(y_scale, shape), np.float32)
    factor = hlo.divide(product, divisor)
    scaled = hlo.multiply(hlo.convert(accumulated, np.float32), factor)
    return _quantize(node, scaled, _along_rows(y_zero, shape), y_zero.dtype)


def _along_rows(parameter: Tensor, shape: tuple[int, ...]) -> ir.Value:
    """A scalar, one number a row as a vector, or what broadcasts to `shape`."""
    if parameter.rank <= 1 and parameter.size == 1:
        return hlo.broadcast_in_dim(hlo.reshape(parameter.value, []), shape, [])
    if parameter.rank == 1 and len(shape) > 1:
        return hlo.broadcast_in_dim(parameter.value, shape, [len(shape) - 2])
    return broadcast(parameter, shape)


@operator("QLinearMatMul")
def quantized_matmul(
    node: Node, a: Tensor, a_scale: Tensor, a_zero: Tensor, b: Tensor, b_scale: Tensor,
    b_zero: Tensor, y_scale: Tensor, y_zero: Tensor,
) -> ir.Value:  # fmt: skip
    """Scales per tensor, per row of a, and per column of b. Floats of 8 bits multiply in f32."""
    if dtypes.is_float(a.dtype):
        left, right = (hlo.convert(t.value, np.float32) for t in (a, b))
        scope = node.scope
        accumulated = matmul(node, scope.tensor(left, a.name), scope.tensor(right, b.name))
    else:
        accumulated = matmul_integer(node, a, b, a_zero, b_zero)
    shape = hlo.shape(accumulated)
    columns = hlo.reshape(b_scale.value, []) if b_scale.size == 1 else b_scale
    scales = _along_rows(a_scale, shape), broadcast(columns, shape)
    return _requantize(node, accumulated, scales, y_scale, y_zero)


@operator("QLinearConv")
def quantized_conv(
    node: Node, x: Tensor, x_scale: Tensor, x_zero: Tensor, w: Tensor, w_scale: Tensor,
    w_zero: Tensor, y_scale: Tensor, y_zero: Tensor, b: Tensor | None = None,
) -> ir.Value:  # fmt: skip
    """Scales per tensor, or per output channel of w; the bias is int32."""
    accumulated = conv_integer(node, x, w, x_zero, w_zero)
    shape = hlo.shape(accumulated)
    if b is not None:
        accumulated = hlo.add(accumulated, along(b, 1, shape))
    scales = _spread(node, x_scale, shape, 1), _spread(node, w_scale, shape, 1)
    return _requantize(node, accumulated, scales, y_scale, y_zero)


@operator("DynamicQuantizeLinear")
def dynamic_quantize_linear(node: Node, x: Tensor) -> list[ir.Value]:
    """uint8 over the range of x, which is made to hold zero; gives y, its scale and zero point."""
    axes = range(x.rank)
    zero = hlo.full(0, [], x.dtype)
    high = hlo.maximum(reduce(x.value, axes, "maximum", keep=False), zero)
    low = hlo.minimum(reduce(x.value, axes, "minimum", keep=False), zero)
    span = hlo.subtract(high, low)
    scale = hlo.divide(span, hlo.full(255, [], x.dtype))
    flat = hlo.compare(span, zero, "EQ")
    scale = hlo.select(flat, hlo.full(1, [], x.dtype), scale)
    offset = hlo.round_nearest_even(hlo.divide(hlo.negate(low), scale))
    zero_point = saturating_convert(offset, _UINT8)
    scaled = hlo.divide(x.value, hlo.broadcast_in_dim(scale, x.shape, []))
    spread = hlo.broadcast_in_dim(zero_point, x.shape, [])
    return [_quantize(node, scaled, spread, _UINT8), scale, zero_point]
