"""Sums of elements that are looked up, as adaptive pooling has them: loops, not written out."""

from __future__ import annotations

import numpy as np

import stepwell

WINDOWS = """func.func @main(%x: tensor<64x64xf32>, %i: tensor<7x40x10x2xi64>) -> tensor<7x10xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %g = "stablehlo.gather"(%x, %i) <{dimension_numbers = #stablehlo.gather<
      collapsed_slice_dims = [0, 1], start_index_map = [0, 1], index_vector_dim = 3>,
      slice_sizes = array<i64: 1, 1>}>
      : (tensor<64x64xf32>, tensor<7x40x10x2xi64>) -> tensor<7x40x10xf32>
  %y = stablehlo.reduce(%g init: %zero) applies stablehlo.add across dimensions = [1]
      : (tensor<7x40x10xf32>, tensor<f32>) -> tensor<7x10xf32>
  func.return %y : tensor<7x10xf32>
}"""

_MOST_TEXT = 200_000
"""Characters of the loops: written out, they had ten times as many."""


def test_lookups_are_not_written_out() -> None:
    lowered = stepwell.lower(WINDOWS, target="x86_64-v4")
    lowered.step("affine")
    text = str(lowered)
    assert 'kernel.kind = "outer-reduction"' in text
    assert len(text) < _MOST_TEXT
    generator = np.random.default_rng(0)
    x = generator.standard_normal((64, 64), np.float32)
    places = generator.integers(0, 64, (7, 40, 10, 2))
    (found,) = stepwell.compile(WINDOWS)(x, places)
    expected = x[places[..., 0], places[..., 1]].sum(1)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
