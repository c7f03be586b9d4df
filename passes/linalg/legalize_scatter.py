"""`legalize-scatter`: scatter and select_and_scatter as loops over their updates.

    %r = "stablehlo.scatter"(%x, %indices, %updates) ({add}) : (tensor<8xf32>, tensor<3x1xi32>, ..)

    %r = scf.for %i = %c0 to %c3 step %c1 iter_args(%y = %x) {
      %k = index_cast (tensor.extract %indices[%i, %c0])
      %inside = cmpi ult, %k, %c8
      scf.if %inside { %s = addf %y[%k], %updates[%i]; tensor.insert %s into %y[%k] } else { %y }

For GPUs, those of the host become kernels of their own and elementwise operations
(`_parallel_scatter.py`).

Updates that fall outside are skipped, and updates are combined in their order, as the specification
of scatter (https://openxla.org/stablehlo/spec#scatter) allows. A window that lies inside as a whole
is a loop without conditions, which LLVM vectorises. A single update (a row of a cache) has no
branch at all, in whose arms all of %x would be copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

from stepwell.mlir import ir
from stepwell.mlir import stablehlo as bindings
from stepwell.passes.base import Pass, State
from stepwell.passes.linalg import _loops as loops
from stepwell.passes.linalg._fusion_graph import is_host_block
from stepwell.passes.linalg._loops import Values
from stepwell.passes.linalg._parallel_scatter import (
    scatter_in_parallel,
    select_and_scatter_in_parallel,
)
from stepwell.passes.stablehlo._values import optional_integers, padding
from stepwell.targets.nvidia import NvidiaTarget


@dataclass(frozen=True)
class LegalizeScatter(Pass):
    """Rewrite every scatter and select_and_scatter inside a function."""

    name: ClassVar[str] = "legalize-scatter"
    anchor: ClassVar[str] = "func.func"

    def run(self, op: ir.Operation, state: State) -> None:
        if isinstance(state.target, NvidiaTarget):
            loops.rewrite_operations(op, _PARALLEL, wrap=False)
        loops.rewrite_operations(op, _REWRITES)


def _scatter_in_parallel(op: ir.Operation) -> Values | None:
    return scatter_in_parallel(op) if is_host_block(op.block) else None


def _select_and_scatter_in_parallel(op: ir.Operation) -> Values | None:
    return select_and_scatter_in_parallel(op) if is_host_block(op.block) else None


def _scatter(op: ir.Operation) -> Values:
    count = len(op.results)
    inputs = list(op.operands)[:count]
    indices, updates = op.operands[count], list(op.operands)[count + 1 :]
    scatter = _Scatter(op, loops.shape_of(inputs[0]), indices, loops.shape_of(updates[0]))

    def combined(old: Values, outer: Values, inner: Values) -> Sequence[ir.Value]:
        point = scatter.point(outer, inner)
        new = [loops.extract(value, point) for value in updates]
        return loops.inline_scalars(op.regions[0].blocks[0], [*old, *new])

    def chosen(starts: Values, outer: Values, results: Values) -> Values:
        """A window of which what falls outside is written back as it is, somewhere inside."""

        def element(inner: Values, results: Values) -> Sequence[ir.Value]:
            position = scatter.position(starts, inner)
            inside = loops.inside(position, scatter.shape)
            for dimension in scatter.targets:
                position[dimension] = loops.choose(inside, position[dimension], loops.index(0))
            old = [loops.extract(result, position) for result in results]
            kept = [
                loops.choose(inside, after, before)
                for after, before in zip(combined(old, outer, inner), old, strict=True)
            ]
            return [loops.insert(v, r, position) for v, r in zip(kept, results, strict=True)]

        return loops.nest(scatter.window_sizes, results, element)

    def window(starts: Values, outer: Values, checked: bool, results: Values) -> Values:
        def element(inner: Values, results: Values) -> Sequence[ir.Value]:
            position = scatter.position(starts, inner)

            def written() -> Sequence[ir.Value]:
                old = [loops.extract(result, position) for result in results]
                values = combined(old, outer, inner)
                return [loops.insert(v, r, position) for v, r in zip(values, results, strict=True)]

            if not checked:
                return written()
            inside = loops.inside(position, scatter.shape)
            return loops.branch(inside, [r.type for r in results], written, lambda: results)

        return loops.nest(scatter.window_sizes, results, element)

    def update(outer: Values, results: Values) -> Sequence[ir.Value]:
        starts = scatter.starts(outer)
        if prod(scatter.outer_sizes) == 1 and 0 not in scatter.shape:
            return chosen(starts, outer, results)
        return loops.branch(
            scatter.fits(starts),
            [r.type for r in results],
            lambda: window(starts, outer, False, results),
            lambda: results if scatter.is_of_points else window(starts, outer, True, results),
        )

    return loops.nest(scatter.outer_sizes, inputs, update)


class _Scatter:
    """Where an update goes: the dimension numbers of a scatter."""

    def __init__(
        self, op: ir.Operation, shape: list[int], indices: ir.Value, updates: list[int]
    ) -> None:
        numbers = bindings.ScatterDimensionNumbers(op.attributes["scatter_dimension_numbers"])
        self.shape = shape
        self.indices = indices
        self.vector = numbers.index_vector_dim
        self.targets = list(numbers.scattered_dims_to_operand_dims)
        self.batching = dict(
            zip(
                numbers.input_batching_dims,
                numbers.scatter_indices_batching_dims,
                strict=True,
            )
        )
        self.fixed = {*numbers.inserted_window_dims, *self.batching}
        self.window = list(numbers.update_window_dims)
        self.scattered = [d for d in range(len(updates)) if d not in self.window]
        self.outer_sizes = [updates[d] for d in self.scattered]
        self.window_sizes = [updates[d] for d in self.window]
        self.is_of_points = prod(self.window_sizes) == 1

    def starts(self, outer: Values) -> Values:
        """Where the window of one index begins, for each dimension of the result."""
        starts = []
        for dimension in range(len(self.shape)):
            if dimension in self.targets:
                starts.append(self._start(outer, self.targets.index(dimension)))
            elif dimension in self.batching:
                source = self.batching[dimension]
                starts.append(outer[source - (self.vector < source)])
            else:
                starts.append(loops.index(0))
        return starts

    def fits(self, starts: Values) -> ir.Value:
        """Whether the whole window that begins at `starts` lies inside the result."""
        sizes = iter(self.window_sizes)
        windows = [1 if d in self.fixed else next(sizes) for d in range(len(self.shape))]
        room = [max(size - w + 1, 0) for size, w in zip(self.shape, windows, strict=True)]
        return loops.inside(starts, room)

    def position(self, starts: Values, inner: Values) -> Values:
        """The element of the result that is `inner` in the window from `starts` on."""
        window = iter(inner)
        return [
            start if dimension in self.fixed else loops.add(start, next(window))
            for dimension, start in enumerate(starts)
        ]

    def point(self, outer: Values, inner: Values) -> Values:
        """The update for one index and one element of its window."""
        parts = dict(zip([*self.scattered, *self.window], [*outer, *inner], strict=True))
        return [parts[d] for d in range(len(parts))]

    def _start(self, outer: Values, component: int) -> ir.Value:
        at = list(outer)
        if self.vector < len(loops.shape_of(self.indices)):
            at.insert(self.vector, loops.index(component))
        return loops.signed_index(loops.extract(self.indices, at))


def _select_and_scatter(op: ir.Operation) -> Values:
    operand, source, init = op.operands
    shape = loops.shape_of(operand)
    rank = len(shape)
    sizes = optional_integers(op, "window_dimensions", rank, 1)
    strides = optional_integers(op, "window_strides", rank, 1)
    low = [pair[0] for pair in padding(op, rank)]
    select, scatter = (region.blocks[0] for region in op.regions)
    initial = loops.extract(init)
    start = loops.nest(
        shape,
        [loops.empty(shape, initial.type)],
        lambda point, values: [loops.insert(initial, values[0], point)],
    )

    def window(outer: Values, results: Values) -> Sequence[ir.Value]:
        zero = [loops.index(0)] * rank
        first = loops.extract(operand, zero)

        def candidate(inner: Values, best: Values) -> Sequence[ir.Value]:
            position = [
                loops.subtract(
                    loops.add(loops.multiply(o, loops.index(stride)), i), loops.index(pad)
                )
                for o, i, stride, pad in zip(outer, inner, strides, low, strict=True)
            ]

            def better() -> Sequence[ir.Value]:
                found, value, *place = best
                current = loops.extract(operand, position)
                keep = loops.inline_scalars(select, [value, current])[0]
                take = loops.either(loops.negate(found), loops.negate(keep))
                return [
                    loops.boolean(True),
                    loops.choose(take, current, value),
                    *(loops.choose(take, p, b) for p, b in zip(position, place, strict=True)),
                ]

            inside = loops.inside(position, shape)
            return loops.branch(inside, [b.type for b in best], better, lambda: best)

        _, _, *place = loops.nest(sizes, [loops.boolean(False), first, *zero], candidate)
        old, new = loops.extract(results[0], place), loops.extract(source, outer)
        return [loops.insert(loops.inline_scalars(scatter, [old, new])[0], results[0], place)]

    return loops.nest(loops.shape_of(source), start, window)


_PARALLEL: dict[str, loops.Rewrite] = {
    "stablehlo.scatter": _scatter_in_parallel,
    "stablehlo.select_and_scatter": _select_and_scatter_in_parallel,
}

_REWRITES: dict[str, loops.Rewrite] = {
    "stablehlo.scatter": _scatter,
    "stablehlo.select_and_scatter": _select_and_scatter,
}
