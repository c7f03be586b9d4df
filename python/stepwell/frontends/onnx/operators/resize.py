"""Resize and Upsample: sizes and coordinates are static, so that every axis is one constant map.

Nearest gathers along an axis by constant indices, linear the two neighbours of a position, which
are weighed. Cubic, and filters that are wider as they shrink, have a constant matrix
[output, input] whose rows hold the filter's weights. What depends on the sizes before and after is
computed from these numbers, so that all else is the same for any size.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.frontends.onnx.node import Node, Tensor
from stepwell.frontends.onnx.registry import Result, operator
from stepwell.frontends.onnx.shaping import normalize_axis
from stepwell.mlir import ir


@dataclass(frozen=True)
class _Axis:
    """One resized axis: sizes before and after, their ratio, and the region for tf_crop.
    `is_ratio`: the scale is that of the sizes, and no number of the model."""

    size: int
    result: int
    scale: float
    start: float = 0.0
    end: float = 1.0
    is_ratio: bool = False


def _half_pixel(axis: _Axis, x: np.ndarray) -> np.ndarray:
    return (x + 0.5) / axis.scale - 0.5


def _pytorch_half_pixel(axis: _Axis, x: np.ndarray) -> np.ndarray:
    return _half_pixel(axis, x) if axis.result > 1 else np.zeros_like(x)


def _align_corners(axis: _Axis, x: np.ndarray) -> np.ndarray:
    if axis.result == 1:
        return np.zeros_like(x)
    return x * (axis.size - 1) / (axis.result - 1)


def _crop_and_resize(axis: _Axis, x: np.ndarray) -> np.ndarray:
    """In float32, as the region is: an end that meets the last element is inside."""
    last, x = axis.size - 1, x.astype(np.float32)
    if axis.result == 1:
        return np.full_like(x, 0.5 * (axis.start + axis.end) * last)
    return axis.start * last + x * (axis.end - axis.start) * last / (axis.result - 1)


def _half_pixel_symmetric(axis: _Axis, x: np.ndarray) -> np.ndarray:
    exact = axis.result / (axis.scale * axis.size)
    return axis.size / 2 * (1 - exact) + _half_pixel(axis, x)


_COORDINATES: dict[str, Callable[[_Axis, np.ndarray], np.ndarray]] = {
    "align_corners": _align_corners,
    "asymmetric": lambda axis, x: x / axis.scale,
    "half_pixel": _half_pixel,
    "half_pixel_symmetric": _half_pixel_symmetric,
    "pytorch_half_pixel": _pytorch_half_pixel,
    "tf_crop_and_resize": _crop_and_resize,
    "tf_half_pixel_for_nn": lambda axis, x: (x + 0.5) / axis.scale,
}

_ROUNDING: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "ceil": np.ceil,
    "floor": np.floor,
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
}


def _linear(x: np.ndarray, a: float) -> np.ndarray:
    return np.clip(1 - np.abs(x), 0, 1)


def _cubic(x: np.ndarray, a: float) -> np.ndarray:
    """Keys's cubic convolution (IEEE Trans. ASSP 29, 1981) with coefficient a."""
    x = np.abs(x)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0))


_FILTERS = {"linear": (_linear, 1), "cubic": (_cubic, 2)}
"""Interpolation filters, with how many elements they reach to either side."""


@operator("Resize", since=10)
def resize_by_scales(node: Node, x: Tensor, scales: Tensor) -> Result:
    return _resize(
        node, x, _scaled_axes(node, x, node.known(scales, "scales").tolist()), "asymmetric"
    )


@operator("Resize", since=11)
def resize(
    node: Node,
    x: Tensor,
    roi: Tensor | None = None,
    scales: Tensor | None = None,
    sizes: Tensor | None = None,
) -> Result:
    mode = node.text("coordinate_transformation_mode", "half_pixel")
    chosen = [normalize_axis(a, x.rank) for a in node.integers("axes", list(range(x.rank)))]
    if sizes is not None and sizes.size:
        axes = _sized_axes(node, x, chosen, _numbers(node, sizes, "sizes", len(chosen)))
    elif scales is not None:
        factors = dict(zip(chosen, _numbers(node, scales, "scales", len(chosen)), strict=True))
        axes = _scaled_axes(node, x, [factors.get(d, 1.0) for d in range(x.rank)])
    else:
        node.unsupported("neither scales nor sizes are given")
    if mode == "tf_crop_and_resize" and roi is not None:
        region = _numbers(node, roi, "roi", 2 * len(chosen))
        for i, d in enumerate(chosen):
            axis = axes[d]
            bounds = (region[i], region[i + len(chosen)])
            axes[d] = _Axis(axis.size, axis.result, axis.scale, *bounds)
    return _resize(node, x, axes, mode)


def _numbers(node: Node, operand: Tensor, role: str, count: int) -> list[float]:
    """`count` numbers known at compile time."""
    numbers = node.known(operand, role).reshape(-1).tolist()
    if len(numbers) != count:
        node.unsupported(f"{role} {numbers} should be {count} numbers")
    return numbers


@operator("Upsample")
def upsample(node: Node, x: Tensor, scales: Tensor | None = None) -> Result:
    """Scales are an input since opset 9, an attribute before."""
    factors = (
        node.numbers("scales", []) if scales is None else node.known(scales, "scales").tolist()
    )
    return _resize(node, x, _scaled_axes(node, x, factors), "asymmetric")


def _scaled_axes(node: Node, x: Tensor, scales: list[float]) -> list[_Axis]:
    if len(scales) != x.rank:
        node.unsupported(f"{len(scales)} scales do not fit the shape {list(x.shape)}")
    if not all(0 < scale < math.inf for scale in scales):
        node.unsupported(f"scales {scales} should be positive")
    return [_Axis(n, math.floor(n * s), s) for n, s in zip(x.shape, scales, strict=True)]


def _sized_axes(node: Node, x: Tensor, chosen: list[int], wanted: list[float]) -> list[_Axis]:
    policy, sizes = node.text("keep_aspect_ratio_policy", "stretch"), [int(n) for n in wanted]
    if any(size < 0 for size in sizes):
        node.unsupported(f"sizes {sizes} should not be negative")
    if any(size and not x.shape[d] for d, size in zip(chosen, sizes, strict=True)):
        node.unsupported(f"the input {list(x.shape)} has no elements of which others are made")
    ratios = [
        size / x.shape[d] if x.shape[d] else 1.0 for d, size in zip(chosen, sizes, strict=True)
    ]
    if policy != "stretch":
        ratio = min(ratios) if policy == "not_larger" else max(ratios)
        ratios = [ratio] * len(chosen)
        sizes = [math.floor(ratio * x.shape[d] + 0.5) for d in chosen]
    axes = [_Axis(n, n, 1.0) for n in x.shape]
    for d, size, ratio in zip(chosen, sizes, ratios, strict=True):
        axes[d] = _Axis(x.shape[d], size, ratio, is_ratio=policy == "stretch")
    return axes


def _resize(node: Node, x: Tensor, axes: list[_Axis], coordinates: str) -> Result:
    mode = node.text("mode", "nearest")
    if coordinates not in _COORDINATES or mode not in ("nearest", *_FILTERS):
        node.unsupported(f'the mode "{mode}" with coordinates "{coordinates}" is not supported')
    shape = [axis.result for axis in axes]
    if 0 in shape:
        return hlo.full(0, shape, x.dtype)
    result = x.value
    outside = np.zeros(shape, np.bool_)
    for d, axis in enumerate(axes):
        same = axis.size == axis.result and axis.scale == 1 and (axis.start, axis.end) == (0, 1)
        if same and (d < 2 or not axis.is_ratio):  # images may have it by chance
            continue
        position = _COORDINATES[coordinates](axis, np.arange(axis.result, dtype=np.float64))
        if coordinates == "tf_crop_and_resize":
            missed = (position < 0) | (position > axis.size - 1)
            outside |= missed.reshape([-1 if e == d else 1 for e in range(len(axes))])
        known = _fraction(axis, coordinates)
        if mode == "nearest" and known is not None:
            result = _taken(result, d, _nearest(node, axis, *known))
        elif mode == "nearest":
            result = _gather(node, result, d, axis, position)
        elif mode == "linear" and (axis.scale >= 1 or not node.integer("antialias", 0)):
            if known is None:
                place = node.constant(position, f"position_{d}")
            else:
                place = hlo.divide(*(hlo.convert(number, np.float64) for number in known))
            result = _interpolate(result, d, axis, place)
        else:
            result = _weigh(node, result, d, _weights(node, axis, position, mode))
    if outside.any():
        value = hlo.full_like(result, node.number("extrapolation_value", 0.0))
        result = hlo.select(node.constant(outside, "outside"), value, result)
    return result


def _gather(node: Node, x: ir.Value, d: int, axis: _Axis, position: np.ndarray) -> ir.Value:
    """Elements at rounded positions; whole repetitions become a broadcast."""
    rounding = _ROUNDING[node.text("nearest_mode", _default_rounding(node))]
    index = np.maximum(rounding(position), 0).astype(np.int64)
    shape = list(hlo.shape(x))
    times = axis.result // axis.size
    if np.array_equal(index, np.repeat(np.arange(axis.size), times)):
        split = [*shape[: d + 1], times, *shape[d + 1 :]]
        kept = [e for e in range(len(split)) if e != d + 1]
        return hlo.reshape(
            hlo.broadcast_in_dim(x, split, kept), [*shape[:d], axis.result, *shape[d + 1 :]]
        )
    place = node.constant(index, f"index_{d}")
    return _taken(x, d, hlo.minimum(place, hlo.full_like(place, axis.size - 1)))


def _nearest(node: Node, axis: _Axis, dividend: ir.Value, divisor: ir.Value) -> ir.Value:
    """The indices of positions that are quotients of integers, rounded and kept inside."""
    mode = node.text("nearest_mode", _default_rounding(node))
    one, twice = hlo.full_like(divisor, 1), hlo.add(divisor, divisor)
    last = hlo.subtract(divisor, one)
    if mode in ("floor", "ceil"):
        index = hlo.divide(dividend if mode == "floor" else hlo.add(dividend, last), divisor)
    else:
        half = divisor if mode == "round_prefer_ceil" else last
        index = hlo.divide(hlo.add(hlo.add(dividend, dividend), half), twice)
    return hlo.clamp(hlo.full(0, [], np.int64), index, hlo.full(axis.size - 1, [], np.int64))


def _default_rounding(node: Node) -> str:
    return "floor" if node.opset < 11 else "round_prefer_floor"


def _taken(x: ir.Value, d: int, index: ir.Value) -> ir.Value:
    """The elements `index` along axis `d`."""
    shape = hlo.shape(x)
    sizes = [1 if e == d else n for e, n in enumerate(shape)]
    offsets = [e for e in range(len(shape)) if e != d]
    return hlo.gather(x, index, hlo.GatherDimensions(offsets, [d], [d], 1), sizes)


def _fraction(axis: _Axis, coordinates: str) -> tuple[ir.Value, ir.Value] | None:
    """What `_COORDINATES` give as quotients of integers, computed from the sizes before and after;
    None where they depend on other numbers of the model."""
    if not axis.is_ratio and coordinates != "align_corners":
        return None
    x = hlo.iota([axis.result], 0, np.int64)
    size, result, one = (hlo.full_like(x, number) for number in (axis.size, axis.result, 1))
    if coordinates == "align_corners":
        steps = hlo.full_like(x, max(axis.result - 1, 1))
        return hlo.multiply(x, hlo.subtract(size, one)), steps
    if coordinates == "asymmetric":
        return hlo.multiply(x, size), result
    twice = hlo.add(result, result)
    centre = hlo.multiply(hlo.add(hlo.add(x, x), one), size)
    if coordinates == "tf_half_pixel_for_nn":
        return centre, twice
    position = hlo.subtract(centre, result)
    if coordinates == "pytorch_half_pixel":
        position = hlo.select(hlo.compare(result, one, "EQ"), hlo.full_like(x, 0), position)
    return (position, twice) if coordinates.startswith(("half", "pytorch")) else None


def _interpolate(x: ir.Value, d: int, axis: _Axis, position: ir.Value) -> ir.Value:
    """Linear between neighbours along axis `d`; what lies outside counts for the edge."""
    edge, one = hlo.full_like(position, axis.size - 1), hlo.full_like(position, 1)
    position = hlo.minimum(hlo.maximum(position, hlo.full_like(position, 0)), edge)
    low = hlo.floor(position)
    fraction = hlo.subtract(position, low)
    terms = []
    for index, weight in (
        (low, hlo.subtract(one, fraction)),
        (hlo.minimum(hlo.add(low, one), edge), fraction),
    ):
        taken = _taken(x, d, hlo.convert(index, np.int64))
        factor = hlo.convert(weight, hlo.dtype(x))
        terms.append(hlo.multiply(taken, hlo.broadcast_in_dim(factor, hlo.shape(taken), [d])))
    return hlo.add(*terms)


def _weights(node: Node, axis: _Axis, position: np.ndarray, mode: str) -> np.ndarray:
    """The matrix [output, input]: what lies outside counts for the edge, or not at all."""
    function, reach = _FILTERS[mode]
    shrink = min(axis.scale, 1.0) if node.integer("antialias", 0) else 1.0
    margin = math.ceil(reach / shrink) + 1
    first = min(-margin, math.floor(position.min()) - margin)
    last = max(axis.size, math.ceil(position.max())) + margin
    taps = np.arange(first, last)
    weights = function((taps - position[:, None]) * shrink, node.number("cubic_coeff_a", -0.75))
    inside = (taps >= 0) & (taps < axis.size)
    if node.integer("exclude_outside", 0):
        weights = np.where(inside, weights, 0)
    weights = weights / weights.sum(axis=1, keepdims=True)
    matrix = np.zeros((axis.size, axis.result))
    np.add.at(matrix, np.clip(taps, 0, axis.size - 1), weights.T)
    return matrix.T


def _weigh(node: Node, x: ir.Value, d: int, matrix: np.ndarray) -> ir.Value:
    """The product of axis `d` with the matrix [output, input]."""
    rank = len(hlo.shape(x))
    weights = node.constant(matrix.astype(hlo.dtype(x)), f"weights_{d}")
    product = hlo.dot_general(x, weights, ([d], [1]))
    return hlo.transpose(product, [*range(d), rank - 1, *range(d, rank - 1)])
