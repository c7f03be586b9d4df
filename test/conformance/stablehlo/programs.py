"""Control flow, gradients of small networks, linear algebra, random numbers."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from .case import case, numbers

V = numbers(7)
M = numbers(5, 7)
S = np.float32(1.5)
INT = np.int32

case("fori_loop", lambda x: lax.fori_loop(0, 6, lambda i, c: c * 0.5 + i, x), M)
case("fori_dynamic", lambda n, x: lax.fori_loop(0, n, lambda i, c: c * 0.5 + 1, x), INT(5), M)
case("fori_none", lambda n, x: lax.fori_loop(0, n, lambda i, c: c + 1, x), INT(0), M)
case(
    "while_condition",
    lambda x: lax.while_loop(lambda c: jnp.sum(c) < 500, lambda c: c * 2 + 1, jnp.abs(x)),
    M,
)
case(
    "while_swap",
    lambda x, y: lax.fori_loop(0, 5, lambda i, c: (c[1] * 0.5, c[0] + c[1][::-1]), (x, y)),
    M,
    M + 1,
)
case(
    "while_nested",
    lambda x: lax.fori_loop(0, 3, lambda i, c: lax.fori_loop(0, i + 1, lambda j, d: d + j, c), x),
    M,
)
case(
    "while_update_slice",
    lambda x: lax.fori_loop(0, 5, lambda i, c: c.at[i].set(c[i] * 2 + i), x),
    M,
)
case(
    "while_matmul",
    lambda a, x: lax.fori_loop(0, 9, lambda i, c: jnp.tanh(a @ c), x),
    numbers(7, 7),
    V,
)
for _p in (-1.0, 1.0):
    case(
        f"cond_{_p > 0}",
        lambda p, x: lax.cond(p > 0, jnp.sin, lambda y: y * 2, x),
        np.float32(_p),
        M,
    )
for _i in (-3, 0, 1, 2, 9):
    case(
        f"switch_{_i}",
        lambda i, x: lax.switch(i, [jnp.sin, lambda y: y * 2, jnp.negative], x),
        INT(_i),
        M,
    )
case(
    "cond_tuple", lambda p, x: lax.cond(p > 0, lambda y: (y, y + 1), lambda y: (y * 2, y), x), S, M
)
case(
    "cond_in_loop",
    lambda x: lax.fori_loop(
        0, 4, lambda i, c: lax.cond(i % 2 == 0, lambda d: d + 1, lambda d: d * 2, c), x
    ),
    M,
)
case("scan_sum", lambda x: lax.scan(lambda c, y: (c + y, c * y), jnp.zeros(7), x), M)
case("scan_reverse", lambda x: lax.scan(lambda c, y: (c + y, c), jnp.zeros(7), x, reverse=True), M)
case("map", lambda x: lax.map(lambda row: jnp.cumsum(row), x), M)
case("barrier", lambda x: lax.optimization_barrier((x, x + 1)), M)
case(
    "vmap_while",
    jax.vmap(lambda x: lax.while_loop(lambda c: c < 10, lambda c: c * 2 + 1, x)),
    numbers(6, low=0.1, high=3),
)


def _rnn(w, u, x):
    def step(h, row):
        h = jnp.tanh(row @ w + h @ u)
        return h, h

    return lax.scan(step, jnp.zeros(8, x.dtype), x)[1]


def _lstm(w, u, x):
    def step(carry, row):
        h, c = carry
        i, f, g, o = jnp.split(row @ w + h @ u, 4)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    return lax.scan(step, (jnp.zeros(8, x.dtype), jnp.zeros(8, x.dtype)), x)[1]


X = numbers(6, 5)
case("rnn", _rnn, numbers(5, 8), numbers(8, 8, low=-1, high=1), X)
case("lstm", _lstm, numbers(5, 32), numbers(8, 32, low=-1, high=1), X)
case(
    "rnn_grad",
    jax.grad(lambda w, u, x: _rnn(w, u, x).sum(), argnums=(0, 1)),
    numbers(5, 8),
    numbers(8, 8, low=-1, high=1),
    X,
)
case(
    "lstm_grad",
    jax.grad(lambda w, u, x: (_lstm(w, u, x) ** 2).sum(), argnums=(0, 1)),
    numbers(5, 32),
    numbers(8, 32, low=-1, high=1),
    X,
)


def _gru(w, u, x):
    def step(h, row):
        a, b = row @ w, h @ u
        r, z = jax.nn.sigmoid(a[:8] + b[:8]), jax.nn.sigmoid(a[8:16] + b[8:16])
        h = (1 - z) * jnp.tanh(a[16:] + r * b[16:]) + z * h
        return h, h

    return lax.scan(step, jnp.zeros(8, x.dtype), x)[1]


GATES = (numbers(5, 24), numbers(8, 24, low=-1, high=1), X)
case("gru", _gru, *GATES)
case("gru_grad", jax.grad(lambda *a: (_gru(*a) ** 2).sum(), argnums=(0, 1)), *GATES)
case(
    "rnn_vmap",
    jax.vmap(_rnn, in_axes=(None, None, 0)),
    numbers(5, 8),
    numbers(8, 8, low=-1, high=1),
    np.stack([X, X * 0.5]),
)

SQUARE = numbers(40, 40, low=-0.3, high=0.3)
for _name, _product in {
    "rows": lambda a, x: a @ x,
    "columns": lambda a, x: x @ a.T,
    "both": lambda a, x: a.T @ (a @ x),
}.items():
    case(
        f"fori_matvec_{_name}",
        lambda a, x, p=_product: lax.fori_loop(0, 9, lambda i, c: jnp.tanh(p(a, c)), x),
        SQUARE,
        numbers(40),
    )
case("scan_unrolled", lambda x: lax.scan(lambda c, y: (c + y, c), x[0], x, unroll=2), M)
case("scan_without_inputs", lambda x: lax.scan(lambda c, _: (c * 0.5, c), x, None, length=4), V)
case(
    "scan_remat_grad",
    jax.grad(
        lambda x: lax.scan(jax.checkpoint(lambda c, y: (jnp.sin(c * y), c)), x[0], x)[0].sum()
    ),
    M,
)
case("cond_grad", jax.grad(lambda x: lax.cond(x.sum() > 0, jnp.sin, jnp.cos, x).sum()), M)
case("cond_vmap", jax.vmap(lambda x: lax.cond(x > 0, jnp.sin, jnp.cos, x)), V)
case(
    "while_cond_of_two",
    lambda x: lax.while_loop(
        lambda c: (c[0] < 9) & (c[1].sum() < 90),
        lambda c: (c[0] + 1, c[1] * 1.5 + 1),
        (0, jnp.abs(x)),
    ),
    V,
)


def _mlp_loss(w1, b1, w2, x, labels):
    logits = jax.nn.relu(x @ w1 + b1) @ w2
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=1).mean()


MLP = (
    numbers(12, 20),
    numbers(20),
    numbers(20, 5),
    numbers(9, 12),
    numbers(9, dtype=np.int32, low=0, high=4),
)
case("mlp_loss", _mlp_loss, *MLP)
case("mlp_grad", jax.value_and_grad(_mlp_loss, argnums=(0, 1, 2)), *MLP)


def _sgd(w1, b1, w2, x, labels):
    grads = jax.grad(_mlp_loss, argnums=(0, 1, 2))(w1, b1, w2, x, labels)
    return [p - 0.1 * g for p, g in zip((w1, b1, w2), grads, strict=True)]


case("mlp_step", _sgd, *MLP)


def _attention(q, k, v):
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / np.float32(q.shape[-1] ** 0.5)
    mask = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(jnp.where(mask, scores, -1e9)), v)


QKV = (numbers(2, 6, 2, 8), numbers(2, 6, 2, 8, high=2), numbers(2, 6, 2, 8, high=1))
case("attention", _attention, *QKV)
case("attention_grad", jax.grad(lambda q, k, v: (_attention(q, k, v) ** 2).sum(), (0, 1, 2)), *QKV)


def _layer_norm(x, scale, bias):
    centred = x - x.mean(-1, keepdims=True)
    return centred * lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * scale + bias


case("layer_norm", _layer_norm, M, V, V)
case("layer_norm_grad", jax.grad(lambda *a: (_layer_norm(*a) ** 2).sum(), (0, 1, 2)), M, V, V)
case("gelu_grad", jax.grad(lambda x: jax.nn.gelu(x).sum()), M)
case("gelu_exact_grad", jax.grad(lambda x: jax.nn.gelu(x, approximate=False).sum()), M)
case(
    "embedding_grad",
    jax.grad(lambda t, i: (t[i] ** 2).sum()),
    numbers(20, 6),
    numbers(9, dtype=np.int32, low=0, high=19),
)
case("sort_grad", jax.grad(lambda x: (jnp.sort(x) * jnp.arange(7)).sum()), V)
case("cumsum_grad", jax.grad(lambda x: (jnp.cumsum(x, 1) ** 2).sum()), M)
case("hessian", jax.hessian(lambda x: (jnp.sin(x) ** 2).sum()), V)
case("jvp", lambda x: jax.jvp(jnp.tanh, (x,), (jnp.ones_like(x),)), M)
case("remat_grad", jax.grad(jax.checkpoint(lambda x: jnp.sin(jnp.sin(x)).sum())), M)

case(
    "random_bits",
    lambda k: jax.random.bits(jax.random.wrap_key_data(k), (16,)),
    np.array([1, 2], np.uint32),
)
case(
    "random_uniform",
    lambda k: jax.random.uniform(jax.random.wrap_key_data(k), (4, 5)),
    np.array([1, 2], np.uint32),
)
case(
    "random_normal",
    lambda k: jax.random.normal(jax.random.wrap_key_data(k), (4, 5)),
    np.array([3, 4], np.uint32),
)
case(
    "random_permutation",
    lambda k: jax.random.permutation(jax.random.wrap_key_data(k), 12),
    np.array([3, 4], np.uint32),
)
case(
    "random_split",
    lambda k: jax.random.key_data(jax.random.split(jax.random.wrap_key_data(k))),
    np.array([3, 4], np.uint32),
)

SPD = numbers(6, 6) @ numbers(6, 6).T + 6 * np.eye(6, dtype=np.float32)
case("cholesky", lax.linalg.cholesky, SPD)
case("cholesky_batched", lax.linalg.cholesky, np.stack([SPD, SPD * 2]))
for _lower in (True, False):
    for _left in (True, False):
        case(
            f"triangular_solve_{'lower' if _lower else 'upper'}_{'left' if _left else 'right'}",
            lambda a, b, lower=_lower, left=_left: lax.linalg.triangular_solve(
                a, b, lower=lower, left_side=left
            ),
            SPD,
            numbers(6, 6),
        )
case(
    "triangular_solve_transposed",
    lambda a, b: lax.linalg.triangular_solve(a, b, lower=True, left_side=True, transpose_a=True),
    SPD,
    numbers(6, 3),
)
case(
    "triangular_solve_unit",
    lambda a, b: lax.linalg.triangular_solve(a, b, lower=True, left_side=True, unit_diagonal=True),
    SPD * 0.1,
    numbers(6, 3),
)
case("rfft", lambda x: (jnp.fft.rfft(x).real, jnp.fft.rfft(x).imag), numbers(3, 16))
case("fft_odd", lambda x: jnp.abs(jnp.fft.fft(x)), numbers(3, 15))
case("irfft", lambda x: jnp.fft.irfft(jnp.fft.rfft(x)), numbers(3, 16))
case("fft_round_trip", lambda x: jnp.fft.ifft(jnp.fft.fft(x)).real, numbers(64))
case("complex_product", lambda x, y: jnp.abs((x + 1j * y) * (x - 2j)), M, M + 1)
