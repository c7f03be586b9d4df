"""How a contraction is tiled for `wgmma`: the strategy, and the cost model that chooses it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from stepwell.kernels.cpu.contraction_strategy import ContractionShape
from stepwell.kernels.gpu.hopper import ATOM_BYTES, LINE_BYTES, ROWS, WARPGROUP
from stepwell.kernels.gpu.mma_tile import L2_BYTES
from stepwell.kernels.gpu.tensor_core import SPLIT_F32, MatrixType
from stepwell.kernels.strategy import IntegerStrategy
from stepwell.targets.nvidia import NvidiaTarget

INSTRUCTION = "wgmma"

_STEP_CYCLES, _TILE_CYCLES, _FIRST_CYCLES = 20, 800, 700
"""What each step takes beside multiplying and copying: barriers; each tile: the epilogue, during
which the next one's first copies come; and the first tile, whose copies nothing hides."""

_PRODUCT_BYTES = 4096
"""Bytes of k that a multiprocessor multiplies, for as many pairs of a row and a column, a cycle."""

_SHARED_BYTES = 128
"""Bytes of shared memory that a multiprocessor reads or writes a cycle."""

_FENCE_CYCLES, _FLAG_CYCLES = 1000, 1000
"""What it takes until partial sums are in L2 and a flag says so, and until another block sees it,
where that block waits for it already."""

_MOST_L2_BYTES = 64
"""Bytes that a multiprocessor gets from L2 a cycle while few read."""

_L2_SIZE, _MEMORY_BYTES = 50 << 20, 14
"""Bytes of an H100's L2, and those that each multiprocessor gets from memory a cycle."""

_GAIN = 0.8
"""Blocks share tiles where that is to take less than this part of the time. The estimate leaves out
that blocks start and wait unevenly, and that their partial sums meet the operands on the way to L2:
on an H200 such products take 1.2 to 1.5 times as long as it says, others as long."""

_MOST_OF_WIDE = 128
"""Columns of a tile whose outputs are of 64 bits."""

_SUM_BYTES = 4

_WORDS = 1 << 31
"""What a word counts."""

OUTPUT_BYTES = 2 * ROWS * LINE_BYTES
"""Of each warpgroup that multiplies: two slabs of its outputs."""


@dataclass(frozen=True)
class WgmmaTile(IntegerStrategy):
    """A block's tile, `rows` x `columns`, 64 rows for each of its warpgroups that multiply, and
    `stages` steps of 128 bytes of k in shared memory at a time. Of a `cluster`, blocks have tiles
    below one another; each copies a part of the columns' tile, to all. With `sharing` blocks, the
    most that are launched, those share the tiles of the last rounds by equal numbers of steps
    (stream-K, see `step_shares`); with 0 each tile is one block's. With 2 `parts`, a stage has room
    for the low parts of what is multiplied, too (`wgmma_split`)."""

    rows: int
    columns: int
    stages: int
    cluster: int = 1
    sharing: int = 0
    parts: int = 1

    @property
    def consumers(self) -> int:
        """Warpgroups that multiply; one more copies."""
        return self.rows // ROWS

    def down(self, rows: int) -> int:
        """Tiles below one another of so many rows. Clusters are whole: one may lie beyond them."""
        return -(-rows // (self.rows * self.cluster)) * self.cluster

    def tiles(self, shape: ContractionShape) -> int:
        """Tiles of a contraction's output."""
        return self.down(shape.m) * -(-shape.n // self.columns) * shape.extent(shape.batch)

    @property
    def threads(self) -> int:
        return (self.consumers + 1) * WARPGROUP

    @property
    def stage_bytes(self) -> int:
        """Of what is copied."""
        return (self.rows + self.columns) * LINE_BYTES

    @property
    def output_start(self) -> int:
        """Where outputs lie on their way to memory: behind the tiles, and before these as much as
        keeps them aligned, for barriers."""
        return ATOM_BYTES + self.stages * self.parts * self.stage_bytes

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
SPLIT_TILES = (
    WgmmaTile(128, 128, stages=3, parts=2),
    WgmmaTile(128, 128, stages=3, parts=2, cluster=2),
    WgmmaTile(128, 64, stages=4, parts=2),
    WgmmaTile(128, 64, stages=4, parts=2, cluster=2),
)
"""Of operands that are split: registers hold three sums for each output."""

BLOCKS = 1
"""Of each, on a multiprocessor at a time."""

CONSUMER_REGISTERS, PRODUCER_REGISTERS = 232, 40
"""Of a thread, with two warpgroups that multiply: 64,512 in all, which is what 384 threads get."""


def takes(kind: MatrixType, target: NvidiaTarget) -> bool:
    """Whether warpgroups of `target` multiply operands of `kind`."""
    return kind.ptx in dict(target.matrix_instructions).get(INSTRUCTION, ())


def choose(
    shape: ContractionShape,
    kind: MatrixType,
    target: NvidiaTarget,
    *,
    wide: bool = False,
    whole_sums: bool = False,
) -> WgmmaTile:
    """The tile with the least estimated time on `target`; of equal ones, the first. Clusters need
    two tiles below one another; outputs that are `wide`, of 64 bits, registers beside the sums.
    With `whole_sums`, which number of blocks there are may not change a result."""
    tiles = [
        tile
        for tile in (SPLIT_TILES if kind.split else TILES)
        if shape.m > tile.rows * (tile.cluster - 1) and (not wide or tile.columns <= _MOST_OF_WIDE)
    ]
    shared = [
        dataclasses.replace(tile, sharing=target.multiprocessors)
        for tile in tiles
        if not whole_sums and can_share(tile, shape, kind, target.multiprocessors)
    ]

    def time(tile: WgmmaTile) -> float:
        return cycles(tile, shape, kind, target)

    best = min(tiles, key=time)
    sharing = min(shared, key=time, default=best)
    return sharing if time(sharing) < _GAIN * time(best) else best


def can_share(tile: WgmmaTile, shape: ContractionShape, kind: MatrixType, blocks: int) -> bool:
    """Whether up to `blocks` blocks, which are whole clusters, can share tiles: each has a step at
    least, and words count the steps of all."""
    tiles, steps = tile.tiles(shape), steps_of(shape, kind)
    counted = max(tiles, min(tiles, 2 * blocks) * blocks) * steps
    return blocks % tile.cluster == 0 and tiles * steps >= blocks and counted < _WORDS


def steps_of(shape: ContractionShape, kind: MatrixType) -> int:
    """Steps of a tile's sums."""
    return -(-shape.k * kind.bytes // LINE_BYTES)


def _split_bytes(tile: WgmmaTile) -> int:
    """What a step of operands that are split writes to shared memory and reads: the copies, to
    which low parts are added, and for each product both operands."""
    multiplied = tile.consumers * (ROWS + tile.columns) * LINE_BYTES
    return 3 * tile.stage_bytes + SPLIT_F32.products * multiplied


def cycles(
    tile: WgmmaTile, shape: ContractionShape, kind: MatrixType, target: NvidiaTarget
) -> float:
    """Estimated time: as many rounds of tiles as the multiprocessors need, each as long as its
    products or its copies take. Blocks that share tiles have less than a round at the end, and hand
    partial sums to each other."""
    blocks, tiles, steps = target.multiprocessors, tile.tiles(shape), steps_of(shape, kind)
    multiply = tile.rows * tile.columns * LINE_BYTES / _PRODUCT_BYTES
    if kind.split:
        multiply = max(kind.products * multiply, _split_bytes(tile) / _SHARED_BYTES)
    copy = (tile.rows + tile.columns // tile.cluster) * LINE_BYTES / L2_BYTES
    step = max(multiply, copy) + _STEP_CYCLES
    if not tile.sharing:
        rounds = -(-tiles // blocks)
        return rounds * (steps * step + _TILE_CYCLES) + _FIRST_CYCLES
    whole = max(tiles // blocks - 1, 0)
    share = -(-(tiles - whole * blocks) * steps // blocks)
    ends = whole + -(-share // steps)
    # Each block is at another step, so that few read the same at a time.
    operands = (shape.m + shape.n) * shape.k * shape.extent(shape.batch) * kind.bytes
    missing = max(0.0, 1 - _L2_SIZE / operands)
    apart = max(step, missing * copy * L2_BYTES / _MEMORY_BYTES + _STEP_CYCLES)
    total = whole * steps * step + share * apart + ends * _TILE_CYCLES + _FIRST_CYCLES
    sums = tile.rows * tile.columns * _SUM_BYTES
    if share >= steps:
        # The next block has begun with what it hands over.
        return total + 2 * sums / L2_BYTES + _FENCE_CYCLES
    others = -(-steps // share)
    reading = min(_MOST_L2_BYTES, L2_BYTES * blocks / tiles)
    return total + sums / L2_BYTES + others * sums / reading + _FENCE_CYCLES + _FLAG_CYCLES
