"""Determinants."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.frontends.onnx.node import Node, Tensor
from stepwell.frontends.onnx.registry import operator
from stepwell.frontends.onnx.shaping import reduce
from stepwell.frontends.time_steps import over_time
from stepwell.mlir import ir

Values = Sequence[ir.Value]


@operator("Det")
def determinant(node: Node, x: Tensor) -> ir.Value:
    """The product of the pivots of Gaussian elimination with row exchanges, for every matrix."""
    if x.rank < 2 or x.shape[-1] != x.shape[-2]:
        node.unsupported(f"the shape {list(x.shape)} is not that of square matrices")
    *batch, size, _ = x.shape
    count = int(np.prod(batch, dtype=np.int64))
    wide = np.dtype(np.float32 if x.dtype.itemsize < 4 else x.dtype)
    shape, vector = [count, size, size], [count, size]
    row = hlo.iota(vector, 1, np.int32)

    def spread(value: ir.Value, kept: Sequence[int]) -> ir.Value:
        return hlo.broadcast_in_dim(value, shape, kept)

    def at(matrix: ir.Value, hit: ir.Value, axis: int) -> ir.Value:
        """The row or column of `matrix` where `hit` [count, size] is set."""
        kept = [0, axis]
        chosen = hlo.select(spread(hit, kept), matrix, hlo.full_like(matrix, 0))
        return reduce(chosen, [axis], "add", keep=False)

    def step(t: ir.Value, inputs: Values, states: Values) -> tuple[Values, Values]:
        matrix, product = states
        now = hlo.broadcast_in_dim(t, vector, [])
        is_now = hlo.compare(row, now, "EQ")
        column = at(matrix, is_now, 2)
        key = hlo.abs(column)
        not_a_number = hlo.compare(column, column, "NE")
        key = hlo.select(not_a_number, hlo.full_like(key, float("inf")), key)
        key = hlo.select(hlo.compare(row, now, "LT"), hlo.full_like(key, -1), key)
        top = hlo.broadcast_in_dim(reduce(key, [1], "maximum", keep=False), vector, [0])
        candidate = hlo.select(hlo.compare(key, top, "EQ"), row, hlo.full_like(row, size))
        pivot_row = reduce(candidate, [1], "minimum", keep=False)
        is_pivot = hlo.compare(row, hlo.broadcast_in_dim(pivot_row, vector, [0]), "EQ")
        upper, other = at(matrix, is_pivot, 1), at(matrix, is_now, 1)
        swapped = hlo.select(spread(is_pivot, [0, 1]), spread(other, [0, 2]), matrix)
        swapped = hlo.select(spread(is_now, [0, 1]), spread(upper, [0, 2]), swapped)
        column = at(swapped, is_now, 2)
        pivot = reduce(hlo.select(is_now, column, hlo.full_like(column, 0)), [1], "add", keep=False)
        moved = hlo.compare(pivot_row, hlo.broadcast_in_dim(t, [count], []), "NE")
        product = hlo.multiply(product, hlo.select(moved, hlo.negate(pivot), pivot))
        one = hlo.full_like(pivot, 1)
        safe = hlo.select(hlo.compare(pivot, hlo.full_like(pivot, 0), "EQ"), one, pivot)
        factor = hlo.divide(column, hlo.broadcast_in_dim(safe, vector, [0]))
        factor = hlo.select(hlo.compare(row, now, "GT"), factor, hlo.full_like(factor, 0))
        taken = hlo.multiply(spread(factor, [0, 1]), spread(upper, [0, 2]))
        return [hlo.subtract(swapped, taken), product], []

    initial = [hlo.reshape(hlo.convert(x.value, wide), shape), hlo.full(1, [count], wide)]
    (_, product), _ = over_time(step, [], initial, [], size)
    return hlo.reshape(hlo.convert(product, x.dtype), batch)
