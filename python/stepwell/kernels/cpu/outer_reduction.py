"""Outer reductions: pooling, depthwise convolution, sums over all but the innermost dimension.

Vectors run over the innermost output dimension (channels). A register tile is a box of neighbouring
outputs in the two dimensions before it times `vectors` vectors, so that enough independent
accumulators hide the latency of the combiner. Small windows are written out, and neighbours share
what they read: the steps go through the input in its order, each element once for all whose window
it is in. Large ones are loops, of which the innermost are written out so where neighbours share
more than the weights. Of an open dimension (docs/levels.md) no more is read than is in use.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from stepwell.errors import LoweringError
from stepwell.kernels.builder import Lanes
from stepwell.kernels.cpu.shared_windows import join_columns, shared_input, tile_points
from stepwell.kernels.group import KernelGroup, widths
from stepwell.kernels.index import Index, Variable, apply_map, constant, delinearize
from stepwell.kernels.reduction import Combiner
from stepwell.kernels.structured import Structured, element_type, shape_of
from stepwell.kernels.used_elements import used_terms
from stepwell.mlir import ir, nested_operations
from stepwell.targets import Target

_UNROLLED_STEPS = 160
"""At most so many combiner steps of a tile are written out."""

_WRITTEN_LOOKUPS = 1024
"""At most so many elements they look up in memory, one by one, at places that are read there."""

_ACCUMULATORS = 8
"""Accumulators that a tile should have at least: latency times throughput of an addition."""

_LOAD = 0.5
"""What a load costs beside a step of the combiner: some of them come from L2 or further."""

_LOADED = 3
"""Vectors of the input that LLVM has loaded at a time, beside those of a row of the window."""

_MOST_ROWS, _MOST_POINTS = 4, 8

_FEW_TASKS = 8
"""Where there are fewer boxes of outputs, tasks share the channels, too."""


@dataclass(frozen=True)
class OuterReductionTile:
    """Neighbouring outputs (rows, points of a row) and vectors of one register tile."""

    rows: int
    points: int
    vectors: int


@dataclass(frozen=True)
class Window:
    """What the outputs of a reduction read: for each input, how far its place moves with a step of
    the rows, of the points, and of each dimension of the window, of `extents`; and how many steps
    may be written out."""

    moves: tuple[tuple[tuple[int, ...], ...], ...]
    extents: tuple[int, ...]
    most_steps: int = _UNROLLED_STEPS

    def place(self, operand: int, cell: Sequence[int], step: Sequence[int]) -> tuple[int, ...]:
        """Where output `cell` (row, point) reads an input at a point of the window."""
        moved = [
            [count * by for by in move]
            for count, move in zip((*cell, *step), self.moves[operand], strict=True)
        ]
        return tuple(map(sum, zip(*moved, strict=True)))

    def written_out(self, rows: int, points: int) -> int:
        """How many of its last dimensions a box of outputs has written out: all of them if they are
        few steps, of others those in which outputs read the same elements."""
        cells = rows * points
        if cells * math.prod(self.extents) <= self.most_steps:
            return len(self.extents)
        for count in range(len(self.extents) - 1, 0, -1):
            steps = cells * math.prod(self.extents[-count:])
            if steps <= self.most_steps and self._loads(rows, points, count) < self._loads(
                rows, points, 0
            ):
                return count
        return 0

    def loads(self, rows: int, points: int) -> int:
        """How many elements a box of outputs reads: those of the dimensions that are written out
        once, in every iteration of the loops over the others."""
        return self._loads(rows, points, self.written_out(rows, points))

    def _loads(self, rows: int, points: int, written_out: int) -> int:
        looped = len(self.extents) - written_out
        cells = list(itertools.product(range(rows), range(points)))
        inner = itertools.product(*map(range, self.extents[looped:]))
        steps = [(0,) * looped + step for step in inner]
        once = sum(
            len({self.place(operand, cell, step) for cell in cells for step in steps})
            for operand in range(len(self.moves))
        )
        return once * math.prod(self.extents[:looped])


def choose_tile(
    rows: int, points: int, channels: int, window: Window, target: Target
) -> OuterReductionTile:
    """The tile for `rows` of `points` outputs with `channels` channels that takes the least time:
    its steps, never fewer than hide their latency, and its loads."""
    steps = math.prod(window.extents)

    def shares(height: int, width: int) -> bool:
        return loads(height, width) < height * width * loads(1, 1)

    def ahead(height: int, width: int) -> int:
        """Registers beside the accumulators'. What one output alone reads needs none for long, nor
        does what all outputs read in one step of a loop. Weights for which there are none are read
        as operands."""
        written_out = window.written_out(height, width) and shares(height, width)
        kept = min(window.extents[-1], target.vector_registers // 3)
        return kept + _LOADED if written_out else 1

    def time(height: int, width: int, vectors: int) -> float:
        accumulators = height * width * vectors
        return steps * max(accumulators, _ACCUMULATORS) + _LOAD * vectors * loads(height, width)

    loads = functools.cache(window.loads)

    def total(tile: OuterReductionTile) -> float:
        boxes = itertools.product(_parts(rows, tile.rows), _parts(points, tile.points))
        return (
            sum(
                many * times * time(height, width, tile.vectors)
                for (height, many), (width, times) in boxes
            )
            / tile.vectors
        )

    tiles = [OuterReductionTile(1, 1, 1)]
    for height in range(1, min(rows, _MOST_ROWS) + 1):
        for width in range(1, min(points, _MOST_POINTS) + 1):
            vectors = 1
            while height * width * vectors < _ACCUMULATORS and (
                channels >= 2 * vectors * target.vector_lanes
            ):
                vectors *= 2
            outputs = height * width
            if outputs > 1 and (
                vectors * (outputs + ahead(height, width)) > target.vector_registers
                or (outputs * steps > window.most_steps and not shares(height, width))
            ):
                continue
            tiles.append(OuterReductionTile(height, width, vectors))
    # of equals the largest, which has the most loads under way at a time, then that of fewest rows
    return min(tiles, key=lambda t: (total(t), -t.rows * t.points * t.vectors, t.rows))


def _parts(size: int, part: int) -> list[tuple[int, int]]:
    """`size` in parts, and what is left: (size of a part, how many)."""
    return [(part, size // part), *([(size % part, 1)] if size % part else [])]


def emit(group: KernelGroup, target: Target) -> None:
    """Write the loops of a group whose anchor reduces over outer dimensions."""
    _OuterReduction(group, target).emit()


class _OuterReduction:
    def __init__(self, group: KernelGroup, target: Target) -> None:
        self.group = group
        self.nest = group.nest
        self.evaluator = group.evaluator
        self.op = group.anchor()
        self.combiner = Combiner.of(self.op)
        self.sizes = self.op.loop_sizes()
        self.target = target
        self.lanes = target.vector_lanes
        *outer, self.inner = _output_order(self.op)
        self.tiled, self.outer = outer[-2:], outer[:-2]
        self.reduced = [i for i, kind in enumerate(self.op.iterators) if kind == "reduction"]
        rows, points = [1, 1, *(self.sizes[axis] for axis in self.tiled)][-2:]
        self.window = self._window()
        self.tile = choose_tile(rows, points, self.sizes[self.inner], self.window, target)
        self.used = used_terms(group, self.op)
        moves, extents = self.window.moves, self.window.extents
        self.shared = None if self.used else shared_input(self.op, moves, extents)
        if self.shared is not None:
            count = tile_points(points, extents, target.vector_registers)
            if count > 1:
                self.tile = OuterReductionTile(1, count, 1)
            else:
                self.shared = None

    def _window(self) -> Window:
        still = [Index()] * len(self.sizes)
        inputs = [self.op.maps[n] for n in range(len(self.op.inputs))]

        def move(of: ir.AffineMap, axis: int | None) -> tuple[int, ...]:
            there = list(still)
            if axis is not None:
                there[axis] = constant(1)
            begin, end = apply_map(of, still), apply_map(of, there)
            return tuple(b.constant - a.constant for a, b in zip(begin, end, strict=True))

        axes = [*[None, None, *self.tiled][-2:], *self.reduced]
        moves = tuple(tuple(move(of, axis) for axis in axes) for of in inputs)
        lookups = sum(
            nested.name == "tensor.extract"
            for op in self.group.operations
            for nested in nested_operations(op)
        )
        most_steps = min(_UNROLLED_STEPS, _WRITTEN_LOOKUPS // max(1, lookups * self.lanes))
        return Window(moves, tuple(self.sizes[axis] for axis in self.reduced), most_steps)

    def emit(self) -> None:
        outer_sizes = [self.sizes[axis] for axis in self.outer]
        extents = [self.tile.rows, self.tile.points][2 - len(self.tiled) :]
        blocks = [-(-self.sizes[a] // n) for a, n in zip(self.tiled, extents, strict=True)]
        outer = math.prod([*outer_sizes, *blocks])
        chunk = self._channels_of_a_task(outer)
        chunks = -(-self.sizes[self.inner] // chunk)
        with self.nest.parallel("task", outer * chunks) as task, self.evaluator.scope():
            flat = Index.of(task)
            self.group.fill_halos(flat, self.lanes)
            if outer < _FEW_TASKS:
                where, part = flat.floordiv(chunks), flat.mod(chunks)
            else:
                where, part = flat.mod(outer), flat.floordiv(outer)
            position = delinearize(where, [*outer_sizes, *blocks])
            dims = [Index()] * len(self.sizes)
            for axis, index in zip(self.outer, position, strict=False):
                dims[axis] = index
            self._chunk(dims, position[len(self.outer) :], part, chunk)

    def _channels_of_a_task(self, outer: int) -> int:
        """All channels, unless tasks are so few, or the rows of the input that windows of
        neighbouring rows share are so long, that L2 would not keep them."""
        channels, step = self.sizes[self.inner], self.lanes * self.tile.vectors
        if outer < _FEW_TASKS:
            return step if channels >= 2 * step else channels
        parts = -(-self._shared_bytes() // (self.target.l2_bytes // 2))
        return channels if parts <= 1 else -(-channels // (parts * step)) * step

    def _shared_bytes(self) -> int:
        """What a row of tiles reads of the inputs that the next one reads again, all or a part;
        nothing where windows of neighbouring rows have no element in common."""
        total, overlaps = 0, False
        for value, moves in zip(self.op.inputs, self.window.moves, strict=True):
            down, _, *window = moves
            spans, again = [], not any(down)
            for size, by, *steps in zip(shape_of(value), down, *window, strict=True):
                ends = zip(steps, self.window.extents, strict=True)
                within = sum(abs(step) * (extent - 1) for step, extent in ends)
                moved = abs(by) * self.tile.rows
                spans.append(within + moved if by else size)
                overlaps |= 0 < abs(by) <= within
                again |= 0 < abs(by) <= within
            total += math.prod(spans) * again
        return total * element_type(self.op.op.results[0]).width // 8 if overlaps else 0

    def _chunk(self, dims: list[Index], block: list[Index], part: Index, chunk: int) -> None:
        """Chunk number `part` of the channels; the last one may be smaller."""
        whole, rest = divmod(self.sizes[self.inner], chunk)

        def run(part: Index, last: bool) -> None:
            with self.evaluator.scope():
                self._boxes(dims, block, part * chunk, rest if last else chunk)

        if not whole or not rest:
            run(part, not whole)
        else:
            self.nest.last_apart(part, whole, run)

    def _boxes(
        self,
        dims: list[Index],
        block: list[Index],
        first: Index,
        count: int,
        box: tuple[int, ...] = (),
    ) -> None:
        """The tiles number `block`, of the sizes `box` in the first tiled dimensions, of `count`
        channels from `first` on; the last tile along a dimension may be smaller."""
        if len(box) == len(self.tiled):
            self._channels(dims, box, first, count)
            return
        number = len(box)
        axis = self.tiled[number]
        extent = [self.tile.rows, self.tile.points][2 - len(self.tiled) + number]

        whole, rest = divmod(self.sizes[axis], extent)

        def go_on(index: Index, last: bool) -> None:
            there = list(dims)
            there[axis] = index * extent
            with self.evaluator.scope():
                self._boxes(there, block, first, count, (*box, rest if last else extent))

        if rest:
            self.nest.last_apart(block[number], whole, go_on)
        else:
            go_on(block[number], False)

    def _channels(self, dims: list[Index], box: tuple[int, ...], first: Index, count: int) -> None:
        """A tile of each vector of the channels, or of several while they last."""
        rows, points = [1, 1, *box][-2:]
        for begin, end, width in widths(count, self.lanes):
            for vectors in (self.tile.vectors, 1):
                step = width * vectors
                stop = begin + (end - begin) // step * step
                if stop > begin:
                    with self.nest.loop("c", begin, stop, step) as c, self.evaluator.scope():
                        self._tile(dims, rows, points, first + Index.of(c), width, vectors)
                begin = stop

    def _tile(
        self, dims: list[Index], rows: int, points: int, channel: Index, width: int, vectors: int
    ) -> None:
        lanes = [Lanes.of(width) for _ in range(vectors)]
        cells = list(itertools.product(range(rows), range(points), range(vectors)))

        def at(cell: tuple[int, int, int], window: Sequence[Index]) -> list[Index]:
            *place, number = cell
            full = list(dims)
            for axis, by in zip(self.tiled, place[2 - len(self.tiled) :], strict=True):
                full[axis] += by
            full[self.inner] = channel + number * width + lanes[number].index
            for axis, index in zip(self.reduced, window, strict=True):
                full[axis] = index
            return full

        still = [Index()] * len(self.reduced)

        def initial(cell: tuple[int, int, int]) -> ir.Value:
            point = apply_map(self.op.output_map, at(cell, still))
            value = self.evaluator.at(self.op.outputs[0], point, lanes[cell[2]])
            return self.nest.as_vector(value, lanes[cell[2]])

        if self.shared is not None:
            with self.evaluator.scope():
                totals = self._by_columns(
                    points, lanes[0], lambda n, at_window: at((0, n, 0), at_window)
                )
                for cell, total in zip(cells, totals, strict=True):
                    whole = self.combiner.join(initial(cell), total)
                    self._finish(at(cell, still), whole, lanes[0])
            return

        looped = len(self.reduced)
        if not self.used:
            looped -= self.window.written_out(rows, points)
        order = list(self._in_order_of_loads(cells, looped))

        def steps(outer: list[Index], carried: list[ir.Value]) -> list[ir.Value]:
            following = list(carried)
            for number, inner in order:
                window = [*outer, *(constant(index) for index in inner)]
                vector = lanes[cells[number][2]]
                point = at(cells[number], window)
                following[number] = self._combine(point, following[number], vector)
            return following

        with self.evaluator.scope():
            sums = [initial(cell) for cell in cells]
            sums = self._loops(self.window.extents[:looped], steps, sums)
            for cell, total in zip(cells, sums, strict=True):
                self._finish(at(cell, still), total, lanes[cell[2]])

    def _by_columns(
        self, points: int, lanes: Lanes, at: Callable[[int, Sequence[Index]], list[Index]]
    ) -> list[ir.Value]:
        """The totals of neighbouring points, whose windows have columns in common; `at` gives the
        loop indices of a point and a place in its window."""
        rows, width = self.window.extents
        assert self.shared is not None
        source, where = self.op.inputs[self.shared], self.op.maps[self.shared]

        def column(number: int, row: Index) -> ir.Value:
            point = min(number, points - 1)
            dims = at(point, [row, constant(number - point)])
            value = self.evaluator.at(source, apply_map(where, dims), lanes)
            return self.nest.as_vector(value, lanes)

        def step(row: Variable, carried: list[ir.Value]) -> list[ir.Value]:
            with self.evaluator.scope():
                return [
                    self.combiner.join(value, column(number, Index.of(row)))
                    for number, value in enumerate(carried)
                ]

        first = [column(number, constant(0)) for number in range(points - 1 + width)]
        columns = self.nest.reduce_loop("k", 1, rows, 1, first, step)
        return join_columns(columns, width, self.combiner.join)

    def _in_order_of_loads(
        self, cells: list[tuple[int, int, int]], looped: int
    ) -> Iterator[tuple[int, tuple[int, ...]]]:
        """The steps of a tile at one point of the first `looped` dimensions of the window, as
        number of the cell and point of the others: those that read the same element of the input
        one after the other."""
        moving = [n for n, moves in enumerate(self.window.moves) if any(map(any, moves[:2]))]
        inner = list(itertools.product(*map(range, self.window.extents[looped:])))

        def order(step: tuple[int, tuple[int, ...]]) -> tuple:
            number, window = step
            *cell, vector = cells[number]
            full = (0,) * looped + window
            return *(self.window.place(n, cell, full) for n in moving), vector, window

        yield from sorted(itertools.product(range(len(cells)), inner), key=order)

    def _loops(
        self,
        extents: Sequence[int],
        step: Callable[[list[Index], list[ir.Value]], list[ir.Value]],
        carried: list[ir.Value],
    ) -> list[ir.Value]:
        """Run `step` in loops over the first dimensions of the window, of `extents`."""

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
