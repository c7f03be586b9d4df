"""Into how many parts a product's long sums are best cut, so that its tiles fill a GPU."""

from __future__ import annotations

from stepwell.dialects import stablehlo as hlo
from stepwell.kernels.cpu.contraction_strategy import ContractionShape
from stepwell.kernels.gpu import mma_tile, simt_tile, wgmma_tile
from stepwell.kernels.gpu.tensor_core import MATRIX_TYPES, MatrixType
from stepwell.mlir import ir
from stepwell.passes.base import State
from stepwell.targets.nvidia import NvidiaTarget

MOST_PARTS = 32

_LINE_BYTES, _SHORTEST_BYTES = 128, 512
"""A part's row or column is whole lines, and no shorter."""

_F32_BYTES = 4

_LAUNCH_CYCLES = 3000
"""What one more kernel takes."""

_MEMORY_BYTES = 1500
"""Bytes that a GPU writes or reads a cycle, of what is mostly in L2."""

_GAIN = 0.8
"""A split product has to take less than this part of the time that it takes where each tile is one
block's, and less than where blocks share tiles (WgmmaTile.sharing)."""


def parts_of(
    product: ir.Operation,
    m: int,
    n: int,
    whole: int,
    times: int,
    target: NvidiaTarget,
    state: State,
    *,
    by_warps: bool = False,
) -> int:
    """Into how many parts `product`, of `m` x `n` elements, is best cut along `whole` of its terms
    that lie one after another, of which there are `times`; 1 leaves it as it is. With `by_warps`
    warpgroups do not multiply the parts."""

    def shape(parts: int) -> ContractionShape:
        terms = whole // parts * times
        return ContractionShape(0, 1, (0,), (1,), 2, (3,), (parts, m, n, terms))

    kind = _matrix_type(product, target, tf32=state.multiplies_tf32)
    if kind is None:
        enough = set(_types(product)) == {"f32"} and simt_tile.is_large_enough(shape(1))
    else:
        enough = mma_tile.is_large_enough(shape(1), kind)
    if not enough:
        return 1

    def cycles(parts: int, *, whole_sums: bool = False) -> float:
        if kind is None:
            return simt_tile.cycles(simt_tile.choose(shape(parts)), shape(parts), target)
        if by_warps and parts > 1:
            return _cycles_of_warps(shape(parts), kind, target)
        return _cycles(shape(parts), kind, target, whole_sums=whole_sums)

    best, least = 1, min(_GAIN * cycles(1, whole_sums=True), cycles(1))
    for parts in range(2, MOST_PARTS + 1):
        length = whole // parts * (_F32_BYTES if kind is None else kind.bytes)
        if whole % parts or length % _LINE_BYTES or length * times < _SHORTEST_BYTES:
            continue
        moved = 2 * parts * m * n * _F32_BYTES
        total = cycles(parts) + _LAUNCH_CYCLES + moved / _MEMORY_BYTES
        if total < least:
            best, least = parts, total
    return best


def _types(product: ir.Operation) -> tuple[str, ...]:
    """Of lhs, rhs and result."""
    return tuple(str(hlo.element_type(v)) for v in (*product.operands, product.results[0]))


def _matrix_type(product: ir.Operation, target: NvidiaTarget, *, tf32: bool) -> MatrixType | None:
    """What tensor cores multiply the operands as."""
    *operands, total = _types(product)
    known = dict(target.matrix_instructions).get("mma.sync", ())
    for kind in MATRIX_TYPES:
        if tuple(operands) == kind.elements and total == kind.sum and kind.ptx in known:
            return kind if tf32 or kind.ptx != "tf32" else None
    return None


def _cycles(
    shape: ContractionShape, kind: MatrixType, target: NvidiaTarget, *, whole_sums: bool
) -> float:
    """Estimated time of a product by the better of warps and warpgroups, which do not share tiles
    with `whole_sums`."""
    by_warps = _cycles_of_warps(shape, kind, target)
    if not wgmma_tile.takes(kind, target):
        return by_warps
    tile = wgmma_tile.choose(shape, kind, target, whole_sums=whole_sums)
    return min(by_warps, wgmma_tile.cycles(tile, shape, kind, target))


def _cycles_of_warps(shape: ContractionShape, kind: MatrixType, target: NvidiaTarget) -> float:
    return mma_tile.cycles(mma_tile.choose(shape, kind, target), shape, kind, target)
