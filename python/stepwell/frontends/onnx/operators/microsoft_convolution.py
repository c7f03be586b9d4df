"""Convolutions of domain com.microsoft: with an activation after them, and with channels last."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.frontends.onnx.node import Node, Tensor
from stepwell.frontends.onnx.operators.convolution import conv
from stepwell.frontends.onnx.registry import operator
from stepwell.mlir import ir

_DOMAIN = "com.microsoft"


def _line(x: ir.Value, alpha: float, beta: float) -> ir.Value:
    return hlo.add(hlo.multiply(x, hlo.full_like(x, alpha)), hlo.full_like(x, beta))


def _clamped(x: ir.Value, low: float, high: float) -> ir.Value:
    return hlo.clamp(hlo.full(low, [], hlo.dtype(x)), x, hlo.full(high, [], hlo.dtype(x)))


def _leaky(x: ir.Value, alpha: float) -> ir.Value:
    negative = hlo.compare(x, hlo.full_like(x, 0), "LT")
    return hlo.select(negative, hlo.multiply(x, hlo.full_like(x, alpha)), x)


_ACTIVATIONS: dict[str, Callable[[ir.Value, list[float]], ir.Value]] = {
    "Relu": lambda x, _: hlo.maximum(x, hlo.full_like(x, 0)),
    "Tanh": lambda x, _: hlo.tanh(x),
    "Sigmoid": lambda x, _: hlo.logistic(x),
    "LeakyRelu": lambda x, p: _leaky(x, (p or [0.01])[0]),
    "Clip": lambda x, p: _clamped(x, p[0], p[1]),
    "HardSigmoid": lambda x, p: _clamped(_line(x, p[0], p[1]), 0, 1),
}
"""By name: of a value and the parameters."""


def _activated(node: Node, value: ir.Value) -> ir.Value:
    name = node.text("activation", "")
    if not name:
        return value
    if name not in _ACTIVATIONS:
        node.unsupported(f'the activation "{name}" is not supported')
    return _ACTIVATIONS[name](value, node.numbers("activation_params", []))


@operator("FusedConv", domain=_DOMAIN)
def fused_conv(
    node: Node, x: Tensor, w: Tensor, b: Tensor | None = None, z: Tensor | None = None
) -> ir.Value:
    """Conv, plus z, through `activation`."""
    result = conv(node, x, w, b)
    return _activated(node, result if z is None else hlo.add(result, z.value))


@operator("NhwcConv", domain=_DOMAIN)
def nhwc_conv(node: Node, x: Tensor, w: Tensor, b: Tensor | None = None) -> ir.Value:
    """Conv of x [N, spatial..., C] with w [M, spatial..., C/group] to [N, spatial..., M]. Filters
    that fit only in the layout of Conv are taken as such."""
    if x.rank < 3 or w.rank != x.rank:
        node.unsupported(f"the kernel {list(w.shape)} does not fit the input {list(x.shape)}")
    if w.shape[-1] * node.integer("group", 1) == x.shape[-1]:
        w = _transposed(w, _channels_first(w.rank))
    return _nhwc(node, x, w, b)


@operator("NhwcFusedConv", domain=_DOMAIN)
def nhwc_fused_conv(
    node: Node, x: Tensor, w: Tensor, b: Tensor | None = None, z: Tensor | None = None
) -> ir.Value:
    """FusedConv of x [N, spatial..., C], z and the result alike; w is [M, C/group, spatial...]."""
    result = _nhwc(node, x, w, b)
    return _activated(node, result if z is None else hlo.add(result, z.value))


def _nhwc(node: Node, x: Tensor, w: Tensor, b: Tensor | None) -> ir.Value:
    """Conv between transposes, which the choice of a layout for all convolutions cancels."""
    result = conv(node, _transposed(x, _channels_first(x.rank)), w, b)
    return hlo.transpose(result, [0, *range(2, x.rank), 1])


def _channels_first(rank: int) -> list[int]:
    return [0, rank - 1, *range(1, rank - 1)]


def _transposed(x: Tensor, order: Sequence[int]) -> Tensor:
    if x.array is not None:
        return x.scope.constant(np.ascontiguousarray(x.array.transpose(order)), x.name)
    return x.scope.tensor(hlo.transpose(x.value, order), x.name)
