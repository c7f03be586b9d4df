"""Reductions over axes: sums, products, extrema, norms, and their positions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.frontends.onnx.node import Node, Tensor
from stepwell.frontends.onnx.registry import Result, operator
from stepwell.frontends.onnx.shaping import (
    broadcast,
    mean,
    normalize_axes,
    normalize_axis,
    reduce,
)
from stepwell.mlir import ir

Reduction = Callable[[ir.Value, Sequence[int]], ir.Value]


def _simple(combine: str) -> Reduction:
    return lambda x, axes: reduce(x, axes, combine)


def _sum_square(x: ir.Value, axes: Sequence[int]) -> ir.Value:
    return reduce(hlo.multiply(x, x), axes, "add")


def _l1(x: ir.Value, axes: Sequence[int]) -> ir.Value:
    return reduce(hlo.abs(x), axes, "add")


def _l2(x: ir.Value, axes: Sequence[int]) -> ir.Value:
    kind = hlo.dtype(x)
    total = _sum_square(x, axes)
    if kind.kind in "iu":
        return hlo.convert(hlo.sqrt(hlo.convert(total, np.float32)), kind)
    return hlo.sqrt(total)


def _by_floats(build: Reduction) -> Reduction:
    """The reduction of integers as one of floats, cut to integers."""

    def reduction(x: ir.Value, axes: Sequence[int]) -> ir.Value:
        kind = hlo.dtype(x)
        floats = hlo.convert(x, np.float64) if kind.kind in "iu" else x
        return hlo.convert(build(floats, axes), kind)

    return reduction


def _log_sum(x: ir.Value, axes: Sequence[int]) -> ir.Value:
    return hlo.log(reduce(x, axes, "add"))


def _log_sum_exp(x: ir.Value, axes: Sequence[int]) -> ir.Value:
    """Shifted by the maximum, where that is finite, so that nothing overflows."""
    top = reduce(x, axes, "maximum")
    top = hlo.select(hlo.is_finite(top), top, hlo.full_like(top, 0))
    shifted = hlo.exponential(hlo.subtract(x, broadcast(top, hlo.shape(x))))
    return hlo.add(hlo.log(reduce(shifted, axes, "add")), top)


_REDUCTIONS: dict[str, Reduction] = {
    "ReduceL1": _l1,
    "ReduceL2": _l2,
    "ReduceLogSum": _by_floats(_log_sum),
    "ReduceLogSumExp": _by_floats(_log_sum_exp),
    "ReduceMax": _simple("maximum"),
    "ReduceMean": mean,
    "ReduceMin": _simple("minimum"),
    "ReduceProd": _simple("multiply"),
    "ReduceSum": _simple("add"),
    "ReduceSumSquare": _sum_square,
}


def _reduction(build: Reduction, node: Node, x: Tensor, axes: Tensor | None = None) -> Result:
    """Axes are an attribute in old opsets, an input in new ones; none at all means every axis."""
    chosen = node.axes(axes, None)
    if not chosen:
        if node.integer("noop_with_empty_axes", 0):
            return _pointwise(build, x)
        chosen = list(range(x.rank))
    dimensions = normalize_axes(chosen, x.rank)
    if x.dtype == np.bool_ and node.operator in ("ReduceMax", "ReduceMin"):
        result = reduce(x.value, dimensions, "or" if node.operator == "ReduceMax" else "and")
    else:
        result = build(x.value, dimensions)
    if node.integer("keepdims", 1):
        return result
    return hlo.reshape(result, [n for d, n in enumerate(x.shape) if d not in dimensions])


def _pointwise(build: Reduction, x: Tensor) -> Result:
    """A reduction over no axes: its map, such as the square, is still applied."""
    return x if build in (mean,) else build(x.value, [])


for _name, _build in _REDUCTIONS.items():
    operator(_name)(functools.partial(_reduction, _build))


def _position(node: Node, x: Tensor, combine: str) -> ir.Value:
    """The index of the extremum: the least (or last) index where the extremum stands."""
    axis = normalize_axis(node.integer("axis", 0), x.rank)
    last = bool(node.integer("select_last_index", 0))
    extremum = broadcast(reduce(x.value, [axis], combine), x.shape)
    hit = hlo.compare(x.value, extremum, "EQ")
    missing = -1 if last else x.shape[axis]
    counted = np.dtype(np.int32 if x.shape[axis] < 1 << 31 else np.int64)
    candidate = hlo.select(
        hit, hlo.iota(x.shape, axis, counted), hlo.full(missing, x.shape, counted)
    )
    keep = bool(node.integer("keepdims", 1))
    place = reduce(candidate, [axis], "maximum" if last else "minimum", keep)
    return hlo.convert(place, np.int64)


@operator("ArgMax")
def arg_max(node: Node, x: Tensor) -> ir.Value:
    return _position(node, x, "maximum")


@operator("ArgMin")
def arg_min(node: Node, x: Tensor) -> ir.Value:
    return _position(node, x, "minimum")


@operator("TopK")
def top_k(node: Node, x: Tensor, k: Tensor) -> list[Result]:
    """The k greatest (or least) elements along an axis, sorted, and their positions. NaN counts as
    greater than all numbers."""
    axis = normalize_axis(node.integer("axis", -1), x.rank)
    direction = "GT" if node.integer("largest", 1) else "LT"
    count = int(node.known_number(k, "K"))
    sorted_ = hlo.sort([x.value, hlo.iota(x.shape, axis, np.int64)], axis, direction)
    limit = [count if d == axis else n for d, n in enumerate(x.shape)]
    return [hlo.slice(value, [0] * x.rank, limit) for value in sorted_]
