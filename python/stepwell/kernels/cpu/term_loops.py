"""The loops over the terms of a contraction's sums.

Long sums are taken in two levels, partial sums of at most `PARTIAL_SUM` terms added up at the end
of each: the rounding error of one long chain grows with its length.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from stepwell.kernels.builder import NestBuilder
from stepwell.kernels.cpu.contraction_strategy import (
    ASKING_STEPS,
    SHORT_CHAIN,
    TURN,
    steps_at_once,
    summation_levels,
)
from stepwell.kernels.evaluate import Evaluator
from stepwell.kernels.index import Index, Variable, constant, linearize
from stepwell.mlir import ir

_WRITTEN_OUT = 8
"""Terms of inner loops that are written out at most: the channels of an image, say. With a window's
columns beside them, LLVM keeps what neighbouring outputs both read, on the stack."""

_MOST_PIECES = 4
"""Pieces of a loop at most, each a chain of its own."""

Step = Callable[[list[Index], list[ir.Value]], list[ir.Value]]
"""Adds the terms at a point of the reduced space to the sums it is given."""

Join = Callable[[list[Index], list[ir.Value], list[ir.Value]], list[ir.Value]]
"""Adds to totals the sums of a chain, which begins at a point."""

Bounds = Mapping[int, tuple[Index, Index]]
"""By reduced dimension: [start, stop) of the terms that there are, as far as it has them."""


@dataclass(frozen=True)
class TermLoops:
    """Loops that call `step` for all points of the reduced space, of `extents`; `chains` partial
    sums are taken side by side where the outer of two levels is a multiple of that. Terms outside
    of `bounds` add nothing, and are left out where that is no more work. Sums that
    are `exact` are one chain; `unfused` is what `ContractionShape` says."""

    nest: NestBuilder
    evaluator: Evaluator
    extents: list[int]
    step: Step
    chains: int = 1
    bounds: Bounds = field(default_factory=dict)
    exact: bool = False
    unfused: bool = False

    def sum(
        self,
        zeros: list[ir.Value],
        results: Callable[[Index], None] | None = None,
        ahead: Callable[[Index], None] | None = None,
    ) -> list[ir.Value]:
        """The sums of all terms. Of what is prefetched, `results` is called in the first steps of
        the innermost loop, `ahead` in each iteration."""
        levels = summation_levels(self.extents, self.chains, exact=self.exact)

        def nested(
            prefixes: list[list[Index]], level: int, carried: list[ir.Value]
        ) -> list[ir.Value]:
            """The sums of the terms behind each of `prefixes`, the first indices of points."""
            if level == len(levels):
                parts = _parts(carried, len(zeros))
                with self.evaluator.scope():
                    return [
                        total
                        for prefix, part in zip(prefixes, parts, strict=True)
                        for total in self.step(prefix, part)
                    ]
            axis, size, by, restart = levels[level]
            pieces = self._pieces(levels, level) if len(prefixes) == 1 else []
            apart = restart and len(prefixes) == 1 and not pieces
            side = self.chains if apart and size % self.chains == 0 else 1

            def moved(k: Index) -> list[list[Index]]:
                points = [[*p[:axis], *(p[axis:] or [Index()])] for p in prefixes]
                return [
                    [*point[:axis], point[axis] + (k * side + chain) * by]
                    for point in points
                    for chain in range(side)
                ]

            def body(k: Index, inner: list[ir.Value]) -> list[ir.Value]:
                if not restart:
                    return in_one_chain(k, inner)
                sums = nested(moved(k), level + 1, zeros * side * len(prefixes))
                parts = _parts(sums, len(zeros))
                for number in range(side):
                    inner = self._added(inner, [v for part in parts[number::side] for v in part])
                return inner

            def in_one_chain(k: Index, inner: list[ir.Value]) -> list[ir.Value]:
                return nested(moved(k), level + 1, inner)

            def of_variable(k: Variable, inner: list[ir.Value]) -> list[ir.Value]:
                return body(Index.of(k), inner)

            if pieces:
                for begin, end in itertools.pairwise(pieces):
                    into = zeros if level or begin else carried  # nothing is in `carried` at first
                    part = self.nest.reduce_steps("k", begin, end, into, in_one_chain)
                    carried = part if into is carried else self._added(carried, part)
                return carried

            if _is_written_out(levels, level):
                for number in range(size):
                    carried = body(constant(number), carried)
                return carried
            if level < len(levels) - 1:
                if axis in self.bounds and size == self.extents[axis]:
                    between = self.bounds[axis]
                    return self.nest.reduce_between("k", *between, size, 1, carried, of_variable)
                return self.nest.reduce_steps("k", 0, size // side, carried, body)

            def ask_panel(k: Index) -> None:
                if ahead is not None:
                    (point,) = moved(k)
                    ahead(linearize(point, self.extents))

            def ask(k: Index) -> None:
                assert results is not None
                ask_panel(k)
                results(k)

            asking = min(ASKING_STEPS, size) if results is not None else 0
            carried = self.nest.reduce_steps("k", 0, asking, carried, body, before=ask)
            unroll = steps_at_once(len(carried), self.unfused)
            return self.nest.reduce_steps("k", asking, size, carried, body, unroll, ask_panel)

        return nested([[]], 0, zeros)

    def sum_joined(
        self,
        zeros: list[ir.Value],
        chain: int,
        join: Join,
        ahead: Callable[[Index], None] | None = None,
    ) -> list[ir.Value]:
        """The sums of all terms along one dimension, added up by `join` after every `chain` of
        them. Within a chain, `chains` sums take turns of `TURN` terms, so that they read one place
        of memory after the other; `ahead` is called before each round of turns."""
        (size,) = self.extents
        turn = TURN if chain % (TURN * self.chains) == 0 else 1
        side = self.chains if turn > 1 else 1

        def rounds(start: Index) -> list[ir.Value]:
            def several(number: Index, carried: list[ir.Value]) -> list[ir.Value]:
                first = start + number * (turn * side)
                if ahead is not None:
                    ahead(first)
                parts = _parts(carried, len(zeros))
                for term in range(turn):
                    for place in range(side):
                        with self.evaluator.scope():
                            point = first + (place * turn + term)
                            parts[place] = self.step([point], parts[place])
                return [value for part in parts for value in part]

            sums = self.nest.reduce_steps("k", 0, chain // (turn * side), zeros * side, several)
            return functools.reduce(self._added, _parts(sums, len(zeros)))

        def add_chain(number: Index, carried: list[ir.Value]) -> list[ir.Value]:
            start = number * chain
            return join([start], carried, rounds(start))

        return self.nest.reduce_steps("chain", 0, size // chain, zeros, add_chain)

    def sum_used(self, zeros: list[ir.Value], used: Index) -> list[ir.Value]:
        """The sums of the first `used` terms along one dimension."""
        (size,) = self.extents
        *outer, (_, chain, _, _) = summation_levels([size], exact=self.exact)
        unroll = math.gcd(steps_at_once(len(zeros), self.unfused), chain)

        def several(start: Index, count: int) -> Callable[..., list[ir.Value]]:
            def body(k: Variable, inner: list[ir.Value]) -> list[ir.Value]:
                for number in range(count):
                    with self.evaluator.scope():
                        inner = self.step([start + Index.of(k) + number], inner)
                return inner

            return body

        def sums_from(start: Index, carried: list[ir.Value]) -> list[ir.Value]:
            stop = used + start * -1
            whole = stop.floordiv(unroll) * unroll
            carried = self.nest.reduce_between(
                "k", Index(), whole, chain, unroll, carried, several(start, unroll)
            )
            if unroll == 1:
                return carried
            return self.nest.reduce_between("k", whole, stop, chain, 1, carried, several(start, 1))

        def add_chain(number: Variable, carried: list[ir.Value]) -> list[ir.Value]:
            return self._added(carried, sums_from(Index.of(number) * chain, zeros))

        if not outer:
            return sums_from(Index(), zeros)
        chains = (used + (chain - 1)).floordiv(chain)
        return self.nest.reduce_between(
            "chain", Index(), chains, size // chain, 1, zeros, add_chain
        )

    def _pieces(self, levels: list[tuple[int, int, int, bool]], level: int) -> list[int]:
        """Where to cut loop `level` into few pieces, one chain each; none where what an iteration
        sums apart is no short part of that. Sums end seldom then: each time costs as many
        additions as there are sums, with no registers for both."""
        axis, size, by, restart = levels[level]
        inner = math.prod(self.extents[axis + 1 :])
        count = math.ceil(size * inner / SHORT_CHAIN)
        long = inner >= SHORT_CHAIN or count > _MOST_PIECES
        if not restart or by > 1 or long or axis in self.bounds:
            return []
        return [math.ceil(size * piece / count) for piece in range(count + 1)]

    def _added(self, sums: list[ir.Value], others: list[ir.Value]) -> list[ir.Value]:
        return [self.nest.add(a, b) for a, b in zip(sums, others, strict=True)]


def _is_written_out(levels: list[tuple[int, int, int, bool]], level: int) -> bool:
    """Whether loop `level`, one of several, and those inside of it have few terms."""
    inner = levels[level:]
    return (
        len(levels) > 1
        and not any(restart for *_, restart in inner)
        and math.prod(size for _, size, _, _ in inner) <= _WRITTEN_OUT
    )


def _parts(values: list[ir.Value], size: int) -> list[list[ir.Value]]:
    """`values` in parts of `size`."""
    return [values[start : start + size] for start in range(0, len(values), size)]
