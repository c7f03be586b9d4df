// RUN: stepwell-opt %s --pass-pipeline='builtin.module(func.func(fold-empty-tensors))' | filecheck %s

// CHECK-LABEL: func.func @no_terms
// CHECK-NEXT: %[[ZERO:.*]] = stablehlo.constant dense<0.000000e+00> : tensor<4x3xf32>
// CHECK-NEXT: return %[[ZERO]]
func.func @no_terms(%a: tensor<4x0xf32>, %b: tensor<0x3xf32>) -> tensor<4x3xf32> {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<4x0xf32>, tensor<0x3xf32>) -> tensor<4x3xf32>
  return %0 : tensor<4x3xf32>
}

// CHECK-LABEL: func.func @no_rows
// CHECK: stablehlo.broadcast_in_dim %{{.*}}, dims = []
// CHECK-NOT: stablehlo.reduce
func.func @no_rows(%a: tensor<0x4xf32>, %init: tensor<f32>) -> tensor<4xf32> {
  %0 = stablehlo.reduce(%a init: %init) applies stablehlo.add across dimensions = [0] : (tensor<0x4xf32>, tensor<f32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// Rejected: there is something to add.
// CHECK-LABEL: func.func @some_rows
// CHECK: stablehlo.reduce
func.func @some_rows(%a: tensor<1x4xf32>, %init: tensor<f32>) -> tensor<4xf32> {
  %0 = stablehlo.reduce(%a init: %init) applies stablehlo.add across dimensions = [0] : (tensor<1x4xf32>, tensor<f32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
