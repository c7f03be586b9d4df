"""Operators whose results have as many elements as the data says: NonZero, Compress, Unique.

A result is computed at its largest size, and with it a count of what is in use: `node.bounded`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.frontends.onnx.node import Node, Tensor
from stepwell.frontends.onnx.registry import Result, operator
from stepwell.frontends.onnx.shaping import (
    normalize_axis,
    rows_at,
    running_sum,
    selected_positions,
)
from stepwell.mlir import ir


@operator("NonZero")
def non_zero(node: Node, x: Tensor) -> Result:
    """Positions of the elements that are not zero, in row-major order: [rank, count]."""
    shape = x.shape or (1,)
    flat = hlo.reshape(x.value, [x.size])
    mask = flat if x.dtype == np.bool_ else hlo.compare(flat, hlo.full_like(flat, 0), "NE")
    positions, count = selected_positions(mask)
    rows: list[ir.Value] = []
    stride = x.size
    for size in shape:
        stride = stride // max(size, 1)
        quotient = hlo.divide(positions, hlo.full_like(positions, max(stride, 1)))
        coordinate = hlo.remainder(quotient, hlo.full_like(positions, max(size, 1)))
        rows.append(hlo.reshape(coordinate, [1, x.size]))
    result = rows[0] if len(rows) == 1 else hlo.concatenate(rows, 0)
    return node.bounded(result, {1: count})


@operator("Compress")
def compress(node: Node, data: Tensor, condition: Tensor) -> Result:
    """The slices along `axis`, or the elements, for which the condition holds."""
    axis = node.integer("axis", None)
    value = data.value
    if axis is None:
        value, dimension = hlo.reshape(value, [data.size]), 0
    else:
        dimension = normalize_axis(axis, data.rank)
    size = hlo.shape(value)[dimension]
    if not size:
        return value
    length = min(condition.shape[0], size)
    mask = hlo.slice(condition.value, [0], [length])
    positions, count = selected_positions(mask)
    return node.bounded(rows_at(value, positions, dimension), {dimension: count})


@operator("Unique")
def unique(node: Node, x: Tensor) -> Sequence[Result]:
    """Distinct slices along `axis`, or elements; first positions, inverse positions and counts.

    The slices are sorted, so that equal ones are neighbours; where a run of them begins, its first
    position stands, since the sort is stable.
    """
    axis = node.integer("axis", None)
    dimension = 0 if axis is None else normalize_axis(axis, x.rank)
    value = hlo.reshape(x.value, [x.size]) if axis is None else x.value
    length = hlo.shape(value)[dimension]
    if not length:
        empty = np.zeros(0, np.int64)
        return [value, empty, empty, empty][: node.used_outputs()]
    order = _sorted_order(_as_rows(value, dimension))
    ordered = _as_rows(rows_at(value, order, dimension), dimension)
    begins = _begins(ordered)
    group = hlo.subtract(
        running_sum(hlo.convert(begins, np.int64)), hlo.full(1, [length], np.int64)
    )
    inverse = hlo.sort([order, group], 0, "LT")[1]
    starts, count = selected_positions(begins)
    ends = hlo.concatenate([hlo.slice(starts, [1], [length]), hlo.full(length, [1], np.int64)], 0)
    counts = hlo.subtract(ends, starts)
    first = rows_at(order, starts, 0)
    if not node.integer("sorted", 1):
        number = hlo.iota([length], 0, np.int64)
        used = hlo.compare(number, hlo.broadcast_in_dim(count, [length], []), "LT")
        keys = hlo.select(used, first, hlo.full(length, [length], np.int64))
        appearing = hlo.sort([keys, number], 0, "LT")[1]
        rank = hlo.sort([appearing, number], 0, "LT")[1]
        first, counts = rows_at(first, appearing, 0), rows_at(counts, appearing, 0)
        inverse = rows_at(rank, inverse, 0)
    values = rows_at(value, first, dimension)
    results: list[Result] = [
        node.bounded(values, {dimension: count}),
        node.bounded(first, {0: count}),
        inverse,
        node.bounded(counts, {0: count}),
    ]
    return results[: node.used_outputs()]


def _as_rows(value: ir.Value, dimension: int) -> ir.Value:
    """[length of the dimension, all else]."""
    shape = hlo.shape(value)
    order = [dimension, *(d for d in range(len(shape)) if d != dimension)]
    rest = int(np.prod(shape, dtype=np.int64)) // max(shape[dimension], 1)
    return hlo.reshape(hlo.transpose(value, order), [shape[dimension], rest])


def _sorted_order(rows: ir.Value) -> ir.Value:
    """Positions that sort rows lexicographically: by the last column first, each sort stable."""
    length, width = hlo.shape(rows)
    if hlo.dtype(rows) == np.bool_:
        rows = hlo.convert(rows, np.uint8)

    def by_column(order: ir.Value, column: ir.Value) -> ir.Value:
        start = [hlo.full(0, [], np.int64), column]
        keys = hlo.reshape(hlo.dynamic_slice(rows, start, [length, 1]), [length])
        return hlo.sort([rows_at(keys, order, 0), order], 0, "LT")[1]

    order = hlo.iota([length], 0, np.int64)
    if width == 1:
        return hlo.sort([hlo.reshape(rows, [length]), order], 0, "LT")[1]
    last = hlo.full(width - 1, [], np.int64)
    return hlo.while_loop(
        [last, order],
        lambda column, _: hlo.compare(column, hlo.full(0, [], np.int64), "GE"),
        lambda column, order: [
            hlo.subtract(column, hlo.full(1, [], np.int64)),
            by_column(order, column),
        ],
    )[1]


def _begins(rows: ir.Value) -> ir.Value:
    """Which rows differ from the one before; the first one does."""
    length, width = hlo.shape(rows)
    here = hlo.slice(rows, [1, 0], [length, width])
    before = hlo.slice(rows, [0, 0], [length - 1, width])
    differs = hlo.compare(here, before, "NE")
    any_ = hlo.reduce(differs, hlo.full(False, [], np.bool_), [1], "or")
    return hlo.concatenate([hlo.full(True, [1], np.bool_), any_], 0)
