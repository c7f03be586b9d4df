"""The tiles of a Winograd convolution that are needed, in a program with open sizes.

They are numbered without those between them, so that blocks and register tiles are full: number and
place are divisions by what is known when the model runs.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from stepwell.kernels.builder import Lanes
from stepwell.kernels.cpu.winograd_shape import ConvolutionShape
from stepwell.kernels.group import KernelGroup
from stepwell.kernels.index import Index, Variable, constant
from stepwell.kernels.structured import Structured
from stepwell.kernels.used_elements import (
    needed_layout,
    told,
    unneeded_from,
    written_layout,
)
from stepwell.mlir import dialect, ir
from stepwell.open_dimensions import closed, is_open, joint

arith = dialect("arith")


@dataclass(frozen=True)
class UsedTiles:
    """In each dimension of the grid, the first `sides` tiles are needed: `count` in all."""

    sides: list[ir.Value]
    count: Index
    margins: tuple[tuple[Index, Index], tuple[Index, Index]] | None
    """Where there are more, of which the results were filled: down and across, how many are needed
    and how many are written."""

    @staticmethod
    def of(
        group: KernelGroup, op: Structured, shape: ConvolutionShape, tile: int
    ) -> UsedTiles | None:
        """Those of the convolution `op` by tiles of `tile` outputs a side; None where all are."""
        places = [expression.position for expression in op.output_map.results]
        needed = dict(zip(places, needed_layout(op.op), strict=False))
        spatial = [side.loop for side in shape.sides]
        ranks = {len(output.shape) for output in group.outputs}
        if not any(d in needed and is_open(needed[d]) for d in spatial) or ranks != {len(places)}:
            return None
        grid, nest = shape.grid(tile), group.nest
        counts = [constant(size) for size in grid]
        filled = unneeded_from(group, op)
        for number, d in enumerate(shape.images):
            if d not in filled:
                counts[number] = told(group, needed.get(d, closed(grid[number])))
        margins = []
        for number, side in enumerate(shape.sides, len(grid) - 2):
            step = side.row(tile).tile * side.dilation

            def tiles(size: Index, step: int = step) -> Index:
                return (size + (step - 1)).floordiv(step)

            counts[number] = tiles(told(group, needed.get(side.loop, closed(side.size))))
            margins.append((counts[number], tiles(_written(group, op, side.loop))))
        with nest.at_top():
            limits = [nest.index_value(constant(size), Lanes.of(1)) for size in grid]
            sides = [
                arith.MinSIOp(nest.index_value(count, Lanes.of(1)), limit).result
                for count, limit in zip(counts, limits, strict=True)
            ]
            count = functools.reduce(lambda a, b: arith.MulIOp(a, b).result, sides)
        total = Index.of(Variable("tiles", 0, math.prod(grid), count))
        down, across = margins
        return UsedTiles(sides, total, (down, across) if filled else None)

    def place(self, number: ir.Value, grid: Sequence[int]) -> list[Index]:
        """Where in the grid the needed tile of that number is."""
        places = []
        for side, most in zip(reversed(self.sides), reversed(grid), strict=True):
            within = arith.RemUIOp(number, side).result
            places.insert(0, Index.of(Variable("place", 0, most - 1, within, computed=True)))
            number = arith.DivUIOp(number, side).result
        return places


def _written(group: KernelGroup, op: Structured, loop: int) -> Index:
    """How many elements along a loop of `op` are needed of the group's results, the most of any."""
    number = [expression.position for expression in op.output_map.results].index(loop)
    layouts = [written_layout(group, output) for output in range(len(group.outputs))]
    most = functools.reduce(joint, (layout[number] for layout in layouts))
    return told(group, most)
