"""What full register tiles leave of a contraction's rows: smaller tiles, in tasks of their own.

In the last two row dimensions these are a strip on the right, one at the bottom, and a corner.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stepwell.kernels.index import Index


@dataclass(frozen=True)
class Part:
    """So many tasks of a panel group; `emit(dims, number, column_group)` writes one."""

    tasks: int
    emit: Callable[[list[Index], Index, Index], None]


@dataclass(frozen=True)
class EdgeRegion:
    """A part of the rows that full boxes leave: where it begins in the last two dimensions, how
    many tiles it has in each, and the smaller box of its tiles."""

    start: tuple[int, int]
    counts: tuple[int, ...]
    box: tuple[int, int]

    @property
    def tiles(self) -> int:
        return math.prod(self.counts)

    @property
    def rows(self) -> int:
        return self.tiles * math.prod(self.box)


def edge_regions(row_sizes: Sequence[int], box: tuple[int, int]) -> list[EdgeRegion]:
    """The regions that boxes of the size `box` leave of rows of `row_sizes`, two at least."""
    height, width = box
    *lead, down, across = row_sizes
    whole_down, whole_across = down // height * height, across // width * width
    right, below = across - whole_across, down - whole_down
    found = [
        ((0, whole_across), (whole_down // height, 1), (height, right)),
        ((whole_down, 0), (1, whole_across // width), (below, width)),
        ((whole_down, whole_across), (1, 1), (below, right)),
    ]
    regions = [EdgeRegion(start, (*lead, *counts), box) for start, counts, box in found]
    return [region for region in regions if region.rows]
