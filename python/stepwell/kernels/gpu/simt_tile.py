"""How a contraction is tiled without tensor cores: the tiles, and their cost model."""

from __future__ import annotations

from dataclasses import dataclass

from stepwell.kernels.cpu.contraction_strategy import ContractionShape
from stepwell.kernels.gpu.mma_tile import L2_BYTES
from stepwell.targets.nvidia import NvidiaTarget

GROUP = 4
"""Elements of a vector access to memory, and of a group of rows or columns of a thread."""

_FULL_GRID = 128
"""Blocks that keep a large GPU busy; with fewer, tiles are smaller."""

_WAIT_CYCLES, _TILE_CYCLES = 800, 600
"""What each step takes beside copying and multiplying, as nothing is copied ahead of its use, and
each tile: the epilogue."""

_RESIDENT = 2
"""Blocks that share a multiprocessor: one multiplies while the other waits."""

_BYTES = 4


@dataclass(frozen=True)
class SimtTile:
    """A block's tile and each thread's part of it; extents are multiples of each other's."""

    rows: int
    columns: int
    depth: int
    thread_rows: int
    thread_columns: int

    @property
    def threads(self) -> int:
        return self.rows // self.thread_rows * (self.columns // self.thread_columns)


LARGE = SimtTile(128, 128, 16, 8, 8)
MEDIUM = SimtTile(64, 64, 16, 4, 4)
NARROW = SimtTile(128, 32, 16, 4, 4)
THIN = SimtTile(256, 8, 16, 4, 4)
FLAT = SimtTile(8, 128, 32, 2, 4)


def is_large_enough(shape: ContractionShape) -> bool:
    """Whether there is a group of columns and of terms at least."""
    return min(shape.n, shape.k) >= GROUP


def choose(shape: ContractionShape) -> SimtTile:
    """The tile for a contraction: as large as leaves enough blocks, and not much larger than the
    output."""
    if shape.m <= FLAT.rows:
        return FLAT
    for tile in (THIN, NARROW):
        if shape.n <= tile.columns:
            return tile
    return LARGE if _blocks(LARGE, shape) >= _FULL_GRID else MEDIUM


def cycles(tile: SimtTile, shape: ContractionShape, target: NvidiaTarget) -> float:
    """Estimated time for operands of 32 bits: as many rounds of blocks as the multiprocessors
    need, two at a time, each as long as its copies, its products and the wait between."""
    rounds = -(-_blocks(tile, shape) // target.multiprocessors)
    resident = min(rounds, _RESIDENT)
    multiply = tile.rows * tile.columns * tile.depth / target.f32_multiplies
    copy = (tile.rows + tile.columns) * tile.depth * _BYTES / L2_BYTES
    step = max(copy + multiply + _WAIT_CYCLES, resident * multiply, resident * copy)
    steps = -(-shape.k // tile.depth)
    return -(-rounds // resident) * (steps * step + _TILE_CYCLES)


def _blocks(tile: SimtTile, shape: ContractionShape) -> int:
    return -(-shape.m // tile.rows) * -(-shape.n // tile.columns) * shape.extent(shape.batch)
