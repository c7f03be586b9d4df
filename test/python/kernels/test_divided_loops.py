"""Loops over steps whose rows threads divide among them, against XLA and one thread."""

from __future__ import annotations

import functools

import jax
import numpy as np
import pytest
from jax import lax
from jax import numpy as jnp

import stepwell

STEPS, BATCH, INPUTS, STATE = 9, 12, 24, 96


@functools.cache
def normal(*shape: int) -> np.ndarray:
    values = np.random.default_rng(shape[0]).standard_normal(shape) / np.sqrt(shape[0])
    return values.astype(np.float32)


INPUT, GATES, SQUARE = normal(INPUTS, 4 * STATE), normal(STATE, 4 * STATE), normal(STATE, STATE)
STATES = normal(BATCH, STATE)


def cell(state, x):
    h, c = state
    i, f, o, z = jnp.split(x @ INPUT + h @ GATES, 4, -1)
    c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(z)
    h = jax.nn.sigmoid(o) * jnp.tanh(c)
    return (h, c), h


def lstm(xs, h, c):
    """States are read where they begin, outputs stored where they end."""
    return lax.scan(cell, (h, c), xs)


def two_layers(xs, h, c):
    """The second goes through what the first stored, backwards."""
    _, ys = lax.scan(cell, (h, c), xs)
    return lax.scan(lambda s, y: (jnp.tanh(s @ SQUARE + y),) * 2, h, ys, reverse=True)


def columns(xs, h):
    """The batch is the last dimension."""
    return lax.scan(lambda h, x: ((h := jnp.tanh(SQUARE @ h + x)), h.sum(0)), h, xs)


def normalized(h):
    """Reductions within a row; a vector that all rows share is made at every step."""

    def body(i, h):
        y = h @ SQUARE
        y = y - y.mean(-1, keepdims=True)
        return y * lax.rsqrt((y * y).mean(-1, keepdims=True) + 1e-5) + jnp.arange(STATE) * 0.01

    return lax.fori_loop(0, 5, body, h)


def biased(h, bias):
    """A tensor from outside of which each row is read at every step, times the counter."""
    return lax.fori_loop(0, 6, lambda i, h: jnp.tanh(h @ SQUARE + bias * i), h)


def attending(q, k):
    """Products of matrices, one for each element of the batch."""

    def body(i, q):
        return jax.nn.softmax(jnp.einsum("bqd,bkd->bqk", q, k)) @ k

    return lax.fori_loop(0, 4, body, q)


def read_again(h):
    """What steps store is read by the next one."""

    def body(i, state):
        h, ys = state
        before = lax.dynamic_index_in_dim(ys, jnp.maximum(i - 1, 0), keepdims=False)
        h = jnp.tanh(h @ SQUARE + before)
        return h, lax.dynamic_update_index_in_dim(ys, h, i, 0)

    return lax.fori_loop(0, STEPS, body, (h, jnp.zeros((STEPS, BATCH, STATE), jnp.float32)))


def elements(x, y):
    """Nothing but elements, of vectors."""
    x, y = lax.fori_loop(
        0, 50, lambda i, s: (s[0] + 0.01 * s[1], s[1] - 0.01 * jnp.sin(s[0])), (x, y)
    )
    return x, y.sum()


def mixing(h):
    """Not divided: a step takes the mean of all rows."""
    return lax.fori_loop(0, 7, lambda i, h: jnp.tanh(h @ SQUARE) + 0.1 * h.mean(0), h)


def until(h):
    """Not divided: whether there is a next step depends on all rows."""
    return lax.while_loop(lambda h: jnp.abs(h).max() > 0.1, lambda h: 0.3 * jnp.tanh(h @ SQUARE), h)


PROGRAMS = [
    (lstm, (normal(STEPS, BATCH, INPUTS), STATES, STATES), 1),
    (two_layers, (normal(STEPS, BATCH, INPUTS), STATES, STATES), 2),
    (columns, (normal(STEPS, STATE, BATCH), normal(STATE, BATCH)), 1),
    (normalized, (STATES,), 1),
    (biased, (STATES, normal(BATCH, STATE)), 1),
    (attending, (normal(BATCH, 16, 16), normal(BATCH, 16, 16)), 1),
    (read_again, (STATES,), 1),
    (elements, (normal(6000), normal(6000) + 1), 1),
    (mixing, (STATES,), 0),
    (until, (STATES,), 0),
]


@pytest.mark.parametrize(
    ("function", "arguments", "loops"), PROGRAMS, ids=lambda v: getattr(v, "__name__", "")
)
@pytest.mark.parametrize("threads", [2, 3])
def test_rows_are_divided(function, arguments, loops: int, threads: int) -> None:
    exported = jax.export.export(jax.jit(function))(*arguments)
    lowered = stepwell.lower(exported, threads=threads)
    lowered.step("linalg")
    assert str(lowered).count("stepwell.parts = ") == loops
    exe = stepwell.compile(exported, threads=threads)
    expected = jax.tree.leaves(jax.jit(function)(*arguments))
    results = exe(*arguments)
    for result, value in zip(results, expected, strict=True):
        np.testing.assert_allclose(result, value, rtol=1e-5, atol=1e-5)
    for _ in range(20):  # whatever threads do meanwhile
        for result, again in zip(results, exe(*arguments), strict=True):
            np.testing.assert_array_equal(result, again)
