"""Optimizers of ai.onnx.preview.training: Adam, Adagrad, Momentum.

Each takes the learning rate R, the count of updates T, and then n tensors of each kind: parameters,
gradients, and the optimizer's state; it gives n of each kind of parameters and state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.frontends.onnx.node import Node, Tensor
from stepwell.frontends.onnx.registry import operator
from stepwell.mlir import ir

_DOMAIN = "ai.onnx.preview.training"

Update = Callable[..., Sequence[ir.Value]]


def _scaled(value: ir.Value, factor: float | ir.Value) -> ir.Value:
    """`value` times a number, or times a scalar of any float type."""
    if isinstance(factor, ir.Value):
        scalar = hlo.convert(hlo.reshape(factor, []), hlo.dtype(value))
        return hlo.multiply(value, hlo.broadcast_in_dim(scalar, hlo.shape(value), []))
    return hlo.multiply(value, hlo.full_like(value, factor))


def _regularized(node: Node, x: ir.Value, gradient: ir.Value) -> ir.Value:
    return hlo.add(_scaled(x, node.number("norm_coefficient", 0.0)), gradient)


def _is_first(count: Tensor) -> ir.Value:
    """Whether T is 0: a scalar."""
    scalar = hlo.reshape(count.value, [])
    return hlo.compare(scalar, hlo.full_like(scalar, 0), "LE")


def _each(node: Node, tensors: tuple[Tensor, ...], kinds: int, update: Update) -> list[ir.Value]:
    """`update` for the i-th tensor of each kind; its results sorted by kind."""
    count = len(tensors) // kinds
    if count * kinds != len(tensors):
        node.unsupported(f"{len(tensors)} tensors do not make {kinds} lists of one length")
    results = [update(*(t.value for t in tensors[i::count])) for i in range(count)]
    return [value for kind in zip(*results, strict=True) for value in kind]


@operator("Adam", domain=_DOMAIN)
def adam(node: Node, rate: Tensor, count: Tensor, *tensors: Tensor) -> list[ir.Value]:
    """X, G, V (mean) and H (mean square) give X, V, H (Kingma and Ba 2015, arXiv:1412.6980)."""
    alpha, beta = node.number("alpha", 0.9), node.number("beta", 0.999)
    steps = hlo.convert(hlo.reshape(count.value, []), np.float64)

    def correction(base: float) -> ir.Value:
        power = hlo.power(hlo.full(base, [], np.float64), steps)
        return hlo.subtract(hlo.full(1, [], np.float64), power)

    first = _is_first(count)
    ratio = hlo.divide(hlo.sqrt(correction(beta)), correction(alpha))
    ratio = hlo.select(first, hlo.full(1, [], np.float64), ratio)
    step = hlo.multiply(hlo.convert(hlo.reshape(rate.value, []), np.float64), ratio)

    def update(x: ir.Value, g: ir.Value, v: ir.Value, h: ir.Value) -> list[ir.Value]:
        g = _regularized(node, x, g)
        v = hlo.add(_scaled(v, alpha), _scaled(g, 1 - alpha))
        h = hlo.add(_scaled(h, beta), _scaled(hlo.multiply(g, g), 1 - beta))
        root = hlo.add(hlo.sqrt(h), hlo.full_like(h, node.number("epsilon", 1e-6)))
        x = hlo.subtract(x, _scaled(hlo.divide(v, root), step))
        return [_scaled(x, 1 - node.number("norm_coefficient_post", 0.0)), v, h]

    return _each(node, tensors, 4, update)


@operator("Adagrad", domain=_DOMAIN)
def adagrad(node: Node, rate: Tensor, count: Tensor, *tensors: Tensor) -> list[ir.Value]:
    """X, G and H (sum of squares) give X, H (Duchi et al. 2011, JMLR 12)."""
    decay = hlo.convert(hlo.reshape(count.value, []), np.float32)
    decay = hlo.multiply(decay, hlo.full(node.number("decay_factor", 0.0), [], np.float32))
    divisor = hlo.add(hlo.full(1, [], np.float32), decay)
    step = hlo.divide(hlo.convert(hlo.reshape(rate.value, []), np.float32), divisor)

    def update(x: ir.Value, g: ir.Value, h: ir.Value) -> list[ir.Value]:
        g = _regularized(node, x, g)
        h = hlo.add(h, hlo.multiply(g, g))
        root = hlo.add(hlo.sqrt(h), hlo.full_like(h, node.number("epsilon", 1e-6)))
        return [hlo.subtract(x, hlo.divide(_scaled(g, step), root)), h]

    return _each(node, tensors, 3, update)


@operator("Momentum", domain=_DOMAIN)
def momentum(node: Node, rate: Tensor, count: Tensor, *tensors: Tensor) -> list[ir.Value]:
    """X, G and V (momentum) give X, V; `mode` is standard or nesterov."""
    alpha, beta = node.number("alpha", 0.0), node.number("beta", 0.0)
    weight = hlo.select(
        _is_first(count), hlo.full(1, [], np.float32), hlo.full(beta, [], np.float32)
    )

    def update(x: ir.Value, g: ir.Value, v: ir.Value) -> list[ir.Value]:
        g = _regularized(node, x, g)
        v = hlo.add(_scaled(v, alpha), _scaled(g, weight))
        nesterov = node.text("mode", "standard") == "nesterov"
        direction = hlo.add(g, _scaled(v, alpha)) if nesterov else v
        return [hlo.subtract(x, _scaled(direction, rate.value)), v]

    return _each(node, tensors, 3, update)
