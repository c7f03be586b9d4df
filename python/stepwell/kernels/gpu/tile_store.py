"""Outputs of a warpgroup by way of shared memory: the GPU copies boxes of them by itself.

A warpgroup has the sums of 64 rows. Of every 128 bytes of columns each thread puts its pairs into
one of two slabs, swizzled as tensor maps say; then one thread asks for the copy, which goes on
while the next slab is filled, and during the next tile:

    for each slab of columns:
        wait until the copy before the last has read its slab
        write pairs to it; show them to the copies' engine
        copy the slab to the output              (what lies outside of the array is left out)

Pairs of 16 bits are what `stmatrix` takes: a warp writes its 16 rows of 16 columns at once, the 8
rows of each matrix to 8 different chunks of the banks. Wider pairs are written by each thread.
"""

from __future__ import annotations

from stepwell.kernels.builder import Lanes, vector
from stepwell.kernels.gpu import hopper
from stepwell.kernels.gpu.hopper import LINE_BYTES, MATRIX_BYTES, ROWS, WARPGROUP
from stepwell.kernels.gpu.tensor_core import CHUNK_BYTES
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
        self.bytes = LINE_BYTES // self.width
        self.by_matrices = self.bytes == MATRIX_BYTES
        self.slabs = columns // self.width

    def prepare(self, shared: ir.Value, barrier: ir.Value, thread: Index) -> None:
        """What all tiles of a thread have in common: the group's slabs lie at `shared`, `barrier`
        (a word) is the number of a barrier for its threads, `thread` this one's number in the
        block."""
        nest = self.space.nest
        self.shared, self.barrier = shared, barrier
        self.lane = nest.named("lane", thread.mod(WARP))
        warp = nest.named("warp", thread.floordiv(WARP).mod(WARPGROUP // WARP))
        first = warp * (2 * _HIGH)
        self.row = nest.named("store_row", first + self.lane.floordiv(4))
        self.leads = hopper.is_equal(self._word(thread.mod(WARPGROUP)), 0)
        if self.by_matrices:
            # Matrices: the lower rows of 8 columns, their higher ones, the same of the next 8.
            line, within = self.lane.mod(_HIGH), self.lane.floordiv(2 * _HIGH) * CHUNK_BYTES
            row = first + self.lane.floordiv(_HIGH).mod(2) * _HIGH + line
        else:
            line, within = self.lane.floordiv(4), self.lane.mod(4) * (_PAIR * self.bytes)
            row = self.row
        self.line = self._word(row * LINE_BYTES)
        self.place = hopper.exclusive_or(self._word(within), self._word(line * CHUNK_BYTES))

    def write(self, dims: list[Index], row: Index, column: Index, sums: list[ir.Value]) -> None:
        """Write the outputs of the group's rows from `row` on, and of the columns from `column` on;
        `sums` are a thread's as `hopper.numbers` gives them."""
        for slab in range(self.slabs):
            number = slab % _SLABS
            start = column + slab * self.width
            with hopper.when(self.leads):
                # An odd number of slabs ends with the one that the next tile begins with.
                hopper.wait_stores(0 if not slab and self.slabs % _SLABS else _SLABS - 1)
            hopper.group_barrier(self.barrier, WARPGROUP)
            self._fill(dims, row, start, number, sums[slab * self.width // 2 :][: self.width // 2])
            hopper.show_stores()
            hopper.group_barrier(self.barrier, WARPGROUP)
            with hopper.when(self.leads):
                at = [start, row, *(dims[d] for d in self.array.batch)]
                slab_at = hopper.at(self.shared, number * _SLAB_BYTES)
                hopper.store_box(self.pointer, [self._word(i) for i in at], slab_at)

    def finish(self) -> None:
        """Wait until all slabs are read: until then the block has to stay."""
        with hopper.when(self.leads):
            hopper.wait_stores(0)

    def _fill(
        self, dims: list[Index], row: Index, column: Index, slab: int, sums: list[ir.Value]
    ) -> None:
        """Put the outputs of a slab's `sums` into it: of every 8 columns, two of each of two
        rows."""
        pairs = []
        for group in range(self.width // _GROUP):
            own = column + group * _GROUP + self.lane.mod(4) * _PAIR
            for high in range(2):
                first = 2 * _PAIR * group + _PAIR * high
                kind = ir.VectorType.get([_PAIR], sums[first].type)
                total = vector.FromElementsOp(kind, sums[first : first + _PAIR]).result
                place = row + self.row + high * _HIGH
                pairs.append(self.space.output(dims, place, own, total))
                if not self.by_matrices:
                    hopper.store_shared(pairs[-1], self._at(slab, group, high * _HIGH))
            if self.by_matrices and group % 2:
                hopper.store_matrices(pairs[-4:], self._at(slab, group - 1, 0))

    def _at(self, slab: int, group: int, row: int) -> ir.Value:
        """The address in a slab of this thread's part of 8 columns, `row` rows further."""
        inside = hopper.exclusive_or(self.place, hopper.word(group * _GROUP * self.bytes))
        offset = slab * _SLAB_BYTES + row * LINE_BYTES
        return hopper.at(self.shared, hopper.plus(hopper.plus(self.line, inside), offset))

    def _word(self, index: Index) -> ir.Value:
        return hopper.as_word(self.space.nest.index_value(index, Lanes.of(1)))
