// RUN: stepwell-opt %s --pass-pipeline='divide-loops{threads=2}' --target=x86_64-v4 | filecheck %s
// RUN: stepwell-opt %s --pass-pipeline='divide-loops{threads=1}' --target=x86_64-v4 | filecheck %s --check-prefix=ALONE

// Rejected: one thread has nobody to wait for.
// ALONE-NOT: stepwell.parts

// Rows of what a step reads and writes are cut where a step does so; the state is cut before.
// CHECK-LABEL: func.func @cell
// CHECK: %[[YS:.*]] = stablehlo.constant dense<0.000000e+00> : tensor<32x8x64xf32>
// CHECK: stablehlo.while(%[[ROW:[a-zA-Z0-9_]*]] = %{{.*}}, %{{.*}} = %{{.*}}, %[[OUT:[a-zA-Z0-9_]*]] = %[[YS]]) {{.*}} {stepwell.parts = array<i64: 2, 1, 4>}
// CHECK: stablehlo.dynamic_slice %arg1, %[[ROW]], {{.*}} -> tensor<4x64xf32>
// CHECK: stablehlo.while(%[[T:[a-zA-Z0-9_]*]] = {{.*}} = %[[OUT]])
// CHECK: %[[X:.*]] = stablehlo.dynamic_slice %arg0, %[[T]], %[[ROW]], {{.*}} sizes = [1, 4, 64]
// CHECK: stablehlo.dot_general {{.*}} : (tensor<4x64xf32>, tensor<64x64xf32>) -> tensor<4x64xf32>
// CHECK: stablehlo.dynamic_update_slice {{.*}}, %[[T]], %[[ROW]], {{.*}} : (tensor<32x8x64xf32>, tensor<1x4x64xf32>
func.func @cell(%xs: tensor<32x8x64xf32>, %h0: tensor<8x64xf32>, %w: tensor<64x64xf32>) -> (tensor<8x64xf32>, tensor<32x8x64xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %end = stablehlo.constant dense<32> : tensor<i32>
  %ys0 = stablehlo.constant dense<0.000000e+00> : tensor<32x8x64xf32>
  %0:3 = stablehlo.while(%t = %zero, %h = %h0, %ys = %ys0) : tensor<i32>, tensor<8x64xf32>, tensor<32x8x64xf32>
  cond {
    %1 = stablehlo.compare LT, %t, %end : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  } do {
    %1 = stablehlo.dynamic_slice %xs, %t, %zero, %zero, sizes = [1, 8, 64] : (tensor<32x8x64xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<1x8x64xf32>
    %2 = stablehlo.reshape %1 : (tensor<1x8x64xf32>) -> tensor<8x64xf32>
    %3 = stablehlo.dot_general %h, %w, contracting_dims = [1] x [0] : (tensor<8x64xf32>, tensor<64x64xf32>) -> tensor<8x64xf32>
    %4 = stablehlo.add %2, %3 : tensor<8x64xf32>
    %5 = stablehlo.tanh %4 : tensor<8x64xf32>
    %6 = stablehlo.reshape %5 : (tensor<8x64xf32>) -> tensor<1x8x64xf32>
    %7 = stablehlo.dynamic_update_slice %ys, %6, %t, %zero, %zero : (tensor<32x8x64xf32>, tensor<1x8x64xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<32x8x64xf32>
    %8 = stablehlo.add %t, %one : tensor<i32>
    stablehlo.return %8, %5, %7 : tensor<i32>, tensor<8x64xf32>, tensor<32x8x64xf32>
  }
  return %0#1, %0#2 : tensor<8x64xf32>, tensor<32x8x64xf32>
}

// Rejected: a row is made of all rows.
// CHECK-LABEL: func.func @mixing
// CHECK-NOT: stepwell.parts
func.func @mixing(%h0: tensor<8x512xf32>, %w: tensor<8x8xf32>) -> tensor<8x512xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %end = stablehlo.constant dense<32> : tensor<i32>
  %init = stablehlo.constant dense<0.000000e+00> : tensor<f32>
  %0:2 = stablehlo.while(%t = %zero, %h = %h0) : tensor<i32>, tensor<8x512xf32>
  cond {
    %1 = stablehlo.compare LT, %t, %end : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  } do {
    %1 = stablehlo.dot_general %w, %h, contracting_dims = [1] x [0] : (tensor<8x8xf32>, tensor<8x512xf32>) -> tensor<8x512xf32>
    %2 = stablehlo.reduce(%1 init: %init) applies stablehlo.add across dimensions = [1] : (tensor<8x512xf32>, tensor<f32>) -> tensor<8xf32>
    %3 = stablehlo.broadcast_in_dim %2, dims = [0] : (tensor<8xf32>) -> tensor<8x512xf32>
    %4 = stablehlo.subtract %1, %3 : tensor<8x512xf32>
    %5 = stablehlo.add %t, %one : tensor<i32>
    stablehlo.return %5, %4 : tensor<i32>, tensor<8x512xf32>
  }
  return %0#1 : tensor<8x512xf32>
}

// Rejected: weights that no L2 holds would be read by both, at every step.
// CHECK-LABEL: func.func @large
// CHECK-NOT: stepwell.parts
func.func @large(%h0: tensor<8x2048xf32>, %w: tensor<2048x2048xf32>) -> tensor<8x2048xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %end = stablehlo.constant dense<32> : tensor<i32>
  %0:2 = stablehlo.while(%t = %zero, %h = %h0) : tensor<i32>, tensor<8x2048xf32>
  cond {
    %1 = stablehlo.compare LT, %t, %end : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %1 : tensor<i1>
  } do {
    %1 = stablehlo.dot_general %h, %w, contracting_dims = [1] x [0] : (tensor<8x2048xf32>, tensor<2048x2048xf32>) -> tensor<8x2048xf32>
    %2 = stablehlo.tanh %1 : tensor<8x2048xf32>
    %3 = stablehlo.add %t, %one : tensor<i32>
    stablehlo.return %3, %2 : tensor<i32>, tensor<8x2048xf32>
  }
  return %0#1 : tensor<8x2048xf32>
}
