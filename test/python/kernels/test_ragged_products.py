"""Products of rows with the matrix of their group (jax.lax.ragged_dot), against jax."""

from __future__ import annotations

import jax
import ml_dtypes
import numpy as np
import pytest
from jax import lax

import stepwell
from stepwell.dialects import ragged

ROWS, GROUPS, DEPTH, WIDTH = 512, 8, 24, 40

SIZES = {
    "uneven": [100, 3, 0, 64, 129, 1, 200, 15],
    "fewer-rows": [0, 5, 70, 0, 0, 33, 0, 0],
    "one-group": [0, 0, 0, 512, 0, 0, 0, 0],
    "no-rows": [0] * 8,
    "tiles": [64] * 8,
}


def arrays(dtype: type = np.float32) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(2)
    shapes = ((ROWS, DEPTH), (GROUPS, DEPTH, WIDTH))
    x, w = (random.integers(-3, 4, shape).astype(dtype) for shape in shapes)
    return x, w


def exported(function: object, *inputs: np.ndarray) -> str:
    return str(jax.export.export(jax.jit(function), platforms=["cpu"])(*inputs).mlir_module())


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_same_as_jax(name: str, dtype: type) -> None:
    """Exactly: sums of small integers."""
    inputs = (*arrays(dtype), np.array(SIZES[name], np.int32))
    module = exported(lax.ragged_dot, *inputs)
    lowered = stepwell.lower(module).step("stablehlo")
    assert "batching_dims" in str(lowered)
    (got,) = stepwell.compile(module)(*inputs)
    want = np.asarray(jax.jit(lax.ragged_dot)(*inputs))
    np.testing.assert_array_equal(got.astype(np.float32), want.astype(np.float32))


def test_gradient_of_rows() -> None:
    """Its product is with transposed matrices."""

    def gradient(x: jax.Array, w: jax.Array, sizes: jax.Array, y: jax.Array) -> jax.Array:
        return jax.vjp(lambda x: lax.ragged_dot(x, w, sizes), x)[1](y)[0]

    y = np.random.default_rng(4).integers(-3, 4, (ROWS, WIDTH)).astype(np.float32)
    inputs = (arrays()[1], np.array(SIZES["uneven"], np.int32), y)

    def of_inputs(w: jax.Array, sizes: jax.Array, y: jax.Array) -> jax.Array:
        return gradient(jax.numpy.zeros((ROWS, DEPTH), np.float32), w, sizes, y)

    module = exported(of_inputs, *inputs)
    assert "batching_dims" in str(stepwell.lower(module).step("stablehlo"))
    (got,) = stepwell.compile(module)(*inputs)
    np.testing.assert_array_equal(got, np.asarray(jax.jit(of_inputs)(*inputs)))


@pytest.mark.parametrize("form", ["composite", "operation"])
def test_as_chlo(form: str) -> None:
    """As JAX exports it for TPUs, and as the operation that this stands for."""
    inputs = (*arrays(), np.array(SIZES["uneven"], np.int32))
    of_tpu = jax.export.export(jax.jit(lax.ragged_dot), platforms=["tpu"])(*inputs)
    module = str(of_tpu.mlir_module())
    if form == "operation":
        rows, matrices, result = (
            f"tensor<{'x'.join(map(str, shape))}xf32>"
            for shape in (inputs[0].shape, inputs[1].shape, (ROWS, WIDTH))
        )
        module = f"""func.func @main(%x: {rows}, %w: {matrices}, %g: tensor<8xi32>) -> {result} {{
          %r = "chlo.ragged_dot"(%x, %w, %g) <{{ragged_dot_dimension_numbers = #chlo.ragged_dot<
              lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1],
              lhs_ragged_dimensions = [0], rhs_group_dimensions = [0]>}}>
              : ({rows}, {matrices}, tensor<8xi32>) -> {result}
          return %r : {result} }}"""
    assert "batching_dims" in str(stepwell.lower(module).step("stablehlo"))
    (got,) = stepwell.compile(module)(*inputs)
    np.testing.assert_array_equal(got, np.asarray(jax.jit(lax.ragged_dot)(*inputs)))


def test_few_rows_are_multiplied_by_all() -> None:
    assert ragged.tile_of(16, 8) is None
    assert ragged.tile_of(4096, 8) is not None
    assert all(ragged.tile_of(rows, 1) is None for rows in (1, 100, 10000))
