// RUN: stepwell-opt %s --target=x86_64-v4+vnni+bf16 --precision=bf16 \
// RUN:   --pass-pipeline='builtin.module(round-products)' | filecheck %s
// RUN: stepwell-opt %s --target=cuda:sm_80 --precision=bf16 \
// RUN:   --pass-pipeline='builtin.module(round-products)' | filecheck %s --check-prefix=GPU
// RUN: stepwell-opt %s --target=x86_64-v4+vnni+bf16 \
// RUN:   --pass-pipeline='builtin.module(round-products)' | filecheck %s --check-prefix=NOT
// RUN: stepwell-opt %s --target=x86_64-v3 --precision=bf16 \
// RUN:   --pass-pipeline='builtin.module(round-products)' | filecheck %s --check-prefix=NOT

// NOT-NOT: bf16

// CHECK-LABEL: func.func @linear
// CHECK-DAG: %[[A:.*]] = stablehlo.convert %arg0 : (tensor<8x4xf32>) -> tensor<8x4xbf16>
// CHECK-DAG: %[[B:.*]] = stablehlo.convert %cst : (tensor<4x2xf32>) -> tensor<4x2xbf16>
// CHECK: stablehlo.dot_general %[[A]], %[[B]], {{.*}} : (tensor<8x4xbf16>, tensor<4x2xbf16>) -> tensor<8x2xf32>
func.func @linear(%x: tensor<8x4xf32>) -> tensor<8x2xf32> {
  %w = stablehlo.constant dense<[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]]> : tensor<4x2xf32>
  %z = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<8x4xf32>, tensor<4x2xf32>) -> tensor<8x2xf32>
  return %z : tensor<8x2xf32>
}

// CHECK-LABEL: func.func @one_tap
// CHECK: stablehlo.convolution{{.*}} : (tensor<1x5x2xbf16>, tensor<1x2x3xbf16>) -> tensor<1x5x3xf32>
func.func @one_tap(%x: tensor<1x5x2xf32>) -> tensor<1x5x3xf32> {
  %w = stablehlo.constant dense<[[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]]> : tensor<1x2x3xf32>
  %z = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x5x2xf32>, tensor<1x2x3xf32>) -> tensor<1x5x3xf32>
  return %z : tensor<1x5x3xf32>
}

// Rejected on CPUs: two activations, sums of three terms, a window.
// CHECK-LABEL: func.func @others
// CHECK-NOT: bf16
// GPU-LABEL: func.func @others
// GPU: stablehlo.dot_general {{.*}} : (tensor<8x4xbf16>, tensor<4x2xbf16>) -> tensor<8x2xf32>
// GPU: stablehlo.dot_general {{.*}} : (tensor<8x3xbf16>, tensor<3x2xbf16>) -> tensor<8x2xf32>
// GPU: stablehlo.convolution{{.*}} : (tensor<1x5x2xbf16>, tensor<2x2x1xbf16>) -> tensor<1x4x1xf32>
func.func @others(%x: tensor<8x4xf32>, %y: tensor<4x2xf32>, %t: tensor<8x3xf32>, %i: tensor<1x5x2xf32>) -> (tensor<8x2xf32>, tensor<8x2xf32>, tensor<1x4x1xf32>) {
  %0 = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : (tensor<8x4xf32>, tensor<4x2xf32>) -> tensor<8x2xf32>
  %w = stablehlo.constant dense<[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]> : tensor<3x2xf32>
  %1 = stablehlo.dot_general %t, %w, contracting_dims = [1] x [0] : (tensor<8x3xf32>, tensor<3x2xf32>) -> tensor<8x2xf32>
  %v = stablehlo.constant dense<[[[1.0], [2.0]], [[3.0], [4.0]]]> : tensor<2x2x1xf32>
  %2 = stablehlo.convolution(%i, %v) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x5x2xf32>, tensor<2x2x1xf32>) -> tensor<1x4x1xf32>
  return %0, %1, %2 : tensor<8x2xf32>, tensor<8x2xf32>, tensor<1x4x1xf32>
}
