// RUN: stepwell-opt %s --pass-pipeline='builtin.module(choose-layout{layout=nhwc})' | filecheck %s
// RUN: not stepwell-opt %s --pass-pipeline='builtin.module(choose-layout{layout=upside-down})' 2>&1 \
// RUN:   | filecheck %s --check-prefix=UNKNOWN

// UNKNOWN: error: choose-layout: there is no layout upside-down; there is: nhwc

// CHECK-LABEL: func.func @onnx
// CHECK-DAG: %[[X:.*]] = stablehlo.transpose %arg0, dims = [0, 2, 3, 1]
// CHECK-DAG: %[[W:.*]] = stablehlo.transpose %arg1, dims = [2, 3, 1, 0]
// CHECK: %[[Y:.*]] = stablehlo.convolution(%[[X]], %[[W]]) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]
// CHECK: stablehlo.transpose %[[Y]], dims = [0, 3, 1, 2]
func.func @onnx(%x: tensor<1x4x8x8xf32>, %w: tensor<6x4x3x3xf32>) -> tensor<1x6x6x6xf32> {
  %y = stablehlo.convolution(%x, %w) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1],
       window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
       : (tensor<1x4x8x8xf32>, tensor<6x4x3x3xf32>) -> tensor<1x6x6x6xf32>
  return %y : tensor<1x6x6x6xf32>
}

// CHECK-LABEL: func.func @pooling
// CHECK: %[[X:.*]] = stablehlo.transpose %arg0, dims = [0, 2, 3, 1]
// CHECK: "stablehlo.reduce_window"(%[[X]]
// CHECK-SAME: padding = dense<{{\[\[}}0, 0], [0, 1], [0, 1], [0, 0]]>
// CHECK-SAME: window_dimensions = array<i64: 1, 3, 3, 1>
// CHECK-SAME: window_strides = array<i64: 1, 2, 2, 1>
func.func @pooling(%x: tensor<1x4x8x8xf32>) -> tensor<1x4x4x4xf32> {
  %lowest = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %y = "stablehlo.reduce_window"(%x, %lowest) ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %m = stablehlo.maximum %a, %b : tensor<f32>
      stablehlo.return %m : tensor<f32>
  }) {window_dimensions = array<i64: 1, 1, 3, 3>, window_strides = array<i64: 1, 1, 2, 2>,
      padding = dense<[[0, 0], [0, 0], [0, 1], [0, 1]]> : tensor<4x2xi64>}
      : (tensor<1x4x8x8xf32>, tensor<f32>) -> tensor<1x4x4x4xf32>
  return %y : tensor<1x4x4x4xf32>
}

// Left alone: a convolution in NHWC, and a window over channels.
// CHECK-LABEL: func.func @rejected
// CHECK-NOT: stablehlo.transpose
// CHECK: return
func.func @rejected(%x: tensor<1x8x8x4xf32>, %w: tensor<3x3x4x6xf32>)
    -> (tensor<1x6x6x6xf32>, tensor<1x7x8x4xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %y = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
       window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
       : (tensor<1x8x8x4xf32>, tensor<3x3x4x6xf32>) -> tensor<1x6x6x6xf32>
  %z = "stablehlo.reduce_window"(%x, %zero) ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %m = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %m : tensor<f32>
  }) {window_dimensions = array<i64: 1, 2, 1, 1>}
      : (tensor<1x8x8x4xf32>, tensor<f32>) -> tensor<1x7x8x4xf32>
  return %y, %z : tensor<1x6x6x6xf32>, tensor<1x7x8x4xf32>
}

// CHECK-LABEL: func.func @terms_last
// CHECK: %[[X:.*]] = stablehlo.transpose %arg0, dims = [0, 2, 1]
// CHECK: stablehlo.dot_general %[[X]], %arg1, batching_dims = [0] x [0], contracting_dims = [2] x [1]
func.func @terms_last(%x: tensor<2x9x5xf32>, %y: tensor<2x9x32xf32>) -> tensor<2x5x32xf32> {
  %z = stablehlo.dot_general %x, %y, batching_dims = [0] x [0], contracting_dims = [1] x [1]
       : (tensor<2x9x5xf32>, tensor<2x9x32xf32>) -> tensor<2x5x32xf32>
  return %z : tensor<2x5x32xf32>
}

// Too few columns, and terms that lie side by side already.
// CHECK-LABEL: func.func @rejected_products
// CHECK-NOT: stablehlo.transpose
// CHECK: return
func.func @rejected_products(%x: tensor<9x5xf32>, %y: tensor<9x31xf32>, %z: tensor<5x64xf32>)
    -> (tensor<5x31xf32>, tensor<9x64xf32>) {
  %a = stablehlo.dot_general %x, %y, contracting_dims = [0] x [0]
       : (tensor<9x5xf32>, tensor<9x31xf32>) -> tensor<5x31xf32>
  %b = stablehlo.dot_general %x, %z, contracting_dims = [1] x [0]
       : (tensor<9x5xf32>, tensor<5x64xf32>) -> tensor<9x64xf32>
  return %a, %b : tensor<5x31xf32>, tensor<9x64xf32>
}

// Running sums are no pooling.
// CHECK-LABEL: func.func @rejected_sums
// CHECK-NOT: stablehlo.transpose
// CHECK: return
func.func @rejected_sums(%x: tensor<2x3x50xf32>) -> tensor<2x3x50xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %y = "stablehlo.reduce_window"(%x, %zero) ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %m = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %m : tensor<f32>
  }) {window_dimensions = array<i64: 1, 1, 50>, padding = dense<[[0, 0], [0, 0], [49, 0]]> : tensor<3x2xi64>}
      : (tensor<2x3x50xf32>, tensor<f32>) -> tensor<2x3x50xf32>
  return %y : tensor<2x3x50xf32>
}
