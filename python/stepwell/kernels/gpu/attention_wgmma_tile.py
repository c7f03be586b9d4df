"""How attention is tiled for the warpgroups of sm_90a: the tile, and what chooses it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from stepwell.kernels.gpu import wgmma_tile
from stepwell.kernels.gpu.attention import AttentionParts
from stepwell.kernels.gpu.hopper import ATOM_BYTES, LINE_BYTES, ROWS
from stepwell.kernels.gpu.wgmma_tile import CONSUMER_REGISTERS, OUTPUT_BYTES, PRODUCER_REGISTERS
from stepwell.targets.nvidia import NvidiaTarget

_ELEMENT_BYTES = 2
_MOST_FEATURES = 128
"""More take more registers than a thread has, beside the scores."""

_KEYS = (64, 128)
_MOST_STAGES = 4
QUERY_STAGES = 2
"""Blocks of queries in shared memory: the next one's come while this one's keys are multiplied."""

_REGISTERS = {2: (CONSUMER_REGISTERS, PRODUCER_REGISTERS), 3: (160, 32)}
"""By how many warpgroups multiply: three have enough for lines of 128 bytes."""

_SHARE_OF_THREE = 0.83
"""The time of three that multiply over that of two, for as many queries, on an H200: the tensor
cores wait less for exponentials."""


@dataclass(frozen=True)
class WarpgroupTile:
    """A block's queries, 64 for each of its `consumers`, the warpgroups that multiply, and the
    `keys` of a tile. Lines of queries and keys are `feature_lines` times 128 bytes, those of values
    `value_lines` times."""

    keys: int
    feature_lines: int
    value_lines: int
    consumers: int = 2

    @property
    def queries(self) -> int:
        return self.consumers * ROWS

    @property
    def registers(self) -> tuple[int, int]:
        """Of a thread that multiplies, and of one that copies."""
        return _REGISTERS[self.consumers]

    @property
    def query_bytes(self) -> int:
        return self.queries * LINE_BYTES * self.feature_lines

    @property
    def key_bytes(self) -> int:
        return self.keys * LINE_BYTES * self.feature_lines

    @property
    def value_bytes(self) -> int:
        return self.keys * LINE_BYTES * self.value_lines

    @property
    def stages(self) -> int:
        """Tiles of keys and values in shared memory at a time."""
        return _MOST_STAGES // max(self.feature_lines, self.value_lines)

    @property
    def output_start(self) -> int:
        """Where the outputs' slabs begin in shared memory."""
        stages = self.stages * (self.key_bytes + self.value_bytes)
        # Before the tiles as much as keeps them aligned, for barriers.
        return ATOM_BYTES + QUERY_STAGES * self.query_bytes + stages

    @property
    def shared_bytes(self) -> int:
        return self.output_start + self.consumers * OUTPUT_BYTES


def choose(parts: AttentionParts, target: NvidiaTarget) -> WarpgroupTile | None:
    """The tile of an attention that warpgroups multiply faster than warps do: one of 16 bits whose
    features fit, and that has a block for half of the multiprocessors. Parts of keys and windows
    are left to warps."""
    kind = parts.kind
    if kind is None or kind.bytes != _ELEMENT_BYTES or not wgmma_tile.takes(kind, target):
        return None
    features, values = parts.scores_shape.k, parts.values_shape.n
    if max(features, values) > _MOST_FEATURES or parts.queries <= ROWS:
        return None
    if parts.key_parts > 1 or parts.window is not None:
        return None
    held = LINE_BYTES // kind.bytes
    keys = next((n for n in _KEYS if parts.keys <= n), _KEYS[-1])
    tile = WarpgroupTile(keys, -(-features // held), -(-values // held))
    if 2 * parts.batch * parts.blocks_of(tile.queries) < target.multiprocessors:
        return None
    if max(tile.feature_lines, tile.value_lines) > 1 or parts.diagonal is not None:
        return tile
    three = dataclasses.replace(tile, consumers=3)
    time = _time(three, parts, target) * _SHARE_OF_THREE
    return three if time < _time(tile, parts, target) else tile


def _time(tile: WarpgroupTile, parts: AttentionParts, target: NvidiaTarget) -> int:
    """Queries that a multiprocessor has one behind another."""
    blocks = parts.batch * parts.blocks_of(tile.queries)
    return -(-blocks // target.multiprocessors) * tile.queries
