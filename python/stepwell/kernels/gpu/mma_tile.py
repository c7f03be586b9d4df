"""How a contraction is tiled for `mma.sync`: the strategy, and the cost model that chooses it."""

from __future__ import annotations

from dataclasses import dataclass

from stepwell.kernels.cpu.contraction_strategy import ContractionShape
from stepwell.kernels.gpu import tensor_core
from stepwell.kernels.gpu.tensor_core import STEP_BYTES, F32Products, MatrixType
from stepwell.kernels.strategy import IntegerStrategy
from stepwell.kernels.structured import Structured, element_type, is_multiply_add
from stepwell.targets.nvidia import WARP, NvidiaTarget

_LONGEST_INTEGER_SUM = (1 << 31) // (1 << 14)
"""Products of 8-bit numbers of which a sum of 32 bits holds any: the instruction saturates."""

_STEP_CYCLES, _TILE_CYCLES = 40, 600
"""What each step and each tile take of a multiprocessor beside multiplying and copying: barriers,
the first copies, the epilogue."""

_LATENCY_CYCLES, _WAIT_CYCLES, _LEAST_CYCLES = 1800, 300, 1500
"""How long blocks wait however little they do: from asking for a copy to having it, while others
ask; in a step of 128 bytes, from the barrier to the sums, and half of that in one of 64; around all
steps. Fitted to BERT and ResNet-50 at batch 1 on an H200, whose kernels are short."""

_PRODUCT_BYTES = 2048
"""Bytes of k that a multiprocessor multiplies, for as many pairs of a row and a column, a cycle."""

_SPLITTING = 1.25
"""The time of products of parts over that of as many others, on an H200: parts are computed, and
few products do not wait for one another."""

_MOST_OF_WIDENED = 32 * 32
"""Outputs of a warp whose operands are widened or split in registers."""

_REGISTERS, _REGISTERS_OF_SPLIT = 104, 160
"""Of a thread, about."""

_RESERVED_BYTES = 1 << 10
"""Of shared memory, for each block."""

L2_BYTES = 32
"""Bytes that a multiprocessor gets from L2 a cycle while all of them read: about what others have
measured on the H100."""


@dataclass(frozen=True)
class MmaTile(IntegerStrategy):
    """A block's tile, `rows` x `columns`, each warp's part of it, and how k is walked: `depth`
    bytes of every row and column a step, `stages` steps in shared memory at a time."""

    rows: int
    columns: int
    warp_rows: int
    warp_columns: int
    stages: int
    depth: int = 64

    @property
    def warps(self) -> tuple[int, int]:
        """Warps down and across."""
        return self.rows // self.warp_rows, self.columns // self.warp_columns

    @property
    def threads(self) -> int:
        down, across = self.warps
        return down * across * WARP

    @property
    def shared_bytes(self) -> int:
        return (self.rows + self.columns) * self.depth * self.stages


TILES = (
    MmaTile(128, 128, 64, 64, stages=3),
    MmaTile(128, 64, 32, 32, stages=4),
    MmaTile(64, 128, 32, 32, stages=4),
    MmaTile(64, 64, 32, 32, stages=4),
    MmaTile(64, 64, 32, 32, stages=4, depth=128),
    MmaTile(64, 64, 32, 32, stages=6, depth=128),
    MmaTile(64, 32, 32, 32, stages=6, depth=128),
    MmaTile(32, 128, 32, 32, stages=4, depth=128),
    MmaTile(32, 64, 32, 32, stages=6, depth=128),
    MmaTile(32, 32, 32, 32, stages=6, depth=128),
    MmaTile(128, 32, 32, 32, stages=4),
    MmaTile(16, 128, 16, 32, stages=5),
    MmaTile(16, 128, 16, 32, stages=5, depth=128),
    MmaTile(16, 64, 16, 32, stages=6, depth=128),
    MmaTile(32, 64, 16, 32, stages=6, depth=128),
)
"""Rings of few bytes leave room for other blocks, long ones hide how far memory is."""


def matrix_type(
    op: Structured, shape: ContractionShape, target: NvidiaTarget, f32: F32Products
) -> MatrixType | None:
    """What tensor cores of `target` multiply the operands of `op` as; None when they cannot. Sums
    are f32, or i32 where they cannot overflow."""
    if not is_multiply_add(op, widening=True):
        return None
    if any(o.operation.name == "arith.extui" for o in op.body.operations):
        return None
    left, right = (str(element_type(value)) for value in op.inputs)
    total = str(element_type(op.op.results[0]))
    kind = tensor_core.matrix_type((left, right), total, target, f32)
    if kind is not None and kind.ptx == "s8" and shape.k >= _LONGEST_INTEGER_SUM:
        return None
    return kind


def is_large_enough(shape: ContractionShape, kind: MatrixType) -> bool:
    """Whether there is work for one instruction at least."""
    return shape.n >= 8 and shape.k >= kind.step


def choose(shape: ContractionShape, kind: MatrixType, target: NvidiaTarget) -> MmaTile:
    """The tile with the least estimated time on `target`; of equal ones, the first. Operands that
    are widened or split in registers need the room of a smaller one."""
    widened = kind.split or kind.ptx in target.widened_types
    tiles = [
        tile
        for tile in TILES
        if not widened or tile.warp_rows * tile.warp_columns <= _MOST_OF_WIDENED
    ]
    return min(tiles, key=lambda tile: cycles(tile, shape, kind, target))


def cycles(tile: MmaTile, shape: ContractionShape, kind: MatrixType, target: NvidiaTarget) -> float:
    """Estimated time: rounds of as many blocks as multiprocessors have room for, whose steps take
    what their products or copies take together, or what one waits for."""
    tiles = -(-shape.m // tile.rows) * -(-shape.n // tile.columns) * shape.extent(shape.batch)
    blocks = max(1, -(-tiles // target.multiprocessors))
    together = min(blocks, _resident(tile, kind, target))
    steps = -(-shape.k * kind.bytes // tile.depth)
    multiply = tile.rows * tile.columns * tile.depth / _PRODUCT_BYTES
    if kind.split:
        multiply *= kind.products * _SPLITTING
    copy = (tile.rows + tile.columns) * tile.depth / L2_BYTES
    # A warp has the tensor core of a quarter of the multiprocessor.
    own = 4 * multiply * tile.warp_rows * tile.warp_columns / (tile.rows * tile.columns)
    busy = max(together * max(multiply, copy), own) + together * _STEP_CYCLES
    wait = max(_LATENCY_CYCLES / (tile.stages - 1), _WAIT_CYCLES * tile.depth / 128)
    around = max(together * _TILE_CYCLES, _LEAST_CYCLES)
    return -(-blocks // together) * (steps * max(busy, wait) + around)


def _resident(tile: MmaTile, kind: MatrixType, target: NvidiaTarget) -> int:
    """How many blocks a multiprocessor has room for."""
    registers = _REGISTERS_OF_SPLIT if kind.split else _REGISTERS
    return min(
        target.sm_shared_bytes // (tile.shared_bytes + _RESERVED_BYTES),
        target.sm_threads // tile.threads,
        target.sm_registers // (tile.threads * registers),
        target.sm_blocks,
    )


def steps_of(tile: MmaTile) -> int:
    """Instructions along k in one step of a tile."""
    return tile.depth // STEP_BYTES
