"""Pooling: maxima, averages and norms of sliding windows."""

from __future__ import annotations

import functools

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.frontends.onnx.node import Node, Tensor
from stepwell.frontends.onnx.registry import operator
from stepwell.frontends.onnx.shaping import broadcast, identity, mean, reduce
from stepwell.frontends.onnx.windows import Window, read_window
from stepwell.mlir import ir


def _pool(x: ir.Value, window: Window, combine: str) -> ir.Value:
    """Windows over the spatial dimensions of x [N, C, spatial...]."""
    kind = hlo.dtype(x)
    return hlo.reduce_window(
        x,
        hlo.full(identity(combine, kind), [], kind),
        combine,
        window=[1, 1, *window.size],
        strides=[1, 1, *window.strides],
        padding=[(0, 0), (0, 0), *window.padding],
        window_dilations=[1, 1, *window.dilations],
    )


def _pool_window(node: Node, x: Tensor) -> Window:
    """The window of a pooling; `ceil_mode` is turned into more padding at the high end."""
    if x.rank < 3:
        node.unsupported(f"the input {list(x.shape)} has no spatial dimensions")
    window = read_window(node, node.integers("kernel_shape", []), x.shape[2:])
    if not node.integer("ceil_mode", 0):
        return window
    padding = [_ceil_padding(window, d, size) for d, size in enumerate(x.shape[2:])]
    return Window(window.size, window.strides, window.dilations, padding)


def _ceil_padding(window: Window, d: int, size: int) -> tuple[int, int]:
    low, high = window.padding[d]
    stride, extent = window.strides[d], window.extent(d)
    count = -(-(size + low + high - extent) // stride) + 1
    if (count - 1) * stride >= size + low:  # a window may not begin in the high padding
        count -= 1
    return low, max(high, (count - 1) * stride + extent - size - low)


@operator("MaxPool")
def max_pool(node: Node, x: Tensor) -> ir.Value:
    if node.used_outputs() > 1:
        node.unsupported("the output Indices is not supported")
    return _pool(x.value, _pool_window(node, x), "maximum")


@operator("AveragePool")
def average_pool(node: Node, x: Tensor) -> ir.Value:
    """Sum over the window divided by the elements it covers; pads count if the node says so."""
    window = _pool_window(node, x)
    total = _pool(x.value, window, "add")
    shape = hlo.shape(total)
    counts = [_covered(node, window, d, size, shape[2 + d]) for d, size in enumerate(x.shape[2:])]
    area = functools.reduce(np.multiply.outer, counts).astype(x.dtype)
    if np.all(area == area.flat[0]):
        return hlo.divide(total, hlo.full_like(total, area.flat[0].item()))
    return hlo.divide(total, broadcast(node.constant(area, "count"), shape))


def _covered(node: Node, window: Window, d: int, size: int, count: int) -> np.ndarray:
    """For each window along dimension d, how many of its elements count."""
    low = window.padding[d][0]
    first, last = 0, size
    if node.integer("count_include_pad", 0):
        first, last = (
            -low,
            size + read_window(node, window.size, (size,) * len(window.size)).padding[d][1],
        )
    start = np.arange(count)[:, None] * window.strides[d] - low
    position = start + np.arange(window.size[d])[None, :] * window.dilations[d]
    return ((position >= first) & (position < last)).sum(axis=1)


@operator("LpPool")
def lp_pool(node: Node, x: Tensor) -> ir.Value:
    """`(sum |x|^p)^(1/p)` over the window."""
    p = node.integer("p", 2)
    powers = hlo.power(hlo.abs(x.value), hlo.full_like(x.value, p))
    total = _pool(powers, _pool_window(node, x), "add")
    return hlo.power(total, hlo.full_like(total, 1 / p))


@operator("GlobalAveragePool")
def global_average_pool(node: Node, x: Tensor) -> ir.Value:
    return mean(x.value, range(2, x.rank))


@operator("GlobalMaxPool")
def global_max_pool(node: Node, x: Tensor) -> ir.Value:
    return reduce(x.value, range(2, x.rank), "maximum")


@operator("GlobalLpPool")
def global_lp_pool(node: Node, x: Tensor) -> ir.Value:
    p = node.integer("p", 2)
    powers = hlo.power(hlo.abs(x.value), hlo.full_like(x.value, p))
    total = reduce(powers, range(2, x.rank), "add")
    return hlo.power(total, hlo.full_like(total, 1 / p))
