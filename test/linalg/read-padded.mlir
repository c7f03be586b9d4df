// RUN: stepwell-opt %s --split-input-file --target=x86_64-v3 --pass-pipeline='builtin.module(legalize-to-linalg,read-padded)' | filecheck %s

// The residual is read between the zeros that the convolution reads.
// CHECK-LABEL: func.func @residual
// CHECK: %[[PADDED:.*]] = tensor.pad
// CHECK: %[[INSIDE:.*]] = tensor.extract_slice %[[PADDED]][0, 1, 1, 0] [1, 8, 8, 16] [1, 1, 1, 1]
// CHECK: linalg.generic
// CHECK: linalg.generic
// CHECK-SAME: %[[INSIDE]]
func.func @residual(%a: tensor<1x8x8x16xf32>, %w: tensor<3x3x16x16xf32>) -> tensor<1x8x8x16xf32> {
  %x = stablehlo.exponential %a : tensor<1x8x8x16xf32>
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x8x8x16xf32>, tensor<3x3x16x16xf32>) -> tensor<1x8x8x16xf32>
  %1 = stablehlo.add %0, %x : tensor<1x8x8x16xf32>
  return %1 : tensor<1x8x8x16xf32>
}

// -----

// Rejected: the image is an argument, which lies there without padding anyway.
// CHECK-LABEL: func.func @argument
// CHECK-NOT: tensor.extract_slice
func.func @argument(%x: tensor<1x8x8x16xf32>, %w: tensor<3x3x16x16xf32>) -> tensor<1x8x8x16xf32> {
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x8x8x16xf32>, tensor<3x3x16x16xf32>) -> tensor<1x8x8x16xf32>
  %1 = stablehlo.add %0, %x : tensor<1x8x8x16xf32>
  return %1 : tensor<1x8x8x16xf32>
}

// -----

// Rejected: another convolution reads the image as it is.
// CHECK-LABEL: func.func @product
// CHECK-NOT: tensor.extract_slice
func.func @product(%a: tensor<1x8x8x16xf32>, %w: tensor<3x3x16x16xf32>, %v: tensor<1x1x16x16xf32>) -> tensor<1x8x8x16xf32> {
  %x = stablehlo.exponential %a : tensor<1x8x8x16xf32>
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x8x8x16xf32>, tensor<3x3x16x16xf32>) -> tensor<1x8x8x16xf32>
  %1 = stablehlo.convolution(%x, %v) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x8x8x16xf32>, tensor<1x1x16x16xf32>) -> tensor<1x8x8x16xf32>
  %2 = stablehlo.add %0, %1 : tensor<1x8x8x16xf32>
  return %2 : tensor<1x8x8x16xf32>
}

// -----

// Rejected: what does not need the convolution belongs to the kernel that makes the image.
// CHECK-LABEL: func.func @before
// CHECK-NOT: tensor.extract_slice
func.func @before(%a: tensor<1x8x8x16xf32>, %w: tensor<3x3x16x16xf32>) -> (tensor<1x8x8x16xf32>, tensor<1x8x8x16xf32>) {
  %x = stablehlo.exponential %a : tensor<1x8x8x16xf32>
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x8x8x16xf32>, tensor<3x3x16x16xf32>) -> tensor<1x8x8x16xf32>
  %1 = stablehlo.negate %x : tensor<1x8x8x16xf32>
  return %0, %1 : tensor<1x8x8x16xf32>, tensor<1x8x8x16xf32>
}
