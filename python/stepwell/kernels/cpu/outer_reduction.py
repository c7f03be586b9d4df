"""Outer reductions: pooling, depthwise convolution, sums over all but the innermost dimension.

Vectors run over the innermost output dimension (channels). A register tile is `points` neighbouring
outputs of the dimension before it times `vectors` vectors, so that enough independent accumulators
hide the latency of the combiner; small windows are unrolled, and neighbouring points share loads.
Of an open dimension (docs/levels.md) no more is read than is in use.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from stepwell.errors import LoweringError
from stepwell.kernels.builder import Lanes
from stepwell.kernels.cpu.used_elements import used_terms
from stepwell.kernels.group import KernelGroup, widths
from stepwell.kernels.index import Index, Variable, apply_map, constant, delinearize
from stepwell.kernels.reduction import Combiner
from stepwell.kernels.structured import Structured
from stepwell.mlir import ir

UNROLLED_STEPS = 160
"""A window of at most this many combiner steps a tile is unrolled."""

ACCUMULATORS = 8
"""Accumulators that a tile should have at least: latency times throughput of an addition."""


@dataclass(frozen=True)
class OuterReductionTile:
    """Neighbouring outputs and vectors of one register tile."""

    points: int
    vectors: int


def choose_tile(points: int, channels: int, window: int, lanes: int) -> OuterReductionTile:
    """A tile for `points` outputs in a row and `channels` channels: as many points as divide the
    row (at most 8), then vectors until there are enough accumulators."""
    best = max((p for p in range(1, 9) if points % p == 0), default=1)
    if best < 4 and points > 8:
        best = 4
    while best > 1 and best * window > UNROLLED_STEPS:
        best -= 1
    vectors = 1
    while best * vectors < ACCUMULATORS and channels >= 2 * vectors * lanes:
        vectors *= 2
    return OuterReductionTile(best, vectors)


def emit(group: KernelGroup, lanes: int) -> None:
    """Write the loops of a group whose anchor reduces over outer dimensions."""
    _OuterReduction(group, lanes).emit()


class _OuterReduction:
    def __init__(self, group: KernelGroup, lanes: int) -> None:
        self.group = group
        self.nest = group.nest
        self.evaluator = group.evaluator
        self.op = group.anchor()
        self.combiner = Combiner.of(self.op)
        self.sizes = self.op.loop_sizes()
        self.lanes = lanes
        iterators = self.op.iterators
        parallel = _output_order(self.op)
        self.reduced = [i for i, kind in enumerate(iterators) if kind == "reduction"]
        self.inner = parallel[-1]
        self.along = parallel[-2] if len(parallel) > 1 else None
        self.outer = parallel[:-2]
        window = math.prod(self.sizes[i] for i in self.reduced)
        self.points = self.sizes[self.along] if self.along is not None else 1
        self.tile = choose_tile(self.points, self.sizes[self.inner], window, lanes)
        self.used = used_terms(group, self.op)
        self.unrolled = not self.used and window * self.tile.points <= UNROLLED_STEPS

    def emit(self) -> None:
        points = self.tile.points
        outer_sizes = [self.sizes[i] for i in self.outer]
        blocks = -(-self.points // points)
        outer = math.prod(outer_sizes) * blocks
        channels = self.sizes[self.inner]
        step = self.lanes * self.tile.vectors
        split_channels = outer < 8 and channels >= 2 * step
        chunks = -(-channels // step) if split_channels else 1
        with self.nest.parallel("task", outer * chunks) as task, self.evaluator.scope():
            flat = Index.of(task)
            self.group.fill_halos(flat, self.lanes)
            where, chunk = flat.floordiv(chunks), flat.mod(chunks)
            *position, block = delinearize(where, [*outer_sizes, blocks])
            dims = [Index()] * len(self.sizes)
            for axis, index in zip(self.outer, position, strict=True):
                dims[axis] = index
            if split_channels:
                self._with_channel_chunk(dims, block, chunk, chunks, step)
            else:
                for begin, end, width in widths(channels, self.lanes):
                    self._channels(dims, block, begin, end, width)

    def _with_channel_chunk(
        self, dims: list[Index], block: Index, chunk: Index, chunks: int, step: int
    ) -> None:
        channels = self.sizes[self.inner]
        whole = channels // step
        if whole == chunks:
            self._points(dims, block, chunk * step, self.lanes, self.tile.vectors)
            return
        with self.nest.when(chunk, equals=chunks - 1, otherwise=True) as branch:
            with branch.then(), self.evaluator.scope():
                for begin, end, width in widths(channels - whole * step, self.lanes):
                    self._channels(dims, block, whole * step + begin, whole * step + end, width)
            with branch.otherwise(), self.evaluator.scope():
                self._points(dims, block, chunk * step, self.lanes, self.tile.vectors)

    def _channels(self, dims: list[Index], block: Index, begin: int, end: int, width: int) -> None:
        """All channels of [begin, end) with vectors of `width`, several a tile while they last."""
        for vectors in (self.tile.vectors, 1):
            step = width * vectors
            stop = begin + (end - begin) // step * step
            if stop > begin:
                with self.nest.loop("c", begin, stop, step) as c, self.evaluator.scope():
                    self._points(dims, block, Index.of(c), width, vectors)
            begin = stop

    def _points(
        self, dims: list[Index], block: Index, channel: Index, width: int, vectors: int
    ) -> None:
        points = self.tile.points
        rest = self.points % points
        if not rest:
            self._tile(dims, block * points, points, channel, width, vectors)
            return
        last = self.points // points
        with self.nest.when(block, equals=last, otherwise=True) as branch:
            with branch.then(), self.evaluator.scope():
                self._tile(dims, constant(last * points), rest, channel, width, vectors)
            with branch.otherwise(), self.evaluator.scope():
                self._tile(dims, block * points, points, channel, width, vectors)

    def _tile(
        self,
        dims: list[Index],
        start: Index,
        points: int,
        channel: Index,
        width: int,
        vectors: int,
    ) -> None:
        lanes = [Lanes.of(width) for _ in range(vectors)]
        cells = [(p, v) for p in range(points) for v in range(vectors)]

        def at(cell: tuple[int, int], window: list[Index]) -> list[Index]:
            point, number = cell
            full = list(dims)
            if self.along is not None:
                full[self.along] = start + point
            full[self.inner] = channel + number * width + lanes[number].index
            for axis, index in zip(self.reduced, window, strict=True):
                full[axis] = index
            return full

        def step(window: list[Index], carried: list[ir.Value]) -> list[ir.Value]:
            return [
                self._combine(at(cell, window), accumulator, lanes[cell[1]])
                for cell, accumulator in zip(cells, carried, strict=True)
            ]

        def initial(cell: tuple[int, int]) -> ir.Value:
            point = apply_map(self.op.output_map, at(cell, [Index()] * len(self.reduced)))
            value = self.evaluator.at(self.op.outputs[0], point, lanes[cell[1]])
            return self.nest.as_vector(value, lanes[cell[1]])

        with self.evaluator.scope():
            sums = self._walk(step, [initial(cell) for cell in cells])
            for cell, total in zip(cells, sums, strict=True):
                self._finish(at(cell, [Index()] * len(self.reduced)), total, lanes[cell[1]])

    def _walk(self, step, carried: list[ir.Value]) -> list[ir.Value]:
        """Run `step` over the window: unrolled when small, else as loops."""
        extents = [self.sizes[i] for i in self.reduced]
        if self.unrolled:
            for flat in range(math.prod(extents)):
                carried = step(delinearize(constant(flat), extents), carried)
            return carried

        def nested(prefix: list[Index], carried: list[ir.Value]) -> list[ir.Value]:
            if len(prefix) == len(extents):
                with self.evaluator.scope():
                    return step(prefix, carried)

            def body(k: Variable, inner: list[ir.Value]) -> list[ir.Value]:
                return nested([*prefix, Index.of(k)], inner)

            size, used = extents[len(prefix)], self.used.get(self.reduced[len(prefix)])
            if used is not None:
                return self.nest.reduce_between("k", Index(), used.count, size, 1, carried, body)
            return self.nest.reduce_loop("k", 0, size, 1, carried, body)

        return nested([], carried)

    def _combine(self, dims: list[Index], accumulator: ir.Value, lanes: Lanes) -> ir.Value:
        arguments: dict = {self.op.body.arguments[len(self.op.inputs)]: accumulator}
        for number, value in enumerate(self.op.inputs):
            argument = self.op.body.arguments[number]
            if any(True for _ in argument.uses):
                point = apply_map(self.op.maps[number], dims)
                arguments[argument] = self.evaluator.at(value, point, lanes)
        return self.evaluator.run_body(self.op, dims, arguments, lanes)

    def _finish(self, dims: list[Index], total: ir.Value, lanes: Lanes) -> None:
        point = apply_map(self.op.output_map, dims)
        result = self.op.op.results[0]
        with self.evaluator.scope():
            self.evaluator.bind(result, point, total)
            for output in self.group.outputs:
                self.group.write(output, self.group.point_of(output, result, point), lanes)


def _output_order(op: Structured) -> list[int]:
    """Loop dimensions in the order of the output's dimensions."""
    order = []
    for expression in op.output_map.results:
        if not isinstance(expression, ir.AffineDimExpr):
            raise LoweringError("an outer reduction writes at computed indices")
        order.append(expression.position)
    while len(order) > 1 and op.loop_sizes()[order[-1]] == 1:
        order.insert(0, order.pop())
    return order
