"""Running sums and products along an axis."""

from __future__ import annotations

from stepwell.dialects import stablehlo as hlo
from stepwell.frontends.onnx.node import Node, Tensor
from stepwell.frontends.onnx.registry import operator
from stepwell.frontends.onnx.shaping import normalize_axis
from stepwell.mlir import ir


@operator("CumSum")
def cumulative_sum(node: Node, x: Tensor, axis: Tensor) -> ir.Value:
    return _cumulative(node, x, axis, "add")


@operator("CumProd")
def cumulative_product(node: Node, x: Tensor, axis: Tensor) -> ir.Value:
    return _cumulative(node, x, axis, "multiply")


def _cumulative(node: Node, x: Tensor, axis: Tensor, combine: str) -> ir.Value:
    """A window of all elements up to this one: padding before it, or after it when reversed."""
    dimension = normalize_axis(int(node.known_number(axis, "axis")), x.rank)
    if not x.size:
        return x.value
    reverse, count = node.integer("reverse", 0), x.shape[dimension]
    init = hlo.full(hlo.identity(combine, x.dtype), [], x.dtype)
    operand = x.value
    if node.integer("exclusive", 0):
        by = -1 if reverse else 1
        low = [by if d == dimension else 0 for d in range(x.rank)]
        operand = hlo.pad(operand, init, low, [-n for n in low])
    window, padding = [1] * x.rank, [(0, 0)] * x.rank
    window[dimension] = count
    padding[dimension] = (0, count - 1) if reverse else (count - 1, 0)
    return hlo.reduce_window(
        operand, init, combine, window=window, strides=[1] * x.rank, padding=padding
    )
