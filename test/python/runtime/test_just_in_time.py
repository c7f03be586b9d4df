"""`stepwell.jit`: pytrees in and out, one compilation for each new signature."""

from __future__ import annotations

import functools
import gc
import weakref
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stepwell
from stepwell import just_in_time

R = np.random.default_rng(5)


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> list[jax.export.Exported]:
    """The compiler is replaced by JAX itself; gives what was compiled."""
    seen: list[jax.export.Exported] = []

    def compile_with_jax(model: jax.export.Exported, *settings: object) -> object:
        seen.append(model)
        kept = model.module_kept_var_idx

        def call(*arrays: np.ndarray) -> tuple[np.ndarray, ...]:
            full = [np.zeros(aval.shape, aval.dtype) for aval in model.in_avals]
            for index, array in zip(kept, arrays, strict=True):
                assert array.dtype == model.in_avals[index].dtype
                full[index] = array
            args, kwargs = jax.tree_util.tree_unflatten(model.in_tree, full)
            return tuple(map(np.asarray, jax.tree_util.tree_leaves(model.call(*args, **kwargs))))

        return call

    monkeypatch.setattr(just_in_time, "compile", compile_with_jax)
    return seen


def test_pytrees_and_signatures(exported: list[jax.export.Exported]) -> None:
    @stepwell.jit
    def layer(parameters: dict, x: jax.Array, unused: jax.Array, *, scale: float) -> dict:
        """A layer."""
        return {"y": jnp.tanh(x @ parameters["w"] + parameters["b"]) * scale, "n": x.shape[0]}

    parameters = {"w": np.ones((3, 2), np.float32), "b": jnp.arange(2.0)}
    for rows in (4, 4, 5):
        x = np.full((rows, 3), 0.1, np.float32)
        result = layer(parameters, x, np.zeros(7), scale=2.0)
        want = np.tanh(x @ parameters["w"] + np.arange(2.0)) * 2  # single precision: 1e-6
        np.testing.assert_allclose(result["y"], want, rtol=1e-6)
        assert result["n"] == rows
    assert len(exported) == 2
    assert layer.__doc__ == "A layer."


def test_lower() -> None:
    @functools.partial(stepwell.jit, static_argnames="n", threads=1)
    def layer(p: dict, x: jax.Array, n: int) -> jax.Array:
        return jnp.tanh(x @ p["w"]) * n

    w = R.standard_normal((3, 2)).astype(np.float32)
    x = jax.ShapeDtypeStruct((4, 3), np.float32)
    lowered = layer.lower({"w": w, "unused": np.zeros(5)}, x, n=3)
    assert lowered.level == "stablehlo"
    assert "stablehlo.dot_general" in str(lowered)
    assert "affine.for" in str(lowered.step("affine"))
    x = R.standard_normal((4, 3)).astype(np.float32)
    (y,) = lowered.compile()(w, x)
    np.testing.assert_allclose(y, np.tanh(x @ w) * 3, rtol=1e-5)  # sums of 3, and tanh
    with pytest.raises(TypeError):
        layer.lower(w)


def test_with_options(exported: list[jax.export.Exported]) -> None:
    double = stepwell.jit(threads=1)(lambda x: x * 2)
    np.testing.assert_array_equal(double(np.arange(3)), [0, 2, 4])
    assert len(exported) == 1


def test_kinds_of_arguments_that_share_a_program(exported: list[jax.export.Exported]) -> None:
    double = stepwell.jit(lambda x: x * 2)
    numbers = np.arange(3, dtype=np.float32)
    same = numbers, jnp.asarray(numbers), numbers.astype(np.float64), numbers  # JAX sees float32
    for x in same:
        np.testing.assert_array_equal(double(x), [0, 2, 4])
    assert len(exported) == 1
    with jax.enable_x64(True):
        assert double(same[2]).dtype == np.float64
    assert len(exported) == 2
    for scalar in (1.5, 2.5, 2):
        assert double(scalar) == 2 * scalar
    assert len(exported) == 4


def test_static_arguments(exported: list[jax.export.Exported]) -> None:
    @stepwell.jit(static_argnums=1, static_argnames="power")
    def repeat(x: jax.Array, count: int, *, power: int = 1) -> jax.Array:
        return jnp.concatenate([x] * count) ** power

    x = np.arange(3.0, dtype=np.float32)
    for count, power in ((2, 1), (3, 1), (2, 2), (2, 1)):
        result = repeat(x, count, power=power)
        np.testing.assert_array_equal(result, np.concatenate([x] * count) ** power)
    assert len(exported) == 3


def test_static_arguments_by_either_name(exported: list[jax.export.Exported]) -> None:
    def tile(x: jax.Array, count: int) -> jax.Array:
        return jnp.tile(x, count)

    x = np.arange(2)
    by_name = stepwell.jit(static_argnames=("count",))(tile)
    by_number = stepwell.jit(static_argnums=(-1,), donate_argnums=0, donate_argnames="x")(tile)
    for result in (by_name(x, 2), by_name(x, count=2), by_number(x, 2), by_number(x, count=2)):
        np.testing.assert_array_equal(result, [0, 1, 0, 1])
    with pytest.raises(stepwell.UsageError, match="static argument 1 is a list"):
        by_name(x, [2])


def test_static_arguments_by_position_alone(exported: list[jax.export.Exported]) -> None:
    def reshaped(x: jax.Array, rows: int, /, columns: int) -> jax.Array:
        return x.reshape(rows, columns)

    def grown(x: jax.Array, *factors: int) -> jax.Array:
        return jnp.tile(x, factors[0]) * factors[-1]

    x = np.arange(6)
    for settings in ({"static_argnums": (1, 2)}, {"static_argnums": (-1, -2)}):
        by_number = stepwell.jit(**settings)(reshaped)
        for result in (by_number(x, 3, 2), by_number(x, 3, columns=2)):
            np.testing.assert_array_equal(result, x.reshape(3, 2))
    by_name = stepwell.jit(static_argnames="columns")(lambda x, y, /, columns: x[:columns] + y)
    np.testing.assert_array_equal(by_name(x, 1, 2), [1, 2])
    result = stepwell.jit(static_argnums=-2)(grown)(x, 2, 3)
    np.testing.assert_array_equal(result, np.tile(x, 2) * 3)


def test_static_arguments_of_other_types(exported: list[jax.export.Exported]) -> None:
    scaled = stepwell.jit(static_argnums=1)(lambda x, factor: x * factor)
    x = np.arange(3)
    kinds = [np.asarray(scaled(x, factor)).dtype.kind for factor in (1, 1.0, True, 1)]
    assert kinds == ["i", "f", "i", "i"]
    assert len(exported) == 3


def test_settings_of_jax_that_tracing_depends_on(exported: list[jax.export.Exported]) -> None:
    add = stepwell.jit(lambda x, y: x + y)
    x, y = np.arange(3), np.ones(3, np.float32)
    np.testing.assert_array_equal(add(x, y), x + y)
    with (
        jax.numpy_dtype_promotion("strict"),
        pytest.raises(jax.dtypes.TypePromotionError, match="strict"),
    ):
        add(x, y)
    assert len(exported) == 1


def test_random_keys_are_arguments_and_results() -> None:
    def function(key: jax.Array, x: np.ndarray) -> tuple[jax.Array, jax.Array]:
        return x + jax.random.uniform(key, x.shape), jax.random.split(key)

    x = np.arange(3, dtype=np.float32)
    for kind in ("threefry2x32", "rbg"):
        key = jax.random.key(4, impl=kind)
        results = stepwell.jit(function)(key, x)
        assert isinstance(results, tuple)
        expected = function(key, x)
        np.testing.assert_array_equal(results[0], expected[0])
        assert results[1].dtype == expected[1].dtype
        np.testing.assert_array_equal(*map(jax.random.key_data, (results[1], expected[1])))


def test_arrays_of_jax_are_looked_at_once_and_not_kept() -> None:
    double = stepwell.jit(lambda x: x * 2)
    x = jnp.arange(3.0)
    for given in (x, x, x + 1, x):
        np.testing.assert_array_equal(double(given), 2 * np.asarray(given))
    reference = weakref.ref(x)
    del x, given
    gc.collect()
    assert reference() is None
    np.testing.assert_array_equal(double(jnp.ones(3)), [2, 2, 2])


def test_a_deleted_array_is_refused() -> None:
    double = stepwell.jit(lambda x: x * 2)
    x = jnp.arange(3.0)
    double(x)
    x.delete()
    with pytest.raises(stepwell.InputError, match="a ArrayImpl, cannot be taken as an array"):
        double(x)


@pytest.mark.parametrize("call", ["pure_callback", "debug.print"])
def test_callbacks_are_refused(call: str) -> None:
    def host(x: jax.Array) -> jax.Array:
        if call == "debug.print":
            jax.debug.print("x is {}", x)
            return x
        return jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    x = np.arange(3, dtype=np.float32)
    with pytest.raises(stepwell.ModelError, match="the function host calls back into Python"):
        stepwell.jit(host)(x)
    with pytest.raises(stepwell.LoweringError, match=r"calls back into Python, .* take jax\."):
        stepwell.compile(jax.jit(host).lower(x))


def test_foreign_functions_are_refused() -> None:
    def foreign(x: jax.Array) -> jax.Array:
        return jax.ffi.ffi_call("in_c", jax.ShapeDtypeStruct(x.shape, x.dtype))(x)

    with pytest.raises(stepwell.ModelError, match=r"the function foreign calls in_c by way of jax"):
        stepwell.jit(foreign)(np.arange(3, dtype=np.float32))


def test_compile_names_jit_for_functions() -> None:
    x = np.arange(3, dtype=np.float32)
    with pytest.raises(stepwell.UsageError, match=r"not a model; .* compiled by stepwell\.jit"):
        stepwell.compile(jax.jit(jnp.sin))
    with pytest.raises(stepwell.UsageError, match=r"this is a PjitFunction; stepwell\.jit"):
        stepwell.compile(jax.jit(jnp.sin), (x,))


def test_inside_transformations_of_jax() -> None:
    inner = stepwell.jit(lambda x: jnp.sin(x).sum())
    x = np.arange(3, dtype=np.float32)
    for outer in (jax.grad(inner), stepwell.jit(jax.grad(inner))):
        np.testing.assert_allclose(outer(x), np.cos(x), 1e-6)  # of single precision


def test_functions_of_what_jax_traces_around_them() -> None:
    """They compute with tracers that are no arguments, or take arrays of numpy beside tracers."""
    x = np.arange(3, dtype=np.float32)

    def around(transform: Callable, of: Callable) -> object:
        return transform(lambda w: of(lambda x: x * w * w)(x).sum())(2.0)

    for transform in (jax.grad, jax.jit, lambda f: lambda w: jax.vmap(f)(jnp.arange(w))):
        found, expected = (around(transform, of) for of in (stepwell.jit, jax.jit))
        np.testing.assert_array_equal(found, expected)
    row = stepwell.jit(lambda table, index: table[index])
    np.testing.assert_array_equal(jax.jit(lambda i: row(x, i))(2), 2)
