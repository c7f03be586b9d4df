// RUN: stepwell-opt %s --pass-pipeline='builtin.module(legalize-chlo)' | filecheck %s

// CHECK-LABEL: func.func @expanded
// CHECK-NOT: chlo.
// CHECK: stablehlo.tan
// CHECK: return
func.func @expanded(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = chlo.tan %x : tensor<4xf32> -> tensor<4xf32>
  return %y : tensor<4xf32>
}

// erf and erfc have kernels of their own and stay, beside what is expanded.
// CHECK-LABEL: func.func @kept
// CHECK: %[[E:.*]] = chlo.erf %arg0 : tensor<4xf32> -> tensor<4xf32>
// CHECK: chlo.erfc %[[E]] : tensor<4xf32> -> tensor<4xf32>
// CHECK-NOT: chlo.cosh
// CHECK: return
func.func @kept(%x: tensor<4xf32>) -> tensor<4xf32> {
  %e = chlo.erf %x : tensor<4xf32> -> tensor<4xf32>
  %c = chlo.erfc %e : tensor<4xf32> -> tensor<4xf32>
  %y = chlo.cosh %c : tensor<4xf32> -> tensor<4xf32>
  return %y : tensor<4xf32>
}

// Functions of narrower floats that have a formula are computed in f64.
// CHECK-LABEL: func.func @formula
// CHECK: %[[W:.*]] = stablehlo.convert %arg0 : (tensor<4xf32>) -> tensor<4xf64>
// CHECK-NOT: chlo.
// CHECK: %[[N:.*]] = stablehlo.convert {{.*}} : (tensor<4xf64>) -> tensor<4xf32>
// CHECK-NEXT: return %[[N]]
func.func @formula(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = chlo.lgamma %x : tensor<4xf32> -> tensor<4xf32>
  return %y : tensor<4xf32>
}

// Hyperbolic functions of complex numbers are left to expand-complex; others are not.
// CHECK-LABEL: func.func @complex
// CHECK: %[[C:.*]] = chlo.cosh %arg0 : tensor<4xcomplex<f32>> -> tensor<4xcomplex<f32>>
// CHECK: chlo.sinh %[[C]]
// CHECK-NOT: chlo.
// CHECK: return
func.func @complex(%x: tensor<4xcomplex<f32>>) -> tensor<4xcomplex<f32>> {
  %c = chlo.cosh %x : tensor<4xcomplex<f32>> -> tensor<4xcomplex<f32>>
  %s = chlo.sinh %c : tensor<4xcomplex<f32>> -> tensor<4xcomplex<f32>>
  %y = chlo.asin %s : tensor<4xcomplex<f32>> -> tensor<4xcomplex<f32>>
  return %y : tensor<4xcomplex<f32>>
}

// Halley's step follows the inverse of the error function in f64 alone.
// CHECK-LABEL: func.func @inverse_of_double
// CHECK: chlo.erfc
// CHECK: stablehlo.exponential
// CHECK: return
func.func @inverse_of_double(%x: tensor<4xf64>) -> tensor<4xf64> {
  %y = chlo.erf_inv %x : tensor<4xf64> -> tensor<4xf64>
  return %y : tensor<4xf64>
}

// CHECK-LABEL: func.func @inverse_of_single
// CHECK-NOT: chlo.
// CHECK-NOT: stablehlo.exponential
// CHECK: return
func.func @inverse_of_single(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = chlo.erf_inv %x : tensor<4xf32> -> tensor<4xf32>
  return %y : tensor<4xf32>
}

// Operands of a select get the shape of the result.
// CHECK-LABEL: func.func @select
// CHECK: %[[P:.*]] = stablehlo.broadcast_in_dim %arg0, dims = [] : (tensor<i1>) -> tensor<3x4xi1>
// CHECK: %[[X:.*]] = stablehlo.broadcast_in_dim %arg1, dims = [1] : (tensor<4xf32>) -> tensor<3x4xf32>
// CHECK: %[[Y:.*]] = stablehlo.broadcast_in_dim %arg2, dims = [0, 1]
// CHECK: stablehlo.select %[[P]], %[[X]], %[[Y]] : tensor<3x4xi1>, tensor<3x4xf32>
func.func @select(%p: tensor<i1>, %x: tensor<4xf32>, %y: tensor<3x1xf32>) -> tensor<3x4xf32> {
  %z = "chlo.broadcast_select"(%p, %x, %y)
    : (tensor<i1>, tensor<4xf32>, tensor<3x1xf32>) -> tensor<3x4xf32>
  return %z : tensor<3x4xf32>
}

// Formulas of f32 stay in it, and halves go through them.
// CHECK-LABEL: func.func @hyperbolic
// CHECK-NOT: f64
// CHECK: stablehlo.convert %arg1 : (tensor<4xf16>) -> tensor<4xf32>
// CHECK-NOT: f64
// CHECK: return
func.func @hyperbolic(%x: tensor<4xf32>, %h: tensor<4xf16>) -> (tensor<4xf32>, tensor<4xf16>) {
  %y = chlo.cosh %x : tensor<4xf32> -> tensor<4xf32>
  %g = chlo.sinh %h : tensor<4xf16> -> tensor<4xf16>
  return %y, %g : tensor<4xf32>, tensor<4xf16>
}
