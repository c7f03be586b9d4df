"""Pooling of regions of interest: RoiAlign and MaxRoiPool."""

from __future__ import annotations

import math

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.frontends.onnx import sampling
from stepwell.frontends.onnx.node import Node, Tensor
from stepwell.frontends.onnx.registry import operator
from stepwell.frontends.onnx.shaping import reduce, require_vector
from stepwell.frontends.onnx.windows import require_positive
from stepwell.mlir import ir


@operator("RoiAlign")
def roi_align(node: Node, x: Tensor, rois: Tensor, batch_indices: Tensor) -> ir.Value:
    """x [N, C, H, W] pooled in regions [R, (x1, y1, x2, y2)]: [R, C, output height, width].

    Every bin of a region is sampled on a grid, of `sampling_ratio` points a side or, when that is
    zero, as fine as the region needs (which the regions have to be known for).
    """
    mode, transform = node.text("mode", "avg"), _transform(node)
    batch, channels, *sizes = x.shape
    regions = rois.shape[0]
    bins = [node.integer("output_height", 1), node.integer("output_width", 1)]
    _check(node, x, rois, 4, bins)
    if mode not in ("avg", "max"):
        node.unsupported(f'mode "{mode}" is not one of avg, max')
    require_vector(batch_indices, 0, rois.shape)
    wide = np.dtype(np.float32 if x.dtype.itemsize < 4 else x.dtype)
    scaled = hlo.multiply(
        hlo.convert(rois.value, wide),
        hlo.full(node.number("spatial_scale", 1.0), rois.shape, wide),
    )
    if transform == "half_pixel":
        scaled = hlo.subtract(scaled, hlo.full_like(scaled, 0.5))
    corners = [_column(scaled, i) for i in range(4)]
    grids = _grids(node, rois, bins, transform)
    taps: list[list[sampling.Tap]] = []
    counts: list[ir.Value] = []
    valid: list[ir.Value] = []
    points = bins[0] * grids[0] * bins[1] * grids[1]
    for d, size in enumerate(sizes):
        start, end = corners[1 - d], corners[3 - d]
        extent = hlo.subtract(end, start)
        if transform != "half_pixel":
            extent = hlo.maximum(extent, hlo.full_like(extent, 1))
        bin_size = hlo.divide(extent, hlo.full_like(extent, bins[d]))
        ratio = node.integer("sampling_ratio", 0)
        count = hlo.full_like(bin_size, ratio) if ratio > 0 else hlo.ceil(bin_size)
        counts.append(count)
        position, used = _samples(start, bin_size, count, bins[d], grids[d])
        valid.append(_along(used, d, bins, grids))
        taps.append([_spread(t, d, bins, grids) for t in _region_taps(position, size)])
    rows = hlo.transpose(hlo.convert(x.value, wide), [0, 2, 3, 1])
    rows = hlo.reshape(rows, [1, batch * math.prod(sizes), channels])
    image = hlo.reshape(hlo.convert(batch_indices.value, wide), [regions])
    first = [
        sampling.Tap(
            hlo.reshape(hlo.broadcast_in_dim(image, [regions, points], [0]), [1, regions * points]),
            hlo.full(1, [1, regions * points], wide),
        )
    ]
    flat = [[_flat(tap, regions * points) for tap in row] for row in taps]
    values, weights = sampling.combinations(
        rows, [batch, *sizes], [first, *flat], sampling.pad_with_border
    )
    products = hlo.multiply(values, hlo.broadcast_in_dim(weights, hlo.shape(values), [0, 1, 2]))
    combine = "add" if mode == "avg" else "maximum"
    samples = reduce(products, [2], combine, keep=False)
    shape = [regions, bins[0], grids[0], bins[1], grids[1], channels]
    samples = hlo.reshape(samples, shape)
    used = hlo.reshape(hlo.and_(*valid), shape[:-1])
    used = hlo.broadcast_in_dim(used, shape, range(5))
    empty = hlo.full(hlo.identity(combine, wide), shape, wide)
    result = reduce(hlo.select(used, samples, empty), [2, 4], combine, keep=False)
    total = hlo.multiply(*counts)
    if mode == "avg":
        total = hlo.maximum(total, hlo.full_like(total, 1))
        result = hlo.divide(result, hlo.broadcast_in_dim(total, hlo.shape(result), [0]))
    else:
        none = hlo.compare(total, hlo.full_like(total, 0), "LE")
        none = hlo.broadcast_in_dim(none, hlo.shape(result), [0])
        result = hlo.select(none, hlo.full_like(result, 0), result)
    return hlo.convert(hlo.transpose(result, [0, 3, 1, 2]), x.dtype)


def _check(node: Node, x: Tensor, rois: Tensor, columns: int, bins: list[int]) -> None:
    """Refuse `node` unless x is images, rois has `columns` numbers a region, and there are bins."""
    if x.rank != 4 or rois.rank != 2 or rois.shape[1] != columns:
        node.unsupported(
            f"the input {list(x.shape)} and the regions {list(rois.shape)} should have 4 "
            f"dimensions, and rows of {columns} numbers"
        )
    require_positive(node, "the output's size", bins, 2)


def _transform(node: Node) -> str:
    """Coordinates are shifted by half a pixel by default since opset 16."""
    default = "half_pixel" if node.opset >= 16 else "output_half_pixel"
    return node.text("coordinate_transformation_mode", default)


def _grids(node: Node, rois: Tensor, bins: list[int], transform: str) -> list[int]:
    """Samples a side of the bins: fixed, or as many as the largest region needs."""
    ratio = node.integer("sampling_ratio", 0)
    if ratio > 0:
        return [ratio, ratio]
    known = node.known(rois, "rois").astype(np.float32) * np.float32(
        node.number("spatial_scale", 1.0)
    )
    extents = [known[:, 3] - known[:, 1], known[:, 2] - known[:, 0]]
    if transform != "half_pixel":
        extents = [np.maximum(extent, 1) for extent in extents]
    return [
        max(1, math.ceil(extent.max(initial=0) / n))
        for extent, n in zip(extents, bins, strict=True)
    ]


def _column(value: ir.Value, i: int) -> ir.Value:
    rows = hlo.shape(value)[0]
    return hlo.reshape(hlo.slice(value, [0, i], [rows, i + 1]), [rows])


def _samples(
    start: ir.Value, bin_size: ir.Value, count: ir.Value, bins: int, grid: int
) -> tuple[ir.Value, ir.Value]:
    """Coordinates [R, bins * grid] of the samples along one dimension, and which are used."""
    regions, kind = hlo.shape(start)[0], hlo.dtype(start)
    shape = [regions, bins, grid]

    def spread(value: ir.Value) -> ir.Value:
        return hlo.broadcast_in_dim(value, shape, [0])

    sample = hlo.iota(shape, 2, kind)
    offset = hlo.divide(
        hlo.multiply(hlo.add(sample, hlo.full_like(sample, 0.5)), spread(bin_size)), spread(count)
    )
    base = hlo.add(spread(start), hlo.multiply(hlo.iota(shape, 1, kind), spread(bin_size)))
    used = hlo.compare(sample, spread(count), "LT")
    flat = [regions, bins * grid]
    return hlo.reshape(hlo.add(base, offset), flat), hlo.reshape(used, flat)


def _region_taps(position: ir.Value, size: int) -> list[sampling.Tap]:
    """Linear, constant beyond the centres of the border pixels, zero a whole pixel beyond."""
    outside = hlo.or_(
        hlo.compare(position, hlo.full_like(position, -1), "LT"),
        hlo.compare(position, hlo.full_like(position, size), "GT"),
    )
    taps = sampling.linear_taps(sampling.clamp(position, 0, size - 1))
    zero = hlo.full_like(position, 0)
    return [sampling.Tap(tap.index, hlo.select(outside, zero, tap.weight)) for tap in taps]


def _along(value: ir.Value, d: int, bins: list[int], grids: list[int]) -> ir.Value:
    """[R, bins * grid] of dimension d spread over the samples of both dimensions."""
    regions = hlo.shape(value)[0]
    counts = [bins[0] * grids[0], bins[1] * grids[1]]
    wide = hlo.broadcast_in_dim(value, [regions, *counts], [0, 1 + d])
    return hlo.reshape(wide, [regions, math.prod(counts)])


def _spread(tap: sampling.Tap, d: int, bins: list[int], grids: list[int]) -> sampling.Tap:
    return sampling.Tap(_along(tap.index, d, bins, grids), _along(tap.weight, d, bins, grids))


def _flat(tap: sampling.Tap, points: int) -> sampling.Tap:
    return sampling.Tap(hlo.reshape(tap.index, [1, points]), hlo.reshape(tap.weight, [1, points]))


@operator("MaxRoiPool")
def max_roi_pool(node: Node, x: Tensor, rois: Tensor) -> ir.Value:
    """x [N, C, H, W] pooled in regions [R, (image, x1, y1, x2, y2)] by maxima of whole pixels.

    One dimension after the other: the maximum over the pixels that a bin covers, by a mask.
    """
    bins = node.integers("pooled_shape", [1, 1])
    _check(node, x, rois, 5, bins)
    channels, *sizes = x.shape[1:]
    regions = rois.shape[0]
    wide = np.dtype(np.float32 if x.dtype.itemsize < 4 else x.dtype)
    image = hlo.convert(hlo.slice(rois.value, [0, 0], [regions, 1]), np.int64)
    dimensions = hlo.GatherDimensions([1, 2, 3], [0], [0], 1)
    value = hlo.gather(hlo.convert(x.value, wide), image, dimensions, [1, channels, *sizes])
    scale = node.number("spatial_scale", 1.0)
    empty_bins: list[ir.Value] = []
    for d, size in enumerate(sizes):
        shape = [regions, bins[d], size]

        def corner(i: int, d: int = d) -> ir.Value:
            edge = hlo.convert(_column(rois.value, 1 + i - d), wide)
            return hlo.round_nearest_afz(hlo.multiply(edge, hlo.full_like(edge, scale)))

        start, end = corner(1), corner(3)
        extent = hlo.add(hlo.subtract(end, start), hlo.full_like(start, 1))
        extent = hlo.maximum(extent, hlo.full_like(extent, 1))
        step = hlo.divide(extent, hlo.full_like(extent, bins[d]))

        def spread(value: ir.Value, shape: list[int] = shape) -> ir.Value:
            return hlo.broadcast_in_dim(value, shape, [0])

        number, pixel = hlo.iota(shape, 1, wide), hlo.iota(shape, 2, wide)
        low = hlo.add(hlo.floor(hlo.multiply(number, spread(step))), spread(start))
        after = hlo.add(number, hlo.full_like(number, 1))
        high = hlo.add(hlo.ceil(hlo.multiply(after, spread(step))), spread(start))
        covered = hlo.and_(hlo.compare(pixel, low, "GE"), hlo.compare(pixel, high, "LT"))
        # [R, C, (bins), pixels, ...] with the dimension that is pooled put last.
        moved = hlo.transpose(value, [0, 1, 3, 2]) if d == 0 else value
        rest = hlo.shape(moved)[2]
        full = [regions, channels, bins[d], rest, size]
        spread_value = hlo.broadcast_in_dim(moved, full, [0, 1, 3, 4])
        mask = hlo.broadcast_in_dim(covered, full, [0, 2, 4])
        lowest = hlo.full(hlo.identity("maximum", wide), full, wide)
        value = reduce(hlo.select(mask, spread_value, lowest), [4], "maximum", keep=False)
        if d == 1:
            value = hlo.transpose(value, [0, 1, 3, 2])
        empty_bins.append(hlo.not_(reduce(covered, [2], "or", keep=False)))
    shape = [regions, channels, *bins]
    none = hlo.or_(
        hlo.broadcast_in_dim(empty_bins[0], shape, [0, 2]),
        hlo.broadcast_in_dim(empty_bins[1], shape, [0, 3]),
    )
    return hlo.convert(hlo.select(none, hlo.full(0, shape, wide), value), x.dtype)
