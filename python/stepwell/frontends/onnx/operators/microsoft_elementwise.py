"""Activations of domain com.microsoft."""

from __future__ import annotations

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.frontends.onnx.node import Node, Tensor
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


@operator("BiasSplitGelu", domain=_DOMAIN)
def bias_split_gelu(node: Node, x: Tensor, bias: Tensor) -> ir.Value:
    """The first half of `x + bias`, along the last dimension, times Gelu of the second half."""
    *outer, size = x.shape
    if size % 2:
        node.unsupported(f"the last dimension of {list(x.shape)} has no halves")
    value = hlo.add(x.value, broadcast(bias, x.shape))
    first = hlo.slice(value, [0] * x.rank, [*outer, size // 2])
    second = hlo.slice(value, [*[0] * len(outer), size // 2], x.shape)
    return hlo.multiply(first, _exact_gelu(second))
