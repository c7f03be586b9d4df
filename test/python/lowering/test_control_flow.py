"""Loops and branches of the host program against JAX, which runs the same function.

Every body does enough work for the host to run it (`place-control-flow`); which kernels scalar
loops were left for is checked too. float32 sums in another order differ by a few units in the last
place, hence the tolerance.
"""

from __future__ import annotations

import numpy as np
import pytest

import stepwell

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
from jax import export, lax  # noqa: E402

ROWS, COLUMNS = 16, 96


def _array(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32) / 4


def _exported(function, arguments):
    shapes = [jax.ShapeDtypeStruct(np.shape(a), np.asarray(a).dtype) for a in arguments]
    return export.export(jax.jit(function))(*shapes)


def check(function, *arguments, control: tuple[str, ...] = ("scf.while",)) -> None:
    """Compile, run twice and compare; the host must hold the operations named in `control`."""
    exported = _exported(function, arguments)
    lowered = stepwell.lower(exported, target="cpu")
    text = str(lowered.step("affine"))
    host = text[text.index("func.func @main") : text.index("func.func private")]
    for name in control:
        assert name in host
    executable = lowered.compile()
    expected = [np.asarray(leaf) for leaf in jax.tree.leaves(jax.jit(function)(*arguments))]
    for _ in range(2):
        for actual, wanted in zip(executable(*arguments), expected, strict=True):
            np.testing.assert_allclose(actual, wanted, rtol=1e-5, atol=1e-5 * _size(wanted))


def _size(values: np.ndarray) -> float:
    """The size of the largest element: sums are as exact as their largest terms."""
    return float(np.max(np.abs(values.astype(np.float64)), initial=1.0))


X = _array(0, ROWS, COLUMNS)
W = _array(1, COLUMNS, COLUMNS)
XS = _array(2, 7, ROWS, COLUMNS)


def test_scan_with_carry_and_stacked_outputs():
    def function(xs, w, h):
        def step(h, x):
            h = jnp.tanh(x + h @ w)
            return h, (h * 2, jnp.sum(h, axis=1))

        return lax.scan(step, h, xs)

    check(function, XS, W, X)


def test_reverse_scan():
    check(lambda xs, h: lax.scan(lambda h, x: (h + x, h * x), h, xs, reverse=True), XS, X)


def test_profile_names_the_kernels_of_the_body():
    def function(xs, w, h):
        return lax.scan(lambda h, x: (jnp.tanh(x + h @ w), h), h, xs)

    executable = stepwell.compile(_exported(function, [XS, W, X]), threads=1)
    executable(XS, W, X)
    profile = [info for info, _ in executable.profile(XS, W, X)]
    names = [name for info in profile for name in info.sources]
    assert any("while/body" in name and name.endswith("dot_general") for name in names)
    (product,) = (info for info in profile if info.strategy == "contraction")
    (once,) = (info for info in executable.kernels if info.name == product.name)
    assert (product.flops, product.bytes) == (len(XS) * once.flops, len(XS) * once.bytes)


def test_scan_over_stacked_weights():
    def function(ws, h):
        return lax.scan(lambda h, w: (jnp.tanh(h @ w), None), h, ws)[0]

    check(function, _array(3, 5, COLUMNS, COLUMNS), X)


@pytest.mark.parametrize("limit", [0.0, 420.0, 1e9])
def test_while_ends_by_what_it_computes(limit):
    def function(x, w, limit):
        def proceeds(state):
            return (jnp.sum(jnp.abs(state[1])) < limit) & (state[0] < 9)

        return lax.while_loop(
            proceeds, lambda s: (s[0] + 1, s[1] * 1.1 + jnp.sin(s[1] @ w) / 50), (0, x)
        )

    check(function, X, W, np.float32(limit))


@pytest.mark.parametrize("count", [0, 1, 5])
def test_fori_loop_of_unknown_count(count):
    def function(n, x, w):
        return lax.fori_loop(0, n, lambda i, x: jnp.cos(x @ w) + i, x)

    check(function, np.int32(count), X, W)


def test_no_iteration():
    check(lambda x, w: lax.fori_loop(5, 5, lambda i, x: x @ w, x), X, W, control=())


def test_nested_scans():
    def function(xs, w, h):
        def inner(h, x):
            return jnp.sin(h + x), h[0] * x[1]

        def outer(h, x):
            h, ys = lax.scan(inner, h @ w, jnp.stack([x, x * 2, h]))
            return h, ys

        return lax.scan(outer, h, xs)

    check(function, XS, W, X)


def test_nested_loop_updates_what_the_outer_one_carries():
    def function(table, x):
        def inner(j, state):
            i, table, x = state
            row = jnp.sin(x) + i * 3 + j
            return i, lax.dynamic_update_slice(table, row[None], (i * 3 + j, 0, 0)), row

        def outer(i, state):
            table, x = state
            return lax.fori_loop(0, 3, inner, (i, table, x))[1:]

        return lax.fori_loop(0, 4, outer, (table, x))

    check(function, _array(4, 12, ROWS, COLUMNS), X)


def test_exchange():
    def function(n, x, y):
        return lax.fori_loop(0, n, lambda i, s: (s[1], jnp.sin(s[0]) + s[1]), (x, y))

    for n in (0, 1, 2, 3):
        check(function, np.int32(n), X, X * 3)


def test_rotation_without_arithmetic():
    def function(n, x, y, z):
        def step(i, s):
            return s[1], s[2], s[0], s[3] @ W

        return lax.fori_loop(0, n, step, (x, y, z, x))

    for n in (0, 1, 2, 4):
        check(function, np.int32(n), X, X * 3, X - 1)


def test_one_value_carried_twice_and_returned_twice():
    def function(n, x):
        def step(i, s):
            y = jnp.sin(s[0]) + s[1]
            return y, y

        a, b = lax.fori_loop(0, n, step, (x, x))
        return a, b, a, a + b, x

    check(function, np.int32(3), X)


def test_loop_from_constants_and_arguments_that_are_returned():
    def function(n, x):
        def step(i, s):
            return s[0] + x, s[1], jnp.sin(s[2])

        return lax.fori_loop(0, n, step, (jnp.zeros_like(x), x, x))

    for n in (0, 2):
        check(function, np.int32(n), X)


def test_old_value_is_read_after_the_new_one_is_made():
    def function(n, x, w):
        def step(i, s):
            h, total = s
            new = jnp.tanh(h @ w)
            return new, total + h * new

        return lax.fori_loop(0, n, step, (x, jnp.zeros_like(x)))

    check(function, np.int32(4), X, W)


def test_update_of_a_table_that_is_read_before_and_after():
    def function(table, x):
        def step(i, s):
            table, x = s
            old = lax.dynamic_slice(table, (i, 0, 0), (1, ROWS, COLUMNS))
            new = lax.dynamic_update_slice(table, old * 2 + x, (i + 1, 0, 0))
            return new, jnp.sin(x) + jnp.sum(new, axis=0) - jnp.sum(table, axis=0)

        return lax.fori_loop(0, 4, step, (table, x))

    check(function, _array(5, 6, ROWS, COLUMNS), X)


def test_update_beyond_the_end_is_clamped():
    def function(i, table, x):
        return lax.dynamic_update_slice(table, x[None], (i, i, 0)), lax.dynamic_slice(
            table, (i, i, i), (2, 3, 5)
        )

    for i in (-3, 0, 2, 9):
        check(function, np.int32(i), _array(6, 5, ROWS, COLUMNS), X[:4], control=())


@pytest.mark.parametrize("flag", [True, False])
def test_branch(flag):
    def function(flag, x, w):
        return lax.cond(flag, lambda x: (x @ w, x), lambda x: (jnp.sin(x), x + 1), x)

    check(function, np.bool_(flag), X, W, control=("scf.if",))


@pytest.mark.parametrize("number", [-1, 0, 1, 2, 3, 7])
def test_switch(number):
    def function(number, x, w):
        return lax.switch(
            number,
            [lambda x: x @ w, jnp.sin, lambda x: x, lambda x: jnp.zeros_like(x)],
            x,
        )

    check(function, np.int32(number), X, W, control=("scf.if",))


def test_branch_inside_scan():
    def function(xs, w, h):
        def step(h, x):
            positive = jnp.sum(x) > 0
            h = lax.cond(positive, lambda h: jnp.tanh(h @ w), lambda h: h * 0.5, h)
            return h, positive

        return lax.scan(step, h, xs)

    check(function, XS, W, X, control=("scf.while", "scf.if"))


def test_loop_inside_branch():
    def function(flag, x, w):
        def many(x):
            return lax.fori_loop(0, 3, lambda i, x: jnp.tanh(x @ w), x)

        return lax.cond(flag, many, lambda x: x, x)

    for flag in (True, False):
        check(function, np.bool_(flag), X, W, control=("scf.while", "scf.if"))


def test_gradient_through_scan():
    def loss(w, xs, h):
        h, ys = lax.scan(lambda h, x: (jnp.tanh(x + h @ w), h), h, xs)
        return jnp.sum(ys**2) + jnp.sum(h)

    check(jax.grad(loss, argnums=(0, 1, 2)), W, XS, X)


def test_recurrent_cell():
    def function(xs, w, u, b, h):
        def step(state, x):
            h, c = state
            i, f, o, g = jnp.split(x @ w + h @ u + b, 4, axis=1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        return lax.scan(step, (h, h), xs)

    w, u = _array(7, 40, 4 * COLUMNS), _array(8, COLUMNS, 4 * COLUMNS)
    check(function, _array(9, 6, 2, 40), w, u, _array(10, 4 * COLUMNS), _array(11, 2, COLUMNS))


@pytest.mark.parametrize(
    "product",
    [lambda a, x: a @ x, lambda a, x: x @ a.T, lambda a, x: a.T @ (a @ x)],
    ids=["rows", "columns", "both"],
)
def test_matrix_times_vector_in_a_loop(product):
    """Whichever way it is packed or read, and with another content at the next call."""

    def function(a, x):
        return lax.fori_loop(0, 9, lambda i, x: jnp.tanh(product(a, x)), x)

    a, x = _array(12, 40, 40), _array(13, 40)
    check(function, a, x)
    executable = stepwell.compile(_exported(function, (a, x)))
    for content in (a, 2 * a, -a):
        expected = np.asarray(jax.jit(function)(content, x))
        np.testing.assert_allclose(executable(content, x)[0], expected, rtol=1e-5, atol=1e-5)


def test_sort_and_scatter_inside_a_loop():
    def function(xs, h):
        def step(h, x):
            h = jnp.sort(h + x, axis=1)
            return h.at[jnp.argmax(x[:, 0])].add(1.0), jnp.argsort(h[0])

        return lax.scan(step, h, xs)

    check(function, XS, X)


def test_small_loop_inside_a_large_one():
    def function(xs, h):
        def step(h, x):
            n = lax.while_loop(lambda n: n * n < jnp.abs(x[0, 0]) * 900, lambda n: n + 1, 0)
            return jnp.tanh(h + x * n), n

        return lax.scan(step, h, xs)

    check(function, XS, X)


def test_integers_and_booleans():
    def function(n, x, mask):
        def step(i, s):
            x, mask = s
            return jnp.where(mask, x * 3 + i, x >> 1), (x % 3 == 0) ^ mask

        return lax.fori_loop(0, n, step, (x, mask))

    x = np.arange(ROWS * COLUMNS, dtype=np.int32).reshape(ROWS, COLUMNS)
    check(function, np.int32(5), x, x % 2 == 0)


def test_bfloat16_is_carried():
    def function(n, x, w):
        def step(i, h):
            return jnp.tanh((h @ w).astype(jnp.float32)).astype(jnp.bfloat16)

        return lax.fori_loop(0, n, step, x.astype(jnp.bfloat16)).astype(jnp.float32)

    exported = _exported(function, [np.int32(3), X, W])
    actual = stepwell.compile(exported)(np.int32(3), X, W)[0]
    # bf16 has eight bits: three roundings of values below one.
    np.testing.assert_allclose(actual, jax.jit(function)(np.int32(3), X, W), atol=3e-2)


def test_threads_share_the_kernels_of_a_loop():
    def function(xs, w, h):
        return lax.scan(lambda h, x: (jnp.tanh(x + h @ w), h), h, xs)

    arguments = (_array(12, 4, 128, COLUMNS), W, _array(13, 128, COLUMNS))
    executable = stepwell.compile(_exported(function, arguments), threads=2)
    for actual, wanted in zip(
        executable(*arguments), jax.tree.leaves(jax.jit(function)(*arguments)), strict=True
    ):
        np.testing.assert_allclose(actual, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_loop_that_turns(threads: int) -> None:
    """Kernels run their tasks from the last to the first in every second iteration."""
    # A share of the matrix is larger than any L1 of today, and not than L2 by much.
    w, x = _array(3, 640, 640) / 8, _array(4, 640)

    def function(w, x):
        return lax.fori_loop(0, 5, lambda _, x: jnp.tanh(w @ x), x)

    exported = _exported(function, (w, x))
    lowered = stepwell.lower(exported, target="cpu", threads=threads)
    text = str(lowered.step("llvm"))
    entry = text[text.index("llvm.func @stepwell_main") :]
    assert "llvm.sub" in entry[: entry.index("llvm.return")]
    (actual,) = stepwell.compile(exported, threads=threads)(w, x)
    np.testing.assert_allclose(actual, np.asarray(function(w, x)), rtol=1e-5, atol=1e-5)


def test_tensors_without_elements_in_loops_and_branches() -> None:
    """Slices of nothing from the end on, and sums of nothing."""

    def function(n, x, nothing):
        def body(carry):
            count, y, _ = carry
            part = lax.slice(jnp.exp(y), (ROWS, 1), (ROWS, 5))
            sums = lax.cond(count > 2, lambda: jnp.sum(nothing, 0), lambda: y[0])
            return count - 1, y / 2 + sums, part

        return lax.while_loop(lambda carry: carry[0] > 0, body, (n, x, jnp.zeros((0, 4))))

    x, nothing = _array(0, ROWS, COLUMNS), np.zeros((0, COLUMNS), np.float32)
    check(function, np.array(4, np.int32), x, nothing, control=())


def test_windows_on_padding_alone() -> None:
    def function(x):
        return lax.reduce_window(x, jnp.uint8(1), lax.mul, (1, 2), (1, 1), ((2, 0), (2, 0)))

    check(function, np.zeros((0, 0), np.uint8), control=())
