"""Transposes of every permutation, slices, pads, concatenations, gathers: all exact."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
from jax import lax
from jax import numpy as jnp
from programs import Batch, Case, integers, normal, pad

import stepwell

SHAPES = {2: (7, 33), 3: (3, 7, 19), 4: (2, 3, 5, 17)}
X, Y = normal(2, 3, 5, 17), normal(2, 3, 5, 17, seed=1)
MATRIX = normal(9, 21)


def exact(name: str, function, *arrays: np.ndarray) -> Case:
    return Case(name, function, arrays, 0)


def transposes() -> Iterator[Case]:
    for rank, shape in SHAPES.items():
        for order in itertools.permutations(range(rank)):
            label = "".join(map(str, order))
            yield exact(f"transpose-{label}", lambda x, o=order: x.transpose(o), normal(*shape))
            yield Case(
                f"transpose-{label}-of-sum",
                lambda x, o=order: (x + 1).transpose(o) * 2,
                (normal(*shape),),
            )
    for dtype in ("int8", "uint8", "int16", "int64", "float64", "bool", "float16", "bfloat16"):
        for rows, columns in ((7, 33), (32, 48), (50, 3), (3, 50)):
            x = integers(rows, columns).astype(jnp.dtype(dtype))
            yield exact(f"transpose-{dtype}-{rows}x{columns}", lambda x: x.T, x)
        yield exact(
            f"transpose-{dtype}-padded",
            lambda x: jnp.pad(x.transpose(1, 2, 0), [(1, 1), (2, 0), (0, 0)]),
            integers(24, 9, 21).astype(jnp.dtype(dtype)),
        )
    for rows, columns in ((1, 64), (16, 16), (64, 1), (17, 130), (128, 128), (14, 50), (31, 7)):
        yield exact(f"transpose-{rows}x{columns}", lambda x: x.T, normal(rows, columns))
    for channels in (3, 24):
        yield exact(
            f"transpose-{channels}-channels-padded",
            lambda x: jnp.pad(
                x.transpose(0, 2, 3, 1), [(0, 0), (1, 2), (3, 0), (0, 0)], constant_values=2
            ),
            normal(2, channels, 9, 21),
        )
    for size in (4, 7, 14):
        yield exact(
            f"transpose-{size}x{size}-pixels-padded",
            lambda x: jnp.pad(x.transpose(0, 2, 3, 1), [(0, 0), (1, 1), (1, 1), (0, 0)]),
            normal(2, 40, size, size),
        )
    yield exact("transpose-twice", lambda x: x.transpose(0, 2, 1, 3).transpose(3, 2, 1, 0), X)
    yield exact("transpose-reshape", lambda x: x.transpose(0, 2, 3, 1).reshape(10, 51), X)
    yield exact("reshape-transpose", lambda x: x.reshape(2, 3, 85).transpose(0, 2, 1), X)


SLICES = [
    exact("slice-first", lambda x: x[1:], X),
    exact("slice-last", lambda x: x[..., 3:11], X),
    exact("slice-strided", lambda x: x[:, ::2, 1::3, ::4], X),
    exact("slice-one-row", lambda x: x[1, 2], X),
    exact("slice-to-one", lambda x: x[1, 2, 3, 4], X),
    exact("split", lambda x: jnp.split(x, 3, axis=1), X),
    Case("split-and-add", lambda x: x[..., :8] + x[..., 8:16], (X,)),
    Case("rotate-half", lambda x: jnp.concatenate([-x[..., 8:16], x[..., :8]], -1) * 2, (X,)),
    exact("reverse", lambda x: lax.rev(x, (1, 3)), X),
    exact("flip-last", lambda x: jnp.flip(x, -1), MATRIX),
    exact("dynamic-slice", lambda x, i: lax.dynamic_slice(x, (i, np.int32(2)), (3, 5)), MATRIX,
          np.array(4, np.int32)),
    exact("dynamic-slice-clamped", lambda x, i: lax.dynamic_slice(x, (i, np.int32(2)), (3, 5)),
          MATRIX, np.array(99, np.int32)),
    Case("dynamic-slice-at-a-sum", lambda x: x[jnp.sum(x > 0)] * jnp.sum(x > 0), (MATRIX[0],)),
    exact("dynamic-update", lambda x, y, i: lax.dynamic_update_slice(x, y, (i, np.int32(2))),
          MATRIX, normal(3, 5), np.array(4, np.int32)),
]  # fmt: skip


def wide(*shape: int, kind: str) -> np.ndarray:
    """Integers of all sizes, most of which differ in several bytes."""
    limits = np.iinfo(kind)
    rng = np.random.default_rng(5)
    return rng.integers(limits.min, limits.max, shape, kind, endpoint=True)


def unusual(kind: type) -> np.ndarray:
    """Few different numbers, with zeros of both signs, infinities and NaN."""
    numbers = np.array([0.0, -0.0, 1.5, -1.5, np.inf, -np.inf, np.nan, 1e-6], kind)
    return numbers[integers(200, low=0, high=7)]


PADS = [
    exact("pad-low", lambda x: pad(x, [(2, 0, 0), (3, 0, 0)]), MATRIX),
    exact("pad-high", lambda x: pad(x, [(0, 2, 0), (0, 3, 0)]), MATRIX),
    exact("pad-both", lambda x: pad(x, [(1, 2, 0), (3, 4, 0)], -7), MATRIX),
    exact("pad-negative", lambda x: pad(x, [(-1, 2, 0), (3, -4, 0)]), MATRIX),
    exact("pad-all-negative", lambda x: pad(x, [(-1, -2, 0), (-3, -4, 0)]), MATRIX),
    exact("pad-interior", lambda x: pad(x, [(0, 0, 1), (0, 0, 2)]), MATRIX),
    exact("pad-interior-and-edges", lambda x: pad(x, [(1, 2, 1), (0, 3, 2)]), MATRIX),
    exact("pad-outer", lambda x: pad(x, [(1, 1, 0), (0, 0, 0), (0, 0, 0), (0, 0, 0)]), X),
    exact("pad-integers", lambda x: pad(x, [(1, 2, 0), (3, 4, 0)], 5), integers(9, 21)),
    exact("pad-booleans", lambda x: pad(x, [(1, 2, 0), (3, 4, 0)], 1), MATRIX > 0),
    exact("pad-value-argument", lambda x, v: lax.pad(x, v, [(1, 2, 0), (3, 4, 0)]), MATRIX,
          np.array(2.5, np.float32)),
    exact("pad-infinite", lambda x: pad(x, [(1, 2, 0), (3, 4, 0)], -np.inf), MATRIX),
    Case("pad-then-relu", lambda x: jnp.maximum(pad(x, [(1, 2, 0), (3, 4, 0)], -2) + 1, 0),
         (MATRIX,)),
    exact("edge", lambda x: jnp.pad(x, ((2, 1), (3, 2)), mode="edge"), MATRIX),
    exact("reflect", lambda x: jnp.pad(x, ((2, 1), (3, 2)), mode="reflect"), MATRIX),
]  # fmt: skip


def concatenations() -> Iterator[Case]:
    for axis in range(4):
        yield exact(f"concatenate-{axis}", lambda x, y, a=axis: jnp.concatenate([x, y], a), X, Y)
        yield Case(
            f"concatenate-{axis}-computed",
            lambda x, y, a=axis: jnp.maximum(jnp.concatenate([x + y, x, y * 2], a), 0),
            (X, Y),
        )
        yield exact(
            f"concatenate-{axis}-padded",
            lambda x, y, a=axis: pad(jnp.concatenate([x, y], a), [(1, 2, 0)] * 4, 2.5),
            X,
            Y,
        )
    yield exact(
        "concatenate-padded-and-plain",
        lambda x, y: (c := jnp.concatenate([x, y], 3), pad(c, [(0, 1, 0)] * 4)),
        X,
        Y,
    )
    yield exact("concatenate-uneven", lambda x, y: jnp.concatenate([x, y[..., :5]], 3), X, Y)
    yield exact("concatenate-same", lambda x: jnp.concatenate([x, x, x], 0), MATRIX)
    yield exact("concatenate-many", lambda x: jnp.concatenate([x[i] for i in range(9)]), MATRIX)
    yield exact("concatenate-bools", lambda x: jnp.concatenate([x > 0, x < 1], 1), MATRIX)
    yield exact("stack", lambda x, y: jnp.stack([x, y], 2), X, Y)
    for dtype in ("float32", "float16", "int8", "bool", "int64"):
        number = integers(5, 37).astype(dtype)
        yield exact(
            f"alternating-{dtype}", lambda x, y: jnp.stack([x, y], -1), number, number[::-1].copy()
        )
        for count in (3, 4, 5):
            parts = [np.roll(number, i, 1) for i in range(count)]
            yield exact(f"alternating-{count}-{dtype}", lambda *parts: jnp.stack(parts, -1), *parts)
            yield exact(
                f"every-of-{count}-{dtype}",
                lambda x, n=count: x[..., 1::n] + x[..., n - 1 :: n],
                np.stack(parts, -1).reshape(5, -1),
            )
    yield exact(
        "alternating-padded", lambda x, y: pad(jnp.stack([x, y], -1), [(1, 1, 0)] * 5, 2.0), X, Y
    )
    yield exact("alternating-long", lambda x: jnp.stack([x, -x], -1), normal(9001))
    yield Case("alternating-cross", jnp.cross, (normal(5000, 3), normal(5000, 3)))
    yield Case(
        "alternating-that-share",
        lambda x, y: jnp.stack([(e := jnp.exp(-x * x)) * y, e + y, e], -1),
        (normal(3, 37), normal(3, 37)),
    )
    yield Case(
        "alternating-turned",
        lambda x, a: jnp.stack(
            [x[..., ::2] * a - x[..., 1::2], x[..., ::2] + x[..., 1::2] * a], -1
        ).reshape(x.shape),
        (normal(3, 5, 54), normal(5, 27)),
    )
    yield Case(
        "turned-by-looked-up-angles",
        lambda x, t, i: jnp.concatenate(
            [x[..., :17] * t[i] - x[..., 17:34], x[..., 17:34] * t[i] + x[..., :17], x[..., 34:]],
            -1,
        ),
        (normal(3, 5, 38), normal(9, 17), integers(5, low=0, high=9)),
    )
    for length in (5000, 20001):
        yield Case(
            f"concatenate-long-{length}",
            lambda x, y: jnp.concatenate([x + 1, y, jnp.tanh(x)]),
            (normal(length), normal(7000)),
        )
    yield Case(
        "concatenate-columns-of-rows",
        lambda x, y: jnp.concatenate([x * y[:, None], x], 0),
        (normal(9, 21), normal(9)),
    )
    yield Case(
        "parts-that-meet-again",
        lambda x, y: (s := jnp.tanh(x + y), jnp.concatenate([s * 2, jnp.exp(y), s], 1)),
        (MATRIX, normal(9, 21, seed=2)),
    )
    yield exact("tile", lambda x: jnp.tile(x, (2, 3)), MATRIX)
    yield exact("repeat", lambda x: jnp.repeat(x, 3, axis=1), MATRIX)
    yield exact(
        "nested", lambda x: jnp.concatenate([jnp.concatenate([x, -x], 1), jnp.tile(x, (1, 2))], 0),
        MATRIX,
    )  # fmt: skip


ROWS = integers(4, 3, low=0, high=8)
GATHERS = [
    exact("embedding", lambda t, i: t[i], MATRIX, ROWS),
    exact("embedding-int64", lambda t, i: t[i], MATRIX, ROWS.astype(np.int64)),
    exact("embedding-one", lambda t, i: t[i], MATRIX, np.array(5, np.int32)),
    exact("embedding-wide", lambda t, i: t[i], normal(9, 130), ROWS),
    exact("embedding-integers", lambda t, i: t[i], integers(9, 21), ROWS),
    exact("take-columns", lambda t, i: jnp.take(t, i, axis=1, mode="clip"), MATRIX, ROWS),
    exact("take-clamped", lambda t, i: jnp.take(t, i, axis=0, mode="clip"), MATRIX, ROWS * 3),
    exact("take-along-axis", lambda t, i: jnp.take_along_axis(t, i, 1, mode="clip"),
          normal(4, 21), ROWS),
    exact("pairs", lambda t, i: t[i[:, 0], i[:, 1]], MATRIX, ROWS),
    Case("embedding-and-add", lambda t, i, p: t[i] + p, (MATRIX, ROWS, normal(3, 21))),
    Case("embedding-normalised", lambda t, i: (y := t[i]) - y.mean(-1, keepdims=True),
         (MATRIX, ROWS)),
    exact("scatter-set", lambda t, i, v: t.at[i].set(v), MATRIX, np.array([1, 5, 7], np.int32),
          normal(3, 21)),
    Case("scatter-add", lambda t, i, v: t.at[i].add(v),
         (MATRIX, np.array([1, 5, 5], np.int32), normal(3, 21))),
    exact("scatter-one-row", lambda t, i, v: t.at[i].set(v), MATRIX, np.array([5], np.int32),
          normal(1, 21)),
    exact("scatter-one-column", lambda t, i, v: t.at[:, i].set(v), MATRIX, np.array(-3, np.int32),
          normal(9)),
    exact("scatter-outside", lambda t, i, v: t.at[i].set(v), MATRIX, np.array([9], np.int32),
          normal(1, 21)),
    exact("one-hot", lambda i: (i[:, None] == jnp.arange(9)).astype(np.float32), ROWS[:, 0]),
    exact("lower-triangle", lambda x: jnp.tril(x), MATRIX),
    exact("sort", lambda x: jnp.sort(x, -1), MATRIX),
    exact("top-k", lambda x: lax.top_k(x, 3), MATRIX),
    exact("top-1", lambda x: lax.top_k(x, 1), MATRIX),
    exact("top-k-of-equals", lambda x: lax.top_k(x, 7), integers(9, 100, low=0, high=5)),
    exact("top-k-of-ascending", lambda x: lax.top_k(x, 16), np.sort(normal(9, 100))),
    exact("least-of-columns", lambda x: jnp.argsort(x, axis=0, stable=True)[:6],
          integers(60, 9, low=0, high=5)),
    exact("least-but-one", lambda x: jnp.sort(x)[1:4], normal(40)),
    *(exact(f"sort-{kind}", lambda x: jnp.sort(x), wide(3, 200, kind=kind))
      for kind in ("int8", "uint8", "int16", "int32", "uint32", "int64")),
    exact("order-of-columns", lambda x: jnp.argsort(x, axis=0, stable=True),
          integers(300, 3, low=-5, high=5)),
    exact("order-of-floats", lambda x: jnp.argsort(x, stable=True), unusual(np.float32)),
    exact("order-of-halves", lambda x: jnp.argsort(x, stable=True), unusual(np.float16)),
    exact("sort-by-the-second", lambda x, y: lax.sort((y, x), num_keys=1),
          normal(2, 100), integers(2, 100, low=-300, high=300)),
]  # fmt: skip

TRANSPOSES = Batch([*transposes()])
MOVES = Batch([*SLICES, *PADS, *concatenations()])
INDEXED = Batch(GATHERS)


@TRANSPOSES.parametrize()
def test_transposes(name: str) -> None:
    TRANSPOSES.check(name)


@MOVES.parametrize()
def test_moves(name: str) -> None:
    MOVES.check(name)


@INDEXED.parametrize()
def test_indexed(name: str) -> None:
    INDEXED.check(name)


ONE_WINDOW = """
func.func @main(%x: tensor<8x6xf32>, %i: tensor<1x1xi32>, %u: tensor<1x4x6xf32>)
    -> tensor<8x6xf32> {
  %r = "stablehlo.scatter"(%x, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<
      update_window_dims = [1, 2], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }) : (tensor<8x6xf32>, tensor<1x1xi32>, tensor<1x4x6xf32>) -> tensor<8x6xf32>
  return %r : tensor<8x6xf32>
}
"""


def test_one_window_partly_outside() -> None:
    exe = stepwell.compile(ONE_WINDOW)
    x, u = normal(8, 6), normal(1, 4, 6, seed=1)
    for start in (-5, -3, 0, 2, 4, 6, 7, 8, 100):
        want = x.copy()
        for row in range(4):
            if 0 <= start + row < 8:
                want[start + row] += u[0, row]
        np.testing.assert_array_equal(exe(x, np.array([[start]], np.int32), u)[0], want)
