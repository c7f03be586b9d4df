// RUN: stepwell-opt %s --pass-pipeline='legalize-linear-algebra' | filecheck %s

// CHECK-LABEL: func.func @factor
// CHECK: arith.mulf
// CHECK: arith.subf
// CHECK: math.sqrt
// CHECK-NOT: stablehlo.cholesky
func.func @factor(%a: tensor<2x6x6xf32>) -> tensor<2x6x6xf32> {
  %r = stablehlo.cholesky %a, lower = true : tensor<2x6x6xf32>
  return %r : tensor<2x6x6xf32>
}

// Complex matrices are not taken.
// CHECK-LABEL: func.func @rejected
// CHECK: stablehlo.cholesky
// CHECK-NOT: scf
func.func @rejected(%a: tensor<6x6xcomplex<f32>>) -> tensor<6x6xcomplex<f32>> {
  %r = stablehlo.cholesky %a, lower = true : tensor<6x6xcomplex<f32>>
  return %r : tensor<6x6xcomplex<f32>>
}
