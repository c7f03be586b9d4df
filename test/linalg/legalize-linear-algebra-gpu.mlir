// RUN: stepwell-opt %s --target=cuda:sm_90a --pass-pipeline='legalize-linear-algebra' --split-input-file | filecheck %s

// A kernel for all matrices of a batch, whatever its dimensions; the upper factor is that of turned
// matrices, by the same kernel.
// CHECK-LABEL: func.func @factor
// CHECK: stablehlo.reshape {{.*}} -> tensor<6x5x5xf32>
// CHECK: call @kernel_triangular_0
// CHECK: stablehlo.transpose
// CHECK: call @kernel_triangular_0
// CHECK: stablehlo.transpose
// CHECK: func.func private @kernel_triangular_0(tensor<6x5x5xf32>) -> tensor<6x5x5xf32>
// CHECK-SAME: kernel.kind = "triangular"
// CHECK-SAME: solves = false
func.func @factor(%a: tensor<2x3x5x5xf32>) -> (tensor<2x3x5x5xf32>, tensor<2x3x5x5xf32>) {
  %r = stablehlo.cholesky %a, lower = true : tensor<2x3x5x5xf32>
  %s = stablehlo.cholesky %a, lower = false : tensor<2x3x5x5xf32>
  return %r, %s : tensor<2x3x5x5xf32>, tensor<2x3x5x5xf32>
}

// -----

// The solution from the right is that of turned operands: of an upper triangle.
// CHECK-LABEL: func.func @solve
// CHECK-COUNT-2: stablehlo.transpose
// CHECK: call @kernel_triangular_0
// CHECK: stablehlo.transpose
// CHECK: func.func private @kernel_triangular_0(tensor<1x8x8xf32>, tensor<1x8x40xf32>) -> tensor<1x8x40xf32>
// CHECK-SAME: {lower = false, solves = true, unit = true}
func.func @solve(%a: tensor<8x8xf32>, %b: tensor<40x8xf32>) -> tensor<40x8xf32> {
  %r = "stablehlo.triangular_solve"(%a, %b) {
    left_side = false, lower = true, unit_diagonal = true,
    transpose_a = #stablehlo<transpose NO_TRANSPOSE>
  } : (tensor<8x8xf32>, tensor<40x8xf32>) -> tensor<40x8xf32>
  return %r : tensor<40x8xf32>
}

// -----

// Matrices of more than 32 rows, which `block-linear-algebra` did not cut, are loops.
// CHECK-LABEL: func.func @rejected
// CHECK: scf.for
// CHECK-NOT: call
func.func @rejected(%a: tensor<33x33xf32>) -> tensor<33x33xf32> {
  %r = stablehlo.cholesky %a, lower = true : tensor<33x33xf32>
  return %r : tensor<33x33xf32>
}
