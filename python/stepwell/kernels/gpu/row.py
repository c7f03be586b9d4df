"""Row kernels on a grid: softmax, normalisations, reductions over trailing dimensions.

As many threads share a row as hold it in registers: a warp or a part of one, a block, or, where
there are such, a cluster of blocks. They take its vectors of 16 bytes in turn, read them all before
they reduce them, and read no element, and compute no exponential, twice. Threads of a warp pass
sums round by shuffles; the sums of warps meet in shared memory, of a cluster in that of each block.
What there are no registers for, of a very long row, is read again for each reduction. All threads
of a row hold every reduction.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

from stepwell.kernels.builder import Lanes, arith
from stepwell.kernels.gpu import hopper, used_tiles
from stepwell.kernels.gpu.elementwise import (
    ACCESS_BITS,
    element_bits,
    fill_halos,
    vector_lanes,
)
from stepwell.kernels.gpu.grid import GridBuilder
from stepwell.kernels.group import KernelGroup
from stepwell.kernels.index import Index, Variable, apply_map, delinearize
from stepwell.kernels.reduction import Combiner
from stepwell.kernels.rows import loop_point
from stepwell.kernels.structured import Structured, element_type, elements, shape_of
from stepwell.mlir import ir
from stepwell.targets.nvidia import WARP, NvidiaTarget

HELD_ELEMENTS, HELD_BYTES = 32, 128
"""Most of a row that a thread holds: elements, which it computes with in f32, and their bytes in
memory."""

BLOCK_THREADS = 512
"""Most threads of a block: each may have 128 registers."""

CLUSTER_THREADS = 256
"""Threads of a block beyond which a row has another one: a multiprocessor runs several of them, so
that it reads some rows while it reduces others."""

SHORT_BLOCK_THREADS = 128
"""Threads of a block of rows that are a warp's, or shorter."""

WORD_BITS = 32
"""Blocks of a cluster exchange values of so many bits."""

_WORD_BYTES, _BARRIER_BYTES = WORD_BITS // 8, 8

AHEAD = 4
"""Vectors that a thread reads at a time of what it does not hold, at most as many as it holds."""


@dataclass(frozen=True)
class RowShape:
    """How rows meet threads: `threads` share a row of `length` elements, `rows_per_block` rows make
    a block, or `cluster` blocks have a row; each thread takes `lanes` elements at a time, and holds
    up to `held` such vectors."""

    length: int
    rows: int
    threads: int
    rows_per_block: int
    cluster: int
    lanes: int
    held: int

    @staticmethod
    def of(
        length: int, rows: int, lanes: int, bits: int, cluster_blocks: int, multiprocessors: int
    ) -> RowShape:
        """The shape for `rows` rows, with accesses of at most `lanes` elements, the widest of which
        has so many `bits`, and at most `cluster_blocks` blocks a row."""
        lanes = math.gcd(lanes, length)
        vectors = length // lanes
        held = max(1, min(HELD_ELEMENTS, 8 * HELD_BYTES // bits) // lanes)
        if vectors > WARP * held:
            threads = _power_of_two(-(-vectors // held))
            cluster = max(1, min(threads // CLUSTER_THREADS, cluster_blocks))
            threads = min(threads, BLOCK_THREADS * cluster)
            return RowShape(length, rows, threads, 1, cluster, lanes, held)
        threads = min(_power_of_two(vectors), WARP)
        while rows % (WARP // threads):
            threads *= 2
        together = SHORT_BLOCK_THREADS
        while together > WARP and rows * threads < together * multiprocessors:
            together //= 2
        return RowShape(length, rows, threads, together // threads, 1, lanes, held)

    @property
    def blocks(self) -> int:
        return -(-self.rows // self.rows_per_block) * self.cluster

    @property
    def block_threads(self) -> int:
        return self.threads * self.rows_per_block // self.cluster

    @property
    def vectors(self) -> int:
        """Vectors of a row."""
        return self.length // self.lanes

    @property
    def ahead(self) -> int:
        """Vectors that a thread reads at a time of those that are not held."""
        return min(AHEAD, self.held)

    @property
    def walked(self) -> int:
        """Vectors of a row that are not held: those before the others."""
        step = self.ahead * self.threads
        return max(0, -(-(self.vectors - self.held * self.threads) // step) * step)


def _power_of_two(count: int) -> int:
    """The least one that is not below `count`."""
    return 1 << (count - 1).bit_length()


def emit(group: KernelGroup, nest: GridBuilder, target: NvidiaTarget) -> None:
    """Write the passes of a group of row operations."""
    reductions = group.reductions()
    rows = elements(reductions[0].op.results[0])
    length = math.prod(reductions[0].loop_sizes()) // rows
    lanes = vector_lanes(group, rows * length)
    words = all(element_bits(element_type(r.op.results[0])) == WORD_BITS for r in reductions)
    blocks = target.cluster_blocks if words else 1
    bits = ACCESS_BITS // lanes
    shape = RowShape.of(length, rows, lanes, bits, blocks, target.multiprocessors)
    nest.cluster, threads = shape.cluster, shape.block_threads
    with nest.grid(shape.blocks, threads) as (block, thread), group.evaluator.scope():
        fill_halos(group, nest, block * threads + thread, shape.blocks * threads)
        rank = block.mod(shape.cluster)
        block = block.floordiv(shape.cluster)
        row = block * shape.rows_per_block + thread.floordiv(shape.threads)
        if row.high < rows:
            needed = _is_needed(group, row, length) if shape.cluster > 1 else None
            with contextlib.nullcontext() if needed is None else hopper.when(needed):
                _Row(group, nest, shape, row, rank, thread).emit(reductions)
            return
        # Rows of part of a warp are as many as whole warps have.
        last = Variable("row", 0, rows - 1, nest.index_value(row, Lanes.of(1)))
        with nest.inside([(row, rows)]) as branch, branch.then(), group.evaluator.scope():
            _Row(group, nest, shape, Index.of(last), rank, thread).emit(reductions)


def _is_needed(group: KernelGroup, row: Index, length: int) -> ir.Value | None:
    """Whether what a cluster makes of its row is needed, where that can be told."""
    place = Variable("place", 0, length - 1)
    points = []
    for output in group.outputs:
        is_full = math.prod(output.shape) > row.high + 1
        points.append(delinearize(row * length + Index.of(place) if is_full else row, output.shape))
    return used_tiles.is_needed(group, points, {place})


@dataclass(frozen=True)
class _Vector:
    """A vector of the row that a thread takes: its number, or of one beyond the row (`number` is
    not below `end`) that of another one, whose elements do no harm."""

    place: Index
    number: Index
    end: int


class _Row:
    def __init__(
        self,
        group: KernelGroup,
        nest: GridBuilder,
        shape: RowShape,
        row: Index,
        rank: Index,
        thread: Index,
    ) -> None:
        self.group = group
        self.nest = nest
        self.evaluator = group.evaluator
        self.shape = shape
        self.row = row
        self.rank = rank
        """The block's number in the cluster."""
        self.place = rank * shape.block_threads + thread.mod(shape.threads)
        """The thread's number among those of the row."""
        self.thread = thread
        self.lanes = Lanes.of(shape.lanes)
        self.held = self._held()

    def _held(self) -> list[_Vector]:
        shape = self.shape
        found = []
        for first in range(shape.walked, shape.vectors, shape.threads):
            number = self.place + first
            place = number
            if number.high >= shape.vectors:
                place = self.nest.named("i", number.mod(shape.vectors))
            found.append(_Vector(place, number, shape.vectors))
        return found

    def emit(self, reductions: list[Structured]) -> None:
        if self.shape.cluster > 1:
            self._begin_cluster(len(reductions))
        for reduction in reductions:
            self._reduce(reduction)
        full = [o for o in self.group.outputs if self._is_full(math.prod(o.shape))]
        narrow = [o for o in self.group.outputs if o not in full]
        if narrow:
            with self.nest.when(self.place, equals=0) as branch, branch.then():
                with self.evaluator.scope():
                    for output in narrow:
                        point = delinearize(self.row, output.shape)
                        self.group.write(output, point, Lanes.of(1))
        if not full:
            return

        def write(place: Index, carried: list[ir.Value]) -> list[ir.Value]:
            flat = self.row * self.shape.length + self._element(place)
            for output in full:
                self.group.write(output, delinearize(flat, output.shape), self.lanes)
            return carried

        self._walk([], write)
        for vector in self.held:
            with self.nest.where([(vector.number, vector.end)]), self.evaluator.scope():
                write(vector.place, [])

    def _is_full(self, size: int) -> bool:
        return size == self.shape.rows * self.shape.length and self.shape.length > 1

    def _element(self, place: Index) -> Index:
        """The elements of the row in its vector number `place`."""
        return place * self.shape.lanes + self.lanes.index

    def _walk(
        self,
        carried: list[ir.Value],
        body: Callable[[Index, list[ir.Value]], list[ir.Value]],
    ) -> list[ir.Value]:
        """Do `body(vector, carried)` for the thread's vectors that are not held."""

        def several(first: Variable, inner: list[ir.Value]) -> list[ir.Value]:
            with self.evaluator.scope():
                for number in range(self.shape.ahead):
                    place = Index.of(first) + self.place + number * self.shape.threads
                    inner = body(place, inner)
            return inner

        step = self.shape.ahead * self.shape.threads
        return self.nest.reduce_loop("first", 0, self.shape.walked, step, carried, several)

    def _reduce(self, op: Structured) -> None:
        combiner = Combiner.of(op)
        kind = op.body.arguments[len(op.inputs)].type
        lanes = self.shape.lanes
        wide = ir.VectorType.get([lanes], kind) if lanes > 1 else kind
        identity = self.nest.constant(combiner.identity_of(wide))

        def body(place: Index, carried: list[ir.Value]) -> list[ir.Value]:
            return [self._step(op, place, carried[0])]

        (part,) = self._walk([identity], body)
        for vector in self.held:
            following = self._step(op, vector.place, part)
            inside = self.nest.below([(vector.number, vector.end)])
            if inside is not None:
                following = arith.SelectOp(inside, following, part).result
            part = following
        total = self._across_threads(combiner, combiner.across_lanes(part))
        point = delinearize(self.row, shape_of(op.outputs[0]))
        initial = self.evaluator.at(op.outputs[0], point, Lanes.of(1))
        total = combiner.join(initial, total)
        result = op.op.results[0]
        self.evaluator.bind(result, delinearize(self.row, shape_of(result)), total)

    def _step(self, op: Structured, place: Index, accumulator: ir.Value) -> ir.Value:
        """The accumulator joined with a vector. What the vector is computed from stays known in
        the scope, so that it is computed once."""
        dims = loop_point(op, self.row * self.shape.length + self._element(place))
        arguments: dict = {op.body.arguments[len(op.inputs)]: accumulator}
        for number, value in enumerate(op.inputs):
            argument = op.body.arguments[number]
            if any(True for _ in argument.uses):
                point = apply_map(op.maps[number], dims)
                arguments[argument] = self.evaluator.at(value, point, self.lanes)
        return self.evaluator.run_body(op, dims, arguments, self.lanes)

    def _across_threads(self, combiner: Combiner, value: ir.Value) -> ir.Value:
        """Combine the values of all threads of the row; each gets the result."""
        value = self._across_lanes(combiner, value, self.shape.threads)
        warps = self.shape.threads // WARP
        if warps <= 1:
            return value
        if self.shape.cluster > 1:
            return self._across_blocks(combiner, value)
        buffer = self.nest.shared([warps], value.type, element_bits(value.type) // 8)
        one = Lanes.of(1)
        with self.nest.when(self.thread.mod(WARP), equals=0) as branch, branch.then():
            self.nest.store(value, buffer, [self.thread.floordiv(WARP)], one)
        self.nest.barrier()
        parts = [self.nest.load(buffer, [Index((), warp)], one) for warp in range(warps)]
        while len(parts) > 1:
            parts = [combiner.join(*pair) for pair in zip(parts[::2], parts[1::2], strict=True)]
        return parts[0]

    def _across_lanes(self, combiner: Combiner, value: ir.Value, count: int) -> ir.Value:
        """Combine the values of `count` neighbouring threads, at most a warp; each gets the
        result."""
        offset = min(count, WARP) // 2
        while offset:
            value = combiner.join(value, self.nest.shuffle_xor(value, offset))
            offset //= 2
        return value

    def _begin_cluster(self, reductions: int) -> None:
        """Make the barriers that count what the blocks give each other, one for each reduction in
        front of its words. No block writes to one that has not come so far."""
        self.words = self.shape.threads // WARP
        """Of a reduction, in each block."""
        size = _BARRIER_BYTES + self.words * _WORD_BYTES
        self.exchanges = iter(range(0, reductions * size, size))
        self.nest.dynamic_shared_bytes = reductions * size
        self.memory = hopper.shared_memory()
        with self.nest.when(self.thread, equals=0) as branch, branch.then():
            for number in range(reductions):
                barrier = hopper.at(self.memory, number * size)
                hopper.init_barrier(barrier, 1)
                hopper.expect_bytes(barrier, self.words * _WORD_BYTES)
            hopper.show_barriers()
        hopper.arrive_at_cluster(shows=False)

    def _across_blocks(self, combiner: Combiner, value: ir.Value) -> ir.Value:
        """Combine the values of all warps of the cluster, each of which writes its own to the
        shared memory of every block."""
        shape, kind = self.shape, value.type
        lane = self.thread.mod(WARP)
        warp = self.rank * (shape.block_threads // WARP) + self.thread.floordiv(WARP)
        first = next(self.exchanges)
        barrier = hopper.at(self.memory, first)
        word = ir.IntegerType.get_signless(WORD_BITS)
        if first == 0:
            hopper.wait_for_cluster()
        with self.nest.where([(lane, shape.cluster)]):
            bits = value if kind == word else arith.BitcastOp(word, value).result
            hopper.store_in_block(self._word_at(warp, first), self._word(lane), bits, barrier)
        hopper.wait(barrier, hopper.word(0))
        parts = []
        for number in range(0, self.words, WARP):
            place = (lane + number).mod(self.words)
            bits = hopper.load_word(self._word_at(place, first))
            parts.append(bits if kind == word else arith.BitcastOp(kind, bits).result)
        return self._across_lanes(combiner, functools.reduce(combiner.join, parts), self.words)

    def _word_at(self, number: Index, first: int) -> ir.Value:
        """The address of a word of the exchange that begins at byte `first`."""
        return hopper.at(self.memory, self._word(number * _WORD_BYTES + (first + _BARRIER_BYTES)))

    def _word(self, index: Index) -> ir.Value:
        return hopper.as_word(self.nest.index_value(index, Lanes.of(1)))
