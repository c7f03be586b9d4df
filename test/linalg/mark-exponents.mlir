// RUN: stepwell-opt %s --pass-pipeline='builtin.module(legalize-to-linalg,mark-exponents)' | filecheck %s

// CHECK-LABEL: func.func @softmax
// CHECK: kernel.skips_nan
// CHECK: math.exp %{{.*}} {kernel.nonpositive} : f32
func.func @softmax(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %m = stablehlo.reduce(%x init: %low) applies stablehlo.maximum across dimensions = [1] : (tensor<4x8xf32>, tensor<f32>) -> tensor<4xf32>
  %b = stablehlo.broadcast_in_dim %m, dims = [0] : (tensor<4xf32>) -> tensor<4x8xf32>
  %d = stablehlo.subtract %x, %b : tensor<4x8xf32>
  %e = stablehlo.exponential %d : tensor<4x8xf32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %s = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<4x8xf32>, tensor<f32>) -> tensor<4xf32>
  %t = stablehlo.broadcast_in_dim %s, dims = [0] : (tensor<4xf32>) -> tensor<4x8xf32>
  %w = stablehlo.divide %e, %t : tensor<4x8xf32>
  return %w : tensor<4x8xf32>
}

// The exponentials leave without their sum: a maximum that is no number has to be seen.
// CHECK-LABEL: func.func @without_sum
// CHECK-NOT: kernel.skips_nan
// CHECK: math.exp %{{.*}} {kernel.nonpositive} : f32
func.func @without_sum(%x: tensor<4x8xf32>) -> (tensor<4xf32>, tensor<4x8xf32>) {
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %m = stablehlo.reduce(%x init: %low) applies stablehlo.maximum across dimensions = [1] : (tensor<4x8xf32>, tensor<f32>) -> tensor<4xf32>
  %b = stablehlo.broadcast_in_dim %m, dims = [0] : (tensor<4xf32>) -> tensor<4x8xf32>
  %d = stablehlo.subtract %x, %b : tensor<4x8xf32>
  %e = stablehlo.exponential %d : tensor<4x8xf32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %s = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<4x8xf32>, tensor<f32>) -> tensor<4xf32>
  return %s, %e : tensor<4xf32>, tensor<4x8xf32>
}

// The largest of each column, of what was scaled before.
// CHECK-LABEL: func.func @columns
// CHECK-NOT: kernel.skips_nan
// CHECK: math.exp %{{.*}} {kernel.nonpositive} : f32
func.func @columns(%y: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %two = stablehlo.constant dense<2.0> : tensor<4x8xf32>
  %x = stablehlo.multiply %y, %two : tensor<4x8xf32>
  %m = stablehlo.reduce(%x init: %low) applies stablehlo.maximum across dimensions = [0] : (tensor<4x8xf32>, tensor<f32>) -> tensor<8xf32>
  %b = stablehlo.broadcast_in_dim %m, dims = [1] : (tensor<8xf32>) -> tensor<4x8xf32>
  %d = stablehlo.subtract %x, %b : tensor<4x8xf32>
  %e = stablehlo.exponential %d : tensor<4x8xf32>
  return %e : tensor<4x8xf32>
}

// Rejected: the largest element of another row, another value, and the maximum less the element.
// CHECK-LABEL: func.func @others
// CHECK-NOT: kernel.nonpositive
func.func @others(%x: tensor<8x8xf32>, %y: tensor<8x8xf32>) -> (tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>) {
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %m = stablehlo.reduce(%x init: %low) applies stablehlo.maximum across dimensions = [1] : (tensor<8x8xf32>, tensor<f32>) -> tensor<8xf32>
  %column = stablehlo.broadcast_in_dim %m, dims = [1] : (tensor<8xf32>) -> tensor<8x8xf32>
  %row = stablehlo.broadcast_in_dim %m, dims = [0] : (tensor<8xf32>) -> tensor<8x8xf32>
  %d0 = stablehlo.subtract %x, %column : tensor<8x8xf32>
  %d1 = stablehlo.subtract %y, %row : tensor<8x8xf32>
  %d2 = stablehlo.subtract %row, %x : tensor<8x8xf32>
  %e0 = stablehlo.exponential %d0 : tensor<8x8xf32>
  %e1 = stablehlo.exponential %d1 : tensor<8x8xf32>
  %e2 = stablehlo.exponential %d2 : tensor<8x8xf32>
  return %e0, %e1, %e2 : tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>
}
