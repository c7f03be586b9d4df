"""From shared memory to registers: the fragments that a warp multiplies.

A fragment is 16 rows (or columns) by 32 bytes of k, four matrices of 8 lines of a chunk: for the
left operand in the order (rows 0-7, low k), (rows 8-15, low k), (rows 0-7, high k), (rows 8-15,
high k); for the right one, whose halves are two instructions' operands, columns 0-7 come first.
"""

from __future__ import annotations

from stepwell.kernels.builder import Lanes, memref
from stepwell.kernels.gpu import tensor_core
from stepwell.kernels.gpu.operand_ring import BANK_CHUNKS, OperandRing
from stepwell.kernels.gpu.tensor_core import ROWS
from stepwell.kernels.index import Index
from stepwell.mlir import ir

_LINES = 8


class Fragments:
    """A warp's part of an operand's tile: from row or column `first` on. `lane` is the thread's
    number in the warp."""

    def __init__(self, ring: OperandRing, first: Index, lane: Index, *, left: bool) -> None:
        self.ring = ring
        self.nest = ring.nest
        self.kind = ring.kind
        self.first = first
        self.left = left
        self.by_matrices = ring.lines_along_k or ring.kind.bytes == 2
        self.lane = lane
        self._places: dict[int, ir.Value] = {}

    def prepare(self, count: int, steps: int) -> None:
        """Compute the places of `count` fragments in each of `steps` steps of k, before the loop;
        those that differ by a constant are computed once."""
        for number in range(count):
            for step in range(steps):
                for register in range(1 if self.by_matrices else 4):
                    self._place(number, step, register)

    def load(self, number: int, step: int, offset: ir.Value) -> ir.Value:
        """Fragment `number` at `step` of the tile that starts at `offset`."""
        ring = self.ring
        if self.by_matrices:
            place, constant = self._place(number, step, 0)
            at = self.nest.plus(self.nest.plus(place, offset), constant)
            return tensor_core.load_matrices(
                ring.buffer, at, self.kind, transpose=not ring.lines_along_k
            )
        registers = []
        for register in range(4):
            place, constant = self._place(number, step, register)
            at = self.nest.plus(self.nest.plus(place, offset), constant)
            registers.append(memref.LoadOp(ring.buffer, [at]).result)
        return tensor_core.from_registers(registers)

    def _place(self, number: int, step: int, register: int) -> tuple[ir.Value, int]:
        """The place in a tile of what this thread names or reads, as a value and a constant."""
        ring, kind = self.ring, self.kind
        group = min(ring.chunks, BANK_CHUNKS)
        if ring.lines_along_k:
            chunks, constant = 2 * step, number * ROWS * ring.line
        elif self.by_matrices:
            chunks, constant = 2 * number, step * kind.step * ring.line
        else:
            low_row, low_k = (register % 2, register // 2) if self.left else divmod(register, 2)
            chunks = number * ROWS // kind.chunk + 2 * low_row
            constant = (step * kind.step + 4 * low_k) * ring.line
        low = chunks % group
        constant += (chunks - low) * kind.chunk
        if low not in self._places:
            self._places[low] = self._start(low)
        return self._places[low], constant

    def _start(self, chunk: int) -> ir.Value:
        """Where this thread's part begins, `chunk` chunks further along its line."""
        lane, ring = self.lane, self.ring
        if not self.by_matrices:
            line, row = lane.mod(4), lane.floordiv(4)
            column = self.first.floordiv(self.kind.chunk) + row.floordiv(self.kind.chunk)
            at = ring.at(line, column + chunk)
            inner = self.nest.index_value(row.mod(self.kind.chunk), Lanes.of(1))
            return self.nest.plus(at, inner)
        first_bit, second_bit = lane.floordiv(8).mod(2), lane.floordiv(16)
        row_bit, k_bit = (first_bit, second_bit) if self.left else (second_bit, first_bit)
        if ring.lines_along_k:
            line = self.first + lane.mod(_LINES) + row_bit * _LINES
            return ring.at(line, k_bit + chunk)
        line = lane.mod(_LINES) + k_bit * _LINES
        return ring.at(line, self.first.floordiv(self.kind.chunk) + row_bit + chunk)
