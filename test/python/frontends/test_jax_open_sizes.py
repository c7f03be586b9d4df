"""Shape-polymorphic exports of JAX, compiled once for any size, against JAX itself.

Results agree within 2e-6: sums of few numbers around one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stepwell
from stepwell.runtime.open_sizes import OpenSizeExecutable
from stepwell.specializing import SpecializingExecutable

R = np.random.default_rng(3)
W = R.standard_normal((8, 16)).astype(np.float32)


def attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    scores = jnp.einsum("hqd,hkd->hqk", q, k) / 4
    n = scores.shape[-1]
    causal = jnp.where(jnp.tril(jnp.ones((n, n), bool)), scores, -1e9)
    return jnp.einsum("hqk,hkd->hqd", jax.nn.softmax(causal), v)


def grouped_attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """Four heads of queries share the keys of one."""
    weights = jax.nn.softmax(jnp.einsum("ghqd,gkd->ghqk", q, k) / 4)
    return jnp.einsum("ghqk,gkd->ghqd", weights, v)


def recurrent(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    def step(h: jax.Array, row: jax.Array) -> tuple[jax.Array, jax.Array]:
        h = jnp.tanh(h @ W[:, :8] + row)
        return h, h

    return jax.lax.scan(step, jnp.zeros(8), x)


def parts(x: jax.Array) -> tuple[jax.Array, ...]:
    return x.mean(0), x[-1], jnp.concatenate([x, x * 2]), x.reshape(-1, 2, 4), x.T @ x


def loss(w: jax.Array, x: jax.Array) -> jax.Array:
    return jnp.mean(jnp.tanh(x @ w) ** 2)


def until(x: jax.Array) -> jax.Array:
    """A loop whose trips depend on the data, and the number of rows."""
    return jax.lax.while_loop(lambda v: jnp.sum(v) < 100, lambda v: v + v.shape[0], x)


@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (lambda x: jax.nn.softmax(x @ W).sum(0), ["b, 8"]),
        (attention, ["2, b, 8"] * 3),
        (grouped_attention, ["2, 4, b, 16", "2, b, 16", "2, b, 16"]),
        (recurrent, ["b, 8"]),
        (parts, ["b, 8"]),
        (jax.grad(loss), ["8, 16", "b, 8"]),
        (until, ["b"]),
        (lambda x, y: jnp.where(x[:, None] > y, x[:, None], y).sum(1), ["b", "c"]),
        (lambda x: jnp.exp(x[::2]) - x[1::2], ["2*b, 8"]),
        (lambda x, y: jnp.repeat(x, 2, 0) + y, ["b, 8", "2*b, 8"]),
        (lambda x: x.at[:, 3].set(7).at[-1].add(x[0]), ["b, 8"]),
        (lambda x, y: y.at[(x[:, 0] * 4).astype(int)].add(x), ["b, 8", "c, 8"]),
        (lambda x, y: x.at[jnp.array([0, 2, 9])].max(y), ["b, 8", "3, 8"]),
        (lambda x, y: x[1:, 2:] @ x[:-1, 2:].T + y[1:, None], ["b, 8", "b"]),
        (lambda x: jnp.pad(x, ((0, 2), (0, 0)), mode="edge").sum(0), ["b, 8"]),
    ],
    ids=[
        "softmax",
        "attention",
        "grouped attention",
        "scan",
        "parts",
        "gradient",
        "while",
        "two sizes",
        "strides",
        "twice as many",
        "updates",
        "any number of updates",
        "updates outside",
        "all but one",
        "repeated at the end alone",
    ],
)
def test_any_size(function: Callable, shapes: list[str]) -> None:
    scope = jax.export.SymbolicScope()
    specs = [
        jax.ShapeDtypeStruct(jax.export.symbolic_shape(shape, scope=scope), np.float32)
        for shape in shapes
    ]
    exported = jax.export.export(jax.jit(function), platforms=["cpu"])(*specs)
    exe = stepwell.compile(exported, threads=1, options={"progress": False})
    assert isinstance(exe, SpecializingExecutable)
    arrays: list[np.ndarray] = []
    for size in (3, 5, 9, 16, 1):
        known = {"b": size, "c": size + 2, "2*b": 2 * size}
        arrays = [
            R.standard_normal([known.get(n.strip()) or int(n) for n in s.split(",")]).astype("f4")
            for s in shapes
        ]
        expected = jax.tree.leaves(function(*map(jnp.asarray, arrays)))
        for result, wanted in zip(exe(*arrays), expected, strict=True):
            np.testing.assert_allclose(result, wanted, 2e-6, 2e-6)
    assert isinstance(exe.specialized(*arrays), OpenSizeExecutable)


def _positive_definite(x: jax.Array) -> jax.Array:
    return jnp.einsum("bij,bkj->bik", x, x) + 4 * jnp.eye(x.shape[-1])


def _generated(x: jax.Array, **more: object) -> tuple[jax.Array, jax.Array]:
    """Bits for each element, and those from the state behind them."""
    state = jnp.arange(4, dtype=jnp.uint32)
    state, first = jax.lax.rng_bit_generator(state, x.shape, **more)
    return first, jax.lax.rng_bit_generator(state, x.shape, **more)[1]


BATCHES: dict[str, tuple[Callable, list[str], object]] = {
    "fft": (jnp.fft.fft, ["b, 16"], np.complex64),
    "ifft of planes": (lambda x: jnp.fft.ifft2(x * 2j), ["b, 6, c, 5, 8"], np.complex64),
    "rfft of a prime length": (jnp.fft.rfft, ["b, 37"], np.float32),
    "irfft": (lambda x: jnp.fft.irfft(x, 14), ["b, 8"], np.complex64),
    "fft of columns": (lambda x: jnp.abs(jnp.fft.fft(x, axis=0)), ["16, b"], np.float32),
    "lu": (jax.lax.linalg.lu, ["b, 4, 3"], np.float32),
    "solve": (
        lambda a, b: jnp.linalg.solve(a + 5 * jnp.eye(4), b),
        ["b, 4, 4", "b, 4, 2"],
        np.float32,
    ),
    "qr": (jnp.linalg.qr, ["b, 5, 3"], np.float32),
    "cholesky": (lambda x: jnp.linalg.cholesky(_positive_definite(x)), ["b, 4, 4"], np.float32),
    "eigh": (lambda x: jnp.linalg.eigh(_positive_definite(x))[0], ["b, 4, 4"], np.float32),
    "eigenvalues": (lambda x: jnp.abs(jnp.linalg.eigvals(x)), ["b, 4, 4"], np.float32),
    "svd": (lambda x: jnp.linalg.svd(x, full_matrices=False), ["b, c, 5, 3"], np.float32),
    "triangular solve": (
        lambda a, b: jax.lax.linalg.triangular_solve(a + 5 * jnp.eye(4), b, left_side=True),
        ["b, 4, 4", "b, 4, 2"],
        np.float32,
    ),
    "normal numbers of rbg": (
        lambda x: x + jax.random.normal(jax.random.key(3, impl="rbg"), x.shape),
        ["b, c"],
        np.float32,
    ),
    "bits": (_generated, ["b, 3"], np.float32),
    "bits of columns": (_generated, ["3, b"], np.float32),
    "short bits": (lambda x: _generated(x, dtype=np.uint8), ["b, 3"], np.float32),
}
"""Functions on any number of rows or matrices, by name, with shapes and the type of elements."""


@pytest.mark.parametrize("name", BATCHES)
def test_batches(name: str) -> None:
    """Results agree within 3e-5: sums of products of up to 37 elements."""
    function, shapes, kind = BATCHES[name]
    scope = jax.export.SymbolicScope()
    specs = [
        jax.ShapeDtypeStruct(jax.export.symbolic_shape(shape, scope=scope), kind)
        for shape in shapes
    ]
    exported = jax.export.export(jax.jit(function), platforms=["cpu"])(*specs)
    exe = stepwell.compile(exported, threads=1, options={"progress": False})
    assert isinstance(exe, SpecializingExecutable)
    arrays: list[np.ndarray] = []
    for size in (3, 5, 9, 2):
        known = {"b": size, "c": size + 2}
        arrays = [
            R.standard_normal([known.get(n.strip()) or int(n) for n in s.split(",")]).astype(kind)
            for s in shapes
        ]
        for result, wanted in zip(exe(*arrays), jax.tree.leaves(function(*arrays)), strict=True):
            np.testing.assert_allclose(result, wanted, 3e-5, 3e-5)
    assert isinstance(exe.specialized(*arrays), OpenSizeExecutable)


@pytest.mark.parametrize("limit", ["b <= 8", "8>=b", "2*b - 17 <= 0"])
def test_a_largest_size_below_16(limit: str) -> None:
    shape = jax.export.symbolic_shape("b, n", constraints=[limit, "b >= 2", "b <= n + 90"])
    function = jax.jit(lambda x: jax.nn.softmax(x @ x.T))
    exported = jax.export.export(function)(jax.ShapeDtypeStruct(shape, np.float32))
    exe = stepwell.compile(exported, threads=1, options={"progress": False})
    assert isinstance(exe, SpecializingExecutable)
    for size in ((3, 5), (4, 7), (8, 16), (2, 3)):
        x = R.standard_normal(size).astype(np.float32)
        np.testing.assert_allclose(exe(x)[0], function(x), 1e-5, 1e-6)
        code = exe.specialized(x)
    assert isinstance(code, OpenSizeExecutable)
    assert code.capacities == {"b": 8, "n": 16}
    with pytest.raises(stepwell.InputError, match="dimension 0, b, may be 8 at most"):
        exe(np.zeros((9, 5), np.float32))


def test_names_and_largest_sizes_of_a_file(tmp_path: Path) -> None:
    """What the file of an export says of its dimensions stands in its assertions."""
    scope = jax.export.SymbolicScope(["b <= 8"])
    texts = {"w": "2*b, n", "x": "b, n + 1", "z": "n, 5, b"}
    specs = {
        name: jax.ShapeDtypeStruct(jax.export.symbolic_shape(text, scope=scope), np.float32)
        for name, text in texts.items()
    }

    def function(p: dict[str, jax.Array], scale: jax.Array) -> jax.Array:
        return p["w"].sum() * scale[0] * p["x"] @ jnp.ones((p["x"].shape[1], 3)) + p["z"].max()

    scale = jax.ShapeDtypeStruct((3,), np.float32)
    path = tmp_path / "function.jax"
    path.write_bytes(jax.export.export(jax.jit(function))(specs, scale).serialize())
    exe = stepwell.compile(path, threads=1, options={"progress": False})
    shapes = [spec.shape for spec in exe.inputs]
    assert shapes == [("2*b", "n"), ("b", "n + 1"), ("n", 5, "b"), (3,)]
    ahead = stepwell.compile(path, threads=1, max_sizes={"b": 8, "n": 20})
    assert isinstance(ahead, OpenSizeExecutable)
    assert ahead.capacities == {"b": 8, "n": 20}
    for b, n in ((2, 3), (5, 4), (8, 20)):
        sizes = [(2 * b, n), (b, n + 1), (n, 5, b), (3,)]
        arrays = [R.standard_normal(size).astype(np.float32) for size in sizes]
        wanted = function(dict(zip(specs, arrays, strict=False)), arrays[3])
        for code in (exe, ahead):
            # A sum of up to 320 numbers, times those of up to 21.
            np.testing.assert_allclose(code(*arrays)[0], wanted, 1e-4, 1e-3)
    with pytest.raises(stepwell.UsageError, match="the model takes 8 at most"):
        stepwell.compile(path, max_sizes={"b": 9, "n": 20})


def test_bits_of_threefry_are_generated_for_each_shape() -> None:
    """They depend on how many there are."""

    def function(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        return _generated(x, algorithm=jax.lax.RandomAlgorithm.RNG_THREE_FRY)

    (b,) = jax.export.symbolic_shape("b")
    exported = jax.export.export(jax.jit(function))(jax.ShapeDtypeStruct((b, 4), np.float32))
    exe = stepwell.compile(exported, threads=1)
    for size in (3, 4):
        x = np.zeros((size, 4), np.float32)
        for result, wanted in zip(exe(x), function(x), strict=True):
            np.testing.assert_array_equal(result, wanted)


def test_weights_as_arguments() -> None:
    """Weights of a function are packed, and packed again when they are others; a matrix of which a
    dimension is open is none."""

    def layers(p: list[jax.Array], m: jax.Array, x: jax.Array) -> jax.Array:
        for w in p:
            x = jnp.tanh(x @ w)
        return x @ m

    (b, n) = jax.export.symbolic_shape("b, n")
    exported = jax.export.export(jax.jit(layers))(
        [jax.ShapeDtypeStruct((96, 96), np.float32)] * 3,
        jax.ShapeDtypeStruct((96, n), np.float32),
        jax.ShapeDtypeStruct((b, 96), np.float32),
    )
    exe = stepwell.compile(exported)
    sizes = [(3, 50), (5, 64), (9, 64), (4, 77)]
    for rows, columns in sizes:
        p = [(R.standard_normal((96, 96)) / 10).astype(np.float32) for _ in range(3)]
        m = (R.standard_normal((96, columns)) / 10).astype(np.float32)
        x = R.standard_normal((rows, 96)).astype(np.float32)
        (found,) = exe(*p, m, x)
        np.testing.assert_allclose(found, layers(p, m, x), 2e-6, 2e-6)
    assert isinstance(exe, SpecializingExecutable)
    assert any(len(code.artifact.manifest.derived) == 3 for code in exe.codes_for_any_size)


def test_ahead_of_the_first_call() -> None:
    (rows,) = jax.export.symbolic_shape("b")

    def function(x: jax.Array, y: jax.Array) -> jax.Array:
        return jax.nn.softmax(x @ W.T, axis=0) * y

    shapes = [jax.ShapeDtypeStruct((rows, 16), "f"), jax.ShapeDtypeStruct((rows, 8), "f")]
    exported = jax.export.export(jax.jit(function))(*shapes)
    names = {"arg0": ("b", 16), "arg1": ("b", 8)}
    exe = stepwell.compile(exported, threads=1, shapes=names, max_sizes={"b": 40})
    assert isinstance(exe, OpenSizeExecutable)
    for size in (40, 3):
        x, y = (R.standard_normal((size, n)).astype(np.float32) for n in (16, 8))
        np.testing.assert_allclose(exe(x, y)[0], function(x, y), 0, 2e-6)
    with pytest.raises(stepwell.UsageError, match=r'"c" is no open dimension .* \(open: b\)'):
        stepwell.compile(exported, max_sizes={"b": 40, "c": 40})


def test_names_of_symbolic_dimensions() -> None:
    """They stand in the export alone, not in its module."""
    b, n = jax.export.symbolic_shape("b, n")
    specs = jax.ShapeDtypeStruct((b, n, 8), "float32"), jax.ShapeDtypeStruct((2 * n, 3), "float32")

    def function(x: jax.Array, y: jax.Array) -> jax.Array:
        return x.sum((0, 2)) + y[::2].sum(1)

    exported = jax.export.export(jax.jit(function))(*specs)
    x, y = (R.standard_normal(shape).astype(np.float32) for shape in ((3, 20, 8), (40, 3)))
    expected = function(x, y)
    exe = stepwell.compile(exported)
    assert [str(spec) for spec in exe.inputs] == ["arg0: float32[b, n, 8]", "arg1: float32[2*n, 3]"]
    assert [str(spec) for spec in exe.outputs] == ["out0: float32[n]"]
    np.testing.assert_allclose(exe(x, y)[0], expected, rtol=1e-5, atol=1e-5)  # sums of 30 numbers
    ahead = stepwell.compile(exported, max_sizes={"b": 4, "n": 32})
    assert isinstance(ahead, OpenSizeExecutable)
    np.testing.assert_allclose(ahead(x, y)[0], expected, rtol=1e-5, atol=1e-5)


def pairs(x: jax.Array) -> jax.Array:
    return jax.lax.reduce_window(x, 0.0, jax.lax.add, (1, 2), (1, 2), "VALID")


@pytest.mark.parametrize("function", [lambda x: x.sum(1), pairs], ids=["sum", "strides"])
def test_sizes_that_are_bounded_below(function: Callable) -> None:
    """There is not much room between 8 and the capacity, 16."""
    shape = jax.export.symbolic_shape("b, c", constraints=["b >= 8", "c >= 8"])
    spec = jax.ShapeDtypeStruct(shape, np.float32)
    exported = jax.export.export(jax.jit(function), platforms=["cpu"])(spec)
    exe = stepwell.compile(exported, threads=1, options={"progress": False})
    assert isinstance(exe, SpecializingExecutable)
    for sizes in ((9, 12), (15, 8), (8, 9), (16, 16)):
        x = R.standard_normal(sizes).astype(np.float32)
        np.testing.assert_allclose(exe(x)[0], function(x), 1e-5, 1e-5)
    assert repr(exe).endswith("2 compiled>")


def test_numbers_that_are_rounded_in_other_places() -> None:
    """Half of what is joined has (n - 2) // 4 + 1 rows, the other half (n + 1) // 4: the same for
    the sizes that are looked at, and not for others."""

    def join(x: jax.Array) -> jax.Array:
        windows = jax.lax.reduce_window(x, 0.0, jax.lax.add, (2, 1), (4, 1), "VALID")
        other = jnp.broadcast_to(x[0], ((x.shape[0] + 1) // 4, 4))
        return jnp.concatenate([windows, other])

    (n,) = jax.export.symbolic_shape("n", constraints=["n >= 16"])
    spec = jax.ShapeDtypeStruct((n, 4), np.float32)
    exe = stepwell.compile(jax.export.export(jax.jit(join))(spec))
    for size in (48, 53, 54):
        x = R.standard_normal((size, 4)).astype(np.float32)
        np.testing.assert_allclose(exe(x)[0], join(x), 1e-5, 1e-5)


def test_sizes_that_an_export_does_not_take() -> None:
    (n,) = jax.export.symbolic_shape("n", constraints=["n >= 4", "mod(n, 2) == 0"])
    spec = jax.ShapeDtypeStruct((n,), np.float32)
    exe = stepwell.compile(jax.export.export(jax.jit(jnp.sin))(spec))
    for size in (4, 6):
        np.testing.assert_allclose(exe(np.ones(size, np.float32))[0], np.sin(1), 1e-6)
    for size, message in ((2, "constraint n >= 4"), (7, "2[*]floordiv")):
        with pytest.raises(
            stepwell.ModelError, match="the inputs do not fit the model: .*" + message
        ):
            exe(np.ones(size, np.float32))


def test_windows_padded_as_the_size_asks_for() -> None:
    """ "SAME" pads in front of odd sizes what it does not of even ones."""
    first, second = (
        R.standard_normal(shape).astype(np.float32) / 9 for shape in ((3, 3, 3, 8), (5, 4, 8, 8))
    )

    def function(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        numbers = ("NHWC", "HWIO", "NHWC")
        y = jax.lax.conv_general_dilated(x, first, (2, 2), "SAME", dimension_numbers=numbers)
        y = jax.lax.reduce_window(y, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
        y = jax.lax.conv_general_dilated(y, second, (3, 2), "SAME", dimension_numbers=numbers)
        return y, y.mean((1, 2))

    spec = jax.ShapeDtypeStruct((2, *jax.export.symbolic_shape("h, w"), 3), np.float32)
    exported = jax.export.export(jax.jit(function), platforms=["cpu"])(spec)
    exe = stepwell.compile(exported, options={"progress": False})
    assert isinstance(exe, SpecializingExecutable)
    for sizes in ((33, 47), (64, 64), (57, 61), (38, 41), (5, 9), (2, 3), (1, 1)):
        x = R.standard_normal((2, *sizes, 3)).astype(np.float32)
        for result, expected in zip(exe(x), exported.call(x), strict=True):
            np.testing.assert_allclose(result, expected, 1e-5, 1e-5)
    assert repr(exe).endswith("2 compiled>")


def test_elements_taken_in_another_order() -> None:
    """Every other one, of which half as many are there, a part, and the last one first."""

    def function(x: jax.Array) -> tuple[jax.Array, ...]:
        return x[:, ::2].sum((1, 2)), x[:, 1::3], x[:, 1:3], x[:, ::-1], jnp.flip(x[:, :-1], 1)

    shape = (2, *jax.export.symbolic_shape("n", constraints=["n >= 4"]), 3)
    spec = jax.ShapeDtypeStruct(shape, np.float32)
    exported = jax.export.export(jax.jit(function), platforms=["cpu"])(spec)
    exe = stepwell.compile(exported, options={"progress": False})
    assert isinstance(exe, SpecializingExecutable)
    for size in (33, 64, 57, 20, 4, 5, 23):
        x = R.standard_normal((2, size, 3)).astype(np.float32)
        for result, expected in zip(exe(x), exported.call(x), strict=True):
            np.testing.assert_allclose(result, expected, 1e-5, 1e-5)
    assert repr(exe).endswith("2 compiled>")


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (lambda x: x.reshape(x.shape[1], x.shape[0]), "n, m"),
        (lambda x: x.reshape(-1, 2 * x.shape[0]), "n, 2*m"),
        (lambda x: x.reshape(x.shape[1], x.shape[0]).sum(1), "n, m"),
        (lambda x: x.reshape(x.shape[1], -1) @ jnp.ones((8 * x.shape[0], 3)), "n, m, 8"),
    ],
)
def test_reshapes_that_mix_dimensions(function: Callable, shape: str) -> None:
    """Of as many rows as columns at most, others are in use afterwards."""
    symbols = jax.export.symbolic_shape(shape)
    exported = jax.export.export(jax.jit(function))(jax.ShapeDtypeStruct(symbols, jnp.float32))
    exe = stepwell.compile(exported)
    for rows, columns in ((3, 4), (2, 6), (10, 2), (5, 8)):
        x = R.standard_normal((rows, columns, 8)[: len(symbols)]).astype(np.float32)
        (y,) = exe(x)
        np.testing.assert_allclose(y, exported.call(x), rtol=1e-5, atol=2e-6)
