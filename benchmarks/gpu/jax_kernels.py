"""The kernels of the benchmark as functions of jax: what is compiled, and what XLA runs."""

# pyright: reportMissingImports=false
from __future__ import annotations

import jax
import numpy as np
from jax import numpy as jnp

from benchmarks.gpu.cases import GROUP


def gemm(a: jax.Array, b: jax.Array) -> jax.Array:
    """A product whose sums are f32; of integers, whose `b` is transposed, i32."""
    if a.dtype == np.int8:
        return jnp.matmul(a, b.T, preferred_element_type=np.int32)
    return jnp.matmul(a, b, preferred_element_type=np.float32).astype(a.dtype)


def attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """Attention of [batch, heads, length, width]."""
    scores = jnp.einsum("bhmd,bhnd->bhmn", q, k, preferred_element_type=np.float32)
    weights = jax.nn.softmax(scores * q.shape[-1] ** -0.5).astype(q.dtype)
    out = jnp.einsum("bhmn,bhnd->bhmd", weights, v, preferred_element_type=np.float32)
    return out.astype(q.dtype)


def causal(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """The same where queries see the keys up to their own."""
    scores = jnp.einsum("bhmd,bhnd->bhmn", q, k, preferred_element_type=np.float32)
    seen = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    scores = jnp.where(seen, scores * q.shape[-1] ** -0.5, -jnp.inf)
    weights = jax.nn.softmax(scores).astype(q.dtype)
    out = jnp.einsum("bhmn,bhnd->bhmd", weights, v, preferred_element_type=np.float32)
    return out.astype(q.dtype)


def decode(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """Attention of one query, of whose heads some share one of the keys."""
    batch, heads, _, width = q.shape
    groups = q.reshape(batch, heads // GROUP, GROUP, 1, width)
    scores = jnp.einsum("bhgmd,bhnd->bhgmn", groups, k, preferred_element_type=np.float32)
    weights = jax.nn.softmax(scores * width**-0.5).astype(q.dtype)
    out = jnp.einsum("bhgmn,bhnd->bhgmd", weights, v, preferred_element_type=np.float32)
    return out.astype(q.dtype).reshape(q.shape)


def softmax(x: jax.Array) -> jax.Array:
    """Softmax of rows."""
    return jax.nn.softmax(x.astype(np.float32)).astype(x.dtype)


def layer_norm(x: jax.Array) -> jax.Array:
    """Layer norm of rows, without weights."""
    wide = x.astype(np.float32)
    mean = wide.mean(-1, keepdims=True)
    variance = jnp.square(wide - mean).mean(-1, keepdims=True)
    return ((wide - mean) * jax.lax.rsqrt(variance + 1e-5)).astype(x.dtype)


KERNELS = {
    "gemm": gemm,
    "attention": attention,
    "causal": causal,
    "decode": decode,
    "softmax": softmax,
    "layer-norm": layer_norm,
}
"""By the family of a case."""
