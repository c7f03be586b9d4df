"""Random numbers, drawn when the model is compiled: every call of the executable sees the same.

The stream is numpy's `RandomState`, as in the standard's reference evaluator. Without an attribute
`seed`, the seed comes from the node's name, so that compiling twice gives the same artifact.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence

import numpy as np
import onnx

from stepwell.dialects import stablehlo as hlo
from stepwell.frontends.onnx.node import Node, Tensor
from stepwell.frontends.onnx.registry import Result, operator
from stepwell.frontends.onnx.shaping import reduce
from stepwell.mlir import ir


def _generator(node: Node) -> np.random.RandomState:
    """Seeded by the node; the seed of Dropout is an integer, of all others a float."""
    seed = node.integer("seed", 0) if node.operator == "Dropout" else node.number("seed", math.nan)
    if "seed" not in node or math.isnan(seed):
        return np.random.RandomState(zlib.crc32(node.name.encode()))
    return np.random.RandomState(int(seed))


def _kind(node: Node, default: np.dtype | type) -> np.dtype:
    code = node.integer("dtype", 0)
    return np.dtype(onnx.helper.tensor_dtype_to_np_dtype(code) if code else default)


def _normal(node: Node, shape: Sequence[int], kind: np.dtype) -> np.ndarray:
    mean, scale = node.number("mean", 0.0), node.number("scale", 1.0)
    return np.asarray(_generator(node).randn(*shape) * scale + mean).astype(kind)


def _uniform(node: Node, shape: Sequence[int], kind: np.dtype) -> np.ndarray:
    low, high = node.number("low", 0.0), node.number("high", 1.0)
    return np.asarray(_generator(node).rand(*shape) * (high - low) + low).astype(kind)


@operator("RandomNormal", folds=True)
def random_normal(node: Node) -> np.ndarray:
    return _normal(node, node.integers("shape", []), _kind(node, np.float32))


@operator("RandomNormalLike", folds=True)
def random_normal_like(node: Node, x: Tensor) -> np.ndarray:
    return _normal(node, x.shape, _kind(node, x.dtype))


@operator("RandomUniform", folds=True)
def random_uniform(node: Node) -> np.ndarray:
    return _uniform(node, node.integers("shape", []), _kind(node, np.float32))


@operator("RandomUniformLike", folds=True)
def random_uniform_like(node: Node, x: Tensor) -> np.ndarray:
    return _uniform(node, x.shape, _kind(node, x.dtype))


@operator("Bernoulli")
def bernoulli(node: Node, x: Tensor) -> ir.Value:
    """One with probability x, else zero."""
    draws = node.constant(np.asarray(_generator(node).rand(*x.shape)).astype(x.dtype), "draws")
    return hlo.convert(hlo.compare(draws, x.value, "LT"), _kind(node, x.dtype))


@operator("Multinomial")
def multinomial(node: Node, x: Tensor) -> ir.Value:
    """Classes drawn by their unnormalized logarithms x [batch, classes]: [batch, sample_size].

    A class is how many sums of the first probabilities lie at or below a draw of their total.
    """
    batch, classes = x.shape
    count = node.integer("sample_size", 1)
    wide = np.dtype(np.float32 if x.dtype.itemsize < 4 else x.dtype)
    logits = hlo.convert(x.value, wide)
    top = hlo.broadcast_in_dim(reduce(logits, [1], "maximum", keep=False), x.shape, [0])
    weights = hlo.exponential(hlo.subtract(logits, top))
    upper = node.constant(np.triu(np.ones((classes, classes), wide)), "upper")
    sums = hlo.dot_general(weights, upper, ([1], [0]))
    total = hlo.slice(sums, [0, classes - 1], [batch, classes])
    draws = node.constant(_generator(node).rand(batch, count).astype(wide), "draws")
    target = hlo.multiply(draws, hlo.broadcast_in_dim(total, [batch, count], [0, 1]))
    shape = [batch, count, classes]
    passed = hlo.compare(
        hlo.broadcast_in_dim(sums, shape, [0, 2]),
        hlo.broadcast_in_dim(target, shape, [0, 1]),
        "LE",
    )
    kind = _kind(node, np.int32)
    chosen = reduce(hlo.convert(passed, np.int32), [2], "add", keep=False)
    return hlo.convert(hlo.minimum(chosen, hlo.full_like(chosen, classes - 1)), kind)


@operator("Dropout", since=1)
def dropout_by_attribute(node: Node, x: Tensor) -> list[Result]:
    """Before opset 12 a model is exported for inference: nothing is dropped."""
    return [x, np.broadcast_to(np.True_, x.shape)][: max(node.used_outputs(), 1)]


@operator("Dropout", since=12)
def dropout(
    node: Node, x: Tensor, ratio: Tensor | None = None, training_mode: Tensor | None = None
) -> list[Result]:
    """In training, elements are zero with probability `ratio`, and the others scaled up."""
    training = training_mode is not None and node.known_number(training_mode, "training_mode")
    probability = 0.5
    if training and ratio is not None:
        probability = float(node.known_number(ratio, "ratio"))
    if not training or probability == 0:
        return dropout_by_attribute(node, x)
    kept = _generator(node).uniform(0, 1, x.shape) >= probability
    mask = node.constant(kept, "mask")
    scaled = hlo.multiply(x.value, hlo.full_like(x.value, 1 / (1 - probability)))
    result = hlo.select(mask, scaled, hlo.full_like(x.value, 0))
    return [result, kept][: max(node.used_outputs(), 1)]
