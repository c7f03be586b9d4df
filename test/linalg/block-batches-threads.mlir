// RUN: stepwell-opt %s --pass-pipeline='block-batches{threads=2}' --target=x86_64-v4 | filecheck %s
// RUN: stepwell-opt %s --pass-pipeline='block-batches{threads=3}' --target=x86_64-v4 | filecheck %s --check-prefix=UNEVEN

// The cache holds all of it; but two threads that have images of their own do not wait for each
// other after each layer.
// CHECK-LABEL: func.func @layers
// CHECK: stablehlo.while
// CHECK: stepwell.parts = array<i64: 2, {{4, 1|2, 2|1, 4}}>
// CHECK: stablehlo.convolution
// CHECK-SAME: -> tensor<{{[124]}}x28x28x64xf32>

// Rejected: three threads do not have as many images each.
// UNEVEN-LABEL: func.func @layers
// UNEVEN-NOT: stepwell.parts
func.func @layers(%x: tensor<8x28x28x64xf32>, %v: tensor<3x3x64x64xf32>, %w: tensor<3x3x64x64xf32>) -> tensor<8x28x28x64xf32> {
  %0 = stablehlo.convolution(%x, %v) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<8x28x28x64xf32>, tensor<3x3x64x64xf32>) -> tensor<8x28x28x64xf32>
  %1 = stablehlo.convolution(%0, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<8x28x28x64xf32>, tensor<3x3x64x64xf32>) -> tensor<8x28x28x64xf32>
  %2 = stablehlo.convolution(%1, %v) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<8x28x28x64xf32>, tensor<3x3x64x64xf32>) -> tensor<8x28x28x64xf32>
  return %2 : tensor<8x28x28x64xf32>
}
