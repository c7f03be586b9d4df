// RUN: stepwell-opt %s --split-input-file --pass-pipeline='builtin.module(call-suppression)' --verify-diagnostics | filecheck %s

// Equal calls share a kernel.
// CHECK-LABEL: func.func @main
// CHECK: tensor.empty() : tensor<2x3xi64>
// CHECK: call @kernel_suppression_0(%arg0, %arg1, %arg2, %arg2, %
// CHECK: call @kernel_suppression_0(%arg0, %arg1, %arg2, %arg2, %
// CHECK: func.func private @kernel_suppression_0(tensor<1x4x9xf32>, tensor<1x2x9xf32>, tensor<1xf32>, tensor<1xf32>, tensor<2x3xi64>) -> tensor<2x3xi64> attributes {kernel.kind = "suppression", kernel.suppression}
func.func @main(%corners: tensor<1x4x9xf32>, %scores: tensor<1x2x9xf32>, %limit: tensor<1xf32>) -> (tensor<2x3xi64>, tensor<2x3xi64>) {
  %r = stablehlo.custom_call @stepwell.non_max_suppression(%corners, %scores, %limit, %limit) : (tensor<1x4x9xf32>, tensor<1x2x9xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<2x3xi64>
  %s = stablehlo.custom_call @stepwell.non_max_suppression(%corners, %scores, %limit, %limit) : (tensor<1x4x9xf32>, tensor<1x2x9xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<2x3xi64>
  return %r, %s : tensor<2x3xi64>, tensor<2x3xi64>
}

// -----

// CHECK-LABEL: func.func @rejected
// CHECK-NEXT: stablehlo.custom_call @something_else
func.func @rejected(%x: tensor<9xf32>) -> tensor<9xf32> {
  %r = stablehlo.custom_call @something_else(%x) : (tensor<9xf32>) -> tensor<9xf32>
  return %r : tensor<9xf32>
}
