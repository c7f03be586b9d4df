// RUN: stepwell-opt %s --target=cuda:sm_90a --split-input-file --verify-diagnostics --pass-pipeline='legalize-lapack' | filecheck %s

// The triangle that is not named stays; info numbers the first pivot that is not positive.
// CHECK-LABEL: func.func @factor
// CHECK: %[[L:.*]] = stablehlo.cholesky %arg0, lower = true
// CHECK: stablehlo.compare GT, %[[L]]
// CHECK: stablehlo.reduce({{.*}}) applies stablehlo.minimum across dimensions = [1, 2]
// CHECK: %[[R:.*]] = stablehlo.select %{{.*}}, %[[L]], %arg0
// CHECK: return %[[R]]
func.func @factor(%a: tensor<2x4x4xf32>) -> (tensor<2x4x4xf32>, tensor<2xi32>) {
  %0:2 = stablehlo.custom_call @lapack_spotrf_ffi(%a) {mhlo.backend_config = {uplo = 76 : ui8}, operand_layouts = [dense<[1, 2, 0]> : tensor<3xindex>], result_layouts = [dense<[1, 2, 0]> : tensor<3xindex>, dense<0> : tensor<1xindex>]} : (tensor<2x4x4xf32>) -> (tensor<2x4x4xf32>, tensor<2xi32>)
  return %0#0, %0#1 : tensor<2x4x4xf32>, tensor<2xi32>
}

// -----

// CHECK-LABEL: func.func @solve
// CHECK: "stablehlo.triangular_solve"(%arg0, %arg1)
// CHECK-SAME: left_side = true, lower = false, transpose_a = #stablehlo<transpose ADJOINT>, unit_diagonal = false
func.func @solve(%a: tensor<4x4xf64>, %b: tensor<4x2xf64>) -> tensor<4x2xf64> {
  %0 = stablehlo.custom_call @lapack_dtrsm_ffi(%a, %b) {mhlo.backend_config = {diag = 78 : ui8, side = 76 : ui8, trans_x = 67 : ui8, uplo = 85 : ui8}, operand_layouts = [dense<[0, 1]> : tensor<2xindex>, dense<[0, 1]> : tensor<2xindex>], result_layouts = [dense<[0, 1]> : tensor<2xindex>]} : (tensor<4x4xf64>, tensor<4x2xf64>) -> tensor<4x2xf64>
  return %0 : tensor<4x2xf64>
}

// -----

// Without layouts, matrices lie row by row: LAPACK sees others than the program, and the host calls it.
// CHECK-LABEL: func.func @by_rows
// CHECK: stablehlo.custom_call @stepwell.library_call(%arg0)
// CHECK-SAME: function = "lapack.spotrf"
func.func @by_rows(%a: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %0:2 = stablehlo.custom_call @lapack_spotrf_ffi(%a) {mhlo.backend_config = {uplo = 76 : ui8}} : (tensor<4x4xf32>) -> (tensor<4x4xf32>, tensor<i32>)
  return %0#0 : tensor<4x4xf32>
}

// -----

func.func @rejected(%a: tensor<4x4xf32>) -> tensor<4x4xf32> {
  // expected-error @+1 {{stablehlo.custom_call @lapack_sgebal_ffi is not supported; of LAPACK there are}}
  %0 = stablehlo.custom_call @lapack_sgebal_ffi(%a) : (tensor<4x4xf32>) -> tensor<4x4xf32>
  return %0 : tensor<4x4xf32>
}
