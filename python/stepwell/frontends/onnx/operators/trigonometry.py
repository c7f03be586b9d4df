"""Hyperbolic functions and inverse functions, from the elementary operations of StableHLO."""

from __future__ import annotations

from stepwell.dialects import stablehlo as hlo
from stepwell.frontends.onnx.node import Node, Tensor
from stepwell.frontends.onnx.registry import operator
from stepwell.mlir import ir


def _half(x: ir.Value) -> ir.Value:
    return hlo.multiply(x, hlo.full_like(x, 0.5))


def _one(x: ir.Value) -> ir.Value:
    return hlo.full_like(x, 1)


def _cathetus(x: ir.Value) -> ir.Value:
    """`sqrt(1 - x^2)`, as a product that keeps precision near 1."""
    return hlo.sqrt(hlo.multiply(hlo.subtract(_one(x), x), hlo.add(_one(x), x)))


@operator("Asin")
def asin(node: Node, x: Tensor) -> ir.Value:
    return hlo.atan2(x.value, _cathetus(x.value))


@operator("Acos")
def acos(node: Node, x: Tensor) -> ir.Value:
    return hlo.atan2(_cathetus(x.value), x.value)


@operator("Atan")
def atan(node: Node, x: Tensor) -> ir.Value:
    return hlo.atan2(x.value, _one(x.value))


@operator("Sinh")
def sinh(node: Node, x: Tensor) -> ir.Value:
    """`(e + e / (e + 1)) / 2` with `e = expm1(x)`, precise near zero."""
    e = hlo.exponential_minus_one(x.value)
    return _half(hlo.add(e, hlo.divide(e, hlo.add(e, _one(e)))))


@operator("Cosh")
def cosh(node: Node, x: Tensor) -> ir.Value:
    return _half(hlo.add(hlo.exponential(x.value), hlo.exponential(hlo.negate(x.value))))


@operator("Asinh")
def asinh(node: Node, x: Tensor) -> ir.Value:
    """`sign(x) * log1p(|x| + x^2 / (1 + sqrt(x^2 + 1)))`, precise near zero."""
    size, square = hlo.abs(x.value), hlo.multiply(x.value, x.value)
    root = hlo.sqrt(hlo.add(square, _one(square)))
    tail = hlo.divide(square, hlo.add(root, _one(root)))
    return hlo.multiply(hlo.sign(x.value), hlo.log_plus_one(hlo.add(size, tail)))


@operator("Acosh")
def acosh(node: Node, x: Tensor) -> ir.Value:
    """`log1p(t + sqrt(2 t + t^2))` with `t = x - 1`."""
    t = hlo.subtract(x.value, _one(x.value))
    root = hlo.sqrt(hlo.multiply(t, hlo.add(x.value, _one(x.value))))
    return hlo.log_plus_one(hlo.add(t, root))


@operator("Atanh")
def atanh(node: Node, x: Tensor) -> ir.Value:
    rising, falling = hlo.log_plus_one(x.value), hlo.log_plus_one(hlo.negate(x.value))
    return _half(hlo.subtract(rising, falling))
