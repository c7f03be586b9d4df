"""split-long-sums: small products with long sums are cut along them, so that they fill a GPU.

    %z = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0]
       : (tensor<64x16384xf16>, tensor<16384x64xf16>) -> tensor<64x64xf32>

becomes

    %0 = stablehlo.reshape %x : ... -> tensor<64x16x1024xf16>
    %1 = stablehlo.reshape %y : ... -> tensor<16x1024x64xf16>
    %2 = stablehlo.dot_general %0, %1, batching_dims = [1] x [0], contracting_dims = [2] x [1]
       : ... -> tensor<16x64x64xf32>
    %z = stablehlo.reduce(%2 init: 0) applies stablehlo.add across dimensions = [0]

A product has as many blocks as its outputs have tiles, and each adds up all of its sums: with fewer
blocks than multiprocessors, most of the GPU waits. The parts are added by the kernel of whatever
follows. Products on tensor cores only, where the cost model finds it faster, and single ones: a
batch of them may be attention, which becomes one kernel. With precision "strict" sums stay in one
piece.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from stepwell.dialects import stablehlo as hlo
from stepwell.kernels.cpu.contraction_strategy import ContractionShape
from stepwell.kernels.gpu import mma_tile, wgmma_tile
from stepwell.kernels.gpu.tensor_core import MATRIX_TYPES, MatrixType
from stepwell.mlir import ir, nested_operations
from stepwell.mlir import stablehlo as bindings
from stepwell.passes.base import Pass, State
from stepwell.targets.nvidia import NvidiaTarget

PARTS = (2, 4, 8, 16, 32)
"""How many parts are tried."""

_SHORTEST_BYTES = 512
"""Of a part's row or column."""

_LAUNCH_CYCLES = 3000
"""What one more kernel takes."""

_MEMORY_BYTES = 1500
"""Bytes that a GPU writes or reads a cycle, of what is mostly in L2."""

_GAIN = 0.8
"""A split product has to take less than this part of the time."""


@dataclass(frozen=True)
class SplitLongSums(Pass):
    """Look at every dot_general of the module; nothing on CPUs."""

    name: ClassVar[str] = "split-long-sums"

    def run(self, op: ir.Operation, state: State) -> None:
        target = state.target
        if not isinstance(target, NvidiaTarget) or state.precision == "strict":
            return
        found = [inner for inner in nested_operations(op) if inner.name == "stablehlo.dot_general"]
        for product in found:
            parts = _parts(product, target, tf32=state.multiplies_tf32)
            if parts > 1:
                with ir.InsertionPoint(product), product.location:
                    total = _split(product, parts)
                product.results[0].replace_all_uses_with(total)
                product.erase()


def _matrix_type(product: ir.Operation, target: NvidiaTarget, *, tf32: bool) -> MatrixType | None:
    """What tensor cores multiply the operands as."""
    left, right, total = (
        str(hlo.element_type(value)) for value in (*product.operands, product.results[0])
    )
    known = dict(target.matrix_instructions).get("mma.sync", ())
    for kind in MATRIX_TYPES:
        if (left, right) == kind.elements and total == kind.sum and kind.ptx in known:
            return kind if tf32 or kind.ptx != "tf32" else None
    return None


def _dimensions(product: ir.Operation) -> tuple[list[list[int]], list[list[int]]]:
    """Contracting and batching dimensions of lhs and rhs."""
    numbers = bindings.DotDimensionNumbers(product.attributes["dot_dimension_numbers"])
    contracting = [
        list(numbers.lhs_contracting_dimensions),
        list(numbers.rhs_contracting_dimensions),
    ]
    batching = [list(numbers.lhs_batching_dimensions), list(numbers.rhs_batching_dimensions)]
    return contracting, batching


def _parts(product: ir.Operation, target: NvidiaTarget, *, tf32: bool) -> int:
    """Into how many parts the sums of `product` are best cut; 1 leaves it whole."""
    kind = _matrix_type(product, target, tf32=tf32)
    values = (*product.operands, product.results[0])
    if kind is None or not all(hlo.tensor_type(v).has_static_shape for v in values):
        return 1
    contracting, batching = _dimensions(product)
    if len(contracting[0]) != 1 or batching[0]:
        return 1
    left, right = (hlo.shape(operand) for operand in product.operands)
    k = left[contracting[0][0]]
    m, n = (math.prod(shape) // max(1, k) for shape in (left, right))

    def shape(parts: int) -> ContractionShape:
        return ContractionShape(0, 1, (0,), (1,), 2, (3,), (parts, m, n, k // parts))

    if not mma_tile.is_large_enough(shape(1), kind):
        return 1
    whole = _cycles(shape(1), kind, target)
    best, least = 1, _GAIN * whole
    for parts in PARTS:
        if k % parts or k // parts * kind.bytes % _SHORTEST_BYTES:
            continue
        moved = 2 * parts * m * n * 4
        cycles = _cycles(shape(parts), kind, target) + _LAUNCH_CYCLES + moved / _MEMORY_BYTES
        if cycles < least:
            best, least = parts, cycles
    return best


def _cycles(shape: ContractionShape, kind: MatrixType, target: NvidiaTarget) -> float:
    """Estimated time of a product by the better of warps and warpgroups."""
    by_warps = mma_tile.cycles(mma_tile.choose(shape, kind, target), shape, kind, target)
    if not wgmma_tile.takes(kind, target):
        return by_warps
    by_groups = wgmma_tile.cycles(wgmma_tile.choose(shape, kind, target), shape, kind, target)
    return min(by_warps, by_groups)


def _split(product: ir.Operation, parts: int) -> ir.Value:
    """The sum of the products of `parts` parts."""
    contracting = _dimensions(product)[0]
    operands = []
    for operand, (d,) in zip(product.operands, contracting, strict=True):
        shape = list(hlo.shape(operand))
        shape[d : d + 1] = [parts, shape[d] // parts]
        operands.append(hlo.reshape(operand, shape))
    (left, right), ((first,), (second,)) = operands, contracting
    kind = hlo.dtype(product.results[0])
    sums = hlo.dot_general(left, right, ([first + 1], [second + 1]), ([first], [second]), kind)
    return hlo.reduce(sums, hlo.full(0, (), kind), [0], "add")
