"""Contractions of every odd size, batched and transposed, with their epilogues."""

from __future__ import annotations

import itertools

import numpy as np
from jax import lax
from jax import numpy as jnp
from programs import Batch, Case, normal, pad

SIZES = (1, 7, 17, 33, 65, 130)


def scaled(*shape: int, seed: int = 0) -> np.ndarray:
    """Numbers whose products, summed over the last dimension, are of order one."""
    return (normal(*shape, seed=seed) / np.sqrt(max(shape[-1], 1))).astype(np.float32)


def product(m: int, n: int, k: int) -> Case:
    return Case(f"matmul-{m}x{n}x{k}", jnp.matmul, (scaled(m, k), normal(k, n)))


def dot(name: str, a: tuple[int, ...], b: tuple[int, ...], contract, batch=((), ())) -> Case:
    def function(x, y):
        return lax.dot_general(x, y, (contract, batch))

    depth = int(np.prod([a[i] for i in contract[0]]))
    x = (normal(*a) / np.sqrt(depth)).astype(np.float32)
    return Case(name, function, (x, normal(*b)))


SQUARE = [product(m, n, k) for m, n, k in itertools.product(SIZES, repeat=3) if m <= 33 or n == 65]

LAYOUTS = [
    dot("transposed-lhs", (17, 7), (17, 33), ([0], [0])),
    dot("transposed-rhs", (7, 17), (33, 17), ([1], [1])),
    dot("transposed-both", (17, 7), (33, 17), ([0], [1])),
    dot("transposed-rhs-wide", (65, 130), (130, 130), ([1], [1])),
    dot("batched", (3, 7, 17), (3, 17, 33), ([2], [1]), ([0], [0])),
    dot("batched-transposed-rhs", (3, 7, 17), (3, 33, 17), ([2], [2]), ([0], [0])),
    dot("batched-transposed-lhs", (3, 17, 7), (3, 17, 33), ([1], [1]), ([0], [0])),
    dot("batched-twice", (2, 3, 7, 17), (2, 3, 17, 5), ([3], [2]), ([0, 1], [0, 1])),
    dot("batch-inside", (7, 3, 17), (33, 3, 17), ([2], [2]), ([1], [1])),
    dot("batch-last", (7, 17, 3), (17, 33, 3), ([1], [0]), ([2], [2])),
    dot("attention-scores", (2, 9, 4, 16), (2, 11, 4, 16), ([3], [3]), ([0, 2], [0, 2])),
    dot("several-m", (2, 3, 5, 17), (17, 33), ([3], [0])),
    dot("several-n", (7, 17), (17, 3, 5), ([1], [0])),
    dot("several-k", (7, 3, 5), (3, 5, 33), ([1, 2], [0, 1])),
    dot("several-k-swapped", (7, 3, 5), (5, 3, 33), ([1, 2], [1, 0])),
    dot("vector-matrix", (17,), (17, 33), ([0], [0])),
    dot("matrix-vector", (33, 17), (17,), ([1], [0])),
    dot("inner-product", (130,), (130,), ([0], [0])),
    dot("outer-product", (17,), (33,), ([], [])),
    dot("long-k", (3, 1030), (1030, 20), ([1], [0])),
    dot("longer-k", (3, 8232), (8232, 20), ([1], [0])),
    dot("longer-k-transposed", (8232, 17), (8232, 9), ([0], [0])),
    dot("many-rows", (700, 9), (9, 20), ([1], [0])),
]

X, W, B, R = scaled(7, 17), normal(17, 33), normal(33), normal(7, 33)
COLUMN = normal(7, 1)


def gelu(x):
    return 0.5 * x * (1 + lax.erf(x * np.float32(0.7071067811865476).item()))


EPILOGUES = [
    Case("bias", lambda x, w, b: x @ w + b, (X, W, B)),
    Case("bias-relu", lambda x, w, b: jnp.maximum(x @ w + b, 0), (X, W, B)),
    Case("relu6", lambda x, w: jnp.clip(x @ w, 0, 6), (X, W)),
    Case("gelu", lambda x, w, b: gelu(x @ w + b), (X, W, B)),
    Case("tanh", lambda x, w: jnp.tanh(x @ w), (X, W)),
    Case("silu", lambda x, w: (y := x @ w) / (1 + jnp.exp(-y)), (X, W)),
    Case("residual", lambda x, w, r: jnp.maximum(x @ w + r, 0), (X, W, R)),
    Case("row-scale", lambda x, w, c: (x @ w) * c, (X, W, COLUMN)),
    Case("both-used", lambda x, w, b: [y := x @ w + b, jnp.maximum(y, 0)], (X, W, B)),
    Case("transposed-output", lambda x, w, b: (x @ w + b).T, (X, W, B)),
    Case("reshaped-output", lambda x, w: (x @ w).reshape(7, 3, 11) + 1, (X, W)),
    Case("heads", lambda x, w: (x @ w).reshape(7, 3, 11).transpose(1, 0, 2), (X, W)),
    Case("two-products", lambda x, w, r: x @ w + (2 * x) @ w * r, (X, W, R)),
    Case("chain", lambda x, w, v: jnp.maximum(x @ w, 0) @ v, (X, W, scaled(33, 9))),
    Case("sliced-output", lambda x, w: (x @ w)[:, 3:20], (X, W)),
    Case("padded-output", lambda x, w: pad(x @ w, [(1, 2, 0), (3, 1, 0)]), (X, W)),
    Case("summed-output", lambda x, w: (x @ w).sum(1), (X, W)),
    Case("softmax-output", lambda x, w: softmax(x @ w), (X, W)),
    Case("compared-output", lambda x, w, r: jnp.where(x @ w > r, r, 0), (X, W, R)),
    Case("operand-prologue", lambda x, w: jnp.exp(x) @ w, (X, W)),
    Case("same-operand", lambda x: x @ x.T, (X,)),
    Case("f64", jnp.matmul, (normal(7, 17, dtype="float64"), normal(17, 33, dtype="float64")),
         tolerance=1e-13),
    Case("f64-panels", jnp.matmul,
         (normal(70, 300, dtype="float64"), normal(300, 145, dtype="float64")), tolerance=1e-13),
    Case("f64-long", jnp.matmul,
         (normal(13, 2048, dtype="float64"), normal(2048, 70, dtype="float64")), tolerance=1e-13),
    Case("i32", jnp.matmul, (normal(7, 17).astype(np.int32), normal(17, 33).astype(np.int32))),
    Case("i64", jnp.matmul, ((9 * normal(7, 17)).astype(np.int64), (9 * W).astype(np.int64))),
]  # fmt: skip


def softmax(x):
    shifted = jnp.exp(x - x.max(-1, keepdims=True))
    return shifted / shifted.sum(-1, keepdims=True)


SQUARE_BATCH = Batch(SQUARE)
LAYOUT_BATCH = Batch([*LAYOUTS, *EPILOGUES])


@SQUARE_BATCH.parametrize()
def test_sizes(name: str) -> None:
    SQUARE_BATCH.check(name)


@LAYOUT_BATCH.parametrize()
def test_layouts_and_epilogues(name: str) -> None:
    LAYOUT_BATCH.check(name)
