"""Neighbouring groups of a convolution as one, with zeros in the filters between them.

Groups are narrow: a product of 4 x 4 channels fills a part of a vector, or of a tile of tensor
cores. Joined, there are fewer products of more columns and longer sums. How many are joined says on
CPUs the width of a vector, on GPUs the cost model of the kernels: as long as a tile has room, the
products with zeros cost nothing, and channels become whole lines of the copies.
"""

from __future__ import annotations

import math

from stepwell.attributes import i64
from stepwell.dialects import stablehlo as hlo
from stepwell.kernels.cpu.contraction_strategy import ContractionShape
from stepwell.kernels.gpu import mma_tile, simt_tile
from stepwell.kernels.gpu.hopper import LINE_BYTES
from stepwell.kernels.gpu.tensor_core import CHUNK_BYTES, F32Products, MatrixType
from stepwell.mlir import ir
from stepwell.passes.stablehlo._evaluate import is_constant
from stepwell.passes.stablehlo._product_cycles import (
    LAUNCH_CYCLES,
    MEMORY_BYTES,
    cycles_of_warpgroups,
    cycles_of_warps,
    matrix_type,
)
from stepwell.passes.stablehlo._values import integer, rebuild
from stepwell.passes.stablehlo.fold_constants import PADDED_ELEMENTS
from stepwell.targets import Target
from stepwell.targets.nvidia import NvidiaTarget

_GATHERED = 4
"""So many times longer takes a tile of warps whose image has no whole chunks along k: elements are
read one by one, each with an address of its own."""

_HALF_BYTES = 2
"""Operands of this size may lie along either dimension."""


def join(op: ir.Operation, count: int) -> ir.Value:
    """A convolution in NHWC and HWIO whose groups are each `count` of those of `op`, a divisor of
    their number; the filters are zero where they meet the inputs of another group."""
    lhs, rhs = op.operands
    groups = integer(op, "feature_group_count")
    *window, inputs, features = hlo.shape(rhs)
    each = features // groups
    rank, zeros = len(window), [0] * len(window)
    apart = hlo.reshape(rhs, [*window, inputs, groups // count, count, each])
    none = [*zeros, 0, 0, 0, 0]
    diagonal = hlo.pad(apart, hlo.full(0, [], hlo.dtype(rhs)), none, none, [*zeros, 0, 0, count, 0])
    square = hlo.reshape(diagonal, [*window, inputs, groups // count, count, count, each])
    order = [*range(rank), rank + 2, rank, rank + 1, rank + 3, rank + 4]
    filters = hlo.reshape(hlo.transpose(square, order), [*window, count * inputs, features])
    shape = hlo.shape(op.results[0])
    return rebuild(op, [lhs, filters], shape, {"feature_group_count": i64(groups // count)})


def count_of(op: ir.Operation, target: Target, f32: F32Products) -> int:
    """How many neighbouring groups of a convolution in NHWC and HWIO are best joined for `target`,
    which multiplies f32 as `f32` says; 1 leaves it as it is."""
    groups = integer(op, "feature_group_count")
    divisors = [n for n in range(1, groups + 1) if groups % n == 0]
    if isinstance(target, NvidiaTarget):

        def cycles(count: int) -> float:
            return _cycles(op, count, target, f32) + _joining_cycles(op, count)

        return min(divisors, key=cycles)
    each = hlo.shape(op.operands[1])[-1] // groups
    return max((n for n in divisors if n * each <= target.vector_lanes), default=1)


def _cycles(op: ir.Operation, count: int, target: NvidiaTarget, f32: F32Products) -> float:
    """Estimated time of products of so many groups joined; infinite where no tile takes them."""
    *window, inputs, features = hlo.shape(op.operands[1])
    groups, taps = integer(op, "feature_group_count"), math.prod(window)
    rows, columns = math.prod(hlo.shape(op.results[0])[:-1]), features // groups * count

    def shape(channels: int) -> ContractionShape:
        sizes = (groups // count, rows, columns, taps * channels)
        return ContractionShape(0, 1, (0,), (1,), 2, (3,), sizes)

    plain, kind = shape(count * inputs), matrix_type(op, target, f32)
    if kind is None or not mma_tile.is_large_enough(plain, kind):
        if not simt_tile.is_large_enough(plain):
            return math.inf
        return simt_tile.cycles(simt_tile.choose(plain), plain, target)
    whole = count * inputs * kind.bytes % CHUNK_BYTES == 0
    by_warps = cycles_of_warps(plain, kind, target) * (1 if whole else _GATHERED)
    if not _are_copied(op, count, kind):
        return by_warps
    line = LINE_BYTES // kind.bytes
    lines = shape(-(-count * inputs // line) * line)
    return min(by_warps, cycles_of_warpgroups(lines, kind, target))


def _joining_cycles(op: ir.Operation, count: int) -> float:
    """What it takes to make the filters of so many groups joined in every call: to fill them with
    zeros, and to copy those that are into them."""
    if count == 1 or _are_folded(op, count):
        return 0
    filters = op.operands[1]
    moved = math.prod(hlo.shape(filters)) * hlo.dtype(filters).itemsize * 2 * (count + 1)
    return 2 * LAUNCH_CYCLES + moved / MEMORY_BYTES


def _are_folded(op: ir.Operation, count: int) -> bool:
    """Whether the filters of so many groups joined are a constant."""
    filters = op.operands[1]
    joined = math.prod(hlo.shape(filters)) * count
    return is_constant(filters) and (count == 1 or joined <= PADDED_ELEMENTS)


def _are_copied(op: ir.Operation, count: int, kind: MatrixType) -> bool:
    """Whether the GPU copies image and filters by itself, with so many groups joined: they lie at
    multiples of 16 bytes, those of 32 and of 8 bits along k, and filters as a product walks them,
    which those that are joined in every call do not."""
    *_, inputs, features = hlo.shape(op.operands[1])
    groups = integer(op, "feature_group_count")
    steps = [groups * inputs]
    halves = kind.bytes == _HALF_BYTES
    if not (_are_folded(op, count) or (halves and count == 1)):
        return False
    steps += [features, features // groups * count] if halves else [count * inputs]
    return all(step * kind.bytes % CHUNK_BYTES == 0 for step in steps)
