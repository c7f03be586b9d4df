"""GridSample and AffineGrid: images read at the points of a grid."""

from __future__ import annotations

import math

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.frontends.onnx import sampling
from stepwell.frontends.onnx.node import Node, Tensor
from stepwell.frontends.onnx.registry import operator
from stepwell.mlir import ir

_TAPS = {
    "nearest": sampling.nearest_taps,
    "linear": sampling.linear_taps,
    "bilinear": sampling.linear_taps,
    "cubic": sampling.cubic_taps,
    "bicubic": sampling.cubic_taps,
}


@operator("GridSample")
def grid_sample(node: Node, x: Tensor, grid: Tensor) -> ir.Value:
    """x [N, C, sizes...] at the points of grid [N, points..., rank]: [N, C, points...].

    A point has its coordinates in reverse order of the dimensions, -1 and 1 at the ends.
    """
    mode, padding = node.text("mode", "linear"), node.text("padding_mode", "zeros")
    if mode not in _TAPS or padding not in ("zeros", "border", "reflection"):
        node.unsupported(f'the mode "{mode}" with padding "{padding}" is not known')
    align = bool(node.integer("align_corners", 0))
    batch, channels, *sizes = x.shape
    places = list(grid.shape[1:-1])
    if len(sizes) != grid.shape[-1]:
        node.unsupported(f"the grid {list(grid.shape)} does not fit the input {list(x.shape)}")
    wide = np.dtype(np.float32 if x.dtype.itemsize < 4 else x.dtype)
    points = math.prod(places)
    flat = hlo.reshape(hlo.convert(grid.value, wide), [batch, points, len(sizes)])

    def pad(index: ir.Value, size: int) -> tuple[ir.Value, ir.Value | None]:
        if padding == "zeros":
            return sampling.pad_with_zeros(index, size)
        if padding == "reflection":
            index = sampling.reflect(index, *_bounds(size, align))
        return sampling.pad_with_border(index, size)

    taps: list[list[sampling.Tap]] = []
    for d, size in enumerate(sizes):
        column = len(sizes) - 1 - d
        start, limit = [0, 0, column], [batch, points, column + 1]
        position = hlo.reshape(hlo.slice(flat, start, limit), [batch, points])
        position = _pixels(position, size, align)
        if mode == "nearest":
            position = hlo.round_nearest_even(position)
        if padding == "border":
            position = sampling.clamp(position, 0, size - 1)
        elif padding == "reflection":
            position = sampling.reflect(position, *_bounds(size, align))
        taps.append(_TAPS[mode](position))
    rows = hlo.transpose(hlo.convert(x.value, wide), [0, *range(2, x.rank), 1])
    rows = hlo.reshape(rows, [batch, math.prod(sizes), channels])
    result = hlo.transpose(sampling.interpolate(rows, sizes, taps, pad), [0, 2, 1])
    return hlo.convert(hlo.reshape(result, [batch, channels, *places]), x.dtype)


def _pixels(position: ir.Value, size: int, align: bool) -> ir.Value:
    """From [-1, 1] to indices: the ends are centres of pixels (align) or their outer edges."""
    shifted = hlo.add(position, hlo.full_like(position, 1))
    if align:
        half = hlo.multiply(shifted, hlo.full_like(shifted, 0.5))
        return hlo.multiply(half, hlo.full_like(half, size - 1))
    scaled = hlo.multiply(shifted, hlo.full_like(shifted, size))
    return hlo.multiply(hlo.subtract(scaled, hlo.full_like(scaled, 1)), hlo.full_like(scaled, 0.5))


def _bounds(size: int, align: bool) -> tuple[float, float]:
    return (0, size - 1) if align else (-0.5, size - 0.5)


@operator("AffineGrid")
def affine_grid(node: Node, theta: Tensor, size: Tensor) -> ir.Value:
    """theta [N, r, r + 1] times the homogeneous points of a grid of `size`: [N, places..., r]."""
    batch, _, *places = (int(n) for n in node.known(size, "size"))
    align = bool(node.integer("align_corners", 0))
    rank = len(places)
    if theta.shape != (batch, rank, rank + 1):
        node.unsupported(f"theta {list(theta.shape)} does not fit a grid of {list(places)}")
    axes: list[np.ndarray] = []
    for n in places:
        ends = 1.0 if align else 1 - 1 / n
        axes.append(np.linspace(-ends, ends, n) if n > 1 or not align else np.array([-1.0]))
    mesh = np.meshgrid(*axes, indexing="ij")
    points = np.stack([*mesh[::-1], np.ones(places)], axis=-1).reshape(-1, rank + 1)
    constant = node.constant(points.astype(theta.dtype), "points")
    result = hlo.dot_general(theta.value, constant, ([2], [1]))
    return hlo.reshape(hlo.transpose(result, [0, 2, 1]), [batch, *places, rank])
