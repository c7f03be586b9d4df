"""Transposes that move the innermost dimension: square tiles turned in shared memory.

A block reads a tile of 32 x 32 elements along the source's contiguous dimension and writes it along
the output's, so that the threads of a warp access neighbours both times. Rows of the tile in shared
memory are one element longer: a column of it then lies in 32 different banks.
"""

from __future__ import annotations

import math

from stepwell.kernels.builder import Lanes
from stepwell.kernels.evaluate import storage_type, to_storage
from stepwell.kernels.gpu import elementwise
from stepwell.kernels.gpu.grid import GridBuilder
from stepwell.kernels.group import KernelGroup, accesses
from stepwell.kernels.index import Index, Variable, delinearize, linearize
from stepwell.kernels.structured import element_type, shape_of

TILE = 32
THREAD_ROWS = 8
"""A thread moves `TILE / THREAD_ROWS` elements."""

SMALLEST = 8
"""Dimensions shorter than this are left to elementwise kernels."""


def emit(group: KernelGroup, nest: GridBuilder) -> None:
    """Write the tiles of a transposed copy, or an elementwise kernel where tiles do not fit."""
    dims = turned_dims(group)
    if dims is None:
        elementwise.emit(group, nest)
        return
    _emit_tiles(group, nest, *dims)


def turned_dims(group: KernelGroup) -> tuple[int, int] | None:
    """(row, column): the output dimension that is contiguous in the source, and the output's own
    innermost; None when there are none that are long enough."""
    if len(group.outputs) != 1:
        return None
    (output,) = group.outputs
    dims = [Variable(f"d{i}", 0, max(n, 1) - 1) for i, n in enumerate(output.shape)]
    reads = list(accesses(output.value, [Index.of(d) for d in dims], set(group.evaluator.buffers)))
    if len(reads) != 1:
        return None
    leaf, indices = reads[0]
    flat = linearize(indices, shape_of(leaf))
    column = len(dims) - 1
    rows = [i for i, d in enumerate(dims) if flat.coefficient(d) == 1 and i != column]
    if not flat.is_linear or len(rows) != 1:
        return None
    return (rows[0], column) if min(output.shape[rows[0]], output.shape[-1]) >= SMALLEST else None


def _emit_tiles(group: KernelGroup, nest: GridBuilder, row: int, column: int) -> None:
    (output,) = group.outputs
    shape, kind = output.shape, element_type(output.value)
    others = [i for i in range(len(shape)) if i not in (row, column)]
    outer = [shape[i] for i in others]
    down, across = (-(-shape[i] // TILE) for i in (row, column))
    bits = elementwise.element_bits(kind)
    tile = nest.shared([TILE, TILE + 1], storage_type(kind), bits // 8)
    blocks = math.prod(outer) * down * across
    one = Lanes.of(1)
    with nest.grid(blocks, TILE * THREAD_ROWS) as (block, thread), group.evaluator.scope():
        threads = TILE * THREAD_ROWS
        elementwise.fill_halos(group, nest, block * threads + thread, blocks * threads)
        *where, down_tile, across_tile = delinearize(block, [*outer, down, across])
        first_row = nest.named("row", down_tile) * TILE
        first_column = nest.named("column", across_tile) * TILE
        lane = nest.named("lane", thread.mod(TILE))
        line = nest.named("line", thread.floordiv(TILE))

        def point(row_index: Index, column_index: Index) -> list[Index]:
            full = [Index()] * len(shape)
            for axis, index in zip(others, where, strict=True):
                full[axis] = index
            full[row], full[column] = row_index, column_index
            return full

        for step in range(0, TILE, THREAD_ROWS):
            at = point(first_row + lane, first_column + line + step)
            bounds = [(at[row], shape[row]), (at[column], shape[column])]
            with nest.inside(bounds) as branch, branch.then(), group.evaluator.scope():
                value = to_storage(group.evaluator.at(output.value, at, one), kind)
                nest.store(value, tile, [line + step, lane], one)
        nest.barrier()
        for step in range(0, TILE, THREAD_ROWS):
            at = point(first_row + line + step, first_column + lane)
            bounds = [(at[row], shape[row]), (at[column], shape[column])]
            with nest.inside(bounds) as branch, branch.then():
                value = nest.load(tile, [lane, line + step], one)
                group.store(output, at, value, one)
