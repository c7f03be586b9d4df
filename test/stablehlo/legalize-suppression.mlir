// RUN: stepwell-opt %s --pass-pipeline='builtin.module(legalize-suppression)' | filecheck %s
// RUN: stepwell-opt %s --target=cuda:sm_90a --pass-pipeline='builtin.module(legalize-suppression)' | filecheck %s --check-prefix=GPU

// CHECK-LABEL: func.func @main
// CHECK: stablehlo.custom_call @stepwell.non_max_suppression(%arg0, %arg1, %arg2, %arg2)
// GPU-LABEL: func.func @main
// GPU: stablehlo.constant dense<7>
func.func @main(%corners: tensor<1x4x9xf32>, %scores: tensor<1x2x9xf32>, %limit: tensor<1xf32>) -> tensor<2x3xi64> {
  %r = stablehlo.composite "stepwell.non_max_suppression" %corners, %scores, %limit, %limit {decomposition = @single} : (tensor<1x4x9xf32>, tensor<1x2x9xf32>, tensor<1xf32>, tensor<1xf32>) -> tensor<2x3xi64>
  return %r : tensor<2x3xi64>
}

// Numbers of f64 are none of the kernel's: what the composite means stands in its place.
// CHECK-LABEL: func.func @rejected
// CHECK-NOT: custom_call
// CHECK: stablehlo.constant dense<8>
// CHECK-NOT: func.func
// GPU-LABEL: func.func @rejected
// GPU: stablehlo.constant dense<8>
// GPU-NOT: func.func
func.func @rejected(%corners: tensor<1x4x9xf64>, %scores: tensor<1x2x9xf64>, %limit: tensor<1xf64>) -> tensor<2x3xi64> {
  %r = stablehlo.composite "stepwell.non_max_suppression" %corners, %scores, %limit, %limit {decomposition = @double} : (tensor<1x4x9xf64>, tensor<1x2x9xf64>, tensor<1xf64>, tensor<1xf64>) -> tensor<2x3xi64>
  return %r : tensor<2x3xi64>
}

func.func private @single(%a: tensor<1x4x9xf32>, %b: tensor<1x2x9xf32>, %c: tensor<1xf32>, %d: tensor<1xf32>) -> tensor<2x3xi64> {
  %r = stablehlo.constant dense<7> : tensor<2x3xi64>
  return %r : tensor<2x3xi64>
}
func.func private @double(%a: tensor<1x4x9xf64>, %b: tensor<1x2x9xf64>, %c: tensor<1xf64>, %d: tensor<1xf64>) -> tensor<2x3xi64> {
  %r = stablehlo.constant dense<8> : tensor<2x3xi64>
  return %r : tensor<2x3xi64>
}
