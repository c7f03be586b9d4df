// RUN: stepwell-opt %s --target x86_64-v3 --pass-pipeline='legalize-linear-algebra' | filecheck %s

// The lower triangle is turned up; six columns are a strip of four and one with two idle lanes.
// CHECK-LABEL: func.func @factor
// CHECK: stablehlo.transpose
// CHECK: bufferization.alloc_tensor() : tensor<8x4xf32>
// CHECK: math.fma {{.*}} : vector<4xf32>
// CHECK: arith.divf {{.*}} : vector<4xf32>
// CHECK: math.sqrt
// CHECK-NOT: stablehlo.cholesky
func.func @factor(%a: tensor<2x6x6xf32>) -> tensor<2x6x6xf32> {
  %r = stablehlo.cholesky %a, lower = true : tensor<2x6x6xf32>
  return %r : tensor<2x6x6xf32>
}

// Four rows of sixteen columns at a time; the solution from the right is that of turned operands.
// CHECK-LABEL: func.func @solve
// CHECK-COUNT-2: stablehlo.transpose
// CHECK: bufferization.alloc_tensor() : tensor<8x16xf32>
// CHECK-COUNT-4: math.fma {{.*}} : vector<16xf32>
// CHECK-NOT: stablehlo.triangular_solve
func.func @solve(%a: tensor<8x8xf32>, %b: tensor<40x8xf32>) -> tensor<40x8xf32> {
  %r = "stablehlo.triangular_solve"(%a, %b) {
    left_side = false, lower = true, unit_diagonal = false,
    transpose_a = #stablehlo<transpose NO_TRANSPOSE>
  } : (tensor<8x8xf32>, tensor<40x8xf32>) -> tensor<40x8xf32>
  return %r : tensor<40x8xf32>
}

// Complex matrices are not taken.
// CHECK-LABEL: func.func @rejected
// CHECK: stablehlo.cholesky
// CHECK-NOT: scf
func.func @rejected(%a: tensor<6x6xcomplex<f32>>) -> tensor<6x6xcomplex<f32>> {
  %r = stablehlo.cholesky %a, lower = true : tensor<6x6xcomplex<f32>>
  return %r : tensor<6x6xcomplex<f32>>
}
