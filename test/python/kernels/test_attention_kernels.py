"""Attention as one kernel: odd numbers of queries and keys, masks, shared keys, other types."""

from __future__ import annotations

import re

import jax
import numpy as np
from jax import numpy as jnp
from programs import Batch, Case, export, normal

import stepwell

SIZES = [(4, 7), (5, 64), (7, 33), (17, 17), (33, 130), (65, 1), (130, 65), (300, 520)]


def softmax(x):
    shifted = jnp.exp(x - x.max(-1, keepdims=True))
    return shifted / shifted.sum(-1, keepdims=True)


def attention(q, k, v, mask=None):
    """Of [B, H, M, D], [B, H, N, D] and [B, H, N, E]."""
    scores = jnp.einsum("bhmd,bhnd->bhmn", q, k) * q.shape[-1] ** -0.5
    return jnp.einsum("bhmn,bhne->bhme", softmax(scores if mask is None else scores + mask), v)


def operands(m: int, n: int, d: int = 20, e: int = 24, heads: int = 3) -> tuple[np.ndarray, ...]:
    return normal(2, heads, m, d), normal(2, heads, n, d, seed=1), normal(2, heads, n, e, seed=2)


def causal(m: int, n: int) -> np.ndarray:
    return np.where(np.arange(n) <= np.arange(m)[:, None] + n - m, 0, -3e38).astype(np.float32)


def by_rows(q, k, v):
    """Heads beside the features, as a projection writes them: [B, M, H, D]."""
    scores = jnp.einsum("bmhd,bnhd->bhmn", q, k)
    return jnp.einsum("bhmn,bnhd->bmhd", softmax(scores), v).reshape(2, 9, -1)


def grouped(q, k, v):
    """Four queries of [B, H, G, M, D] to each of the keys of [B, H, N, D]."""
    scores = jnp.einsum("bhgmd,bhnd->bhgmn", q, k)
    return jnp.einsum("bhgmn,bhnd->bhgmd", softmax(scores), v)


def capped(q, k, v):
    scores = 5 * jnp.tanh(jnp.einsum("bhmd,bhnd->bhmn", q, k) / 5)
    return jnp.einsum("bhmn,bhne->bhme", softmax(scores), v)


def guarded(q, k, v, mask):
    """A query that may see nothing gets zeros."""
    weights = softmax(jnp.einsum("bhmd,bhnd->bhmn", q, k) + mask)
    return jnp.einsum("bhmn,bhne->bhme", jnp.where(jnp.isnan(weights), 0, weights), v)


def half(q, k, v):
    return attention(*(x.astype(jnp.float16) for x in (q, k, v))).astype(jnp.float32)


def unshifted(q, k, v):
    """Sums of exponentials, with the raw scores used beside them."""
    scores = jnp.einsum("bhmd,bhnd->bhmn", q, k) * 0.1
    weights = jnp.exp(scores)
    return jnp.einsum("bhmn,bhne->bhme", weights * scores / weights.sum(-1, keepdims=True), v)


HIDDEN = causal(9, 9)
HIDDEN[3] = -np.inf

CASES = [
    *(Case(f"attention-{m}x{n}", attention, operands(m, n)) for m, n in SIZES),
    Case("masked", attention, (*operands(17, 40), causal(17, 40))),
    Case("mask-of-batch", attention, (*operands(9, 9), normal(2, 1, 9, 9))),
    Case("by-rows", by_rows, tuple(normal(2, 9, 3, 16, seed=i) for i in range(3))),
    Case("grouped", grouped, (normal(2, 3, 4, 9, 16), *operands(9, 31, 16, 16)[1:])),
    Case("capped", capped, operands(9, 31)),
    Case("guarded", guarded, (*operands(9, 9), HIDDEN)),
    Case("unshifted", unshifted, operands(9, 31)),
    Case("half", half, operands(9, 31), tolerance=2e-3),
    Case("double", attention, tuple(x.astype(np.float64) for x in operands(9, 31)),
         tolerance=1e-13),
    Case("tanh-behind", lambda q, k, v: jnp.tanh(attention(q, k, v)), operands(9, 31)),
]  # fmt: skip

BATCH = Batch(CASES)


@BATCH.parametrize()
def test_attention(name: str) -> None:
    BATCH.check(name)


def test_scores_are_not_in_memory() -> None:
    shapes = [jax.ShapeDtypeStruct((1, 4, 512, 16), np.float32)] * 3
    lowered = stepwell.lower(jax.export.export(jax.jit(attention))(*shapes))
    lowered.step("affine")
    assert "512x512" not in str(lowered)


def test_two_threads_compute_the_same() -> None:
    arrays = operands(130, 65)
    exported = jax.export.export(jax.jit(attention))(*arrays)
    one, two = (stepwell.compile(exported, threads=threads)(*arrays)[0] for threads in (1, 2))
    np.testing.assert_array_equal(one, two)


def test_none_is_in_scalar_loops() -> None:
    """Which blocks of only the last rows once led to. With one key there is nothing to weigh."""
    cases = [case for case in CASES if case.name != "attention-65x1"]
    lowered = stepwell.lower(export(cases))
    lowered.step("affine")
    kinds = re.findall(r'kernel\.kind = "(\w+)"', str(lowered))
    assert kinds.count("attention") == len(cases)
    assert "scalar" not in kinds
