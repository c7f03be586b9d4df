"""What GPUs multiply a product or a convolution as, and how long that is to take."""

from __future__ import annotations

import math

from stepwell.dialects import stablehlo as hlo
from stepwell.kernels.cpu.contraction_strategy import ContractionShape
from stepwell.kernels.gpu import mma_tile, tensor_core, wgmma_tile
from stepwell.kernels.gpu.tensor_core import F32Products, MatrixType
from stepwell.mlir import ir
from stepwell.targets.nvidia import NvidiaTarget

LAUNCH_CYCLES = 3000
"""What one more kernel takes."""

MEMORY_BYTES = 1500
"""Bytes that a GPU writes or reads a cycle, of what is mostly in L2."""


def types_of(product: ir.Operation) -> tuple[str, ...]:
    """Of lhs, rhs and result."""
    return tuple(str(hlo.element_type(v)) for v in (*product.operands, product.results[0]))


def matrix_type(product: ir.Operation, target: NvidiaTarget, f32: F32Products) -> MatrixType | None:
    """What tensor cores multiply the operands as; None when they do not."""
    left, right, total = types_of(product)
    return tensor_core.matrix_type((left, right), total, target, f32)


def cycles_of_warps(shape: ContractionShape, kind: MatrixType, target: NvidiaTarget) -> float:
    """Estimated time by the best tile of warps."""
    return mma_tile.cycles(mma_tile.choose(shape, kind, target), shape, kind, target)


def cycles_of_warpgroups(
    shape: ContractionShape, kind: MatrixType, target: NvidiaTarget, *, whole_sums: bool = False
) -> float:
    """Estimated time by the best tile of warpgroups, which do not share tiles with `whole_sums`;
    infinite where `target` has none that multiply `kind`."""
    if not wgmma_tile.takes(kind, target):
        return math.inf
    tile = wgmma_tile.choose(shape, kind, target, whole_sums=whole_sums)
    return wgmma_tile.cycles(tile, shape, kind, target)
