"""Products of f32 by warpgroups: three of tf32 for each (`split_f32`).

The tiles of a stage are the high parts of both operands, as tensor cores take them. The warpgroups
that multiply write the low parts behind them, at the same places, each those of its own rows and of
its share of the columns:

    low parts of both tiles; show them to the tensor cores; wait for the other warpgroups
    ask for high * high                      (sums that begin anew in each step)
    ask for low * high + high * low          (sums of all steps: what is cut of them is tiny)
    wait for high * high; add it to the sums of the steps before, in f32

While a step's small products are under way, its large ones are added, and the next one's low parts
are computed.
"""

from __future__ import annotations

from stepwell.kernels.builder import arith
from stepwell.kernels.gpu import hopper, split_f32
from stepwell.kernels.gpu.hopper import LINE_BYTES, ROWS, STEP_BYTES, WARPGROUP
from stepwell.kernels.gpu.tensor_core import CHUNK_BYTES, MatrixType
from stepwell.kernels.gpu.wgmma_tile import WgmmaTile
from stepwell.mlir import dialect, ir

llvm = dialect("llvm")

_WORD_BYTES = 4


class SplitProducts:
    """The products of one warpgroup: `shared` is where the block's shared memory begins, `group`
    (a word) the warpgroup's number among those that multiply, `thread` (a word) the thread's in
    it."""

    def __init__(
        self, tile: WgmmaTile, kind: MatrixType, shared: ir.Value, group: ir.Value, thread: ir.Value
    ) -> None:
        self.tile = tile
        self.kind = kind
        self.shared = shared
        self.base = hopper.address_of(shared)
        self.own = hopper.times(group, ROWS * LINE_BYTES)
        self.count = tile.columns // 2
        """A thread's sums."""
        chunk = hopper.times(thread, CHUNK_BYTES)
        share = tile.columns * LINE_BYTES // tile.consumers
        columns = hopper.plus(hopper.times(group, share), tile.rows * LINE_BYTES)
        self.parts = [
            (hopper.plus(chunk, start), bytes_)
            for start, bytes_ in ((self.own, ROWS * LINE_BYTES), (columns, share))
        ]
        """Where in a stage the thread's chunks begin of which it computes low parts, and how many
        bytes its warpgroup has."""

    def no_sums(self) -> list[ir.Value]:
        """Sums of nothing: of large products, and of small ones."""
        zero = arith.ConstantOp(ir.F32Type.get(), 0.0).result
        return [zero] * (2 * self.count)

    def add(self, sums: list[ir.Value], at: ir.Value) -> list[ir.Value]:
        """`sums` and the products of the tiles at `at` (bytes of the shared memory). The small ones
        are still under way; those of the step before are done."""
        self._write_low_parts(at)
        hopper.show_stores()
        tile = self.tile
        hopper.group_barrier(hopper.word(tile.consumers + 1), tile.consumers * WARPGROUP)
        left, right = (
            [hopper.descriptor(hopper.plus(place, part * tile.stage_bytes), 0) for part in range(2)]
            for place in (
                hopper.plus(hopper.plus(self.base, at), self.own),
                hopper.plus(hopper.plus(self.base, at), tile.rows * LINE_BYTES),
            )
        )
        hopper.begin_products()
        large = self._products(None, left[0], right[0])
        hopper.commit_products()
        small = sums[self.count :]
        for a, b in ((left[1], right[0]), (left[0], right[1])):
            small = self._products(small, a, b)
        hopper.commit_products()
        large = hopper.wait_for(large, 1)
        total = [
            arith.AddFOp(before, part).result
            for before, part in zip(sums[: self.count], large, strict=True)
        ]
        return [*total, *small]

    def total(self, sums: list[ir.Value]) -> list[ir.Value]:
        """The sums of all products, for which it waits."""
        small = hopper.wait_for(sums[self.count :], 0)
        return [
            arith.AddFOp(large, split_f32.finite_or_zero(part)).result
            for large, part in zip(sums[: self.count], small, strict=True)
        ]

    def _products(
        self, sums: list[ir.Value] | None, left: ir.Value, right: ir.Value
    ) -> list[ir.Value]:
        for step in range(LINE_BYTES // STEP_BYTES):
            a, b = (hopper.further(operand, step * STEP_BYTES) for operand in (left, right))
            sums = hopper.multiply_into(sums, a, b, self.tile.columns, self.kind)
        assert sums is not None
        return sums

    def _write_low_parts(self, at: ir.Value) -> None:
        kind = ir.VectorType.get([CHUNK_BYTES // _WORD_BYTES], ir.F32Type.get())
        for start, bytes_ in self.parts:
            for offset in range(0, bytes_, WARPGROUP * CHUNK_BYTES):
                place = hopper.at(self.shared, hopper.plus(hopper.plus(at, start), offset))
                numbers = llvm.load(kind, place, alignment=CHUNK_BYTES)
                low = hopper.at(place, self.tile.stage_bytes)
                hopper.store_shared(split_f32.low_part(numbers), low)
