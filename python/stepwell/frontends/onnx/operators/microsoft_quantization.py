"""Quantized operators of domain com.microsoft: float arithmetic between dequantizing and
quantizing, rounded half to even."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from stepwell import dtypes
from stepwell.dialects import stablehlo as hlo
from stepwell.frontends.onnx.node import Node, Tensor
from stepwell.frontends.onnx.operators.activation import leaky_relu, softmax
from stepwell.frontends.onnx.operators.cast import saturating_convert
from stepwell.frontends.onnx.operators.contraction import matmul_integer
from stepwell.frontends.onnx.operators.pooling import average_pool, global_average_pool
from stepwell.frontends.onnx.operators.quantization import dequantize_linear, quantize_linear
from stepwell.frontends.onnx.registry import operator
from stepwell.frontends.onnx.shaping import broadcast, broadcast_together
from stepwell.mlir import ir

_DOMAIN = "com.microsoft"

operator("QuantizeLinear", domain=_DOMAIN)(quantize_linear)
operator("DequantizeLinear", domain=_DOMAIN)(dequantize_linear)


def _spread(parameter: Tensor, shape: tuple[int, ...]) -> ir.Value:
    """A scalar as float32 for every element."""
    value = hlo.convert(hlo.reshape(parameter.value, []), np.float32)
    return hlo.broadcast_in_dim(value, shape, [])


def _dequantized(x: Tensor, scale: Tensor, zero: Tensor | None) -> Tensor:
    value = hlo.convert(x.value, np.float32)
    if zero is not None:
        value = hlo.subtract(value, _spread(zero, x.shape))
    return x.scope.tensor(hlo.multiply(value, _spread(scale, x.shape)), x.name)


def _quantized(value: ir.Value, scale: Tensor, zero: Tensor | None, kind: np.dtype) -> ir.Value:
    return _requantized(hlo.divide(value, _spread(scale, hlo.shape(value))), zero, kind)


def _requantized(value: ir.Value, zero: Tensor | None, kind: np.dtype) -> ir.Value:
    """What `value`, in units of the result, is rounded to."""
    rounded = hlo.round_nearest_even(value)
    if zero is not None:
        rounded = hlo.add(rounded, _spread(zero, hlo.shape(value)))
    assert dtypes.is_integer(kind)
    return saturating_convert(rounded, kind)


def _binary(
    build: Callable[[ir.Value, ir.Value], ir.Value],
    node: Node,
    a: Tensor,
    a_scale: Tensor,
    a_zero: Tensor | None,
    b: Tensor,
    b_scale: Tensor,
    b_zero: Tensor | None,
    scale: Tensor,
    zero: Tensor | None = None,
) -> ir.Value:
    left, right = _dequantized(a, a_scale, a_zero), _dequantized(b, b_scale, b_zero)
    return _quantized(build(*broadcast_together(left, right)), scale, zero, a.dtype)


operator("QLinearMul", domain=_DOMAIN)(functools.partial(_binary, hlo.multiply))


@operator("QLinearAdd", domain=_DOMAIN)
def quantized_add(
    node: Node, a: Tensor, a_scale: Tensor, a_zero: Tensor | None, b: Tensor, b_scale: Tensor,
    b_zero: Tensor | None, scale: Tensor, zero: Tensor | None = None,
) -> ir.Value:  # fmt: skip
    """Both operands in units of the result, as onnxruntime has them: nothing is divided."""
    unit = hlo.convert(hlo.reshape(scale.value, []), np.float32)
    parts = [
        _dequantized(x, node.scope.tensor(hlo.divide(_spread(own, ()), unit), own.name), offset)
        for x, own, offset in ((a, a_scale, a_zero), (b, b_scale, b_zero))
    ]
    return _requantized(hlo.add(*broadcast_together(*parts)), zero, a.dtype)


def _unary(
    build: Callable[[Node, Tensor], ir.Value],
    node: Node,
    x: Tensor,
    x_scale: Tensor,
    x_zero: Tensor | None,
    scale: Tensor,
    zero: Tensor | None = None,
) -> ir.Value:
    return _quantized(build(node, _dequantized(x, x_scale, x_zero)), scale, zero, x.dtype)


def _pooled(build: Callable[[Node, Tensor], ir.Value], node: Node, x: Tensor) -> ir.Value:
    """`build` on x, which is [N, H, W, C] with `channels_last`."""
    if not node.integer("channels_last", 0):
        return build(node, x)
    *space, last = range(1, x.rank)
    first = hlo.transpose(x.value, [0, last, *space])
    pooled = build(node, node.scope.tensor(first, x.name))
    return hlo.transpose(pooled, [0, *range(2, x.rank), 1])


def _softmax(node: Node, x: Tensor) -> ir.Value:
    """That of the version of Softmax which the attribute `opset` names."""
    return softmax(Node(node.proto, node.integer("opset", node.opset), node.scope), x)


operator("QLinearSigmoid", domain=_DOMAIN)(
    functools.partial(_unary, lambda node, x: hlo.logistic(x.value))
)
operator("QLinearLeakyRelu", domain=_DOMAIN)(functools.partial(_unary, leaky_relu))
operator("QLinearSoftmax", domain=_DOMAIN)(functools.partial(_unary, _softmax))
operator("QLinearAveragePool", domain=_DOMAIN)(
    functools.partial(_unary, functools.partial(_pooled, average_pool))
)
operator("QLinearGlobalAveragePool", domain=_DOMAIN)(
    functools.partial(_unary, functools.partial(_pooled, global_average_pool))
)


@operator("QGemm", domain=_DOMAIN)
def quantized_gemm(
    node: Node, a: Tensor, a_scale: Tensor, a_zero: Tensor, b: Tensor, b_scale: Tensor,
    b_zero: Tensor, c: Tensor | None = None, scale: Tensor | None = None,
    zero: Tensor | None = None,
) -> ir.Value:  # fmt: skip
    """`alpha a b + c` in int32, times the scales: float32 where there is no scale of the result."""
    left, right = (
        node.scope.tensor(hlo.transpose(t.value, [1, 0]), t.name) if node.integer(name, 0) else t
        for t, name in ((a, "transA"), (b, "transB"))
    )
    total = matmul_integer(node, left, right, a_zero, b_zero)
    shape = hlo.shape(total)
    if c is not None:
        total = hlo.add(total, broadcast(c, shape))
    columns = hlo.reshape(b_scale.value, []) if b_scale.size == 1 else b_scale
    factor = hlo.multiply(_spread(a_scale, shape), broadcast(columns, shape))
    alpha = hlo.full_like(factor, node.number("alpha", 1.0))
    value = hlo.multiply(hlo.convert(total, np.float32), hlo.multiply(factor, alpha))
    return value if scale is None else _quantized(value, scale, zero, a.dtype)


@operator("QLinearConcat", domain=_DOMAIN)
def quantized_concat(node: Node, scale: Tensor, zero: Tensor, *parts: Tensor) -> ir.Value:
    """The inputs come in threes: tensor, scale, zero point."""
    values = [_dequantized(*parts[i : i + 3]).value for i in range(0, len(parts), 3)]
    axis = node.integer("axis", 0)
    rank = parts[0].rank
    joined = hlo.concatenate(values, axis + rank if axis < 0 else axis)
    return _quantized(joined, scale, zero, zero.dtype)
