"""`stepwell.jit`: pytrees in and out, one compilation for each new signature."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stepwell
from stepwell import just_in_time


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


def test_with_options(exported: list[jax.export.Exported]) -> None:
    double = stepwell.jit(threads=1)(lambda x: x * 2)
    np.testing.assert_array_equal(double(np.arange(3)), [0, 2, 4])
    assert len(exported) == 1


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
    by_number = stepwell.jit(static_argnums=(-1,), donate_argnums=0)(tile)
    for result in (by_name(x, 2), by_name(x, count=2), by_number(x, 2), by_number(x, count=2)):
        np.testing.assert_array_equal(result, [0, 1, 0, 1])
    with pytest.raises(stepwell.UsageError, match="static argument 1 is a list"):
        by_name(x, [2])
