"""Random programs of nested loops and branches that carry a few vectors, compared with XLA.

What a branch or an iteration gives may be what it was given, another's, or a vector with some
elements replaced: whatever is written in place has to be read by nobody later. Short vectors make
scalar kernels of whole loops, long ones kernels that the host program calls.
STEPWELL_TEST_SEEDS=A-B tries other seeds than the default ones.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
import pytest

import stepwell

jax = pytest.importorskip("jax")
jnp = jax.numpy

FIRST, LAST = map(int, os.environ.get("STEPWELL_TEST_SEEDS", "0-5").split("-"))

TOLERANCE = 1e-5
"""Vectors stay between -1 and 1; a few dozen operations of single precision."""

CARRIED = 3

Vectors = list["jax.Array"]
Statement = Callable[[Vectors, "jax.Array"], Vectors]
"""What becomes of the vectors so far, which it adds to, in an iteration of some number."""

OPERATIONS = (
    lambda x, y: (x + y) / 2,
    lambda x, y: (x - y) / 2,
    lambda x, y: x * y,
    jnp.maximum,
    lambda x, y: x.at[1].set(y[0]),
    lambda x, y: jax.lax.dynamic_update_slice(x, y[2:4], (1,)),
    lambda x, y: jnp.roll(x, 1) - y / 2,
)


class Programs:
    """Draws statements."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def below(self, count: int) -> int:
        return int(self.random.integers(count))

    def block(self, depth: int) -> Statement:
        """Some statements one after the other; deep ones have no loops or branches."""
        kinds = [self.operation, self.operation]
        kinds += [self.branches, self.branches, self.loop] if depth else []
        statements = [kinds[self.below(len(kinds))](depth) for _ in range(1 + self.below(4))]

        def run(vectors: Vectors, number: jax.Array) -> Vectors:
            for statement in statements:
                vectors = statement(vectors, number)
            return vectors

        return run

    def operation(self, depth: int) -> Statement:
        operation = OPERATIONS[self.below(len(OPERATIONS))]
        first, second = self.below(100), self.below(100)

        def run(vectors: Vectors, number: jax.Array) -> Vectors:
            some = (vectors[place % len(vectors)] for place in (first, second))
            return [*vectors, operation(*some)]

        return run

    def branches(self, depth: int) -> Statement:
        """One of two or three, which give some of the last vectors there are."""
        blocks = [self.block(depth - 1) for _ in range(2 + self.below(2))]
        given = [[self.below(4) for _ in range(2)] for _ in blocks]

        def run(vectors: Vectors, number: jax.Array) -> Vectors:
            def branch(block: Statement, places: list[int]) -> Callable[[Vectors], Vectors]:
                return lambda taken: self._last(block(taken, number), places)

            chosen = map(branch, blocks, given)
            return [*vectors, *jax.lax.switch(number % len(blocks), [*chosen], vectors)]

        return run

    def loop(self, depth: int) -> Statement:
        block = self.block(depth - 1)
        count = 1 + self.below(3)
        first = [self.below(4) for _ in range(CARRIED)]
        given = [self.below(5) for _ in range(CARRIED)]

        def run(vectors: Vectors, number: jax.Array) -> Vectors:
            def body(inner: jax.Array, carried: Vectors) -> Vectors:
                return self._last(block([vectors[0], *carried], number + inner), given)

            return [*vectors, *jax.lax.fori_loop(0, count, body, self._last(vectors, first))]

        return run

    @staticmethod
    def _last(vectors: Vectors, places: list[int]) -> Vectors:
        return [vectors[-1 - place % len(vectors)] for place in places]


@pytest.mark.parametrize("size", [6, 2048])
@pytest.mark.parametrize("seed", range(FIRST, LAST + 1))
def test_loops_and_branches(size: int, seed: int) -> None:
    programs = Programs(seed)
    body, given = programs.block(2), [programs.below(5) for _ in range(CARRIED)]

    def function(x: jax.Array, count: jax.Array) -> Vectors:
        def step(number: jax.Array, carried: Vectors) -> Vectors:
            return Programs._last(body([x, *carried], number), given)

        return jax.lax.fori_loop(0, count, step, [x * x, x * x, x])

    x = np.linspace(-1, 1, size, dtype=np.float32)
    compiled, expected = stepwell.jit(threads=1)(function), jax.jit(function)
    for count in range(4):
        for result, wanted in zip(compiled(x, count), expected(x, count), strict=True):
            np.testing.assert_allclose(result, wanted, atol=TOLERANCE, rtol=0)
