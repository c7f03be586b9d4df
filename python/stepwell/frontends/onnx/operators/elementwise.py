"""Elementwise arithmetic, comparison and logic, with ONNX's broadcasting."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.frontends.onnx.node import Node, Tensor
from stepwell.frontends.onnx.registry import Result, operator
from stepwell.frontends.onnx.shaping import broadcast, broadcast_together
from stepwell.mlir import ir

_UNARY: dict[str, Callable[[ir.Value], ir.Value]] = {
    "Abs": hlo.abs,
    "BitwiseNot": hlo.not_,
    "Ceil": hlo.ceil,
    "Cos": hlo.cosine,
    "Erf": hlo.erf,
    "Exp": hlo.exponential,
    "Floor": hlo.floor,
    "Log": hlo.log,
    "Neg": hlo.negate,
    "Not": hlo.not_,
    "Round": hlo.round_nearest_even,
    "Sigmoid": hlo.logistic,
    "Sign": hlo.sign,
    "Sin": hlo.sine,
    "Sqrt": hlo.sqrt,
    "Tan": hlo.tan,
    "Tanh": hlo.tanh,
}

_BINARY: dict[str, Callable[[ir.Value, ir.Value], ir.Value]] = {
    "Add": hlo.add,
    "And": hlo.and_,
    "BitwiseAnd": hlo.and_,
    "BitwiseOr": hlo.or_,
    "BitwiseXor": hlo.xor,
    "Div": hlo.divide,
    "Mul": hlo.multiply,
    "Or": hlo.or_,
    "Sub": hlo.subtract,
    "Xor": hlo.xor,
}

_COMPARISON = {
    "Equal": "EQ",
    "Greater": "GT",
    "GreaterOrEqual": "GE",
    "Less": "LT",
    "LessOrEqual": "LE",
}

_VARIADIC: dict[str, Callable[[ir.Value, ir.Value], ir.Value]] = {
    "Max": hlo.maximum,
    "Mean": hlo.add,
    "Min": hlo.minimum,
    "Sum": hlo.add,
}


def _register_tables() -> None:
    for name, build in _UNARY.items():
        operator(name)(functools.partial(_unary, build))
    for name, build in _BINARY.items():
        operator(name)(functools.partial(_binary, build))
    for name, direction in _COMPARISON.items():
        operator(name)(functools.partial(_comparison, direction))
    for name, build in _VARIADIC.items():
        operator(name)(functools.partial(_variadic, build))


def _unary(build: Callable[[ir.Value], ir.Value], node: Node, x: Tensor) -> ir.Value:
    return build(x.value)


def _binary(
    build: Callable[[ir.Value, ir.Value], ir.Value], node: Node, a: Tensor, b: Tensor
) -> ir.Value:
    return build(*broadcast_together(a, b))


def _comparison(direction: str, node: Node, a: Tensor, b: Tensor) -> ir.Value:
    lhs, rhs = broadcast_together(a, b)
    return hlo.compare(lhs, rhs, direction)


def _variadic(
    build: Callable[[ir.Value, ir.Value], ir.Value], node: Node, *operands: Tensor
) -> ir.Value:
    total = functools.reduce(build, broadcast_together(*operands))
    if node.operator == "Mean":
        return hlo.divide(total, hlo.full_like(total, len(operands)))
    return total


@operator("Reciprocal")
def reciprocal(node: Node, x: Tensor) -> ir.Value:
    return hlo.divide(hlo.full_like(x.value, 1), x.value)


@operator("Pow")
def power(node: Node, base: Tensor, exponent: Tensor) -> ir.Value:
    """Small constant exponents become products: libm's pow costs ten times as much."""
    if exponent.array is not None and exponent.size == 1:
        value = exponent.array.item()
        if value in (1, 2, 3, 0.5) and exponent.rank <= base.rank and base.dtype.kind == "f":
            x = base.value
            if value == 0.5:
                return hlo.sqrt(x)
            return functools.reduce(hlo.multiply, [x] * int(value))
    lhs, rhs = broadcast_together(base, exponent)
    if base.dtype.kind in "iu" and exponent.dtype.kind == "f":
        result = hlo.power(hlo.convert(lhs, exponent.dtype), rhs)
        return hlo.convert(result, base.dtype)
    return hlo.power(lhs, hlo.convert(rhs, base.dtype))


@operator("Mod")
def modulo(node: Node, a: Tensor, b: Tensor) -> ir.Value:
    """`fmod=1`: the sign of the dividend, as in C; else that of the divisor, as in Python."""
    lhs, rhs = broadcast_together(a, b)
    remainder = hlo.remainder(lhs, rhs)
    if node.integer("fmod", 0) or a.dtype.kind == "u":
        return remainder
    zero = hlo.full_like(remainder, 0)
    differs = hlo.compare(hlo.compare(remainder, zero, "LT"), hlo.compare(rhs, zero, "LT"), "NE")
    wrap = hlo.and_(differs, hlo.compare(remainder, zero, "NE"))
    return hlo.select(wrap, hlo.add(remainder, rhs), remainder)


@operator("BitShift")
def bit_shift(node: Node, x: Tensor, amount: Tensor) -> ir.Value:
    right = hlo.shift_right_arithmetic if x.dtype.kind == "i" else hlo.shift_right_logical
    build = {"LEFT": hlo.shift_left, "RIGHT": right}[node.text("direction", "")]
    return build(*broadcast_together(x, amount))


@operator("Where")
def where(node: Node, condition: Tensor, x: Tensor, y: Tensor) -> ir.Value:
    return hlo.select(*broadcast_together(condition, x, y))


@operator("Clip")
def clip(node: Node, x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Result:
    """Limits are attributes up to opset 10, optional scalar inputs since."""
    limits = [
        _limit(node, x, tensor, attribute) for tensor, attribute in ((low, "min"), (high, "max"))
    ]
    if limits[0] is not None and limits[1] is not None:
        return hlo.clamp(limits[0], x.value, limits[1])
    if limits[0] is not None:
        return hlo.maximum(x.value, broadcast(limits[0], x.shape))
    if limits[1] is not None:
        return hlo.minimum(x.value, broadcast(limits[1], x.shape))
    return x


def _limit(node: Node, x: Tensor, tensor: Tensor | None, attribute: str) -> ir.Value | None:
    if tensor is not None:
        return broadcast(tensor, []) if tensor.rank == 0 else hlo.reshape(tensor.value, [])
    if attribute in node:
        return hlo.full(node.number(attribute, 0.0), [], x.dtype)
    return None


@operator("IsNaN")
def is_nan(node: Node, x: Tensor) -> ir.Value:
    return hlo.compare(x.value, x.value, "NE")


@operator("IsInf")
def is_infinite(node: Node, x: Tensor) -> ir.Value:
    found = hlo.full(False, x.shape, np.bool_)
    for attribute, infinity in (
        ("detect_positive", float("inf")),
        ("detect_negative", float("-inf")),
    ):
        if node.integer(attribute, 1):
            hit = hlo.compare(x.value, hlo.full_like(x.value, infinity), "EQ")
            found = hlo.or_(found, hit)
    return found


_register_tables()
