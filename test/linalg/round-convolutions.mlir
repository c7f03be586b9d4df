// RUN: stepwell-opt %s --split-input-file --target=x86_64-v4+vnni+bf16 --precision=bf16 \
// RUN:   --pass-pipeline='builtin.module(legalize-to-linalg,hoist-constants,round-convolutions)' | filecheck %s

// The filters are a weight of bf16, and the padding is that of the rounded image.
// CHECK-LABEL: func.func @window
// CHECK-SAME: %[[W:arg[0-9]+]]: tensor<2x2x3xbf16> {stepwell.weight = "{{[a-z0-9_]+}}_bf16"}
// CHECK: arith.truncf %{{.*}} : f32 to bf16
// CHECK: %[[ZERO:.*]] = arith.constant 0.000000e+00 : bf16
// CHECK: %[[P:.*]] = tensor.pad
// CHECK: tensor.yield %[[ZERO]] : bf16
// CHECK: linalg.generic {{.*}} ins(%[[P]], %[[W]] : tensor<1x66x2xbf16>, tensor<2x2x3xbf16>) outs(%{{.*}} : tensor<1x65x3xf32>)
// CHECK: arith.extf
func.func @window(%x: tensor<1x64x2xf32>) -> tensor<1x65x3xf32> {
  %w = stablehlo.constant dense<[[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], [[7.0, 8.0, 9.0], [1.5, 2.5, 3.5]]]> : tensor<2x2x3xf32>
  %z = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {pad = [[1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x64x2xf32>, tensor<2x2x3xf32>) -> tensor<1x65x3xf32>
  return %z : tensor<1x65x3xf32>
}

// -----

// Rejected: three channels make no words of two terms; filters that are no weight.
// CHECK-LABEL: func.func @others
// CHECK-NOT: bf16
func.func @others(%x: tensor<1x64x3xf32>, %y: tensor<1x64x2xf32>, %v: tensor<2x2x1xf32>) -> (tensor<1x63x1xf32>, tensor<1x63x1xf32>) {
  %w = stablehlo.constant dense<[[[1.0], [2.0], [3.0]], [[4.0], [5.0], [6.0]]]> : tensor<2x3x1xf32>
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x64x3xf32>, tensor<2x3x1xf32>) -> tensor<1x63x1xf32>
  %1 = stablehlo.convolution(%y, %v) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x64x2xf32>, tensor<2x2x1xf32>) -> tensor<1x63x1xf32>
  return %0, %1 : tensor<1x63x1xf32>, tensor<1x63x1xf32>
}
