// RUN: stepwell-opt %s --split-input-file --verify-diagnostics --pass-pipeline='builtin.module(legalize-lapack,canonicalize)' | filecheck %s

// Memory has the layouts that the call gives; a batch is repeated; results that are not asked for go.
// CHECK-LABEL: func.func @factor
// CHECK: %[[T:.*]] = stablehlo.transpose %arg0, dims = [0, 2, 1]
// CHECK: %[[C:.*]]:3 = stablehlo.custom_call @stepwell.library_call(%[[T]])
// CHECK-SAME: arguments = ["i32 4", "i32 3", "result 0", "i32 4", "result 1", "result 2"], batch = 2 : i64
// CHECK-SAME: function = "lapack.sgetrf", updated = array<i64: 0>
// CHECK-SAME: (tensor<2x3x4xf32>) -> (tensor<2x3x4xf32>, tensor<2x3xi32>, tensor<2xi32>)
// CHECK: %[[R:.*]] = stablehlo.transpose %[[C]]#0, dims = [0, 2, 1]
// CHECK: return %[[R]], %[[C]]#1
func.func @factor(%a: tensor<2x4x3xf32>) -> (tensor<2x4x3xf32>, tensor<2x3xi32>) {
  %0:3 = stablehlo.custom_call @lapack_sgetrf_ffi(%a) {mhlo.backend_config = {}, operand_layouts = [dense<[1, 2, 0]> : tensor<3xindex>], result_layouts = [dense<[1, 2, 0]> : tensor<3xindex>, dense<[1, 0]> : tensor<2xindex>, dense<0> : tensor<1xindex>]} : (tensor<2x4x3xf32>) -> (tensor<2x4x3xf32>, tensor<2x3xi32>, tensor<2xi32>)
  return %0#0, %0#1 : tensor<2x4x3xf32>, tensor<2x3xi32>
}

// -----

// Complex numbers are their parts, side by side; letters come from the configuration.
// CHECK-LABEL: func.func @solve
// CHECK: stablehlo.real %{{.*}} : (tensor<4x4xcomplex<f64>>)
// CHECK: stablehlo.concatenate
// CHECK: stablehlo.custom_call @stepwell.library_call
// CHECK-SAME: arguments = ["char L", "char U", "char C", "char N", "i32 4", "i32 2", "f64 1.0 0.0", "operand 0", "i32 4", "result 0", "i32 4"]
// CHECK-SAME: function = "blas.ztrsm"
// CHECK-SAME: (tensor<4x4x2xf64>, tensor<2x4x2xf64>) -> tensor<2x4x2xf64>
// CHECK: stablehlo.complex
func.func @solve(%a: tensor<4x4xcomplex<f64>>, %b: tensor<4x2xcomplex<f64>>) -> tensor<4x2xcomplex<f64>> {
  %0 = stablehlo.custom_call @lapack_ztrsm_ffi(%a, %b) {mhlo.backend_config = {diag = 78 : ui8, side = 76 : ui8, trans_x = 67 : ui8, uplo = 85 : ui8}, operand_layouts = [dense<[0, 1]> : tensor<2xindex>, dense<[0, 1]> : tensor<2xindex>], result_layouts = [dense<[0, 1]> : tensor<2xindex>]} : (tensor<4x4xcomplex<f64>>, tensor<4x2xcomplex<f64>>) -> tensor<4x2xcomplex<f64>>
  return %0 : tensor<4x2xcomplex<f64>>
}

// -----

// What all platforms call `Qr` has row-major matrices.
// CHECK-LABEL: func.func @portable
// CHECK: stablehlo.transpose
// CHECK: function = "lapack.sgeqrf"
// CHECK-SAME: work = [tensor<192xf32>, tensor<1xi32>]
// CHECK: stablehlo.transpose
func.func @portable(%a: tensor<4x3xf32>) -> (tensor<4x3xf32>, tensor<3xf32>) {
  %0:2 = stablehlo.custom_call @Qr(%a) : (tensor<4x3xf32>) -> (tensor<4x3xf32>, tensor<3xf32>)
  return %0#0, %0#1 : tensor<4x3xf32>, tensor<3xf32>
}

// -----

// Calls of others stay.
// CHECK-LABEL: func.func @rejected
// CHECK: stablehlo.custom_call @somewhere
func.func @rejected(%a: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.custom_call @somewhere(%a) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

func.func @unknown(%a: tensor<4x4xf32>) -> tensor<4x4xf32> {
  // expected-error@+1 {{stablehlo.custom_call @lapack_sgghrd_ffi is not supported; of LAPACK there are gees, geev}}
  %0 = stablehlo.custom_call @lapack_sgghrd_ffi(%a) : (tensor<4x4xf32>) -> tensor<4x4xf32>
  return %0 : tensor<4x4xf32>
}

// -----

func.func @old(%a: tensor<4x4xf32>) -> tensor<4x4xf32> {
  // expected-error@+1 {{stablehlo.custom_call @lapack_sgeqrf is not supported; export the model again with a newer JAX}}
  %0 = stablehlo.custom_call @lapack_sgeqrf(%a) : (tensor<4x4xf32>) -> tensor<4x4xf32>
  return %0 : tensor<4x4xf32>
}

// -----

// A function may not be told of more than there is.
func.func @too_small(%a: tensor<4x4xf32>) -> tensor<3xi32> {
  // expected-error@+1 {{@lapack_sgetrf_ffi: sgetrf has T[m,n] -> T[m,n] I[min] I[], the call (tensor<4x4xf32>) -> (tensor<4x4xf32>, tensor<3xi32>, tensor<i32>)}}
  %0:3 = stablehlo.custom_call @lapack_sgetrf_ffi(%a) : (tensor<4x4xf32>) -> (tensor<4x4xf32>, tensor<3xi32>, tensor<i32>)
  return %0#1 : tensor<3xi32>
}

// -----

func.func @other_type(%a: tensor<4x4xf32>) -> tensor<4x4xf32> {
  // expected-error@+1 {{dpotrf has T[n,n] -> T[n,n] I[]}}
  %0:2 = stablehlo.custom_call @lapack_dpotrf_ffi(%a) {mhlo.backend_config = {uplo = 76 : ui8}} : (tensor<4x4xf32>) -> (tensor<4x4xf32>, tensor<i32>)
  return %0#0 : tensor<4x4xf32>
}

// -----

func.func @unknown_mode(%a: tensor<4x4xf32>) -> tensor<4x4xf32> {
  // expected-error@+1 {{@lapack_spotrf_ffi: uplo is A; known are L, U}}
  %0:2 = stablehlo.custom_call @lapack_spotrf_ffi(%a) {mhlo.backend_config = {uplo = 65 : ui8}} : (tensor<4x4xf32>) -> (tensor<4x4xf32>, tensor<i32>)
  return %0#0 : tensor<4x4xf32>
}

// -----

func.func @unconfigured(%a: tensor<4x4xf32>) -> tensor<4x4xf32> {
  // expected-error@+1 {{@lapack_spotrf_ffi: its configuration does not give uplo}}
  %0:2 = stablehlo.custom_call @lapack_spotrf_ffi(%a) : (tensor<4x4xf32>) -> (tensor<4x4xf32>, tensor<i32>)
  return %0#0 : tensor<4x4xf32>
}
