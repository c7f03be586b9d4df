// RUN: stepwell-opt %s --target=x86_64-v3 --pass-pipeline='builtin.module(legalize-to-linalg,mark-halos)' | filecheck %s

// CHECK-LABEL: func.func @dilated
// CHECK: kernel.halo = {extent = array<i64: 1, 9, 9, 64>, low = array<i64: 0, 8, 8, 0>}
func.func @dilated(%x: tensor<1x9x9x64xf32>, %w: tensor<3x3x64x32xf32>) -> tensor<1x9x9x32xf32> {
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[8, 8], [8, 8]], rhs_dilate = [8, 8]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x9x9x64xf32>, tensor<3x3x64x32xf32>) -> tensor<1x9x9x32xf32>
  return %0 : tensor<1x9x9x32xf32>
}

// CHECK-LABEL: func.func @short_axis
// CHECK: kernel.halo = {extent = array<i64: 1, 2, 9, 9, 64>, low = array<i64: 0, 1, 1, 1, 0>}
func.func @short_axis(%x: tensor<1x2x9x9x64xf32>, %w: tensor<3x3x3x64x32xf32>) -> tensor<1x2x9x9x32xf32> {
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, 2, f]x[0, 1, 2, i, o]->[b, 0, 1, 2, f], window = {pad = [[1, 1], [1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x2x9x9x64xf32>, tensor<3x3x3x64x32xf32>) -> tensor<1x2x9x9x32xf32>
  return %0 : tensor<1x2x9x9x32xf32>
}

// Rejected: zeros that are a small part of what a large image's windows read.
// CHECK-LABEL: func.func @large
// CHECK-NOT: kernel.halo
func.func @large(%x: tensor<1x56x56x64xf32>, %w: tensor<3x3x64x32xf32>) -> tensor<1x56x56x32xf32> {
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x56x56x64xf32>, tensor<3x3x64x32xf32>) -> tensor<1x56x56x32xf32>
  return %0 : tensor<1x56x56x32xf32>
}

// Rejected: few terms inside of the window.
// CHECK-LABEL: func.func @few
// CHECK-NOT: kernel.halo
func.func @few(%x: tensor<1x9x9x3xf32>, %w: tensor<3x3x3x32xf32>) -> tensor<1x9x9x32xf32> {
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x9x9x3xf32>, tensor<3x3x3x32xf32>) -> tensor<1x9x9x32xf32>
  return %0 : tensor<1x9x9x32xf32>
}
