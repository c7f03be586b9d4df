"""Activation functions, each as its formula in the specification."""

from __future__ import annotations

import math

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.frontends.onnx.node import Node, Tensor
from stepwell.frontends.onnx.registry import operator
from stepwell.frontends.onnx.shaping import along, broadcast, normalize_axis, reduce
from stepwell.mlir import ir


def _scaled(x: ir.Value, factor: float) -> ir.Value:
    return hlo.multiply(x, hlo.full_like(x, factor))


def _shifted(x: ir.Value, term: float) -> ir.Value:
    return hlo.add(x, hlo.full_like(x, term))


def _is_positive(x: ir.Value) -> ir.Value:
    return hlo.compare(x, hlo.full_like(x, 0), "GT")


@operator("Relu")
def relu(node: Node, x: Tensor) -> ir.Value:
    return hlo.maximum(x.value, hlo.full_like(x.value, 0))


@operator("LeakyRelu")
def leaky_relu(node: Node, x: Tensor) -> ir.Value:
    negative = hlo.compare(x.value, hlo.full_like(x.value, 0), "LT")
    return hlo.select(negative, _scaled(x.value, node.number("alpha", 0.01)), x.value)


@operator("PRelu")
def parametric_relu(node: Node, x: Tensor, slope: Tensor) -> ir.Value:
    """x, times the slope where it is negative: that of a channel until opset 6, later one that
    broadcasts."""
    of_channels = node.opset < 7 and slope.size != 1
    factor = along(slope, 1, x.shape) if of_channels else broadcast(slope, x.shape)
    negative = hlo.compare(x.value, hlo.full_like(x.value, 0), "LT")
    return hlo.select(negative, hlo.multiply(x.value, factor), x.value)


@operator("ThresholdedRelu")
def thresholded_relu(node: Node, x: Tensor) -> ir.Value:
    alpha = hlo.full_like(x.value, node.number("alpha", 1.0))
    kept = hlo.compare(x.value, alpha, "GT")
    return hlo.select(kept, x.value, hlo.full_like(x.value, 0))


@operator("Elu")
def elu(node: Node, x: Tensor) -> ir.Value:
    below = _scaled(hlo.exponential_minus_one(x.value), node.number("alpha", 1.0))
    return hlo.select(_is_positive(x.value), x.value, below)


@operator("Selu")
def selu(node: Node, x: Tensor) -> ir.Value:
    alpha = node.number("alpha", 1.67326319217681884765625)
    gamma = node.number("gamma", 1.05070102214813232421875)
    below = _scaled(hlo.exponential_minus_one(x.value), alpha)
    return _scaled(hlo.select(_is_positive(x.value), x.value, below), gamma)


@operator("Celu")
def celu(node: Node, x: Tensor) -> ir.Value:
    alpha = node.number("alpha", 1.0)
    below = _scaled(hlo.exponential_minus_one(_scaled(x.value, 1 / alpha)), alpha)
    return hlo.select(_is_positive(x.value), x.value, below)


@operator("Gelu")
def gelu(node: Node, x: Tensor) -> ir.Value:
    """`x * 0.5 * (1 + erf(x / sqrt(2)))`, or its approximation by tanh."""
    v = x.value
    if node.text("approximate", "none") == "tanh":
        cube = hlo.multiply(v, hlo.multiply(v, v))
        inner = _scaled(hlo.add(v, _scaled(cube, 0.044715)), math.sqrt(2 / math.pi))
        return hlo.multiply(_scaled(v, 0.5), _shifted(hlo.tanh(inner), 1))
    return hlo.multiply(_scaled(v, 0.5), _shifted(hlo.erf(_scaled(v, math.sqrt(0.5))), 1))


@operator("HardSigmoid")
def hard_sigmoid(node: Node, x: Tensor) -> ir.Value:
    return _hard_sigmoid(x.value, node.number("alpha", 0.2), node.number("beta", 0.5))


@operator("HardSwish")
def hard_swish(node: Node, x: Tensor) -> ir.Value:
    return hlo.multiply(x.value, _hard_sigmoid(x.value, 1 / 6, 0.5))


def _hard_sigmoid(x: ir.Value, alpha: float, beta: float) -> ir.Value:
    kind = hlo.dtype(x)
    line = _shifted(_scaled(x, alpha), beta)
    return hlo.clamp(hlo.full(0, [], kind), line, hlo.full(1, [], kind))


@operator("Swish")
def swish(node: Node, x: Tensor) -> ir.Value:
    alpha = node.number("alpha", 1.0)
    return hlo.multiply(x.value, hlo.logistic(x.value if alpha == 1 else _scaled(x.value, alpha)))


def _softplus(x: ir.Value) -> ir.Value:
    """`log(1 + exp(x))` as `max(x, 0) + log1p(exp(-|x|))`, which does not overflow."""
    tail = hlo.log_plus_one(hlo.exponential(hlo.negate(hlo.abs(x))))
    return hlo.add(hlo.maximum(x, hlo.full_like(x, 0)), tail)


@operator("Softplus")
def softplus(node: Node, x: Tensor) -> ir.Value:
    return _softplus(x.value)


@operator("Mish")
def mish(node: Node, x: Tensor) -> ir.Value:
    return hlo.multiply(x.value, hlo.tanh(_softplus(x.value)))


@operator("Softsign")
def softsign(node: Node, x: Tensor) -> ir.Value:
    return hlo.divide(x.value, _shifted(hlo.abs(x.value), 1))


@operator("Shrink")
def shrink(node: Node, x: Tensor) -> ir.Value:
    lambd, bias = node.number("lambd", 0.5), node.number("bias", 0.0)
    low = hlo.compare(x.value, hlo.full_like(x.value, -lambd), "LT")
    high = hlo.compare(x.value, hlo.full_like(x.value, lambd), "GT")
    above = hlo.select(high, _shifted(x.value, -bias), hlo.full_like(x.value, 0))
    return hlo.select(low, _shifted(x.value, bias), above)


def _softmax_parts(x: ir.Value, axes: list[int]) -> tuple[ir.Value, ir.Value, ir.Value]:
    """`x - max`, its exponential, and the sum of that over `axes` (broadcast to x's shape)."""
    shape = hlo.shape(x)
    centred = hlo.subtract(x, broadcast(reduce(x, axes, "maximum"), shape))
    exponential = hlo.exponential(centred)
    return centred, exponential, broadcast(reduce(exponential, axes, "add"), shape)


def _softmax_axes(node: Node, x: Tensor) -> list[int]:
    """Since opset 13 one axis; before, all from `axis` on (the input is flattened to 2-D)."""
    if node.opset >= 13:
        return [normalize_axis(node.integer("axis", -1), x.rank)]
    return list(range(normalize_axis(node.integer("axis", 1), x.rank), x.rank))


@operator("Softmax")
def softmax(node: Node, x: Tensor) -> ir.Value:
    _, exponential, total = _softmax_parts(x.value, _softmax_axes(node, x))
    return hlo.divide(exponential, total)


@operator("LogSoftmax")
def log_softmax(node: Node, x: Tensor) -> ir.Value:
    centred, _, total = _softmax_parts(x.value, _softmax_axes(node, x))
    return hlo.subtract(centred, hlo.log(total))


@operator("Hardmax")
def hardmax(node: Node, x: Tensor) -> ir.Value:
    """One at the first maximum along the axis, else zero."""
    axes = _softmax_axes(node, x)
    flat = [int(np.prod(x.shape[: axes[0]])), int(np.prod([x.shape[a] for a in axes])), -1]
    flat[2] = x.size // max(flat[0] * flat[1], 1)
    value = hlo.reshape(x.value, flat)
    hit = hlo.compare(value, broadcast(reduce(value, [1], "maximum"), flat), "EQ")
    position = hlo.iota(flat, 1, np.int64)
    candidate = hlo.select(hit, position, hlo.full(flat[1], flat, np.int64))
    first = broadcast(reduce(candidate, [1], "minimum"), flat)
    result = hlo.convert(hlo.compare(position, first, "EQ"), x.dtype)
    return hlo.reshape(result, x.shape)
