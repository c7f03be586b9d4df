"""Training steps of JAX (forward, backward, Adam), compiled, against XLA: parameters and losses."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

import stepwell  # noqa: E402

_STEPS = 3
_RATE, _FIRST, _SECOND = 1e-2, 0.9, 0.99


def _adam(loss: Callable) -> Callable:
    """A step: the loss, and the state (count, parameters, first and second moments) after it."""

    def step(state: tuple, *batch: jax.Array) -> tuple:
        count, parameters, first, second = state
        value, gradients = jax.value_and_grad(loss)(parameters, *batch)
        count = count + 1
        first = jax.tree.map(lambda m, g: _FIRST * m + (1 - _FIRST) * g, first, gradients)
        second = jax.tree.map(lambda v, g: _SECOND * v + (1 - _SECOND) * g * g, second, gradients)
        unbiased = [1 - rate ** count.astype(jnp.float32) for rate in (_FIRST, _SECOND)]
        parameters = jax.tree.map(
            lambda p, m, v: p - _RATE * (m / unbiased[0]) / (jnp.sqrt(v / unbiased[1]) + 1e-3),
            parameters,
            first,
            second,
        )
        return value, (count, parameters, first, second)

    return step


def _cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], -1)
    return -chosen.mean()


class _Random:
    def __init__(self) -> None:
        self._rng = np.random.default_rng(0)

    def weights(self, *shape: int) -> np.ndarray:
        fan_in = int(np.prod(shape[:-1]))
        return self.normal(*shape) / np.float32(np.sqrt(fan_in))

    def normal(self, *shape: int) -> np.ndarray:
        return self._rng.standard_normal(shape, np.float32)

    def labels(self, most: int, *shape: int) -> np.ndarray:
        return self._rng.integers(0, most, shape).astype(np.int32)


def _cnn(random: _Random) -> tuple:
    def convolution(x: jax.Array, w: jax.Array, stride: int) -> jax.Array:
        dims = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(x, w, (stride,) * 2, "SAME", dimension_numbers=dims)

    def normalized(x: jax.Array, scale: jax.Array, shift: jax.Array) -> jax.Array:
        mean, variance = x.mean((0, 1, 2)), x.var((0, 1, 2))
        return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * scale + shift

    def loss(p: dict, x: jax.Array, labels: jax.Array) -> jax.Array:
        x = jax.nn.relu(normalized(convolution(x, p["a"], 1), p["scale"], p["shift"]))
        window, strides = (1, 3, 3, 1), (1, 2, 2, 1)
        x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, window, strides, "SAME")
        x = x + jax.nn.relu(convolution(x, p["b"], 1))
        x = jax.nn.relu(convolution(x, p["c"], 2))
        return _cross_entropy(x.mean((1, 2)) @ p["out"], labels)

    parameters = {
        "a": random.weights(3, 3, 3, 8),
        "b": random.weights(3, 3, 8, 8),
        "c": random.weights(3, 3, 8, 16),
        "scale": np.ones(8, np.float32),
        "shift": np.zeros(8, np.float32),
        "out": random.weights(16, 5),
    }
    return loss, parameters, (random.normal(4, 12, 12, 3), random.labels(5, 4))


def _transformer(random: _Random) -> tuple:
    heads, size, words = 2, 16, 30

    def normalized(x: jax.Array) -> jax.Array:
        centred = x - x.mean(-1, keepdims=True)
        return centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5)

    def attention(p: dict, x: jax.Array) -> jax.Array:
        batch, length, _ = x.shape
        parts = (x @ p["qkv"]).reshape(batch, length, 3, heads, size // heads)
        q, k, v = jnp.moveaxis(parts, 2, 0)
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / np.float32((size // heads) ** 0.5)
        seen = jnp.tril(jnp.ones((length, length), bool))
        weights = jax.nn.softmax(jnp.where(seen, scores, -1e9))
        return jnp.einsum("bhqk,bkhd->bqhd", weights, v).reshape(x.shape) @ p["o"]

    @jax.checkpoint
    def layer(p: dict, x: jax.Array) -> jax.Array:
        x = x + attention(p, normalized(x))
        return x + jax.nn.gelu(normalized(x) @ p["up"]) @ p["down"]

    def loss(p: dict, ids: jax.Array) -> jax.Array:
        x = p["words"][ids[:, :-1]] + p["places"][: ids.shape[1] - 1]
        x = layer(p["layer"], x)
        return _cross_entropy(normalized(x) @ p["words"].T, ids[:, 1:])

    layer_weights = {
        "qkv": random.weights(size, 3 * size),
        "o": random.weights(size, size),
        "up": random.weights(size, 4 * size),
        "down": random.weights(4 * size, size),
    }
    parameters = {
        "words": random.weights(words, size),
        "places": random.weights(12, size),
        "layer": layer_weights,
    }
    return loss, parameters, (random.labels(words, 3, 9),)


@pytest.mark.parametrize("model", [_cnn, _transformer])
def test_training(model: Callable[[_Random], tuple]) -> None:
    """A few steps, since errors of one are seen in the next."""
    loss, parameters, batch = model(_Random())
    step = _adam(loss)
    zeros = jax.tree.map(np.zeros_like, parameters)
    start = (np.int32(0), parameters, zeros, zeros)
    found = []
    for run in (stepwell.jit(step, donate_argnums=0), jax.jit(step)):
        state, values = start, []
        for _ in range(_STEPS):
            value, state = run(state, *batch)
            values.append(float(value))
        assert values[-1] < values[0]
        found.append((values, jax.tree.leaves(state)))
    np.testing.assert_allclose(*(values for values, _ in found), rtol=1e-5)
    for own, other in zip(*(leaves for _, leaves in found), strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-3, atol=1e-5)
