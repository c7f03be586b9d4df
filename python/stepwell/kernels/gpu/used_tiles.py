"""Which tiles of a kernel's results anybody needs, in a program with open sizes: for emitters whose
blocks walk over several tiles, or write by other means than stores, which `skip-unused-elements`
does not see."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from stepwell.kernels.builder import Lanes, arith
from stepwell.kernels.gpu.tile_space import TileSpace
from stepwell.kernels.group import KernelGroup
from stepwell.kernels.index import Index, Variable, delinearize
from stepwell.kernels.used_elements import factors_of, told_size
from stepwell.mlir import ir

_LESS = 2
"""The predicate of `arith.cmpi` on signed numbers."""


def is_needed(
    group: KernelGroup, points: Sequence[list[Index]], inside: set[Variable]
) -> ir.Value | None:
    """Whether for some values of the variables `inside`, elements at `points` are needed, one of
    each result of the kernel: a condition; None where they may always be."""
    found = []
    for number, point in enumerate(points):
        conditions = list(_conditions(group, number, point, inside))
        if not conditions:
            return None
        found.append(functools.reduce(lambda a, b: arith.AndIOp(a, b).result, conditions))
    return functools.reduce(lambda a, b: arith.OrIOp(a, b).result, found)


def tile_is_needed(
    space: TileSpace, dims: list[Index], start: tuple[Index, Index], extents: tuple[int, int]
) -> ir.Value | None:
    """`is_needed` of the tile of a contraction's result that begins at row and column `start`, of
    so many rows and columns."""
    inside = [Variable(name, 0, n - 1) for name, n in zip(("r", "c"), extents, strict=True)]
    row, column = (first + Index.of(v) for first, v in zip(start, inside, strict=True))
    at = space.result_at(dims, row, column, Lanes.of(1))
    group, result = space.group, space.op.op.results[0]
    points = [group.point_of(output, result, at) for output in group.outputs]
    return is_needed(group, points, set(inside))


def _conditions(
    group: KernelGroup, number: int, point: list[Index], inside: set[Variable]
) -> list[ir.Value]:
    """What has to hold, all of it, for an element of a result to be needed."""
    nest, found = group.nest, []
    for index, factors in zip(point, factors_of(group, number), strict=True):
        parts = delinearize(index, [factor.capacity for factor in factors])
        for part, factor in zip(parts, factors, strict=True):
            size = told_size(group, factor) if factor.is_open else None
            if size is not None:
                values = (nest.index_value(i, Lanes.of(1)) for i in (part.least(inside), size))
                found.append(arith.CmpIOp(_LESS, *values).result)
    return found
