"""Outputs of a warpgroup by way of shared memory: the GPU copies boxes of them by itself.

A warpgroup has the sums of 64 rows. Of every 128 bytes of columns each thread puts its pairs into
one of two slabs, swizzled as tensor maps say, so that the threads of a warp write all banks; then
one thread asks for the copy, which goes on while the next slab is filled, and during the next tile:

    for each slab of columns:
        wait until the copy before the last has read its slab
        write pairs to it; show them to the copies' engine
        copy the slab to the output              (what lies outside of the array is left out)
"""

from __future__ import annotations

from stepwell.kernels.builder import Lanes, vector
from stepwell.kernels.gpu import hopper
from stepwell.kernels.gpu.hopper import LINE_BYTES, ROWS, WARPGROUP
from stepwell.kernels.gpu.tensor_map import TensorMap
from stepwell.kernels.gpu.tile_space import TileSpace
from stepwell.kernels.gpu.wgmma_tile import OUTPUT_BYTES
from stepwell.kernels.index import Index
from stepwell.mlir import ir
from stepwell.targets.nvidia import WARP

_SLAB_BYTES = ROWS * LINE_BYTES
_SLABS = OUTPUT_BYTES // _SLAB_BYTES
_PAIR, _GROUP = 2, 8
"""Neighbours that a thread has, of groups of columns that four threads share."""

_HIGH = 8
"""Rows between a thread's two."""


class TileStore:
    """The way of one warpgroup's tile to the output that `array` describes."""

    def __init__(self, space: TileSpace, array: TensorMap, pointer: ir.Value, columns: int) -> None:
        self.space = space
        self.array = array
        self.pointer = pointer
        self.width = array.box[0]
        self.slabs = columns // self.width

    def prepare(self, shared: ir.Value, barrier: ir.Value, thread: Index) -> None:
        """What all tiles of a thread have in common: the group's slabs lie at `shared`, `barrier`
        (a word) is the number of a barrier for its threads, `thread` this one's number in the
        block."""
        nest = self.space.nest
        self.shared, self.barrier = shared, barrier
        self.lane = nest.named("lane", thread.mod(WARP))
        warp = nest.named("warp", thread.floordiv(WARP).mod(WARPGROUP // WARP))
        self.row = nest.named("store_row", warp * (2 * _HIGH) + self.lane.floordiv(4))
        own, row, line = (
            hopper.as_word(nest.index_value(index, Lanes.of(1)))
            for index in (thread.mod(WARPGROUP), self.lane.floordiv(4), self.row * LINE_BYTES)
        )
        self.leads = hopper.is_equal(own, 0)
        pair_bytes = _PAIR * LINE_BYTES // self.width
        pair = hopper.as_word(nest.index_value(self.lane.mod(4) * pair_bytes, Lanes.of(1)))
        self.line = line
        self.place = hopper.exclusive_or(pair, hopper.times(row, 16))

    def write(self, dims: list[Index], row: Index, column: Index, sums: list[ir.Value]) -> None:
        """Write the outputs of the group's rows from `row` on, and of the columns from `column` on;
        `sums` are a thread's as `hopper.numbers` gives them."""
        groups = self.width // _GROUP
        for slab in range(self.slabs):
            number = slab % _SLABS
            start = column + slab * self.width
            with hopper.when(self.leads):
                # An odd number of slabs ends with the one that the next tile begins with.
                hopper.wait_stores(0 if not slab and self.slabs % _SLABS else _SLABS - 1)
            hopper.group_barrier(self.barrier, WARPGROUP)
            for group in range(groups):
                for high in range(2):
                    first = 4 * (slab * groups + group) + 2 * high
                    self._put(dims, row, start, (number, group, high), sums[first : first + _PAIR])
            hopper.show_stores()
            hopper.group_barrier(self.barrier, WARPGROUP)
            with hopper.when(self.leads):
                at = [start, row, *(dims[d] for d in self.array.batch)]
                places = [hopper.as_word(self.space.nest.index_value(i, Lanes.of(1))) for i in at]
                slab_at = hopper.at(self.shared, number * _SLAB_BYTES)
                hopper.store_box(self.pointer, places, slab_at)

    def finish(self) -> None:
        """Wait until all slabs are read: until then the block has to stay."""
        with hopper.when(self.leads):
            hopper.wait_stores(0)

    def _put(
        self,
        dims: list[Index],
        row: Index,
        column: Index,
        place: tuple[int, int, int],
        pair: list[ir.Value],
    ) -> None:
        """Put the outputs of a pair into the slab: `place` is the slab, the group of 8 columns, and
        whether it is the thread's higher row."""
        slab, group, high = place
        group_bytes = _GROUP * LINE_BYTES // self.width
        offset = slab * _SLAB_BYTES + high * _HIGH * LINE_BYTES
        inside = hopper.exclusive_or(self.place, hopper.word(group * group_bytes))
        to = hopper.at(self.shared, hopper.plus(hopper.plus(self.line, inside), offset))
        total = vector.FromElementsOp(ir.VectorType.get([_PAIR], pair[0].type), pair).result
        own = column + group * _GROUP + self.lane.mod(4) * _PAIR
        self.space.finish(
            dims,
            row + self.row + high * _HIGH,
            own,
            total,
            store=lambda value: hopper.store_shared(value, to),
        )
