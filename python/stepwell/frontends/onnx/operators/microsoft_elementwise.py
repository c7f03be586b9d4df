"""Activations of domain com.microsoft, and convolutions with one after them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.frontends.onnx.node import Node, Tensor
from stepwell.frontends.onnx.operators.convolution import conv
from stepwell.frontends.onnx.registry import operator
from stepwell.frontends.onnx.shaping import broadcast
from stepwell.mlir import ir

_DOMAIN = "com.microsoft"


def _times(x: ir.Value, factor: float) -> ir.Value:
    return hlo.multiply(x, hlo.full_like(x, factor))


def _exact_gelu(x: ir.Value) -> ir.Value:
    """`x / 2 * (1 + erf(x / sqrt(2)))`."""
    phi = hlo.add(hlo.erf(_times(x, 0.5**0.5)), hlo.full_like(x, 1))
    return hlo.multiply(_times(x, 0.5), phi)


@operator("Gelu", domain=_DOMAIN)
def gelu(node: Node, x: Tensor) -> ir.Value:
    return _exact_gelu(x.value)


@operator("BiasGelu", domain=_DOMAIN)
def bias_gelu(node: Node, x: Tensor, bias: Tensor) -> ir.Value:
    """Gelu of `x + bias`."""
    return _exact_gelu(hlo.add(x.value, broadcast(bias, x.shape)))


@operator("FastGelu", domain=_DOMAIN)
def fast_gelu(node: Node, x: Tensor, bias: Tensor | None = None) -> ir.Value:
    """Gelu of `x + bias` by its approximation with tanh."""
    value = x.value if bias is None else hlo.add(x.value, broadcast(bias, x.shape))
    cube = hlo.multiply(value, hlo.multiply(value, value))
    inner = _times(hlo.add(value, _times(cube, 0.044715)), (2 / np.pi) ** 0.5)
    return hlo.multiply(_times(value, 0.5), hlo.add(hlo.tanh(inner), hlo.full_like(value, 1)))


@operator("QuickGelu", domain=_DOMAIN)
def quick_gelu(node: Node, x: Tensor) -> ir.Value:
    """`x * sigmoid(alpha * x)`."""
    return hlo.multiply(x.value, hlo.logistic(_times(x.value, node.number("alpha", 1.702))))


_ACTIVATIONS: dict[str, Callable[[ir.Value, list[float]], ir.Value]] = {
    "Relu": lambda x, _: hlo.maximum(x, hlo.full_like(x, 0)),
    "Tanh": lambda x, _: hlo.tanh(x),
    "Sigmoid": lambda x, _: hlo.logistic(x),
    "LeakyRelu": lambda x, p: hlo.select(
        hlo.compare(x, hlo.full_like(x, 0), "LT"), _times(x, (p or [0.01])[0]), x
    ),
    "Clip": lambda x, p: hlo.clamp(
        hlo.full(p[0], [], hlo.dtype(x)), x, hlo.full(p[1], [], hlo.dtype(x))
    ),
    "HardSigmoid": lambda x, p: hlo.clamp(
        hlo.full(0, [], hlo.dtype(x)),
        hlo.add(_times(x, p[0]), hlo.full_like(x, p[1])),
        hlo.full(1, [], hlo.dtype(x)),
    ),
}
"""By name: of a value and the parameters."""


@operator("FusedConv", domain=_DOMAIN)
def fused_conv(
    node: Node, x: Tensor, w: Tensor, b: Tensor | None = None, z: Tensor | None = None
) -> ir.Value:
    """Conv, plus z, through `activation`."""
    result = conv(node, x, w, b)
    if z is not None:
        result = hlo.add(result, z.value)
    name = node.text("activation", "")
    if name and name not in _ACTIVATIONS:
        node.unsupported(f'the activation "{name}" is not supported')
    parameters = node.numbers("activation_params", [])
    return _ACTIVATIONS[name](result, parameters) if name else result
