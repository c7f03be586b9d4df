"""Reductions over every set of axes, pooling windows, softmax and normalisations, odd lengths."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator

import jax
import numpy as np
from jax import lax
from jax import numpy as jnp
from programs import Batch, Case, integers, normal, pad

SHAPES = {1: (19,), 2: (7, 19), 3: (3, 5, 19), 4: (2, 3, 5, 17)}


def every_axis_set() -> Iterator[Case]:
    for rank, shape in SHAPES.items():
        for count in range(1, rank + 1):
            for axes in itertools.combinations(range(rank), count):
                label = f"rank{rank}-over-{''.join(map(str, axes))}"
                yield Case(f"sum-{label}", functools.partial(jnp.sum, axis=axes), (normal(*shape),))
                yield Case(f"max-{label}", functools.partial(jnp.max, axis=axes), (normal(*shape),))


def every_kind() -> Iterator[Case]:
    signed = ("int8", "int16", "int32", "int64")
    kinds = {"sum": lax.reduce_sum, "max": lax.reduce_max, "min": lax.reduce_min}
    kinds["prod"] = lax.reduce_prod
    for (name, function), axis in itertools.product(kinds.items(), (0, 1)):
        of_axis = functools.partial(function, axes=(axis,))
        for dtype in signed:
            x = integers(7, 19, low=-2, high=2, dtype=dtype)
            yield Case(f"{name}-{dtype}-over-{axis}", of_axis, (x,), reference=of_axis)
        for dtype in ("uint8", "uint32"):
            x = integers(7, 19, low=0, high=200, dtype=dtype)
            yield Case(f"{name}-{dtype}-over-{axis}", of_axis, (x,), reference=of_axis)
        wide = normal(7, 19, dtype="float64")
        yield Case(f"{name}-float64-over-{axis}", of_axis, (wide,), tolerance=1e-13)
        half = (normal(7, 19) / 4).astype(np.float16)
        # Sums of 19 numbers in half precision: one unit is 1e-3, and some roundings add up.
        yield Case(f"{name}-float16-over-{axis}", of_axis, (half,), tolerance=1e-2)
    for name, function in (("and", lax.reduce_and), ("or", lax.reduce_or)):
        for axis in (0, 1):
            of_axis = functools.partial(function, axes=(axis,))
            mask = integers(7, 19, low=0, high=5).astype(bool) ^ (name == "or")
            yield Case(f"{name}-bool-over-{axis}", of_axis, (mask,), reference=of_axis)


def odd_lengths() -> Iterator[Case]:
    for n in (1, 2, 7, 15, 16, 17, 31, 33, 63, 64, 65, 130, 1000):
        x, scale, shift = normal(5, n), normal(n, seed=1), normal(n, seed=2)
        yield Case(f"softmax-{n}", jax.nn.softmax, (x,))
        yield Case(f"log-softmax-{n}", jax.nn.log_softmax, (x,))
        yield Case(f"layer-norm-{n}", layer_norm, (x, scale, shift), tolerance=2e-5)
        yield Case(f"rms-norm-{n}", rms_norm, (x, scale))
        yield Case(f"sum-columns-{n}", lambda x: x.sum(0), (x,))
        yield Case(f"mean-variance-{n}", lambda x: [x.mean(1), x.var(1)], (x,))


def layer_norm(x, scale, shift):
    centred = x - x.mean(-1, keepdims=True)
    variance = (centred * centred).mean(-1, keepdims=True)
    return centred * lax.rsqrt(variance + 1e-3) * scale + shift


def rms_norm(x, scale):
    return x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * scale


def with_nan() -> np.ndarray:
    """Rows of which one has a NaN, one an infinity and one only the least infinity."""
    x = normal(5, 67)
    x[1, 30], x[2, 66], x[3] = np.nan, np.inf, -np.inf
    return x


X = normal(2, 3, 9, 17)
FORMS = [
    Case("few-columns", lambda x: x.mean((1, 2)), (normal(1, 72, 64, 60),)),
    Case("softmax-first-axis", lambda x: jax.nn.softmax(x, axis=0), (normal(7, 19),)),
    Case("softmax-middle-axis", lambda x: jax.nn.softmax(x, axis=1), (normal(3, 7, 19),)),
    Case("softmax-two-axes", lambda x: jax.nn.softmax(x, axis=(1, 2)), (normal(3, 7, 19),)),
    Case("softmax-of-long-rows", lambda x: 9001 * jax.nn.softmax(x), (normal(3, 9001),)),
    Case("softmax-of-very-long-rows", lambda x: 70_003 * jax.nn.softmax(x), (normal(2, 70_003),)),
    Case("long-rows-turned", lambda x: 9001 * jax.nn.softmax(x)[:, ::-1], (normal(3, 9001),)),
    Case("long-rows-and-sums", lambda x: [(e := jnp.exp(x)) / e.mean(1, keepdims=True), e.sum(1)],
         (normal(3, 9001),)),
    *(Case(f"softmax-of-{n}-{dtype}", jax.nn.softmax, ((8 * normal(5, n)).astype(dtype),),
           tolerance=tolerance)
      for n in (130, 9001) for dtype, tolerance in (("float16", 4e-3), ("bfloat16", 3e-2))),
    Case("softmax-far-apart", jax.nn.softmax, (400 * normal(5, 130),)),
    Case("softmax-keeps-nan", jax.nn.softmax, (with_nan(),)),
    Case("log-softmax-keeps-nan", jax.nn.log_softmax, (with_nan(),)),
    Case("logsumexp-keeps-nan", lambda x: jax.nn.logsumexp(x, axis=-1), (with_nan(),)),
    Case("exponentials-of-nan", lambda x: jnp.exp(x - x.max(1, keepdims=True)), (with_nan(),)),
    Case("softmax-masked", lambda x, m: jax.nn.softmax(x + m), (X, normal(2, 1, 1, 17))),
    Case("softmax-scaled", lambda x: jax.nn.softmax(x / 8), (X,)),
    Case("softmax-where", lambda x: jax.nn.softmax(jnp.where(causal(9, 17), x, -1e9)), (X,)),
    Case("softmax-infinite-mask",
         lambda x: jax.nn.softmax(jnp.where(causal(9, 17), x, -jnp.inf)), (X,)),
    Case("instance-norm", lambda x: standardised(x, (2, 3)), (X,), tolerance=2e-5),
    Case("group-norm", lambda x: standardised(x.reshape(2, 3, 3, 51), (2, 3)), (X,),
         tolerance=2e-5),
    Case("batch-statistics", lambda x: standardised(x, (0, 2)), (X,), tolerance=2e-5),
    Case("channels-last-norm", lambda x: standardised(x, (1, 2)), (X,), tolerance=2e-5),
    Case("l2-normalised", lambda x: x / jnp.sqrt((x * x).sum(-1, keepdims=True)), (X,)),
    Case("sum-of-squares", lambda x: (x * x).sum(), (X,), tolerance=1e-4),
    Case("sum-of-everything", lambda x: x.sum(), (normal(130, 33),), tolerance=1e-4),
    Case("two-reductions-of-one", lambda x: [x.sum(1), x.max(1), x.min(0)], (normal(7, 19),)),
    Case("reduce-broadcast-reduce", lambda x: (x - x.max(1, keepdims=True)).min(0), (X[0, 0],)),
    Case("argmax", lambda x: jnp.argmax(x, 1), (X,)),
    Case("argmin-last", lambda x: jnp.argmin(x, 3), (X,)),
    Case("argmax-of-nan", lambda x: jnp.argmax(x, 1), (with_nan(),)),
    Case("argmin-of-nan", lambda x: jnp.argmin(x, 0), (with_nan(),)),
    Case("argmax-of-equals", lambda x: jnp.argmax(x, 1), (integers(9, 40, low=0, high=3),)),
    Case("argmin-of-everything", jnp.argmin, (integers(9, 40, low=0, high=200, dtype="uint8"),)),
    Case("sum-of-everything-in-parts", lambda x: (x * x).sum(), (normal(4, 50, 33, 20),),
         tolerance=1e-4),
    Case("max-of-everything-in-parts", jnp.max, (normal(4, 50, 33, 20),)),
    Case("cumsum", lambda x: jnp.cumsum(x, 1), (X,)),
    Case("logsumexp", lambda x: jax.nn.logsumexp(x, axis=-1), (X,)),
    Case("maximum-keeps-nan", lambda x: x.max(1), (np.array([[1, np.nan], [2, 3]], np.float32),)),
    Case("relu-keeps-nan", lambda x: jnp.maximum(x, 0), (np.array([np.nan, -1, 2], np.float32),)),
]  # fmt: skip


def causal(rows: int, columns: int) -> np.ndarray:
    return np.arange(columns) <= np.arange(rows)[:, None]


def standardised(x, axes):
    centred = x - x.mean(axes, keepdims=True)
    return centred / jnp.sqrt((centred * centred).mean(axes, keepdims=True) + 1e-3)


def window(name, x, size, stride, pads, *, maximum=True, dilation=None) -> Case:
    def function(x):
        if maximum:
            low = -jnp.inf
            return lax.reduce_window(x, jnp.asarray(low, x.dtype), lax.max, size, stride, pads,
                                     window_dilation=dilation)  # fmt: skip
        total = lax.reduce_window(x, jnp.asarray(0, x.dtype), lax.add, size, stride, pads)
        return total / np.prod(size).item()

    return Case(name, function, (x,))


def some_nan(x: np.ndarray) -> np.ndarray:
    x = x.copy()
    x[0, 3, 4:9, 2], x[1, 0, 12, 16], x[1, 8] = np.nan, np.nan, -np.inf
    return x


def of_bytes(x):
    return lax.reduce_window(x, np.int8(-128), lax.max, (1, 5, 5, 1), (1, 1, 1, 1), "SAME")


IMAGE, PLANES = normal(2, 11, 13, 17), normal(2, 5, 11, 13)
NONE = (0, 0)
POOLING = [
    window("max-2x2", IMAGE, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"),
    window("max-3x3-pad", IMAGE, (1, 3, 3, 1), (1, 2, 2, 1), [NONE, (1, 1), (1, 1), NONE]),
    window("max-ceil", IMAGE, (1, 2, 2, 1), (1, 2, 2, 1), [NONE, (0, 1), (0, 1), NONE]),
    window("max-5x5-stride-1", IMAGE, (1, 5, 5, 1), (1, 1, 1, 1), "SAME"),
    window("max-3x3-stride-1-nan", some_nan(IMAGE), (1, 3, 3, 1), (1, 1, 1, 1), "SAME"),
    window("max-4x6-stride-1", normal(1, 9, 40, 33), (1, 4, 6, 1), (1, 1, 1, 1), "SAME"),
    window("max-7x7-strides-2-1", IMAGE, (1, 7, 7, 1), (1, 2, 1, 1), "VALID"),
    window("max-1x5", IMAGE, (1, 1, 5, 1), (1, 1, 1, 1), "SAME"),
    window("max-wide-as-the-image", IMAGE, (1, 3, 13, 1), (1, 1, 1, 1), "VALID"),
    window("average-5x5-stride-1", IMAGE, (1, 5, 5, 1), (1, 1, 1, 1), "SAME", maximum=False),
    Case("max-of-bytes-stride-1", of_bytes, (integers(2, 9, 13, 70, low=-128, high=127,
                                                      dtype="int8"),), reference=of_bytes),
    Case("min-5x5-of-squares",
         lambda x: -lax.reduce_window(x * x, jnp.asarray(jnp.inf, x.dtype), lax.min, (1, 5, 5, 1),
                                      (1, 1, 1, 1), "SAME"), (IMAGE,)),
    window("max-dilated", IMAGE, (1, 2, 2, 1), (1, 1, 1, 1), "VALID", dilation=(1, 3, 2, 1)),
    window("max-nchw", PLANES, (1, 1, 3, 3), (1, 1, 2, 2), [NONE, NONE, (1, 1), (1, 1)]),
    window("max-one-dimension", normal(2, 17, 9), (1, 3, 1), (1, 2, 1), "SAME"),
    window("max-channels", IMAGE, (1, 1, 1, 3), (1, 1, 1, 2), "VALID"),
    window("max-three-dimensions", normal(1, 5, 6, 7, 9), (1, 2, 2, 2, 1), (1, 2, 2, 2, 1),
           "VALID"),
    window("average-2x2", IMAGE, (1, 2, 2, 1), (1, 2, 2, 1), "VALID", maximum=False),
    window("average-3x3-pad", IMAGE, (1, 3, 3, 1), (1, 1, 1, 1), "SAME", maximum=False),
    window("average-nchw", PLANES, (1, 1, 3, 3), (1, 1, 2, 2), "VALID", maximum=False),
    window("average-whole", IMAGE, (1, 11, 13, 1), (1, 1, 1, 1), "VALID", maximum=False),
    Case("max-then-relu",
         lambda x: jnp.maximum(lax.reduce_window(x, np.float32(-np.inf), lax.max, (1, 2, 2, 1),
                                                 (1, 2, 2, 1), "VALID"), 0),
         (IMAGE,), reference=lambda x: jnp.maximum(lax.reduce_window(
             x, -np.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"), 0)),
    Case("max-of-padded",
         lambda x: lax.reduce_window(pad(x, [(0, 0, 0), (1, 1, 0), (1, 1, 0), (0, 0, 0)]),
                                     jnp.asarray(-jnp.inf, x.dtype), lax.max, (1, 3, 3, 1),
                                     (1, 2, 2, 1), "VALID"), (IMAGE,)),
]  # fmt: skip

AXES = Batch([*every_axis_set()])
KINDS = Batch([*every_kind()])
LENGTHS = Batch([*odd_lengths()])
FORM_BATCH = Batch([*FORMS, *POOLING])


@AXES.parametrize()
def test_axes(name: str) -> None:
    AXES.check(name)


@KINDS.parametrize()
def test_kinds(name: str) -> None:
    KINDS.check(name)


@LENGTHS.parametrize()
def test_lengths(name: str) -> None:
    LENGTHS.check(name)


@FORM_BATCH.parametrize()
def test_forms(name: str) -> None:
    FORM_BATCH.check(name)
