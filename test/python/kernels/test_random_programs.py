"""Random programs: what fusion makes of values with several uses, views between kernels, diamonds.

Each seed makes one program of a dozen operations on few shapes; its last values and some in the
middle are results. STEPWELL_TEST_SEEDS=A-B tries other seeds than the default ones."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp
from programs import Batch, Case, normal, pad

FIRST, LAST = map(int, os.environ.get("STEPWELL_TEST_SEEDS", "0-11").split("-"))
OPERATIONS = 12
TOLERANCE = 5e-5
"""A dozen operations, sums among them, one after the other: errors of each add up."""

Value = jax.Array
Step = Callable[[list[Value], np.random.Generator], Value]


def pick(values: Sequence[Value], generator: np.random.Generator) -> Value:
    """One of the values, the latest ones more often."""
    return values[-1 - min(int(generator.exponential(2)), len(values) - 1)]


def unary(values: list[Value], generator: np.random.Generator) -> Value:
    functions = [
        jnp.tanh,
        jnp.abs,
        lax.logistic,
        jnp.negative,
        jnp.sin,
        lambda x: jnp.maximum(x, 0),
    ]
    return functions[generator.integers(len(functions))](pick(values, generator))


def binary(values: list[Value], generator: np.random.Generator) -> Value:
    x = pick(values, generator)
    fitting = [v for v in values if v.shape == x.shape]
    functions = [jnp.add, jnp.subtract, jnp.multiply, jnp.maximum]
    return functions[generator.integers(4)](x, fitting[generator.integers(len(fitting))])


def broadcast(values: list[Value], generator: np.random.Generator) -> Value:
    x = pick(values, generator)
    axis = int(generator.integers(x.ndim))
    return x - x.mean(axis, keepdims=True)


def reduced(values: list[Value], generator: np.random.Generator) -> Value:
    x = pick(values, generator)
    axis = int(generator.integers(x.ndim))
    kind = [jnp.max, jnp.mean, jnp.min][generator.integers(3)]
    return jnp.broadcast_to(kind(x, axis, keepdims=True), x.shape) * 0.5


def softmax(values: list[Value], generator: np.random.Generator) -> Value:
    return jax.nn.softmax(pick(values, generator), axis=-1)


def transposed(values: list[Value], generator: np.random.Generator) -> Value:
    x = pick(values, generator)
    return x.transpose(tuple(int(i) for i in generator.permutation(x.ndim)))


def reshaped(values: list[Value], generator: np.random.Generator) -> Value:
    x = pick(values, generator)
    if x.ndim == 2:
        return x.reshape(1, *x.shape)
    return x.reshape(x.shape[0] * x.shape[1], *x.shape[2:])


def sliced(values: list[Value], generator: np.random.Generator) -> Value:
    x = pick(values, generator)
    axis = int(generator.integers(x.ndim))
    size = x.shape[axis]
    if size < 3:
        return x + 1
    start = int(generator.integers(size // 2))
    return lax.slice_in_dim(x, start, size, 1 + int(generator.integers(2)), axis)


def padded(values: list[Value], generator: np.random.Generator) -> Value:
    x = pick(values, generator)
    return pad(x, [(int(a), int(b), 0) for a, b in generator.integers(0, 2, (x.ndim, 2))])


def joined(values: list[Value], generator: np.random.Generator) -> Value:
    x = pick(values, generator)
    axis = int(generator.integers(x.ndim))
    others = [v for v in values if v.ndim == x.ndim and _agree(v.shape, x.shape, axis)]
    return jnp.concatenate([x, others[generator.integers(len(others))]], axis)


def _agree(a: tuple[int, ...], b: tuple[int, ...], axis: int) -> bool:
    return all(m == n for i, (m, n) in enumerate(zip(a, b, strict=True)) if i != axis)


def product(values: list[Value], generator: np.random.Generator) -> Value:
    """x times a matrix among the values, or x times its own transpose; scaled to stay near one."""
    x = pick(values, generator)
    matrices = [v for v in values if v.ndim == 2 and v.shape[0] == x.shape[-1]]
    y = matrices[generator.integers(len(matrices))] if matrices else jnp.swapaxes(x, -1, -2)
    return jnp.matmul(x, y) / x.shape[-1]


def selected(values: list[Value], generator: np.random.Generator) -> Value:
    x = pick(values, generator)
    return jnp.where(x > 0.1, x, 0.25)


STEPS: tuple[Step, ...] = (
    unary, unary, binary, binary, broadcast, reduced, softmax, transposed, reshaped, sliced, padded,
    joined, product, product, selected,
)  # fmt: skip
LIMIT = 40_000
"""Elements of one value: larger ones are left out, to keep the programs small."""


def program(seed: int) -> Callable[..., list[Value]]:
    def function(*arrays: Value) -> list[Value]:
        generator = np.random.default_rng(seed)
        values = list(arrays)
        while len(values) < len(arrays) + OPERATIONS:
            value = STEPS[generator.integers(len(STEPS))](values, generator)
            if value.size <= LIMIT:
                values.append(value)
        middle = values[len(arrays) :: 5]
        return [*middle, values[-1], values[-2]]

    return function


def case(seed: int) -> Case:
    generator = np.random.default_rng([seed, 1])
    m, k, n = (int(x) for x in generator.integers(2, 40, 3))
    arrays = (normal(m, k, seed=seed), normal(k, n, seed=seed), normal(2, m, k, seed=seed))
    return Case(f"seed-{seed}", program(seed), arrays, TOLERANCE)


BATCH = Batch([case(seed) for seed in range(FIRST, LAST + 1)])


@BATCH.parametrize()
def test_program(name: str) -> None:
    BATCH.check(name)
