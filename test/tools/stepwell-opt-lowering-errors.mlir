// An error of an own pass meets its expectation by what it says; it need not know a line.
// RUN: stepwell-opt %s --verify-diagnostics --pass-pipeline=legalize-to-linalg
// RUN: not stepwell-opt %s --pass-pipeline=legalize-to-linalg 2>&1 | filecheck %s
// RUN: not stepwell-opt %s --verify-diagnostics 2>&1 | filecheck %s --check-prefix=MISSING

// CHECK: stepwell-opt-lowering-errors.mlir: error: stablehlo.custom_call @unknown has no lowering to linalg
// MISSING: error: expected error "stablehlo.custom_call @unknown has no lowering" was not produced

func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error@+1 {{stablehlo.custom_call @unknown has no lowering}}
  %0 = stablehlo.custom_call @unknown(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
