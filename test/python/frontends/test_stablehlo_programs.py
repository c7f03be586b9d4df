"""Forms of StableHLO operations against the reference interpreter, on small exact numbers."""

from __future__ import annotations

import numpy as np
import pytest
from stablehlo_interpreter import interpret

import stepwell
from stepwell.frontends import stablehlo as frontend

PROGRAMS = {
    "grouped convolution of a reversed window": """
func.func @main(%x: tensor<3x2x4xi64>, %w: tensor<6x1x2xi64>) -> tensor<2x6x6xi64> {
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [f, b, 0]x[o, i, 0]->[b, f, 0],
    window = {stride = [1], pad = [[2, 1]], lhs_dilate = [1], rhs_dilate = [1], reverse = [true]}
    {batch_group_count = 1 : i64, feature_group_count = 3 : i64}
    : (tensor<3x2x4xi64>, tensor<6x1x2xi64>) -> tensor<2x6x6xi64>
  return %0 : tensor<2x6x6xi64>
}""",
    "transposed convolution of one reversed dimension": """
func.func @main(%x: tensor<1x3x4x2xf32>, %w: tensor<2x3x2x3xf32>) -> tensor<1x6x6x3xf32> {
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
    window = {pad = [[1, 1], [1, 0]], lhs_dilate = [2, 2], reverse = [false, true]}
    {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
    : (tensor<1x3x4x2xf32>, tensor<2x3x2x3xf32>) -> tensor<1x6x6x3xf32>
  return %0 : tensor<1x6x6x3xf32>
}""",
    "gather of batches whose components come first": """
func.func @main(%x: tensor<5x2x2xf32>, %i: tensor<2x2x7x4xi64>) -> tensor<4x2x2x7x4xf32> {
  %0 = "stablehlo.gather"(%x, %i) {dimension_numbers = #stablehlo.gather<offset_dims = [0, 1],
    collapsed_slice_dims = [], operand_batching_dims = [2], start_indices_batching_dims = [1],
    start_index_map = [0, 1], index_vector_dim = 0>, slice_sizes = array<i64: 4, 2, 1>}
    : (tensor<5x2x2xf32>, tensor<2x2x7x4xi64>) -> tensor<4x2x2x7x4xf32>
  return %0 : tensor<4x2x2x7x4xf32>
}""",
    "gather of batches whose components come in between": """
func.func @main(%x: tensor<1x1x3xi8>, %i: tensor<2x2x3xi8>) -> tensor<2x3x1xi8> {
  %0 = "stablehlo.gather"(%x, %i) {dimension_numbers = #stablehlo.gather<offset_dims = [2],
    collapsed_slice_dims = [1], operand_batching_dims = [2], start_indices_batching_dims = [2],
    start_index_map = [1, 0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 1, 1>}
    : (tensor<1x1x3xi8>, tensor<2x2x3xi8>) -> tensor<2x3x1xi8>
  return %0 : tensor<2x3x1xi8>
}""",
    "products of rows with rows, batch last": """
func.func @main(%x: tensor<5x1x3xf16>, %y: tensor<1x5x3xf16>) -> tensor<3xf32> {
  %0 = stablehlo.dot_general %x, %y, batching_dims = [2] x [2],
    contracting_dims = [0, 1] x [1, 0] : (tensor<5x1x3xf16>, tensor<1x5x3xf16>) -> tensor<3xf32>
  return %0 : tensor<3xf32>
}""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_the_interpreter(name: str) -> None:
    imported = frontend.from_bytes(PROGRAMS[name].encode(), name)
    generator = np.random.default_rng(0)
    arguments = [
        generator.integers(-4, 5, spec.shape).astype(spec.dtype) for spec in imported.inputs
    ]
    results = stepwell.compile(PROGRAMS[name], threads=1)(*arguments)
    for got, want in zip(results, interpret(imported, arguments), strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)
