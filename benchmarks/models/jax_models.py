"""JAX functions exported as StableHLO portable artifacts; weights are arguments, as JAX has them.
References are computed in float64 by XLA."""

# pyright: reportMissingImports=false
from __future__ import annotations

import itertools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import export, lax

from benchmarks.models.catalog import SEED, ModelFiles

_MLP_WIDTHS = (784, 1024, 1024, 1024, 10)
_STAGES = ((3, 64), (4, 128), (6, 256), (3, 512))
_WIDTH, _HEADS = 768, 12
_ITERATIONS = {"jax_lstm_scan": 64, "jax_while_256": 200}
"""Of models that are one loop, of which XLA counts the body once."""


def make(files: ModelFiles) -> None:
    """Write the model, its inputs and its references."""
    function, weights, x = _BUILDERS[files.name](np.random.default_rng(SEED))
    exported = export.export(jax.jit(function), platforms=["cpu"])(weights, x)
    files.path.write_bytes(exported.mlir_module_serialized)
    leaves = jax.tree.leaves((weights, x))
    inputs = {f"arg{i}": np.asarray(leaves[i]) for i in exported.module_kept_var_idx}
    with jax.enable_x64(True):
        arguments = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), (weights, x))
        outputs = jax.tree.leaves(jax.jit(function)(*arguments))
    costs = jax.jit(function).lower(weights, x).compile().cost_analysis()
    files.write_data(
        inputs,
        [np.asarray(value) for value in outputs],
        gflop=float((costs or {}).get("flops", 0.0)) / 1e9 * _ITERATIONS.get(files.name, 1),
        weights_bytes=sum(leaf.nbytes for leaf in jax.tree.leaves(weights)),
    )


def _normal(generator: np.random.Generator, *shape: int, scale: float = 1.0) -> np.ndarray:
    return generator.normal(0, scale, shape).astype(np.float32)


def _he(generator: np.random.Generator, *shape: int) -> np.ndarray:
    """He initialisation (https://arxiv.org/abs/1502.01852); the last axis is the output."""
    return _normal(generator, *shape, scale=float(np.sqrt(2 / np.prod(shape[:-1]))))


def mlp(weights, x):
    """A perceptron of four layers with a softmax."""
    for weight in weights[:-1]:
        x = jax.nn.relu(x @ weight)
    return jax.nn.softmax(x @ weights[-1])


def _mlp(generator: np.random.Generator):
    pairs = itertools.pairwise(_MLP_WIDTHS)
    weights = [_he(generator, before, after) for before, after in pairs]
    return mlp, weights, _normal(generator, 32, _MLP_WIDTHS[0])


def transformer_block(weights, x):
    """A pre-normalized causal transformer block, attention written out with einsum."""
    batch, length, width = x.shape
    qkv = _layer_norm(x, weights["norm_1"]) @ weights["qkv"]
    q, k, v = jnp.split(qkv.reshape(batch, length, 3 * _HEADS, width // _HEADS), 3, axis=2)
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / (width // _HEADS) ** 0.5
    visible = jnp.tril(jnp.ones((length, length), bool))
    scores = jax.nn.softmax(jnp.where(visible, scores, -1e9), axis=-1)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", scores, v).reshape(batch, length, width)
    x = x + mixed @ weights["projection"]
    hidden = jax.nn.gelu(_layer_norm(x, weights["norm_2"]) @ weights["up"])
    return x + hidden @ weights["down"]


def _layer_norm(x, scale):
    mean = x.mean(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * scale


def _block(generator: np.random.Generator):
    shapes = {
        "qkv": (_WIDTH, 3 * _WIDTH),
        "projection": (_WIDTH, _WIDTH),
        "up": (_WIDTH, 4 * _WIDTH),
        "down": (4 * _WIDTH, _WIDTH),
    }
    weights = {name: _normal(generator, *s, scale=0.02) for name, s in shapes.items()}
    weights |= {name: np.ones(_WIDTH, np.float32) for name in ("norm_1", "norm_2")}
    return transformer_block, weights, _normal(generator, 1, 128, _WIDTH)


def resnet50(weights, x):
    """ResNet-50 in NHWC, each normalization folded to a scale and a shift."""
    x = jax.nn.relu(_convolution(weights["stem"], x, 2))
    window, padding = (1, 3, 3, 1), ((0, 0), (1, 1), (1, 1), (0, 0))
    x = lax.reduce_window(x, -jnp.inf, lax.max, window, (1, 2, 2, 1), padding)
    for number, stage in enumerate(weights["stages"]):
        for index, block in enumerate(stage):
            stride = 2 if number > 0 and index == 0 else 1
            y = jax.nn.relu(_convolution(block["reduce"], x))
            y = jax.nn.relu(_convolution(block["spatial"], y, stride))
            y = _convolution(block["expand"], y)
            shortcut = _convolution(block["shortcut"], x, stride) if "shortcut" in block else x
            x = jax.nn.relu(y + shortcut)
    return x.mean((1, 2)) @ weights["classifier"]


def _convolution(layer, x, stride: int = 1):
    half = layer["kernel"].shape[0] // 2
    dimensions = ("NHWC", "HWIO", "NHWC")
    y = lax.conv_general_dilated(
        x, layer["kernel"], (stride, stride), [(half, half)] * 2, dimension_numbers=dimensions
    )
    return y * layer["scale"] + layer["shift"]


def _resnet50(generator: np.random.Generator):
    def layer(size: int, before: int, after: int, scale: float = 0.7) -> dict[str, np.ndarray]:
        return {
            "kernel": _he(generator, size, size, before, after),
            "scale": np.full(after, scale, np.float32),
            "shift": _normal(generator, after, scale=0.05),
        }

    stem = layer(7, 3, 64)
    stages, channels = [], 64
    for blocks, width in _STAGES:
        stage = []
        for index in range(blocks):
            block = {
                "reduce": layer(1, channels, width),
                "spatial": layer(3, width, width),
                "expand": layer(1, width, 4 * width, scale=0.2),
            }
            if index == 0:
                block["shortcut"] = layer(1, channels, 4 * width)
            stage.append(block)
            channels = 4 * width
        stages.append(stage)
    weights = {"stem": stem, "stages": stages, "classifier": _he(generator, channels, 1000)}
    return resnet50, weights, _normal(generator, 1, 224, 224, 3)


def lstm(weights, xs):
    """An LSTM as a scan, its inputs multiplied in the body."""

    def step(carry, x):
        h, cell = carry
        gates = x @ weights["input"] + h @ weights["hidden"] + weights["bias"]
        i, f, o, update = jnp.split(gates, 4, axis=-1)
        cell = jax.nn.sigmoid(f) * cell + jax.nn.sigmoid(i) * jnp.tanh(update)
        h = jax.nn.sigmoid(o) * jnp.tanh(cell)
        return (h, cell), h

    start = jnp.zeros((1, weights["hidden"].shape[0]), xs.dtype)
    return lax.scan(step, (start, start), xs)[1]


def _lstm(generator: np.random.Generator):
    width, hidden = 256, 512
    weights = {
        "input": _normal(generator, width, 4 * hidden, scale=0.05),
        "hidden": _normal(generator, hidden, 4 * hidden, scale=0.05),
        "bias": _normal(generator, 4 * hidden, scale=0.1),
    }
    return lstm, weights, _normal(generator, _ITERATIONS["jax_lstm_scan"], 1, width)


def matrix_vector_loop(weights, x):
    """A while loop of products of a small matrix and a vector."""
    matrix, bias = weights
    iterations = _ITERATIONS["jax_while_256"]
    return lax.fori_loop(0, iterations, lambda _, x: jnp.tanh(matrix @ x + bias), x)


def _while(generator: np.random.Generator):
    matrix = _normal(generator, 256, 256, scale=0.05)
    return matrix_vector_loop, (matrix, _normal(generator, 256)), _normal(generator, 256)


_BUILDERS: dict[str, Callable[[np.random.Generator], tuple]] = {
    "jax_mlp": _mlp,
    "jax_block_s128": _block,
    "jax_resnet50_nhwc": _resnet50,
    "jax_lstm_scan": _lstm,
    "jax_while_256": _while,
}
