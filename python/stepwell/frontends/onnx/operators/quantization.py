"""Linear quantization: QuantizeLinear, DequantizeLinear, and products of quantized tensors."""

from __future__ import annotations

import numpy as np
import onnx

from stepwell.dialects import stablehlo as hlo
from stepwell.frontends.onnx.node import Node, Tensor
from stepwell.frontends.onnx.operators.contraction import matmul_integer
from stepwell.frontends.onnx.operators.convolution import conv_integer
from stepwell.frontends.onnx.registry import operator
from stepwell.frontends.onnx.shaping import along, normalize_axis
from stepwell.mlir import ir


def _spread(node: Node, parameter: Tensor, shape: tuple[int, ...], axis: int) -> ir.Value:
    """A scale or zero point for every element: per tensor, per index of `axis`, or per block."""
    if parameter.size == 1 and parameter.rank <= 1:
        return hlo.broadcast_in_dim(hlo.reshape(parameter.value, []), shape, [])
    axis = normalize_axis(axis, len(shape))
    if parameter.rank == 1:
        return hlo.broadcast_in_dim(parameter.value, shape, [axis])
    block = node.integer("block_size", 0)
    if not block or parameter.shape[axis] * block < shape[axis]:
        node.unsupported(f"parameters of shape {list(parameter.shape)} do not fit {list(shape)}")
    wide = [*parameter.shape[: axis + 1], block, *parameter.shape[axis + 1 :]]
    kept = [d for d in range(len(wide)) if d != axis + 1]
    merged = [n * block if d == axis else n for d, n in enumerate(parameter.shape)]
    repeated = hlo.reshape(hlo.broadcast_in_dim(parameter.value, wide, kept), merged)
    return hlo.slice(repeated, [0] * len(shape), shape)


def _saturate(value: ir.Value, kind: np.dtype) -> ir.Value:
    """Convert floats, already rounded, to integers of `kind` within its limits."""
    wide, limits = hlo.dtype(value), np.iinfo(kind)
    low, high = hlo.full(limits.min, [], wide), hlo.full(limits.max, [], wide)
    return hlo.convert(hlo.clamp(low, value, high), kind)


def _quantize(
    node: Node, x: ir.Value, scale: ir.Value, zero: ir.Value | None, kind: np.dtype
) -> ir.Value:
    """`saturate(round(x / scale) + zero_point)`, rounding half to even."""
    if kind.kind not in "iu":
        node.unsupported(f"quantization to {kind} is not supported")
    rounded = hlo.round_nearest_even(hlo.divide(x, scale))
    if zero is not None:
        rounded = hlo.add(rounded, hlo.convert(zero, hlo.dtype(rounded)))
    return _saturate(rounded, kind)


@operator("QuantizeLinear")
def quantize_linear(
    node: Node, x: Tensor, scale: Tensor, zero_point: Tensor | None = None
) -> ir.Value:
    axis, code = node.integer("axis", 1), node.integer("output_dtype", 0)
    wide = hlo.convert(x.value, np.float32)
    factor = hlo.convert(_spread(node, scale, x.shape, axis), np.float32)
    zero = None if zero_point is None else _spread(node, zero_point, x.shape, axis)
    kind = np.dtype(np.uint8) if zero_point is None else zero_point.dtype
    if code and zero_point is None:
        kind = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(code))
    return _quantize(node, wide, factor, zero, kind)


@operator("DequantizeLinear")
def dequantize_linear(
    node: Node, x: Tensor, scale: Tensor, zero_point: Tensor | None = None
) -> ir.Value:
    """`(x - zero_point) * scale`, in the type of the scale."""
    axis = node.integer("axis", 1)
    value = hlo.convert(x.value, np.float32)
    if zero_point is not None:
        zero = _spread(node, zero_point, x.shape, axis)
        value = hlo.subtract(value, hlo.convert(zero, np.float32))
    factor = hlo.convert(_spread(node, scale, x.shape, axis), np.float32)
    return hlo.convert(hlo.multiply(value, factor), scale.dtype)


def _requantize(
    node: Node, accumulated: ir.Value, scale: ir.Value, y_scale: Tensor, y_zero: Tensor
) -> ir.Value:
    shape = hlo.shape(accumulated)
    value = hlo.multiply(hlo.convert(accumulated, hlo.dtype(scale)), scale)
    factor, zero = _spread(node, y_scale, shape, -1), _spread(node, y_zero, shape, -1)
    return _quantize(node, value, factor, zero, y_zero.dtype)


@operator("QLinearMatMul")
def quantized_matmul(
    node: Node, a: Tensor, a_scale: Tensor, a_zero: Tensor, b: Tensor, b_scale: Tensor,
    b_zero: Tensor, y_scale: Tensor, y_zero: Tensor,
) -> ir.Value:  # fmt: skip
    """Scales per tensor, or per column of b."""
    if a_scale.size > 1:
        node.unsupported("scales per row of the first operand are not supported")
    accumulated = matmul_integer(node, a, b, a_zero, b_zero)
    shape = hlo.shape(accumulated)
    scale = hlo.multiply(_spread(node, a_scale, shape, -1), _spread(node, b_scale, shape, -1))
    return _requantize(node, accumulated, scale, y_scale, y_zero)


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
    scale = hlo.multiply(_spread(node, x_scale, shape, 1), _spread(node, w_scale, shape, 1))
    return _requantize(node, accumulated, scale, y_scale, y_zero)
