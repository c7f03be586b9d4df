// RUN: stepwell-opt %s --pass-pipeline='builtin.module(hoist-constants)' | filecheck %s

// Equal constants become one argument, which names its weight; the function's own arguments stay first.
// CHECK-LABEL: func.func @arrays
// CHECK-SAME: (%arg0: tensor<2xf32>, %arg1: tensor<2xf32> {stepwell.weight = "[[W:[^"]*]]"}) -> (tensor<2xf32>, tensor<2xf32>)
// CHECK-NOT: arith.constant
// CHECK: arith.addf %arg0, %arg1
func.func @arrays(%x: tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>) {
  %w = arith.constant dense<[1.0, 2.0]> : tensor<2xf32>
  %0 = arith.addf %x, %w : tensor<2xf32>
  return %0, %w : tensor<2xf32>, tensor<2xf32>
}

// Rejected: splats and scalars cost nothing where they are.
// CHECK-LABEL: func.func @splats
// CHECK-SAME: (%arg0: tensor<2xf32>) -> tensor<2xf32>
// CHECK: arith.constant dense<1.000000e+00>
func.func @splats(%x: tensor<2xf32>) -> tensor<2xf32> {
  %w = arith.constant dense<1.0> : tensor<2xf32>
  %0 = arith.addf %x, %w : tensor<2xf32>
  return %0 : tensor<2xf32>
}
