"""How a contraction is tiled for `wgmma`: the strategy, and the cost model that chooses it."""

from __future__ import annotations

from dataclasses import dataclass

from stepwell.kernels.cpu.contraction_strategy import ContractionShape
from stepwell.kernels.gpu.hopper import ATOM_BYTES, LINE_BYTES, ROWS, WARPGROUP
from stepwell.kernels.gpu.mma_tile import L2_BYTES
from stepwell.kernels.gpu.tensor_core import MatrixType
from stepwell.kernels.strategy import IntegerStrategy
from stepwell.targets.nvidia import NvidiaTarget

INSTRUCTION = "wgmma"

_STEP_CYCLES, _TILE_CYCLES, _FIRST_CYCLES = 20, 800, 700
"""What each step takes beside multiplying and copying: barriers; each tile: the epilogue, during
which the next one's first copies come; and the first tile, whose copies nothing hides."""

_PRODUCT_BYTES = 4096
"""Bytes of k that a multiprocessor multiplies, for as many pairs of a row and a column, a cycle."""


_MOST_OF_WIDE = 128
"""Columns of a tile whose outputs are of 64 bits."""

OUTPUT_BYTES = 2 * ROWS * LINE_BYTES
"""Of each warpgroup that multiplies: two slabs of its outputs."""


@dataclass(frozen=True)
class WgmmaTile(IntegerStrategy):
    """A block's tile, `rows` x `columns`, 64 rows for each of its warpgroups that multiply, and
    `stages` steps of 128 bytes of k in shared memory at a time. Of a `cluster`, blocks have tiles
    below one another; each copies a part of the columns' tile, to all."""

    rows: int
    columns: int
    stages: int
    cluster: int = 1

    @property
    def consumers(self) -> int:
        """Warpgroups that multiply; one more copies."""
        return self.rows // ROWS

    def down(self, rows: int) -> int:
        """Tiles below one another of so many rows. Clusters are whole: one may lie beyond them."""
        return -(-rows // (self.rows * self.cluster)) * self.cluster

    @property
    def threads(self) -> int:
        return (self.consumers + 1) * WARPGROUP

    @property
    def stage_bytes(self) -> int:
        return (self.rows + self.columns) * LINE_BYTES

    @property
    def output_start(self) -> int:
        """Where outputs lie on their way to memory: behind the tiles, and before these as much as
        keeps them aligned, for barriers."""
        return ATOM_BYTES + self.stages * self.stage_bytes

    @property
    def shared_bytes(self) -> int:
        return self.output_start + self.consumers * OUTPUT_BYTES


TILES = (
    WgmmaTile(128, 256, stages=4),
    WgmmaTile(128, 256, stages=4, cluster=2),
    WgmmaTile(128, 192, stages=4),
    WgmmaTile(128, 192, stages=4, cluster=2),
    WgmmaTile(128, 128, stages=6),
    WgmmaTile(128, 128, stages=6, cluster=2),
    WgmmaTile(128, 64, stages=8),
    WgmmaTile(128, 64, stages=8, cluster=2),
)
BLOCKS = 1
"""Of each, on a multiprocessor at a time."""

CONSUMER_REGISTERS, PRODUCER_REGISTERS = 232, 40
"""Of a thread, with two warpgroups that multiply: 64,512 in all, which is what 384 threads get."""


def takes(kind: MatrixType, target: NvidiaTarget) -> bool:
    """Whether warpgroups of `target` multiply operands of `kind`."""
    return kind.ptx in dict(target.matrix_instructions).get(INSTRUCTION, ())


def choose(
    shape: ContractionShape, kind: MatrixType, target: NvidiaTarget, *, wide: bool = False
) -> WgmmaTile:
    """The tile with the least estimated time on `target`; of equal ones, the first. Clusters need
    two tiles below one another; outputs that are `wide`, of 64 bits, registers beside the sums."""
    tiles = [
        tile
        for tile in TILES
        if shape.m > tile.rows * (tile.cluster - 1) and (not wide or tile.columns <= _MOST_OF_WIDE)
    ]
    return min(tiles, key=lambda tile: cycles(tile, shape, kind, target))


def cycles(
    tile: WgmmaTile, shape: ContractionShape, kind: MatrixType, target: NvidiaTarget
) -> float:
    """Estimated time: as many rounds of tiles as the multiprocessors need, each as long as its
    products or its copies take."""
    tiles = tile.down(shape.m) * -(-shape.n // tile.columns) * shape.extent(shape.batch)
    rounds = -(-tiles // target.multiprocessors)
    steps = -(-shape.k * kind.bytes // LINE_BYTES)
    multiply = tile.rows * tile.columns * LINE_BYTES / _PRODUCT_BYTES
    copy = (tile.rows + tile.columns // tile.cluster) * LINE_BYTES / L2_BYTES
    return rounds * (steps * (max(multiply, copy) + _STEP_CYCLES) + _TILE_CYCLES) + _FIRST_CYCLES
