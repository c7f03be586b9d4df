"""Tiles of a contraction's operand in shared memory: a ring of them, filled ahead of their use.

A tile is lines of 16-byte chunks. Lines are rows (or columns) and run along k where k is contiguous
in memory; else they are places of k and run along the rows, and fragments are transposed on their
way to registers. Chunk c of line r lies at c xor s(r), so that the 8 lines that one instruction
reads at a time, and the chunks that a warp writes, are in different banks.

Copies are asynchronous where memory holds whole chunks. Other operands (odd extents, arithmetic,
bytes whose k is not contiguous) are gathered element by element, read before the products of a step
and written after them.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass

from stepwell.kernels.builder import Lanes, arith, vector
from stepwell.kernels.gpu import tensor_core
from stepwell.kernels.gpu.mma_tile import MmaTile
from stepwell.kernels.gpu.tensor_core import CHUNK_BYTES, COLUMNS, MatrixType
from stepwell.kernels.gpu.tile_space import TileSpace
from stepwell.kernels.index import Index, Variable, apply_map, delinearize, linearize
from stepwell.kernels.structured import element_type, shape_of
from stepwell.mlir import ir

BANK_CHUNKS = 8
"""Chunks that shared memory reads at a time: one from each group of four banks."""

COLUMN_GROUP = 32
"""Columns whose order is changed, so that each thread's sums are 8 neighbours."""


@dataclass(frozen=True)
class _Piece:
    """A chunk that a thread copies in every step: its number in the tile, where it goes to, its
    first place in k (of the step) and its first row or column, and whether that exists (None: it
    always does)."""

    number: Index
    to: ir.Value
    k: Index
    place: Index
    inside: ir.Value | None


class OperandRing:
    """The tiles of one operand."""

    def __init__(
        self, space: TileSpace, kind: MatrixType, operand: int, tile: MmaTile, extent: int
    ) -> None:
        self.space = space
        self.nest = space.nest
        self.kind = kind
        self.operand = operand
        self.value = space.op.inputs[operand]
        self.tile = tile
        self.extent = extent
        self.depth = tile.depth // kind.bytes
        self.along_k = self._is_chunked(along_k=True)
        self.is_async = self.along_k or (kind.bytes > 1 and self._is_chunked(along_k=False))
        self.lines_along_k = self.along_k or not self.is_async
        self.lines, line = (extent, self.depth) if self.lines_along_k else (self.depth, extent)
        self.line = line
        """Elements of a line."""
        self.chunks = line // kind.chunk
        self.size = self.lines * line
        self.is_permuted = self.lines_along_k and operand == space.shape.rhs
        """Whether lines of columns are in the order that gives each thread 8 neighbours."""
        self.stored = kind.stored if kind.is_float8 else element_type(self.value)
        self.buffer = self.nest.shared([tile.stages * self.size], self.stored, kind.bytes)

    @property
    def is_constant(self) -> bool:
        """Whether copies read weights alone, which may begin before all else."""
        found = self.space.view(
            self.operand, apply_map(self.space.op.maps[self.operand], self._dims())
        )
        if not self.is_async or found is None:
            return False
        computed = any(index.is_computed for index in found[1])
        return not computed and found[0] in self.space.group.constants

    def _dims(self) -> list[Index]:
        """Any point."""
        sizes = self.space.shape.sizes
        return [Index.of(Variable(f"d{i}", 0, max(n, 1) - 1)) for i, n in enumerate(sizes)]

    # Layout

    def swizzle(self, line: Index) -> Index:
        """What the number of a chunk is changed by in `line`."""
        group = min(self.chunks, BANK_CHUNKS)
        turn = line.floordiv(max(1, BANK_CHUNKS // self.chunks))
        if self.kind.bytes == 4 and not self.lines_along_k:
            # A warp reads 4 lines, two chunks of each.
            return turn.mod(group // 2) * 2
        return turn.mod(group)

    def at(self, line: Index, chunk: Index) -> ir.Value:
        """The place of a chunk in a tile, in elements."""
        moved = self.nest.exclusive_or(chunk, self.swizzle(line))
        start = self.nest.index_value(line * self.line, Lanes.of(1))
        return self.nest.plus(start, self.nest.times(moved, self.kind.chunk))

    def _column_of(self, line: Index) -> Index:
        """The row or column that `line` holds: columns 8q + 2j + b of 32 in line 8j + 2q + b."""
        if not self.is_permuted:
            return line
        inner = line.mod(COLUMN_GROUP)
        pair, tile = inner.mod(COLUMNS).floordiv(2), inner.floordiv(COLUMNS)
        return line.floordiv(COLUMN_GROUP) * COLUMN_GROUP + pair * 8 + tile * 2 + line.mod(2)

    # Where elements come from

    def _is_chunked(self, *, along_k: bool) -> bool:
        """Whether memory holds whole aligned chunks along k, or along the rows or columns."""
        shape, chunk = self.space.shape, self.kind.chunk
        outer = shape.rows if self.operand == shape.lhs else (shape.column,)
        moving = [d for d in (shape.reduced if along_k else outer) if shape.sizes[d] > 1]
        if not moving or shape.sizes[moving[-1]] % chunk:
            return False
        lanes = Lanes.of(chunk)
        dims = self._dims()
        last = Variable("chunk", 0, shape.sizes[moving[-1]] // chunk - 1)
        dims[moving[-1]] = Index.of(last) * chunk + lanes.index
        found = self.space.view(self.operand, apply_map(self.space.op.maps[self.operand], dims))
        if found is None:
            return False
        flat = linearize(found[1], shape_of(found[0]))
        start = lanes.at(flat, 0)
        aligned = not any(factor % chunk for _, factor in start.terms)
        return lanes.stride(flat) == 1 and aligned and start.constant % chunk == 0

    # Copies

    def prepare(self, dims: list[Index], first: Index, thread: Index) -> None:
        """Compute, before the loop over k, what a thread's copies need in every step: `first` is
        the tile's first row or column."""
        self.dims = dims
        self.pieces: list[_Piece] = []
        nest, threads = self.nest, self.tile.threads
        for number in range(-(-self.lines * self.chunks // threads)):
            flat = nest.named("piece", thread + number * threads)
            if self.is_async or self._is_gathered_along_k():
                line, chunk = delinearize(flat, [self.lines, self.chunks])
            else:
                chunk, line = delinearize(flat, [self.chunks, self.lines])
            line, chunk = nest.named("line", line), nest.named("chunk", chunk)
            if self.lines_along_k:
                k, place = chunk * self.kind.chunk, first + self._column_of(line)
            else:
                k, place = line, first + chunk * self.kind.chunk
            place = nest.named("place", place)
            inside = nest.below([(place, self.space.limit(self.operand))])
            self.pieces.append(_Piece(flat, self.at(line, chunk), k, place, inside))
        self.step = Variable("step", 0, max(0, self._steps() - 1))
        if self.is_async:
            self.sources = [self._source(piece) for piece in self.pieces]

    def _steps(self) -> int:
        return -(-self.space.shape.k // self.depth)

    def _is_gathered_along_k(self) -> bool:
        """Whether neighbouring threads gather neighbours in k rather than in rows or columns."""
        shape = self.space.shape
        dims = [Variable(f"d{i}", 0, max(n, 1) - 1) for i, n in enumerate(shape.sizes)]
        found = self.space.view(
            self.operand, apply_map(self.space.op.maps[self.operand], [Index.of(d) for d in dims])
        )
        moving = [d for d in shape.reduced if shape.sizes[d] > 1]
        if found is None or not moving:
            return True
        flat = linearize(found[1], shape_of(found[0]))
        return flat.coefficient(dims[moving[-1]]) == 1

    def _source(self, piece: _Piece) -> tuple[ir.Value, Index, Index]:
        """The 1-D buffer that a piece is copied from, and where: what does not change with the
        step, computed once, and what does."""
        k = Index.of(self.step) * self.depth + piece.k
        found = self.space.view(
            self.operand, self.space.indices(self.dims, k, piece.place, self.operand)
        )
        assert found is not None
        buffer = self.space.evaluator.buffers[found[0]]
        flat = linearize(found[1], shape_of(found[0]))
        fixed = Index(
            tuple((a, c) for a, c in flat.terms if not Index(((a, 1),)).depends_on(self.step))
        )
        return self.nest.flattened(buffer), self.nest.named("source", fixed), flat - fixed

    def begin(self, step: Index, stage: ir.Value) -> list[ir.Value]:
        """Copy the tile of `step` to the ring's place `stage` (in tiles), or read it: what was read
        is to be written by `end`."""
        offset = self.nest.times(stage, self.size)
        if not self.is_async:
            return [self._gather(step, piece) for piece in self.pieces]
        for piece, (buffer, fixed, moving) in zip(self.pieces, self.sources, strict=True):
            with self._wanted(piece):
                at = fixed + moving.substitute(self.step, step)
                tensor_core.copy_async(
                    buffer,
                    self.nest.index_value(at, Lanes.of(1)),
                    self.buffer,
                    self.nest.plus(piece.to, offset),
                    self.kind,
                    self._elements(step, piece),
                )
        return []

    def _wanted(self, piece: _Piece) -> AbstractContextManager[None]:
        return self.nest.where([(piece.number, self.lines * self.chunks)])

    def _elements(self, step: Index, piece: _Piece) -> ir.Value | None:
        """How much of a chunk there is: all or nothing; None when always all."""
        nest = self.nest
        inside = nest.both(
            piece.inside, nest.below([(step * self.depth + piece.k, self.space.shape.k)])
        )
        if inside is None:
            return None
        index = ir.IndexType.get()
        some, none = (arith.ConstantOp(index, n).result for n in (self.kind.chunk, 0))
        return arith.SelectOp(inside, some, none).result

    def _gather(self, step: Index, piece: _Piece) -> ir.Value:
        """A chunk along k, from single elements; zeros outside of the operand."""
        count, limit = self.kind.chunk, self.space.shape.k
        start = step * self.depth + piece.k
        element = self.stored
        if limit % count == 0:
            return self._read(start, piece, Lanes.of(count), self.nest.zero(element, count))
        parts = [
            self._read(start + i, piece, Lanes.of(1), self.nest.zero(element, 1))
            for i in range(count)
        ]
        return vector.FromElementsOp(ir.VectorType.get([count], element), parts).result

    def _read(self, start: Index, piece: _Piece, lanes: Lanes, zero: ir.Value) -> ir.Value:
        inside = self.nest.both(piece.inside, self.nest.below([(start, self.space.shape.k)]))

        def read() -> ir.Value:
            with self.space.evaluator.scope():
                at = self.space.indices(self.dims, start + lanes.index, piece.place, self.operand)
                value = self.nest.as_vector(self.space.evaluator.at(self.value, at, lanes), lanes)
                return self._as_stored(value)

        return self.nest.choose(inside, read, zero)

    def _as_stored(self, value: ir.Value) -> ir.Value:
        """Codes, where elements are floats of 8 bits."""
        if not self.kind.is_float8:
            return value
        kind = value.type
        if isinstance(kind, ir.VectorType):
            return arith.BitcastOp(ir.VectorType.get(list(kind.shape), self.stored), value).result
        return arith.BitcastOp(self.stored, value).result

    def end(self, values: list[ir.Value], stage: ir.Value) -> None:
        """Write what `begin` has read."""
        if not values:
            return
        offset = self.nest.times(stage, self.size)
        for piece, value in zip(self.pieces, values, strict=True):
            with self._wanted(piece):
                at = self.nest.plus(piece.to, offset)
                vector.StoreOp(value, self.buffer, [at], alignment=CHUNK_BYTES)
