// RUN: stepwell-opt %s --target=cuda:sm_90a --pass-pipeline='block-linear-algebra' | filecheck %s
// RUN: stepwell-opt %s --target=x86_64-v3 --pass-pipeline='block-linear-algebra' | filecheck %s --check-prefix=CPU

// Three blocks of 32 rows, of which the last one has rows of the identity.
// CHECK-LABEL: func.func @factor
// CHECK: stablehlo.pad {{.*}} -> tensor<2x96x96xf32>
// CHECK: stablehlo.while
// CHECK: stablehlo.dynamic_slice {{.*}} sizes = [2, 32, 96]
// CHECK: stablehlo.dot_general {{.*}} (tensor<2x96x96xf32>, tensor<2x96x32xf32>) -> tensor<2x96x32xf32>
// CHECK: stablehlo.cholesky {{.*}} : tensor<2x32x32xf32>
// CHECK: "stablehlo.triangular_solve"{{.*}} (tensor<2x32x32xf32>, tensor<2x32x96xf32>)
// CHECK: stablehlo.dynamic_update_slice
// CPU-LABEL: func.func @factor
// CPU: stablehlo.cholesky %arg0
func.func @factor(%a: tensor<2x70x70xf32>) -> tensor<2x70x70xf32> {
  %r = stablehlo.cholesky %a, lower = true : tensor<2x70x70xf32>
  return %r : tensor<2x70x70xf32>
}

// An upper triangle: from the last block to the first; the other triangle counts as zeros.
// CHECK-LABEL: func.func @solve
// CHECK: stablehlo.compare LE
// CHECK: stablehlo.select
// CHECK: stablehlo.while
// CHECK: stablehlo.subtract {{.*}} : tensor<i32>
// CHECK: stablehlo.dot_general {{.*}} (tensor<32x64xf32>, tensor<64x40xf32>) -> tensor<32x40xf32>
// CHECK: "stablehlo.triangular_solve"{{.*}} lower = false
// CHECK-SAME: (tensor<32x32xf32>, tensor<32x40xf32>)
func.func @solve(%a: tensor<64x64xf32>, %b: tensor<64x40xf32>) -> tensor<64x40xf32> {
  %r = "stablehlo.triangular_solve"(%a, %b) {
    left_side = true, lower = false, unit_diagonal = false,
    transpose_a = #stablehlo<transpose NO_TRANSPOSE>
  } : (tensor<64x64xf32>, tensor<64x40xf32>) -> tensor<64x40xf32>
  return %r : tensor<64x40xf32>
}

// What is one block stays, and complex matrices do.
// CHECK-LABEL: func.func @rejected
// CHECK-NOT: stablehlo.while
// CHECK: stablehlo.cholesky %arg0
// CHECK: stablehlo.cholesky %arg1
func.func @rejected(%a: tensor<32x32xf32>, %b: tensor<70x70xcomplex<f32>>)
    -> (tensor<32x32xf32>, tensor<70x70xcomplex<f32>>) {
  %r = stablehlo.cholesky %a, lower = true : tensor<32x32xf32>
  %s = stablehlo.cholesky %b, lower = true : tensor<70x70xcomplex<f32>>
  return %r, %s : tensor<32x32xf32>, tensor<70x70xcomplex<f32>>
}
