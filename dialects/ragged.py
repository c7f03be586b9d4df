"""Products of rows with the matrix of their group (mixture of experts), in StableHLO.

    y[r] = x[r] @ w[g],   where rows belong to groups in order: sizes[0] rows to the first, ...

The rows of a group are cut into tiles, of which its last one may not be full. There are at most
rows / tile + groups of them, whatever the sizes are: a batch of products of one tile each with the
matrix of its group, where a product with all groups would take as many times as long as there are
groups. Rows beyond the last group give zeros. The matrices of the batch are a gather, of which
products read the matrix where it lies (`stepwell.kernels.slices`); rows are copied into tiles.
"""

from __future__ import annotations

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.mlir import ir

TILES = (8, 16, 32, 64, 128)
"""Rows of a tile that are tried."""

_READ = 32
"""What it takes a tile to read its matrix, as rows that are multiplied by it: from memory about 10
to 25 on CPUs; from L2 64 or 128 of 16 bits on tensor cores, and 16 of f32 without them."""

_GAIN = 0.7
"""Tiles have to take less than this part of a product with all groups."""

_INDEX = np.int32


def tile_of(rows: int, groups: int) -> int | None:
    """The best number of rows of a tile; None where a product with all groups is as good."""

    def work(tile: int) -> int:
        return _count(rows, groups, tile) * (tile + _READ)

    best = min(TILES, key=work)
    return best if work(best) < _GAIN * groups * (rows + _READ) else None


def _count(rows: int, groups: int, tile: int) -> int:
    return rows // tile + groups


def ragged_dot(
    x: ir.Value, w: ir.Value, sizes: ir.Value, contracted: int, tile: int, kind: np.dtype
) -> ir.Value:
    """[m, n] of x [m, k], w [g, k, n] ([g, n, k] with `contracted` 2), and sizes [g] of at most m
    rows together, none of them negative; elements are of `kind`."""
    rows, depth = hlo.shape(x)
    groups = hlo.shape(w)[0]
    count = _count(rows, groups, tile)
    sizes = hlo.convert(sizes, _INDEX)
    ends = _sums(sizes)
    tiles = hlo.divide(hlo.add(sizes, _full(tile - 1, groups)), _full(tile, groups))
    tile_ends = _sums(tiles)
    bounds = [hlo.subtract(ends, sizes), hlo.subtract(tile_ends, tiles)]

    number = hlo.iota((count,), 0, _INDEX)
    group = _group_of(number, tile_ends)
    start, first = (_taken(bound, group) for bound in bounds)
    begin = hlo.add(start, hlo.multiply(hlo.subtract(number, first), _full(tile, count)))
    cube = (count, tile)
    places = hlo.add(hlo.broadcast_in_dim(begin, cube, (0,)), hlo.iota(cube, 1, _INDEX))
    lines = _lines(x, hlo.reshape(places, (count * tile,)))
    matrices = _lines(w, group)
    product = hlo.dot_general(
        hlo.reshape(lines, (count, tile, depth)),
        matrices,
        ([2], [contracted]),
        ([0], [0]),
        kind,
    )
    width = hlo.shape(product)[2]

    row = hlo.iota((rows,), 0, _INDEX)
    group = _group_of(row, ends)
    start, first = (_taken(bound, group) for bound in bounds)
    place = hlo.add(hlo.multiply(first, _full(tile, rows)), hlo.subtract(row, start))
    found = _lines(hlo.reshape(product, (count * tile, width)), place)
    last = hlo.broadcast_in_dim(hlo.slice(ends, (groups - 1,), (groups,)), (rows,), (0,))
    inside = hlo.broadcast_in_dim(hlo.compare(row, last, "LT"), (rows, width), (0,))
    return hlo.select(inside, found, hlo.full(0, (rows, width), kind))


def _full(value: int, count: int) -> ir.Value:
    return hlo.full(value, (count,), _INDEX)


def _sums(values: ir.Value) -> ir.Value:
    """Cumulative sums: few numbers, so that each adds up all before it."""
    (count,) = hlo.shape(values)
    square = (count, count)
    before = hlo.compare(hlo.iota(square, 1, _INDEX), hlo.iota(square, 0, _INDEX), "LE")
    spread = hlo.broadcast_in_dim(values, square, (1,))
    return _counted(hlo.select(before, spread, hlo.full(0, square, _INDEX)))


def _group_of(numbers: ir.Value, ends: ir.Value) -> ir.Value:
    """The group that each number is in: how many groups end before it; the last one at most."""
    (count,), (groups,) = hlo.shape(numbers), hlo.shape(ends)
    square = (count, groups)
    over = hlo.compare(
        hlo.broadcast_in_dim(ends, square, (1,)), hlo.broadcast_in_dim(numbers, square, (0,)), "LE"
    )
    return hlo.minimum(_counted(hlo.convert(over, _INDEX)), _full(groups - 1, count))


def _counted(values: ir.Value) -> ir.Value:
    return hlo.reduce(values, hlo.full(0, (), _INDEX), [1], "add")


def _taken(table: ir.Value, numbers: ir.Value) -> ir.Value:
    """Elements of a vector."""
    (count,) = hlo.shape(numbers)
    dimensions = hlo.GatherDimensions((), (0,), (0,), 1)
    return hlo.gather(table, hlo.reshape(numbers, (count, 1)), dimensions, (1,))


def _lines(table: ir.Value, numbers: ir.Value) -> ir.Value:
    """Rows, or matrices, of `table`; those beyond its end are the last."""
    (count,), rest = hlo.shape(numbers), hlo.shape(table)[1:]
    offsets = tuple(range(1, len(rest) + 1))
    dimensions = hlo.GatherDimensions(offsets, (0,), (0,), 1)
    return hlo.gather(table, hlo.reshape(numbers, (count, 1)), dimensions, (1, *rest))
