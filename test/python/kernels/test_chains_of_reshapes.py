"""Results that are reshaped by way of a vector as they are computed."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import stepwell
from stepwell.options import CompileOptions

CONVOLUTION = """func.func @main(%x: tensor<1x128x7x7xf32>) -> tensor<1x1x256x49xf32> {
  %w = stablehlo.constant dense<0.5> : tensor<3x3x256x128xf32>
  %c = stablehlo.convolution(%x, %w) dim_numbers = [b, f, 0, 1]x[0, 1, o, i]->[b, f, 0, 1],
      window = {stride = [1, 1], pad = [[1, 1], [1, 1]]}
      {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
      : (tensor<1x128x7x7xf32>, tensor<3x3x256x128xf32>) -> tensor<1x256x7x7xf32>
  %r = stablehlo.reshape %c : (tensor<1x256x7x7xf32>) -> tensor<1x1x256x49xf32>
  %y = stablehlo.abs %r : tensor<1x1x256x49xf32>
  func.return %y : tensor<1x1x256x49xf32>
}"""


@pytest.mark.parametrize("precision", ["default", "strict"])
def test_heads_of_a_convolution(precision: str) -> None:
    """Tiles of Winograd's algorithm reach beyond the seventh column."""
    x = np.random.default_rng(0).standard_normal((1, 128, 7, 7), np.float32)
    options = CompileOptions(precision=precision)
    (found,) = stepwell.compile(CONVOLUTION, options=options)(x)
    padded = np.pad(x[0].sum(0), 1)
    wanted = sum(padded[i : i + 7, j : j + 7] for i in range(3) for j in range(3)) / 2
    expected = np.broadcast_to(np.abs(wanted).reshape(49), (1, 1, 256, 49))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * expected.max())


@pytest.mark.parametrize(("tall", "wide", "window", "flat"), [(14, 21, 7, True), (12, 8, 4, False)])
def test_products_of_windows_that_are_put_together(
    tall: int, wide: int, window: int, flat: bool
) -> None:
    """A layer of windows of an image, which a residual is added to where they came from: one kernel
    that permutes its rows as it stores them."""
    random = np.random.default_rng(tall)
    weights = random.standard_normal((48, 48), np.float32)
    sizes = [2, tall // window, window, wide // window, window, 48]
    in_windows = [sizes[d] for d in (0, 1, 3, 2, 4, 5)]

    def layer(windows: jax.Array, image: jax.Array) -> jax.Array:
        product = windows.reshape(-1, 48) @ weights
        together = product.reshape(in_windows).transpose(0, 1, 3, 2, 4, 5)
        shape = [2, tall * wide, 48] if flat else [2, tall, wide, 48]
        return image.reshape(shape) + together.reshape(shape)

    windows = random.standard_normal((math.prod(in_windows[:3]), window**2, 48), np.float32)
    image = random.standard_normal((2, tall, wide, 48), np.float32)
    exported = jax.export.export(jax.jit(layer))(windows, image)
    lowered = stepwell.lower(exported, target="host")
    lowered.step("affine")
    assert lowered.remarks == []
    (found,) = stepwell.compile(exported)(windows, image)
    product = windows.reshape(-1, 48).astype(np.float64) @ weights
    together = product.reshape(in_windows).transpose(0, 1, 3, 2, 4, 5)
    expected = image.reshape(found.shape) + together.reshape(found.shape)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)


def test_mean_of_parts_of_an_image() -> None:
    """Tiles of the pooling reach beyond its 49 positions, which have another dimension above."""
    x = np.random.default_rng(1).standard_normal((1, 28, 28, 192), np.float32)
    scale = np.linspace(0, 1, 192, dtype=np.float32)

    def pooled(x: jax.Array) -> jax.Array:
        rows, window = x.reshape(1, 784, 192).transpose(0, 2, 1)[:, :, None], (1, 1, 1, 16)
        parts = jax.lax.reduce_window(rows, 0.0, jax.lax.add, window, window, "VALID")
        return (parts / 16)[:, :, 0].transpose(0, 2, 1) * scale + scale

    exported = jax.export.export(jax.jit(pooled))(x)
    lowered = stepwell.lower(exported, target="host")
    lowered.step("affine")
    assert lowered.remarks == []
    (found,) = stepwell.compile(exported)(x)
    expected = x.reshape(1, 49, 16, 192).mean(2) * scale + scale
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("reversed_dimensions", [(0,), (1,), (0, 1), (2,)])
def test_products_of_which_rows_are_reversed(reversed_dimensions: tuple[int, ...]) -> None:
    """A product that is read as it is and from the last row back, as both directions of a recurrent
    layer do."""
    random = np.random.default_rng(0)
    weights = random.standard_normal((24, 48), np.float32)
    x = random.standard_normal((5, 3, 24), np.float32)

    def layer(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        product = (x.reshape(15, 24) @ weights).reshape(5, 3, 48)
        return product, 2 * lax.rev(product, reversed_dimensions)

    lowered = stepwell.lower(jax.export.export(jax.jit(layer))(x), target="host")
    lowered.step("affine")
    assert lowered.remarks == []
    plain, turned = lowered.compile()(x)
    wanted = x.astype(np.float64) @ weights
    np.testing.assert_allclose(plain, wanted, rtol=0, atol=1e-5)
    np.testing.assert_allclose(turned, 2 * np.flip(wanted, reversed_dimensions), rtol=0, atol=2e-5)


@pytest.mark.parametrize(("inner", "outer"), [((4, 15, 10), (6, 2, 10, 5)), ((15, 10), (6, 25))])
def test_reshapes_whose_dimensions_cut_one_another(
    inner: tuple[int, ...], outer: tuple[int, ...]
) -> None:
    """A product, and a kernel of what is computed of it in the other shape."""
    random = np.random.default_rng(0)
    *lead, rows, columns = inner
    x = random.standard_normal((*lead, rows, 24), np.float32)
    y = random.standard_normal((*lead, 24, columns), np.float32)

    def layer(x: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.tanh(jnp.maximum(x @ y, 0).reshape(outer))

    lowered = stepwell.lower(jax.export.export(jax.jit(layer))(x, y), target="host")
    lowered.step("affine")
    assert lowered.remarks == []
    (found,) = lowered.compile()(x, y)
    wanted = np.tanh(np.maximum(x.astype(np.float64) @ y, 0).reshape(outer))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("size", "classes", "anchors", "channels", "groups", "target"),
    [
        (20, 21, 4, 64, 1, "x86_64-v4"),  # by Winograd's algorithm, of a panel that is not whole
        (20, 91, 9, 32, 1, "x86_64-v3"),
        (7, 28, 5, 140, 140, "x86_64-v4"),  # depthwise, in parts of the channels
        (8, 27, 7, 189, 189, "x86_64-v4"),
    ],
)
def test_heads_of_detectors(
    size: int, classes: int, anchors: int, channels: int, groups: int, target: str
) -> None:
    """Channels are anchors by classes, of which each position of the image has all: one kernel
    finishes them where they are, though its last panel has fewer."""
    random = np.random.default_rng(classes)
    x = random.standard_normal((1, size, size, channels), np.float32)
    w = random.standard_normal((3, 3, channels // groups, classes * anchors), np.float32) / 20
    scales = random.standard_normal((size * size * anchors, classes), np.float32)

    def head(x: jax.Array) -> jax.Array:
        summed = lax.conv_general_dilated(
            x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"),
            feature_group_count=groups,
        )  # fmt: skip
        return jax.nn.sigmoid(summed.reshape(1, *scales.shape) * scales)

    traced = jax.jit(head).lower(x)
    lowered = stepwell.lower(traced, target=target)
    lowered.step("affine")
    assert lowered.remarks == []
    (found,) = stepwell.compile(traced)(x)
    np.testing.assert_allclose(found, head(x), rtol=0, atol=1e-5)
