"""`legalize-sort`: sort as bottom-up merge sort, stable, O(n log n), along any dimension.

    %r = "stablehlo.sort"(%x) ({less}) {dimension = 1} : tensor<4x100xf32>

copies each row into a line, merges runs of 1, 2, 4, ... elements from one line into another, and
copies the last line back:

    scf.for %row { %line = row of %x
      scf.for %pass = 0 to 7 iter_args(%from = %line, %to = %other) {
        scf.for %start = 0 to 100 step (2 << %pass) { merge two runs of %from into %to }
        copy %to back into %from }
      insert the line into the result }

Several operands are sorted together by the comparator's verdict on all of them. Long rows whose
comparator looks at one number of an element alone are sorted by its bytes (`_radix_sort.py`).

Where all that is read of the results are their first few elements (top_k), these alone are found:
one pass over the row keeps the least so far in order, and most elements cost one comparison. In the
host program that is a kernel of its own (`_selection.py`).

Positions of what is true in a vector of booleans take one pass (`_compaction.py`).

On GPUs all elements are compared at a time (`_parallel_sort.py`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from stepwell.mlir import ir
from stepwell.passes.base import Pass, State
from stepwell.passes.linalg import _loops as loops
from stepwell.passes.linalg._compaction import compacted, is_compaction
from stepwell.passes.linalg._fusion_graph import is_host_block
from stepwell.passes.linalg._loops import Values
from stepwell.passes.linalg._parallel_sort import sort_in_parallel
from stepwell.passes.linalg._radix_sort import Key, sort_by_bytes
from stepwell.passes.linalg._selection import select_in_kernel
from stepwell.passes.stablehlo._values import integer, integers
from stepwell.targets.nvidia import NvidiaTarget

MOST = 256
"""So many first elements are selected at most: each one found late moves the others."""


@dataclass(frozen=True)
class LegalizeSort(Pass):
    """Rewrite every sort inside a function."""

    name: ClassVar[str] = "legalize-sort"
    anchor: ClassVar[str] = "func.func"

    def run(self, op: ir.Operation, state: State) -> None:
        on_gpu = isinstance(state.target, NvidiaTarget)
        in_host = _in_parallel if on_gpu else _in_kernel
        rewrite = functools.partial(in_host, state=state)
        loops.rewrite_operations(op, {"stablehlo.sort": rewrite}, wrap=False)
        in_loops = functools.partial(_sort, state=state)
        loops.rewrite_operations(op, {"stablehlo.sort": in_loops})


def _in_parallel(op: ir.Operation, state: State) -> Values | None:
    dimension = _dimension(op)
    if dimension is None or not is_host_block(op.block):
        return None
    return sort_in_parallel(op, dimension, _elements_read(op, dimension), state.weights)


def _in_kernel(op: ir.Operation, state: State) -> Values | None:
    dimension = _dimension(op)
    if dimension is None or not is_host_block(op.block) or is_compaction(op, state.weights):
        return None
    few = _elements_read(op, dimension)
    return select_in_kernel(op, dimension, few, state.target, state.weights)


def _dimension(op: ir.Operation) -> int | None:
    """The dimension that is sorted along; None for a single element."""
    rank = len(loops.shape_of(op.operands[0]))
    return integer(op, "dimension", rank - 1) % rank if rank else None


def _sort(op: ir.Operation, state: State) -> Values:
    positions = compacted(op, state.weights)
    if positions is not None:
        return positions
    operands = list(op.operands)
    shape = loops.shape_of(operands[0])
    dimension = _dimension(op)
    if dimension is None:
        return operands
    length = shape[dimension]
    others = [size for d, size in enumerate(shape) if d != dimension]
    few = _elements_read(op, dimension)
    less = op.regions[0].blocks[0]
    key = None if isinstance(state.target, NvidiaTarget) else Key.of(less)

    def first_few(outer: Values, results: Values) -> Sequence[ir.Value]:
        def at(position: ir.Value) -> Values:
            return [*outer[:dimension], position, *outer[dimension:]]

        return _select(less, operands, results, at, (few, length))

    def row(outer: Values, results: Values) -> Sequence[ir.Value]:
        def at(position: ir.Value) -> Values:
            return [*outer[:dimension], position, *outer[dimension:]]

        lines = [loops.empty([length], loops.element_of(o)) for o in operands]
        spare = [loops.empty([length], loops.element_of(o)) for o in operands]
        lines = loops.nest(
            [length],
            lines,
            lambda point, values: [
                loops.insert(loops.extract(o, at(point[0])), v, point)
                for o, v in zip(operands, values, strict=True)
            ],
        )
        if key is not None and key.is_worth_it(length):
            lines = sort_by_bytes(key, lines, spare, length)
        else:
            lines = _merge_passes(less, lines, spare, length)
        return loops.nest(
            [length],
            results,
            lambda point, values: [
                loops.insert(loops.extract(line, point), v, at(point[0]))
                for line, v in zip(lines, values, strict=True)
            ],
        )

    results = [loops.empty(shape, loops.element_of(o)) for o in operands]
    return loops.nest(others, results, first_few if few <= min(MOST, length // 4) else row)


def _elements_read(op: ir.Operation, dimension: int) -> int:
    """How many elements along `dimension`, from the first on, slices of the results read."""
    most = 0
    for result in op.results:
        for use in result.uses:
            user = use.owner.operation
            if user.name != "stablehlo.slice":
                return loops.shape_of(result)[dimension]
            most = max(most, integers(user, "limit_indices")[dimension])
    return most


def _select(
    less: ir.Block,
    operands: Values,
    results: Values,
    at: Callable[[ir.Value], Values],
    counts: tuple[int, int],
) -> Values:
    """The `few` least of `length` elements, in order, at the beginning of a row of `results`."""
    few, length = counts
    one, limit = loops.index(1), loops.index(few)
    types = [result.type for result in results]

    def is_less(lefts: Values, rights: Values) -> ir.Value:
        pairs = [v for pair in zip(lefts, rights, strict=True) for v in pair]
        return loops.inline_scalars(less, pairs)[0]

    def insert(number: ir.Value, news: Values, into: Values) -> Values:
        """Put `news` where it belongs, and move all behind it by one; of equal elements the one
        that was there stays in front."""

        def step(j: ir.Value, state: Values) -> Sequence[ir.Value]:
            moving, *rest = state
            held, kept = rest[: len(news)], rest[len(news) :]
            there = [loops.extract(k, at(j)) for k in kept]
            empty = loops.compare(j, "GE", number)
            moving = loops.either(moving, loops.either(empty, is_less(held, there)))
            return [
                moving,
                *(loops.choose(moving, t, h) for h, t in zip(held, there, strict=True)),
                *(
                    loops.insert(loops.choose(moving, h, t), k, at(j))
                    for h, t, k in zip(held, there, kept, strict=True)
                ),
            ]

        end = loops.minimum(loops.add(number, one), limit)
        state = [loops.boolean(False), *news, *into]
        return loops.loop(loops.index(0), end, one, state, step)[1 + len(news) :]

    def element(number: ir.Value, kept: Values) -> Sequence[ir.Value]:
        news = [loops.extract(o, at(number)) for o in operands]
        last = [loops.extract(k, at(loops.index(few - 1))) for k in kept]
        is_wanted = loops.either(loops.compare(number, "LT", limit), is_less(news, last))
        return loops.branch(
            is_wanted,
            types,
            lambda: insert(number, news, kept),
            lambda: kept,
        )

    if not few:
        return results
    return loops.loop(loops.index(0), loops.index(length), one, results, element)


def _merge_passes(less: ir.Block, lines: Values, spare: Values, length: int) -> Values:
    count = len(lines)
    passes = max(length - 1, 0).bit_length()
    size = loops.index(length)

    def merge_pass(number: ir.Value, values: Values) -> Sequence[ir.Value]:
        source, target = values[:count], values[count:]
        run = loops.shift_left(loops.index(1), number)

        def merge_runs(start: ir.Value, into: Values) -> Sequence[ir.Value]:
            middle = loops.minimum(loops.add(start, run), size)
            end = loops.minimum(loops.add(middle, run), size)
            return _merge(less, source, into, (start, middle, end))

        target = loops.loop(loops.index(0), size, loops.add(run, run), target, merge_runs)
        return [*(loops.written(t, s) for t, s in zip(target, source, strict=True)), *target]

    done = loops.loop(
        loops.index(0), loops.index(passes), loops.index(1), [*lines, *spare], merge_pass
    )
    return done[:count]


def _merge(
    less: ir.Block, source: Values, target: Values, bounds: tuple[ir.Value, ir.Value, ir.Value]
) -> Values:
    """Merge [start, middle) and [middle, end) of `source` into [start, end) of `target`; of equal
    elements the left one comes first."""
    start, middle, end = bounds
    last = loops.subtract(end, loops.index(1))

    def step(position: ir.Value, state: Values) -> Sequence[ir.Value]:
        left, right, *into = state
        lefts = [loops.extract(s, [loops.minimum(left, last)]) for s in source]
        rights = [loops.extract(s, [loops.minimum(right, last)]) for s in source]
        pairs = [v for pair in zip(rights, lefts, strict=True) for v in pair]
        smaller = loops.inline_scalars(less, pairs)[0]
        no_left = loops.compare(left, "GE", middle)
        has_right = loops.compare(right, "LT", end)
        from_right = loops.both(has_right, loops.either(no_left, smaller))
        one = loops.index(1)
        return [
            loops.choose(from_right, left, loops.add(left, one)),
            loops.choose(from_right, loops.add(right, one), right),
            *(
                loops.insert(loops.choose(from_right, r, x), t, [position])
                for x, r, t in zip(lefts, rights, into, strict=True)
            ),
        ]

    return loops.loop(start, end, loops.index(1), [start, middle, *target], step)[2:]
