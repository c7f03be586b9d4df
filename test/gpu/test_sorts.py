"""Sorts on the emulator: stable, with every element compared by a thread of its own."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from emulator import Emulator
from jax import lax
from jax import numpy as jnp
from models import compile_for_gpu, load_on_emulator

from stepwell.passes.linalg import _parallel_sort


def run(function: object, x: np.ndarray, emulator: Emulator) -> list[np.ndarray]:
    """The results of kernels that all run on a whole grid."""
    module = jax.export.export(jax.jit(function), platforms=["cpu"])(x).mlir_module()
    compiled = compile_for_gpu(str(module))
    assert compiled.remarks == []
    return list(load_on_emulator(compiled, emulator)(x))


@pytest.fixture(params=["counting", "network"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How rows are sorted."""
    monkeypatch.setattr(_parallel_sort, "MOST_COUNTED", 2048 if request.param == "counting" else 1)
    return request.param


def few_values(*shape: int, dtype: type = np.float32) -> np.ndarray:
    """Many equal elements, whose order shows whether a sort is stable."""
    return np.random.default_rng(0).integers(0, 7, shape).astype(dtype)


@pytest.mark.parametrize(("shape", "axis"), [((3, 13), 1), ((16, 2), 0)])
@pytest.mark.parametrize("dtype", [np.float32, np.uint8])
def test_places(
    way: str, shape: tuple[int, ...], axis: int, dtype: type, emulator: Emulator
) -> None:
    x = few_values(*shape, dtype=dtype)
    (places,) = run(lambda x: jnp.argsort(x, axis=axis, stable=True), x, emulator)
    np.testing.assert_array_equal(places, np.argsort(x, axis=axis, kind="stable"))


def test_values_that_are_not_ordered(way: str, emulator: Emulator) -> None:
    """NaNs come last, infinities and zeros of both signs where they belong."""
    x = np.array([[3, np.nan, -np.inf, 0, -0.0, np.inf, 1, np.nan, -2]], np.float32)
    (ordered,) = run(lambda x: jnp.sort(x), x, emulator)
    np.testing.assert_array_equal(ordered, np.sort(x))


def test_first_few(way: str, emulator: Emulator) -> None:
    x = few_values(2, 14)
    values, places = run(lambda x: lax.top_k(x, 5), x, emulator)
    expected = np.argsort(-x, kind="stable")[:, :5]
    np.testing.assert_array_equal(places, expected)
    np.testing.assert_array_equal(values, np.take_along_axis(x, expected, 1))
