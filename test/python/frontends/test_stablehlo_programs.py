"""Forms of StableHLO operations against the reference interpreter, on small exact numbers."""

from __future__ import annotations

import numpy as np
import pytest

import stepwell
from stepwell.frontends import stablehlo as frontend
from stepwell.inspection.interpreter import interpret

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
    "joint reduction across no dimensions, in a loop": """
func.func @main(%x: tensor<2x3xi32>, %y: tensor<2x3xf32>, %s: tensor<i32>, %t: tensor<f32>)
    -> (tensor<2x3xi32>, tensor<2x3xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %three = stablehlo.constant dense<3> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %w:3 = stablehlo.while(%i = %zero, %a = %x, %b = %y)
    : tensor<i32>, tensor<2x3xi32>, tensor<2x3xf32>
  cond {
    %c = stablehlo.compare LT, %i, %three : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %j = stablehlo.add %i, %one : tensor<i32>
    %r:2 = stablehlo.reduce(%a init: %s), (%b init: %t) across dimensions = []
      : (tensor<2x3xi32>, tensor<2x3xf32>, tensor<i32>, tensor<f32>)
      -> (tensor<2x3xi32>, tensor<2x3xf32>)
      reducer(%p: tensor<i32>, %q: tensor<i32>) (%u: tensor<f32>, %v: tensor<f32>) {
        %m = stablehlo.add %p, %q : tensor<i32>
        %n = stablehlo.subtract %u, %v : tensor<f32>
        stablehlo.return %m, %n : tensor<i32>, tensor<f32>
      }
    stablehlo.return %j, %r#0, %r#1 : tensor<i32>, tensor<2x3xi32>, tensor<2x3xf32>
  }
  return %w#1, %w#2 : tensor<2x3xi32>, tensor<2x3xf32>
}""",
    "complex product across no dimensions": """
func.func @main(%x: tensor<4xf32>, %y: tensor<4xf32>, %s: tensor<f32>, %t: tensor<f32>)
    -> (tensor<4xf32>, tensor<4xf32>) {
  %z = stablehlo.complex %x, %y : tensor<4xcomplex<f32>>
  %init = stablehlo.complex %s, %t : tensor<complex<f32>>
  %0 = stablehlo.reduce(%z init: %init) applies stablehlo.multiply across dimensions = []
    : (tensor<4xcomplex<f32>>, tensor<complex<f32>>) -> tensor<4xcomplex<f32>>
  %1 = stablehlo.real %0 : (tensor<4xcomplex<f32>>) -> tensor<4xf32>
  %2 = stablehlo.imag %0 : (tensor<4xcomplex<f32>>) -> tensor<4xf32>
  return %1, %2 : tensor<4xf32>, tensor<4xf32>
}""",
    "padding of what was spread out": """
func.func @main(%x: tensor<7xf32>, %z: tensor<f32>) -> tensor<23xf32> {
  %0 = stablehlo.pad %x, %z, low = [2], high = [1], interior = [2]
    : (tensor<7xf32>, tensor<f32>) -> tensor<22xf32>
  %1 = stablehlo.constant dense<-1.0> : tensor<f32>
  %2 = stablehlo.pad %0, %1, low = [1], high = [0], interior = [0]
    : (tensor<22xf32>, tensor<f32>) -> tensor<23xf32>
  return %2 : tensor<23xf32>
}""",
    "padding of an updated image": """
func.func @main(%x: tensor<5x6xf32>, %u: tensor<2x3xf32>, %i: tensor<i32>) -> tensor<8x7xf32> {
  %0 = stablehlo.dynamic_update_slice %x, %u, %i, %i
    : (tensor<5x6xf32>, tensor<2x3xf32>, tensor<i32>, tensor<i32>) -> tensor<5x6xf32>
  %1 = stablehlo.constant dense<-1.0> : tensor<f32>
  %2 = stablehlo.pad %0, %1, low = [1, 1], high = [2, 0], interior = [0, 0]
    : (tensor<5x6xf32>, tensor<f32>) -> tensor<8x7xf32>
  return %2 : tensor<8x7xf32>
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
