"""Into how many parts a product's long sums are best cut, so that its tiles fill a GPU."""

from __future__ import annotations

import functools

from stepwell.dialects import stablehlo as hlo
from stepwell.kernels.cpu.contraction_strategy import ContractionShape
from stepwell.kernels.gpu import mma_tile, simt_tile
from stepwell.mlir import ir
from stepwell.passes.base import State
from stepwell.passes.stablehlo._product_cycles import (
    LAUNCH_CYCLES,
    MEMORY_BYTES,
    cycles_of_warpgroups,
    cycles_of_warps,
    matrix_type,
    types_of,
)
from stepwell.targets.nvidia import NvidiaTarget

MOST_PARTS = 32

MOST_ADDED = 8
"""Parts that are added one by one."""

_LINE_BYTES, _SHORTEST_BYTES = 128, 512
"""A part's row or column is whole lines, and no shorter."""

_F32_BYTES = 4

_GAIN = 0.8
"""A split product has to take less than this part of the time that it takes where each tile is one
block's, and less than where blocks share tiles (WgmmaTile.sharing)."""


def sum_of_parts(sums: ir.Value, axis: int) -> ir.Value:
    """`sums` added along `axis`: few of them one by one, which the kernel of what follows does, a
    row's too; many by a reduction."""
    shape = list(hlo.shape(sums))
    if shape[axis] > MOST_ADDED:
        return hlo.reduce(sums, hlo.full(0, (), hlo.dtype(sums)), [axis], "add")
    kept = shape[:axis] + shape[axis + 1 :]
    parts = []
    for number in range(shape[axis]):
        begin = [number if d == axis else 0 for d in range(len(shape))]
        end = [number + 1 if d == axis else n for d, n in enumerate(shape)]
        parts.append(hlo.reshape(hlo.slice(sums, begin, end), kept))
    return functools.reduce(hlo.add, parts)


def parts_of(
    product: ir.Operation,
    m: int,
    n: int,
    whole: int,
    times: int,
    target: NvidiaTarget,
    state: State,
) -> int:
    """Into how many parts `product`, of `m` x `n` elements, is best cut along `whole` of its terms
    that lie one after another, of which there are `times`; 1 leaves it as it is."""

    def shape(parts: int, line: int = 1) -> ContractionShape:
        terms = -(-whole // parts // line) * line * times
        return ContractionShape(0, 1, (0,), (1,), 2, (3,), (parts, m, n, terms))

    kind = matrix_type(product, target, state.f32_products)
    if kind is None:
        enough = set(types_of(product)) == {"f32"} and simt_tile.is_large_enough(shape(1))
    else:
        enough = mma_tile.is_large_enough(shape(1), kind)
    if not enough:
        return 1

    def cycles(parts: int, *, whole_sums: bool = False) -> float:
        if kind is None:
            return simt_tile.cycles(simt_tile.choose(shape(parts)), shape(parts), target)
        lines = shape(parts, _LINE_BYTES // kind.bytes)
        return min(
            cycles_of_warps(shape(parts), kind, target),
            cycles_of_warpgroups(lines, kind, target, whole_sums=whole_sums),
        )

    best, least = 1, min(_GAIN * cycles(1, whole_sums=True), cycles(1))
    for parts in range(2, MOST_PARTS + 1):
        length = whole // parts * (_F32_BYTES if kind is None else kind.bytes)
        if whole % parts or length % _LINE_BYTES or length * times < _SHORTEST_BYTES:
            continue
        moved = 2 * parts * m * n * _F32_BYTES
        total = cycles(parts) + LAUNCH_CYCLES + moved / MEMORY_BYTES
        if total < least:
            best, least = parts, total
    return best
