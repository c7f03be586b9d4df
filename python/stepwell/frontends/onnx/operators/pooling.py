"""Pooling: maxima, averages and norms of sliding windows."""

from __future__ import annotations

import functools
import itertools
from dataclasses import replace

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.frontends.onnx.node import Node, Tensor
from stepwell.frontends.onnx.registry import Result, operator
from stepwell.frontends.onnx.shaping import broadcast, mean, reduce
from stepwell.frontends.onnx.windows import Window, read_window
from stepwell.mlir import ir


def _pool(x: ir.Value, window: Window, combine: str) -> ir.Value:
    """Windows over the spatial dimensions of x [N, C, spatial...]."""
    kind = hlo.dtype(x)
    return hlo.reduce_window(
        x,
        hlo.full(hlo.identity(combine, kind), [], kind),
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
    if node.integer("ceil_mode", 0):
        padding = [_ceil_padding(window, d, size) for d, size in enumerate(x.shape[2:])]
        window = replace(window, padding=padding)
    window.require_room(node, x.shape[2:])
    return window


def _ceil_padding(window: Window, d: int, size: int) -> tuple[int, int]:
    low, high = window.padding[d]
    stride, extent = window.strides[d], window.extent(d)
    count = -(-(size + low + high - extent) // stride) + 1
    if (count - 1) * stride >= size + low:  # a window may not begin in the high padding
        count -= 1
    return low, max(high, (count - 1) * stride + extent - size - low)


@operator("MaxPool")
def max_pool(node: Node, x: Tensor) -> list[Result]:
    """The maxima, and on request their positions in the flattened input."""
    window = _pool_window(node, x)
    maxima = _pool(x.value, window, "maximum")
    if node.used_outputs() < 2:
        return [maxima]
    column_major = bool(node.integer("storage_order", 0))
    return [maxima, _max_positions(node, x, window, hlo.shape(maxima), column_major)]


def _max_positions(
    node: Node, x: Tensor, window: Window, shape: tuple[int, ...], column_major: bool
) -> ir.Value:
    """The first place in each window where its maximum stands.

    One strided slice of the padded input for each element of the window; the strides of the
    flattened input are those of its own layout, or of its spatial dimensions reversed.
    """
    spatial, result = x.shape[2:], shape[2:]
    rank = len(spatial)
    lowest = hlo.full(hlo.identity("maximum", x.dtype), [], x.dtype)
    padded = hlo.pad(x.value, lowest, *([0, 0, *s] for s in zip(*window.padding, strict=True)))
    order = range(rank) if column_major else range(rank)[::-1]
    pitch = [0] * rank
    step = 1
    for d in order:
        pitch[d], step = step, step * spatial[d]
    best, place = hlo.full(0, shape, x.dtype), hlo.full(-1, shape, np.int64)
    for offsets in itertools.product(*map(range, window.size)):
        start = [offset * window.dilations[d] for d, offset in enumerate(offsets)]
        limit = [s + (n - 1) * t + 1 for s, n, t in zip(start, result, window.strides, strict=True)]
        value = hlo.slice(padded, [0, 0, *start], [*x.shape[:2], *limit], [1, 1, *window.strides])
        at = [
            np.arange(n) * window.strides[d] + start[d] - window.padding[d][0]
            for d, n in enumerate(result)
        ]
        inside = functools.reduce(
            np.multiply.outer, [(p >= 0) & (p < spatial[d]) for d, p in enumerate(at)]
        )
        flat = functools.reduce(np.add.outer, [p * pitch[d] for d, p in enumerate(at)])
        name = "_".join(map(str, offsets))
        position = broadcast(node.constant(flat.astype(np.int64), f"position_{name}"), shape)
        none = hlo.compare(place, hlo.full_like(place, -1), "EQ")
        better = hlo.or_(none, hlo.compare(value, best, "GT"))
        if not inside.all():
            allowed = broadcast(node.constant(inside, f"inside_{name}"), shape)
            better = hlo.and_(better, allowed)
        best, place = hlo.select(better, value, best), hlo.select(better, position, place)
    channel = np.arange(x.shape[0] * x.shape[1], dtype=np.int64).reshape(x.shape[:2]) * step
    base = hlo.broadcast_in_dim(node.constant(channel, "channel"), shape, [0, 1])
    return hlo.add(place, base)


@operator("MaxUnpool")
def max_unpool(
    node: Node, x: Tensor, indices: Tensor, output_shape: Tensor | None = None
) -> ir.Value:
    """x at `indices` of the flattened result of the pooling's own size, zeros elsewhere.

    A larger `output_shape` is filled with zeros at the high end.
    """
    if x.rank < 3 or indices.shape != x.shape:
        node.unsupported(f"indices {list(indices.shape)} do not fit the input {list(x.shape)}")
    window = read_window(node, node.integers("kernel_shape", []), x.shape[2:])
    spatial = [
        (n - 1) * window.strides[d] + window.size[d] - sum(window.padding[d])
        for d, n in enumerate(x.shape[2:])
    ]
    shape = [*x.shape[:2], *spatial]
    if x.size and min(spatial) < 1:
        node.unsupported(f"pads leave nothing of the result, which would be {shape}")
    wanted = shape
    if output_shape is not None:
        wanted = node.known(output_shape, "output_shape").tolist()
        if len(wanted) != len(shape) or any(w < n for w, n in zip(wanted, shape, strict=True)):
            node.unsupported(f"the output_shape {wanted} is smaller than the result {shape}")
    flat = hlo.scatter(
        hlo.full(0, [int(np.prod(shape))], x.dtype),
        hlo.reshape(indices.value, [x.size, 1]),
        hlo.reshape(x.value, [x.size]),
        hlo.ScatterDimensions([], [0], [0], 1),
    )
    high = [w - n for w, n in zip(wanted, shape, strict=True)]
    return hlo.pad(hlo.reshape(flat, shape), hlo.full(0, [], x.dtype), [0] * len(shape), high)


@operator("AveragePool")
def average_pool(node: Node, x: Tensor) -> ir.Value:
    """Sum over the window divided by the elements it covers; pads count if the node says so."""
    window = _pool_window(node, x)
    total = _pool(x.value, window, "add")
    shape = hlo.shape(total)
    area = hlo.full_like(total, 1)
    for d, size in enumerate(x.shape[2:]):
        covered = _covered(node, window, d, size, shape[2 + d])
        covered = hlo.broadcast_in_dim(hlo.convert(covered, x.dtype), shape, [2 + d])
        area = hlo.multiply(area, covered)
    return hlo.divide(total, area)


def _covered(node: Node, window: Window, d: int, size: int, count: int) -> ir.Value:
    """For each window along dimension d, how many of its elements count.

    Those before the first one that counts are the same for all sizes: they are a constant.
    """
    taps = window.size[d]
    padding = window.padding[d]
    first, last = 0, size
    if node.integer("count_include_pad", 0):
        explicit = read_window(node, window.size, (size,) * len(window.size)).padding[d]
        first, last = -padding[0], size + explicit[1]
    if (first, last) == (-padding[0], size + padding[1]):
        return hlo.full(taps, [count], np.int64)
    start = np.arange(count) * window.strides[d] - padding[0]
    position = start[:, None] + np.arange(taps) * window.dilations[d]
    before = (position < first).sum(axis=1)
    rest = hlo.subtract(hlo.full(last, [count], np.int64), node.constant(start, f"start_{d}"))
    if window.dilations[d] != 1:
        rest = hlo.add(rest, hlo.full_like(rest, window.dilations[d] - 1))
        rest = hlo.divide(rest, hlo.full_like(rest, window.dilations[d]))
    rest = hlo.maximum(hlo.minimum(rest, hlo.full_like(rest, taps)), hlo.full_like(rest, 0))
    return hlo.subtract(rest, node.constant(before, f"before_{d}"))


@operator("LpPool")
def lp_pool(node: Node, x: Tensor) -> ir.Value:
    """`(sum |x|^p)^(1/p)` over the window."""
    p = _exponent(node)
    powers = hlo.power(hlo.abs(x.value), hlo.full_like(x.value, p))
    total = _pool(powers, _pool_window(node, x), "add")
    return hlo.power(total, hlo.full_like(total, 1 / p))


def _exponent(node: Node) -> int:
    p = node.integer("p", 2)
    if p < 1:
        node.unsupported(f"p {p} should be positive")
    return p


@operator("GlobalAveragePool")
def global_average_pool(node: Node, x: Tensor) -> ir.Value:
    return mean(x.value, range(2, x.rank))


@operator("GlobalMaxPool")
def global_max_pool(node: Node, x: Tensor) -> ir.Value:
    return reduce(x.value, range(2, x.rank), "maximum")


@operator("GlobalLpPool")
def global_lp_pool(node: Node, x: Tensor) -> ir.Value:
    p = _exponent(node)
    powers = hlo.power(hlo.abs(x.value), hlo.full_like(x.value, p))
    total = reduce(powers, range(2, x.rank), "add")
    return hlo.power(total, hlo.full_like(total, 1 / p))
