"""Boxes of object detection: NonMaxSuppression."""

from __future__ import annotations

import functools

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.dialects.composites import composite
from stepwell.frontends.onnx.node import Node, Tensor
from stepwell.frontends.onnx.registry import Result, operator
from stepwell.frontends.onnx.shaping import reduce, rows_at, selected_positions
from stepwell.kernels.suppression import COMPOSITE
from stepwell.mlir import ir


@operator("NonMaxSuppression")
def non_max_suppression(
    node: Node,
    boxes: Tensor,
    scores: Tensor,
    most: Tensor | None = None,
    overlap: Tensor | None = None,
    least: Tensor | None = None,
) -> Result:
    """[batch, class, box] of the boxes chosen: for each class, by score, those that overlap none
    chosen before by more than `overlap` (intersection over union).
    """
    batch, classes, count = scores.shape
    wanted = 0 if most is None else int(node.known_number(most, "max_output_boxes_per_class"))
    rounds = max(min(wanted, count), 0)
    if not rounds or not batch * classes:
        return np.zeros((0, 3), np.int64)
    dtype, groups = scores.dtype, batch * classes
    corners = [
        hlo.reshape(corner, [batch, 1, count])
        for corner in _corners(boxes, bool(node.integer("center_point_box", 0)))
    ]
    limits = [
        hlo.full(default, [1], dtype) if given is None else hlo.reshape(given.value, [1])
        for given, default in ((overlap, 0), (least, float("-inf")))
    ]
    chosen = composite(
        COMPOSITE,
        [hlo.concatenate(corners, 1), scores.value, *limits],
        ir.RankedTensorType.get([groups, rounds], ir.IntegerType.get_signless(64)),
        functools.partial(_chosen, rounds),
    )
    size = groups * rounds
    parts = [hlo.iota([batch, classes, rounds], d, np.int64) for d in (0, 1)]
    columns = [hlo.reshape(part, [size, 1]) for part in (*parts, chosen)]
    flat = hlo.reshape(chosen, [size])
    positions, used = selected_positions(hlo.compare(flat, hlo.full_like(flat, 0), "GE"))
    return node.bounded(rows_at(hlo.concatenate(columns, 1), positions, 0), {0: used})


def _chosen(
    rounds: int, corners: ir.Value, scores: ir.Value, overlap: ir.Value, least: ir.Value
) -> ir.Value:
    """The numbers of the boxes chosen, [groups, rounds], with -1 behind the last one. All groups
    take a step at a time: choose the best box left, drop those that overlap it."""
    batch, classes, count = hlo.shape(scores)
    groups, lowest = batch * classes, float("-inf")

    def in_groups(value: ir.Value, dimensions: list[int]) -> ir.Value:
        whole = hlo.broadcast_in_dim(value, [batch, classes, count], dimensions)
        return hlo.reshape(whole, [groups, count])

    parts = [hlo.slice(corners, [0, i, 0], [batch, i + 1, count]) for i in range(4)]
    sides = [in_groups(hlo.reshape(part, [batch, count]), [0, 2]) for part in parts]
    threshold, limit = (in_groups(hlo.reshape(bound, []), []) for bound in (overlap, least))
    left = hlo.reshape(scores, [groups, count])
    left = hlo.select(hlo.compare(left, limit, "GT"), left, hlo.full_like(left, lowest))
    number = hlo.iota([groups, count], 1, np.int64)

    def choose(step: ir.Value, left: ir.Value, chosen: ir.Value) -> list[ir.Value]:
        top = reduce(left, [1], "maximum")
        hit = hlo.compare(left, hlo.broadcast_in_dim(top, [groups, count], [0, 1]), "EQ")
        index = reduce(hlo.select(hit, number, hlo.full_like(number, count)), [1], "minimum")
        here = hlo.compare(number, hlo.broadcast_in_dim(index, [groups, count], [0, 1]), "EQ")
        drop = hlo.binary("or", here, hlo.compare(_overlap(sides, here), threshold, "GT"))
        found = hlo.compare(top, hlo.full_like(top, lowest), "GT")
        mark = hlo.select(found, index, hlo.full_like(index, -1))
        start = [hlo.full(0, [], np.int64), step]
        return [
            hlo.add(step, hlo.full(1, [], np.int64)),
            hlo.select(drop, hlo.full_like(left, lowest), left),
            hlo.dynamic_update_slice(chosen, mark, start),
        ]

    return hlo.while_loop(
        [hlo.full(0, [], np.int64), left, hlo.full(-1, [groups, rounds], np.int64)],
        lambda step, *_: hlo.compare(step, hlo.full(rounds, [], np.int64), "LT"),
        choose,
    )[2]


def _corners(boxes: Tensor, centered: bool) -> list[ir.Value]:
    """Least and greatest coordinate along both axes, each [batch, boxes]; boxes are two opposite
    corners in any order, or center and size."""
    batch, count, _ = boxes.shape
    columns = [
        hlo.reshape(hlo.slice(boxes.value, [0, 0, i], [batch, count, i + 1]), [batch, count])
        for i in range(4)
    ]
    if centered:
        center, size = columns[:2], columns[2:]
        half = [hlo.multiply(length, hlo.full_like(length, 0.5)) for length in size]
        low = [hlo.subtract(c, h) for c, h in zip(center, half, strict=True)]
        high = [hlo.add(c, h) for c, h in zip(center, half, strict=True)]
        return [*low, *high]
    pairs = list(zip(columns[:2], columns[2:], strict=True))
    return [hlo.minimum(a, b) for a, b in pairs] + [hlo.maximum(a, b) for a, b in pairs]


def _overlap(corners: list[ir.Value], here: ir.Value) -> ir.Value:
    """Intersection over union of all boxes with the one marked in each row; 0 for empty ones."""
    shape = hlo.shape(here)
    zero = hlo.full_like(corners[0], 0)
    low_a, low_b, high_a, high_b = corners
    chosen = [
        hlo.broadcast_in_dim(reduce(hlo.select(here, corner, zero), [1], "add"), shape, [0, 1])
        for corner in corners
    ]

    def extent(low: ir.Value, high: ir.Value) -> ir.Value:
        return hlo.maximum(hlo.subtract(high, low), zero)

    common = hlo.multiply(
        extent(hlo.maximum(low_a, chosen[0]), hlo.minimum(high_a, chosen[2])),
        extent(hlo.maximum(low_b, chosen[1]), hlo.minimum(high_b, chosen[3])),
    )
    area = hlo.multiply(extent(low_a, high_a), extent(low_b, high_b))
    other = hlo.multiply(extent(chosen[0], chosen[2]), extent(chosen[1], chosen[3]))
    union = hlo.subtract(hlo.add(area, other), common)
    positive = hlo.compare(union, zero, "GT")
    return hlo.select(positive, hlo.divide(common, union), zero)
