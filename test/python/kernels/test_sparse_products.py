"""Products by constant matrices that are zero for the most part, against float64."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from onnx import TensorProto, helper, numpy_helper

import stepwell

_TOLERANCE = 1e-6
"""Of the largest result: sums of a hundred terms in float32."""


def _pruned(shape: tuple[int, ...], kept: float = 0.1, dtype: type = np.float32) -> np.ndarray:
    """Weights of which the part `kept` is not zero; the first row and column of it are."""
    random = np.random.default_rng(sum(shape))
    weights = random.standard_normal(shape) * (random.random(shape) < kept)
    weights[0] = weights[:, 0] = 0
    return weights.astype(dtype)


def _skips_zeros(model: object) -> bool:
    lowered = stepwell.lower(model, target="host")
    lowered.step("stablehlo")
    return "stepwell.sparse_dot" in str(lowered)


def _check(
    function: Callable, x: np.ndarray, expected: np.ndarray, *, everywhere: bool = True
) -> None:
    """Compile `function` of x for one and two threads; its products skip zeros, if `everywhere` on
    any machine."""
    exported = jax.export.export(jax.jit(function))(x)
    assert _skips_zeros(exported) or not everywhere
    for threads in (1, 2):
        (y,) = stepwell.compile(exported, target="host", threads=threads)(x)
        assert y.shape == expected.shape
        assert np.abs(y - expected).max() < _TOLERANCE * np.abs(expected).max()


@pytest.mark.parametrize("rows", [1, 2, 3, 7, 16, 17, 33, 65, 128, 197])
def test_columns_of_every_number(rows: int) -> None:
    weights, bias = _pruned((257, 131), 0.01), np.arange(131, dtype=np.float32) / 64
    x = np.random.default_rng(rows).standard_normal((rows, 257)).astype(np.float32)
    expected = np.maximum(x.astype(np.float64) @ weights + bias, 0)
    _check(lambda x: jnp.maximum(x @ weights + bias, 0), x, expected)


@pytest.mark.parametrize("kept", [0.002, 0.02, 0.2])
def test_rows_of_few_terms_and_of_none(kept: float) -> None:
    weights = _pruned((512, 300), kept)
    x = np.random.default_rng(1).standard_normal((40, 512)).astype(np.float32)
    worth_it = kept < 0.2  # with two units that multiply 512 bits, all terms take as long as these
    _check(lambda x: x @ weights, x, x.astype(np.float64) @ weights, everywhere=worth_it)


def test_weights_on_the_left_and_in_batches() -> None:
    weights = _pruned((160, 256))
    x = np.random.default_rng(2).standard_normal((256, 3, 21)).astype(np.float32)
    expected = np.einsum("nk,kab->nab", weights.astype(np.float64), x)
    _check(lambda x: lax.dot_general(weights, x, (((1,), (0,)), ((), ()))), x, expected)
    y = np.moveaxis(x, 0, 1).copy()
    expected = np.einsum("akb,nk->abn", y.astype(np.float64), weights)
    _check(lambda y: lax.dot_general(y, weights, (((1,), (1,)), ((), ()))), y, expected)


def test_places_beyond_16_bits() -> None:
    weights = _pruned((40_000, 8), 0.004)
    x = np.random.default_rng(3).standard_normal((5, 40_000)).astype(np.float32)
    _check(lambda x: x @ weights, x, x.astype(np.float64) @ weights)


@pytest.mark.parametrize("which", ["identity", "column", "element"])
def test_terms_that_are_all_alike(which: str) -> None:
    weights = np.eye(192, 192, dtype=np.float32)
    if which == "column":
        weights[:] = 0
        weights[::7, 5] = np.arange(1, 29)
    elif which == "element":
        weights[:] = 0
        weights[3, 7] = 2
    x = np.random.default_rng(4).standard_normal((50, 192)).astype(np.float32)
    _check(lambda x: x @ weights.T, x, x.astype(np.float64) @ weights.T)


def test_two_layers_with_a_residual_and_a_normalization() -> None:
    first, second = _pruned((192, 768)), _pruned((768, 192))
    x = np.random.default_rng(4).standard_normal((2, 48, 192)).astype(np.float32)

    def layers(x: jax.Array, first: jax.Array, second: jax.Array) -> jax.Array:
        y = x + jax.nn.gelu(x @ first, approximate=False) @ second
        return (y - y.mean(-1, keepdims=True)) / y.std(-1, keepdims=True)

    with jax.enable_x64(True):
        expected = np.asarray(layers(*(jnp.asarray(a, jnp.float64) for a in (x, first, second))))
    _check(lambda x: layers(x, first, second), x, expected)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("channels_first", [True, False])
def test_convolutions_by_one_pixel(channels_first: bool, stride: int) -> None:
    weights = _pruned((192, 160))
    x = np.random.default_rng(5).standard_normal((2, 160, 9, 7)).astype(np.float32)
    expected = np.einsum("bchw,nc->bnhw", x[:, :, ::stride, ::stride].astype(np.float64), weights)
    order = [0, 1, 2, 3] if channels_first else [0, 2, 3, 1]
    numbers = ("NCHW", "OIHW", "NCHW") if channels_first else ("NHWC", "HWIO", "NHWC")
    kernel = weights[:, :, None, None].transpose([0, 1, 2, 3] if channels_first else [2, 3, 1, 0])

    def layer(x: jax.Array) -> jax.Array:
        steps = (stride, stride)
        y = lax.conv_general_dilated(x, kernel, steps, "VALID", dimension_numbers=numbers)
        return jnp.maximum(y, -0.5)

    moved = np.ascontiguousarray(x.transpose(order))
    _check(layer, moved, np.maximum(expected.transpose(order), -0.5))


def _onnx_layer(rows: int | str, dtype: int, weights: np.ndarray) -> object:
    k, n = weights.shape
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "layer",
        [helper.make_tensor_value_info("x", dtype, [rows, k])],
        [helper.make_tensor_value_info("y", dtype, [rows, n])],
        [numpy_helper.from_array(weights, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize("rows", [1, 64])
def test_weights_of_16_bits(rows: int) -> None:
    weights = _pruned((320, 256), 0.02, dtype=np.float16)
    model = _onnx_layer(rows, TensorProto.FLOAT16, weights)
    assert _skips_zeros(model)
    x = np.random.default_rng(6).standard_normal((rows, 320)).astype(np.float16)
    (y,) = stepwell.compile(model, target="host")(x)
    expected = x.astype(np.float64) @ weights.astype(np.float64)
    assert y.dtype == np.float16
    assert np.abs(y - expected).max() < 1e-3 * np.abs(expected).max()


def test_any_number_of_rows() -> None:
    weights = _pruned((320, 256), 0.02)
    executable = stepwell.compile(_onnx_layer("rows", TensorProto.FLOAT, weights), target="host")
    for rows in (5, 1, 40, 17, 3, 100):
        x = np.random.default_rng(rows).standard_normal((rows, 320)).astype(np.float32)
        (y,) = executable(x)
        expected = x.astype(np.float64) @ weights
        assert np.abs(y - expected).max() < _TOLERANCE * np.abs(expected).max()


def test_strict_products_look_at_everything() -> None:
    weights = _pruned((320, 256), 0.02)
    x = np.ones((4, 320), np.float32)
    x[2, 0] = np.inf  # meets zeros alone
    model = _onnx_layer(4, TensorProto.FLOAT, weights)
    (fast,) = stepwell.compile(model, target="host")(x)
    (strict,) = stepwell.compile(model, target="host", options={"precision": "strict"})(x)
    assert np.isfinite(fast).all()
    assert np.isnan(strict[2]).all()
    assert np.isfinite(strict[[0, 1, 3]]).all()
