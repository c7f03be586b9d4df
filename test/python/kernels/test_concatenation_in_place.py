"""Networks that grow by concatenation: parts are written where the whole has them, and read there.

Each seed makes one random network of few operations, whose concatenations are nested, padded, read
in part and as a whole, and made of parts that nobody can write in place. STEPWELL_TEST_SEEDS=A-B
tries other seeds than the default ones."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
from jax import lax
from jax import numpy as jnp
from programs import Batch, Case, normal, pad

FIRST, LAST = map(int, os.environ.get("STEPWELL_TEST_SEEDS", "0-19").split("-"))
SIDE = 6
TOLERANCE = 5e-5
"""Several sums of products, one of another."""


def conv(x, outputs: int, side: int = 1, seed: int = 0, groups: int = 1):
    inputs = x.shape[-1] // groups
    w = normal(side, side, inputs, outputs, seed=seed) / np.sqrt(side * side * inputs)
    layout = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(
        x, jnp.asarray(w, x.dtype), (1, 1), "SAME", dimension_numbers=layout,
        feature_group_count=groups,
    )  # fmt: skip


def pool(x):
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 1, 1, 1), "SAME")


def join(*parts):
    return jnp.concatenate(parts, -1)


def dense_block(x):
    for seed in range(4):
        y = conv(jnp.maximum(x * 0.5 + 0.1, 0), 24, seed=seed)
        x = join(x, conv(y, 16, 3, seed=seed))
    return x


def inception(x):
    x = join(conv(x, 16), conv(conv(x, 24), 32, 3), conv(x, 8, 5), conv(pool(x), 8))
    return join(conv(x, 16), conv(pool(x), 24), jnp.tanh(pool(x)))


def skip(x):
    """The whole is padded for what reads it; one part is read before."""
    y = jnp.maximum(conv(x, 16, 3), 0)
    z = conv(pool(y), 32, seed=1)
    return conv(join(y, z), 8, 3, seed=2)


def split_and_joined(x):
    """The kernels that write parts read others of the same whole."""
    y = conv(x, 32)
    a, b = y[..., :16], y[..., 16:]
    c = jnp.maximum(conv(b, 16, 3), 0) + b
    d = jnp.maximum(conv(c, 16, 3, seed=1), 0) + c
    return conv(join(a, b, c, d), 8)


def results_of_their_own(x):
    """Parts that are results, arguments, in two concatenations, or twice in one."""
    a, b, c = conv(x, 16), conv(x, 32, seed=1), conv(x, 16, seed=2)
    return a, join(a, b), join(b, c, c), join(x, c)


def along(axis: int):
    def function(x):
        return jnp.concatenate([conv(x, 16, 3), pool(conv(x, 16, seed=1)), x[..., :16] * 2], axis)

    return function


def read_by_others(x):
    """A transpose, a sum, a softmax, a lookup and a product read parts."""
    a, b = conv(x, 16), jnp.exp(conv(x, 32, seed=1))
    whole = join(a, b)
    rows = b.reshape(-1, 32)
    softmax = jnp.exp(a) / jnp.exp(a).sum(-1)[..., None]
    looked_up = rows[np.array([3, 1, 3])]
    return whole * 2, a.transpose(3, 0, 1, 2), b.sum((1, 2)), softmax, looked_up, rows.T @ rows


def branch(x):
    """Concatenations in a branch and in a loop of the host."""

    def step(i, x):
        a, b = conv(x, 16, 3), conv(x, 24, 3, seed=1)
        return jnp.tanh(conv(join(a, b), x.shape[-1]))

    y = lax.fori_loop(0, 3, step, x)
    return lax.cond(
        x.sum() > 0, lambda y: join(conv(y, 16), pool(y)), lambda y: join(y, conv(y, 16)), y
    )


def random_network(seed: int):
    def function(x):
        generator = np.random.default_rng(seed)
        values = [x]

        def pick():
            return values[-1 - min(int(generator.exponential(2)), len(values) - 1)]

        for number in range(14):
            kind = generator.integers(8)
            channels = int(generator.choice([8, 12, 16, 24, 40]))
            if kind < 2:
                made = conv(pick(), channels, 1 + 2 * int(kind), number)
            elif kind == 2:
                made = pool(pick())
            elif kind == 3:
                made = jnp.maximum(pick() * 0.5 + 0.25, 0)
            elif kind == 4:
                y = pick()
                made = y[..., int(generator.integers(y.shape[-1] // 2)) :]
            elif kind == 5:
                y = pick()
                made = conv(y, y.shape[-1], 1, number) + y
            else:
                made = join(*[pick() for _ in range(generator.integers(2, 5))])
            values.append(made)
        return values[-1], conv(values[-2], 8, 3), values[generator.integers(len(values))] * 1.5

    return function


def typed() -> Iterator[Case]:
    for dtype, tolerance in (("float64", 1e-12), ("float16", 1e-2), ("int32", 0), ("int8", 0)):
        x = (normal(1, SIDE, SIDE, 40) * 3).astype(dtype)
        kept = np.iinfo(dtype).min if dtype.startswith("int") else -np.inf

        def function(x, kept=kept):
            y = lax.reduce_window(
                x, np.array(kept, x.dtype), lax.max, (1, 3, 3, 1), (1,) * 4, "SAME"
            )
            return join(y, (x + x).astype(x.dtype), x), y + x

        yield Case(f"of-{dtype}", function, (x,), tolerance)


X = normal(2, SIDE, SIDE, 32)
CASES = Batch(
    [
        *(
            Case(f.__name__.replace("_", "-"), f, (X,), TOLERANCE)
            for f in (dense_block, inception, skip, split_and_joined, results_of_their_own)
        ),
        Case("read-by-others", read_by_others, (X,), TOLERANCE),
        Case("branch", branch, (X,), TOLERANCE),
        *(Case(f"along-{axis}", along(axis), (X,), TOLERANCE) for axis in range(4)),
        *typed(),
        *(Case(f"random-{s}", random_network(s), (X,), TOLERANCE) for s in range(FIRST, LAST + 1)),
        Case(
            "padded-results",
            lambda x: pad(
                join(conv(x, 16), conv(x, 8)), [(0, 0, 0), (1, 2, 0), (1, 0, 0), (0, 0, 0)]
            ),
            (X,),
            TOLERANCE,
        ),
    ]
)


@CASES.parametrize()
def test_networks(name: str) -> None:
    CASES.check(name)
