"""Reductions over outer or any dimensions: pooling, sums over a batch, small products.

Neighbouring threads take neighbouring outputs, 16 bytes of them where what they read lies together
and there are enough; a thread walks the reduced dimensions by itself. Few outputs with long
reductions are shared: a block takes 32 outputs, each of its warps a slice of their reductions, and
the slices meet in shared memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from stepwell.errors import LoweringError
from stepwell.kernels.builder import Lanes
from stepwell.kernels.gpu.elementwise import element_bits, fill_halos, vector_lanes
from stepwell.kernels.gpu.grid import GridBuilder
from stepwell.kernels.group import KernelGroup, accesses
from stepwell.kernels.index import Index, Variable, apply_map, constant, delinearize, linearize
from stepwell.kernels.reduction import Combiner
from stepwell.kernels.structured import Structured, elements, shape_of
from stepwell.mlir import ir
from stepwell.targets.nvidia import WARP

THREADS = 128
SLICES = 8
FEW_OUTPUTS = 16 << 10
"""With fewer outputs, a thread each does not fill a GPU."""

LONG = 64
"""Reductions of this many elements are worth slicing."""


def emit(group: KernelGroup, nest: GridBuilder) -> None:
    """Write a group whose anchor is one reduction over any of its dimensions."""
    _Reduction(group, nest).emit()


@dataclass(frozen=True)
class _Place:
    """One thread's output: its point of the iteration space, with lanes in it."""

    dims: list[Index]
    lanes: Lanes


class _Reduction:
    def __init__(self, group: KernelGroup, nest: GridBuilder) -> None:
        self.group = group
        self.nest = nest
        self.evaluator = group.evaluator
        self.op = group.anchor()
        self.sizes = self.op.loop_sizes()
        self.order = _output_dims(self.op)
        self.reduced = [i for i, kind in enumerate(self.op.iterators) if kind == "reduction"]
        self.extents = [self.sizes[dim] for dim in self.order]
        self.count = math.prod(self.extents)
        self.window = math.prod(self.sizes[dim] for dim in self.reduced)

    def emit(self) -> None:
        combiner = self._slicing_combiner()
        if combiner is not None:
            self._emit_sliced(combiner)
            return
        width = self._width()
        vectors = self.count // width
        blocks = max(1, -(-vectors // THREADS))
        workers = blocks * THREADS
        with self.nest.grid(blocks, THREADS) as (block, thread), self.evaluator.scope():
            worker = block * THREADS + thread
            fill_halos(self.group, self.nest, worker, workers)
            with self.nest.each("i", worker, vectors, workers) as i, self.evaluator.scope():
                place = self._place(Index.of(i), width)
                self._finish(place, self._walk(self.reduced, place, self._initial(place)))

    def _slicing_combiner(self) -> Combiner | None:
        """How to join slices; None when slicing is not worth it or not known how."""
        if self.count >= FEW_OUTPUTS or self.window < LONG:
            return None
        try:
            return Combiner.of(self.op)
        except LoweringError:
            return None

    def _width(self) -> int:
        """Outputs that a thread computes at once."""
        width = math.gcd(vector_lanes(self.group), self.extents[-1] if self.extents else 1)
        if self.count // width < FEW_OUTPUTS:
            return 1
        dims = [Variable(f"d{i}", 0, max(n, 1) - 1) for i, n in enumerate(self.sizes)]
        main = max(range(len(self.op.inputs)), key=lambda n: elements(self.op.inputs[n]))
        at = apply_map(self.op.maps[main], [Index.of(d) for d in dims])
        reads = accesses(self.op.inputs[main], at, set(self.evaluator.buffers))
        inner = dims[self.order[-1]]
        together = all(
            linearize(indices, shape_of(leaf)).coefficient(inner) == 1 for leaf, indices in reads
        )
        return width if together else 1

    def _place(self, number: Index, width: int) -> _Place:
        lanes = Lanes.of(width)
        dims = [Index()] * len(self.sizes)
        parts = delinearize(number * width + lanes.index, self.extents)
        for axis, index in zip(self.order, parts, strict=True):
            dims[axis] = index
        return _Place(dims, lanes)

    def _initial(self, place: _Place) -> ir.Value:
        point = apply_map(self.op.output_map, place.dims)
        value = self.evaluator.at(self.op.outputs[0], point, place.lanes)
        return self.nest.as_vector(value, place.lanes)

    def _step(self, place: _Place, accumulator: ir.Value) -> ir.Value:
        """The accumulator joined with the element at `place`."""
        op = self.op
        with self.evaluator.scope():
            arguments: dict = {op.body.arguments[len(op.inputs)]: accumulator}
            for number, value in enumerate(op.inputs):
                argument = op.body.arguments[number]
                if any(True for _ in argument.uses):
                    point = apply_map(op.maps[number], place.dims)
                    arguments[argument] = self.evaluator.at(value, point, place.lanes)
            return self.evaluator.run_body(op, place.dims, arguments, place.lanes)

    def _walk(self, axes: list[int], place: _Place, carried: ir.Value) -> ir.Value:
        """Loops over the reduced dimensions `axes`."""
        if not axes:
            return self._step(place, carried)

        def body(k: Variable, inner: list[ir.Value]) -> list[ir.Value]:
            here = list(place.dims)
            here[axes[0]] = Index.of(k)
            return [self._walk(axes[1:], _Place(here, place.lanes), inner[0])]

        return self.nest.reduce_loop("k", 0, self.sizes[axes[0]], 1, [carried], body)[0]

    def _emit_sliced(self, combiner: Combiner) -> None:
        blocks = max(1, -(-self.count // WARP))
        threads = WARP * SLICES
        kind = self.op.body.arguments[len(self.op.inputs)].type
        shared = self.nest.shared([SLICES, WARP], kind, element_bits(kind) // 8)
        with self.nest.grid(blocks, threads) as (block, thread), self.evaluator.scope():
            fill_halos(self.group, self.nest, block * threads + thread, blocks * threads)
            lane, piece = thread.mod(WARP), thread.floordiv(WARP)
            one = Lanes.of(1)
            output = self.nest.named("output", block * WARP + lane)
            column = self.nest.named("column", lane)
            with self.nest.inside([(output, self.count)]) as branch, branch.then():
                with self.evaluator.scope():
                    part = self._slice(combiner, self._bounded(output), piece)
                    self.nest.store(part, shared, [self.nest.named("slice", piece), column], one)
            self.nest.barrier()
            bounds = [(output, self.count), (piece, 1)]
            with self.nest.inside(bounds) as branch, branch.then(), self.evaluator.scope():
                place = self._place(self._bounded(output), 1)
                total = self._initial(place)
                for number in range(SLICES):
                    total = combiner.join(
                        total, self.nest.load(shared, [constant(number), column], one)
                    )
                self._finish(place, total)

    def _bounded(self, output: Index) -> Index:
        """The number of an output, where it is known to be one."""
        (variable,) = output.variables() or [None]
        if variable is None:
            return output
        return Index.of(Variable("output", 0, self.count - 1, variable.value))

    def _slice(self, combiner: Combiner, output: Index, piece: Index) -> ir.Value:
        """Every `SLICES`-th element of an output's reduction, from `piece` on."""
        place = self._place(output, 1)
        kind = self.op.body.arguments[len(self.op.inputs)].type
        identity = self.nest.constant(combiner.identity_of(kind))
        extents = [self.sizes[axis] for axis in self.reduced]

        def body(k: Variable, carried: ir.Value) -> ir.Value:
            here = list(place.dims)
            for axis, index in zip(self.reduced, delinearize(Index.of(k), extents), strict=True):
                here[axis] = index
            return self._step(_Place(here, place.lanes), carried)

        return self.nest.reduce_each(piece, self.window, SLICES, identity, body)

    def _finish(self, place: _Place, total: ir.Value) -> None:
        point = apply_map(self.op.output_map, place.dims)
        result = self.op.op.results[0]
        with self.evaluator.scope():
            self.evaluator.bind(result, point, total)
            for output in self.group.outputs:
                at = self.group.point_of(output, result, point)
                self.group.write(output, at, place.lanes)


def _output_dims(op: Structured) -> list[int]:
    """Loop dimensions in the order of the output's dimensions."""
    order = []
    for expression in op.output_map.results:
        if not isinstance(expression, ir.AffineDimExpr):
            raise LoweringError("a reduction writes at computed indices")
        order.append(expression.position)
    return order
