"""Results that are reshaped by way of a vector as they are computed."""

from __future__ import annotations

import numpy as np
import pytest

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
