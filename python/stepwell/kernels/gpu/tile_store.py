"""Outputs of a warpgroup by way of shared memory: the GPU copies boxes of them by itself.

A warpgroup has the sums of 64 rows. Of every 128 bytes of columns each thread puts its pairs into
one of two slabs, swizzled as tensor maps say; then one thread asks for the copy, which goes on
while the next slab is filled, and during the next tile:

    for each slab of columns:
        read what the epilogue of the next slab reads   (that of the first: before the products)
        wait until the copy before the last has read its slab
        write pairs to it; show them to the copies' engine
        copy the slab to the output                     (what lies outside of the array is left out)

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
        self.lanes = Lanes.of(_PAIR)

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

    def begin(self, dims: list[Index], row: Index, column: Index) -> None:
        """Begin a tile, of which the group has the rows from `row` on, and the columns from
        `column` on: read what its first slab needs. In the scope of the tile, before its products
        where registers are left for it."""
        self.dims, self.first_row, self.first_column = dims, row, column
        rows = (row + self.row + high * _HIGH for high in range(2))
        self.rows = [self.space.nearest(place, self.space.shape.m, 1) for place in rows]
        self.places = self._read_ahead(0)

    def write(self, sums: list[ir.Value]) -> None:
        """Write the outputs of the tile; `sums` are a thread's as `hopper.numbers` gives them."""
        for slab in range(self.slabs):
            number = slab % _SLABS
            places = self.places
            if slab + 1 < self.slabs:
                self.places = self._read_ahead(slab + 1)
            with hopper.when(self.leads):
                # An odd number of slabs ends with the one that the next tile begins with.
                hopper.wait_stores(0 if not slab and self.slabs % _SLABS else _SLABS - 1)
            hopper.group_barrier(self.barrier, WARPGROUP)
            self._fill(places, number, sums[slab * self.width // 2 :][: self.width // 2])
            hopper.show_stores()
            hopper.group_barrier(self.barrier, WARPGROUP)
            with hopper.when(self.leads):
                start = self.first_column + slab * self.width
                at = [start, self.first_row, *(self.dims[d] for d in self.array.batch)]
                slab_at = hopper.at(self.shared, number * _SLAB_BYTES)
                hopper.store_box(self.pointer, [self._word(i) for i in at], slab_at)

    def finish(self) -> None:
        """Wait until all slabs are read: until then the block has to stay."""
        with hopper.when(self.leads):
            hopper.wait_stores(0)

    def _read_ahead(self, slab: int) -> list[list[Index]]:
        """Where the result has this thread's pairs of a slab, in the order of its sums; what the
        epilogue reads there is loaded."""
        places = []
        first = self.first_column + slab * self.width + self.lane.mod(4) * _PAIR
        for group in range(self.width // _GROUP):
            own = self.space.nearest(first + group * _GROUP, self.space.shape.n, _PAIR)
            places += [self.space.result_at(self.dims, row, own, self.lanes) for row in self.rows]
        for at in places:
            self.space.read_ahead(at, self.lanes)
        return places

    def _fill(self, places: list[list[Index]], slab: int, sums: list[ir.Value]) -> None:
        """Put the outputs at `places` into a slab: of every 8 columns, two of each of two rows."""
        pairs = []
        for number, at in enumerate(places):
            kind = ir.VectorType.get([_PAIR], sums[0].type)
            total = vector.FromElementsOp(kind, sums[_PAIR * number :][:_PAIR]).result
            pairs.append(self.space.output(at, total, self.lanes))
        for number in range(0, len(pairs), 4 if self.by_matrices else 1):
            group, high = divmod(number, 2)
            at = self._at(slab, group, high * _HIGH)
            if self.by_matrices:
                hopper.store_matrices(pairs[number : number + 4], at)
            else:
                hopper.store_shared(pairs[number], at)

    def _at(self, slab: int, group: int, row: int) -> ir.Value:
        """The address in a slab of this thread's part of 8 columns, `row` rows further."""
        inside = hopper.exclusive_or(self.place, hopper.word(group * _GROUP * self.bytes))
        offset = slab * _SLAB_BYTES + row * LINE_BYTES
        return hopper.at(self.shared, hopper.plus(hopper.plus(self.line, inside), offset))

    def _word(self, index: Index) -> ir.Value:
        return hopper.as_word(self.space.nest.index_value(index, Lanes.of(1)))
