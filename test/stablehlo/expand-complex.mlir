// RUN: stepwell-opt %s --pass-pipeline='builtin.module(expand-complex)' --split-input-file --verify-diagnostics | filecheck %s

// Arguments and results hold the parts side by side, as they do in memory.
// CHECK-LABEL: func.func @sum(%arg0: tensor<4x2xf32>) -> tensor<4x2xf32>
// CHECK: %[[RE:.*]] = stablehlo.reshape %{{.*}} : (tensor<4x1xf32>) -> tensor<4xf32>
// CHECK: %[[IM:.*]] = stablehlo.reshape %{{.*}} : (tensor<4x1xf32>) -> tensor<4xf32>
// CHECK: %[[A:.*]] = stablehlo.add %[[RE]], %[[RE]] : tensor<4xf32>
// CHECK: %[[B:.*]] = stablehlo.add %[[IM]], %[[IM]] : tensor<4xf32>
// CHECK: stablehlo.concatenate %{{.*}}, %{{.*}}, dim = 1 : (tensor<4x1xf32>, tensor<4x1xf32>) -> tensor<4x2xf32>
func.func @sum(%x: tensor<4xcomplex<f32>>) -> tensor<4xcomplex<f32>> {
  %0 = stablehlo.add %x, %x : tensor<4xcomplex<f32>>
  return %0 : tensor<4xcomplex<f32>>
}

// -----

// A contraction is four of real numbers.
// CHECK-LABEL: func.func @product
// CHECK-COUNT-4: stablehlo.dot_general {{.*}} : (tensor<3x9xf32>, tensor<9x5xf32>) -> tensor<3x5xf32>
func.func @product(%x: tensor<3x9xcomplex<f32>>, %y: tensor<9x5xcomplex<f32>>) -> tensor<3x5xf32> {
  %0 = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : (tensor<3x9xcomplex<f32>>, tensor<9x5xcomplex<f32>>) -> tensor<3x5xcomplex<f32>>
  %1 = stablehlo.real %0 : (tensor<3x5xcomplex<f32>>) -> tensor<3x5xf32>
  return %1 : tensor<3x5xf32>
}

// -----

// One of few products adds them one after another; dimensions in any order.
// CHECK-LABEL: func.func @short
// CHECK-NOT: stablehlo.dot_general
// CHECK-COUNT-8: stablehlo.multiply {{.*}} {kernel.rounded} : tensor<7x3x5xf64>
// CHECK-NOT: stablehlo.multiply
func.func @short(%x: tensor<2x7x3xcomplex<f32>>, %y: tensor<7x5x2xcomplex<f32>>) -> tensor<7x3x5xcomplex<f64>> {
  %0 = stablehlo.dot_general %x, %y, batching_dims = [1] x [0], contracting_dims = [0] x [2] : (tensor<2x7x3xcomplex<f32>>, tensor<7x5x2xcomplex<f32>>) -> tensor<7x3x5xcomplex<f64>>
  return %0 : tensor<7x3x5xcomplex<f64>>
}

// -----

// Constants, and the parts of numbers that are made of parts.
// CHECK-LABEL: func.func @parts(%arg0: tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>)
// CHECK-DAG: %[[C:.*]] = stablehlo.constant dense<[2.000000e+00, 0.000000e+00]> : tensor<2xf32>
// CHECK: return %arg0, %[[C]]
func.func @parts(%x: tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>) {
  %c = stablehlo.constant dense<[(1.0, 2.0), (0x7FC00000, 0.0)]> : tensor<2xcomplex<f32>>
  %0 = stablehlo.complex %x, %x : tensor<2xcomplex<f32>>
  %1 = stablehlo.real %0 : (tensor<2xcomplex<f32>>) -> tensor<2xf32>
  %2 = stablehlo.imag %c : (tensor<2xcomplex<f32>>) -> tensor<2xf32>
  return %1, %2 : tensor<2xf32>, tensor<2xf32>
}

// -----

// Loops carry two values for one.
// CHECK-LABEL: func.func @loop
// CHECK: stablehlo.while(%{{.*}} = %{{.*}}, %{{.*}} = %{{.*}}) : tensor<f32>, tensor<f32>
func.func @loop(%x: tensor<complex<f32>>) -> tensor<complex<f32>> {
  %0 = stablehlo.while(%z = %x) : tensor<complex<f32>>
  cond {
    %1 = stablehlo.real %z : (tensor<complex<f32>>) -> tensor<f32>
    %2 = stablehlo.constant dense<9.0> : tensor<f32>
    %3 = stablehlo.compare LT, %1, %2 : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %3 : tensor<i1>
  } do {
    %1 = stablehlo.add %z, %z : tensor<complex<f32>>
    stablehlo.return %1 : tensor<complex<f32>>
  }
  return %0 : tensor<complex<f32>>
}

// -----

// A transform of real numbers is one of half as many complex ones.
// CHECK-LABEL: func.func @transform(%arg0: tensor<3x8xf32>) -> tensor<3x5x2xf32>
// CHECK: stablehlo.custom_call @stepwell.fourier({{.*}} {inverse = false} : (tensor<3x8x1x1xf32>) -> tensor<3x5x1x2xf32>
func.func @transform(%x: tensor<3x8xf32>) -> tensor<3x5xcomplex<f32>> {
  %0 = stablehlo.fft %x, type = RFFT, length = [8] : (tensor<3x8xf32>) -> tensor<3x5xcomplex<f32>>
  return %0 : tensor<3x5xcomplex<f32>>
}

// -----

// CHECK-LABEL: func.func @transform_back(%arg0: tensor<3x5x2xf32>) -> tensor<3x8xf32>
// CHECK: stablehlo.custom_call @stepwell.fourier({{.*}} {inverse = true} : (tensor<3x5x1x2xf32>) -> tensor<3x8x1x1xf32>
func.func @transform_back(%x: tensor<3x5xcomplex<f32>>) -> tensor<3x8xf32> {
  %0 = stablehlo.fft %x, type = IRFFT, length = [8] : (tensor<3x5xcomplex<f32>>) -> tensor<3x8xf32>
  return %0 : tensor<3x8xf32>
}

// -----

// One of moderate length with a large prime factor is a product with a constant matrix.
// CHECK-LABEL: func.func @transform_58(%arg0: tensor<3x58xf32>) -> tensor<3x30x2xf32>
// CHECK: stablehlo.dot_general
func.func @transform_58(%x: tensor<3x58xf32>) -> tensor<3x30xcomplex<f32>> {
  %0 = stablehlo.fft %x, type = RFFT, length = [58]
      : (tensor<3x58xf32>) -> tensor<3x30xcomplex<f32>>
  return %0 : tensor<3x30xcomplex<f32>>
}

// -----

// Hyperbolic functions near zero are those of e^x - 1.
// CHECK-LABEL: func.func @hyperbolic
// CHECK: stablehlo.exponential_minus_one %{{.*}} : tensor<4xf64>
func.func @hyperbolic(%x: tensor<4xcomplex<f64>>) -> tensor<4xcomplex<f64>> {
  %0 = chlo.sinh %x : tensor<4xcomplex<f64>> -> tensor<4xcomplex<f64>>
  return %0 : tensor<4xcomplex<f64>>
}

// -----

// Factors are loops over columns.
// CHECK-LABEL: func.func @factor
// CHECK: stablehlo.while
// CHECK: stablehlo.sqrt %{{.*}} : tensor<1x1xf32>
func.func @factor(%x: tensor<3x3xcomplex<f32>>) -> tensor<3x3xcomplex<f32>> {
  %0 = stablehlo.cholesky %x, lower = true : tensor<3x3xcomplex<f32>>
  return %0 : tensor<3x3xcomplex<f32>>
}

// -----

// Real programs stay as they are.
// CHECK-LABEL: func.func @real(%arg0: tensor<4xf32>) -> tensor<4xf32>
// CHECK-NEXT: stablehlo.add %arg0, %arg0
func.func @real(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.add %x, %x : tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

func.func @opaque(%x: tensor<4xcomplex<f32>>) -> tensor<4xcomplex<f32>> {
  // expected-error @+1 {{stablehlo.custom_call of complex numbers is not supported; compute with their real and imaginary parts}}
  %0 = stablehlo.custom_call @other(%x) : (tensor<4xcomplex<f32>>) -> tensor<4xcomplex<f32>>
  return %0 : tensor<4xcomplex<f32>>
}

// -----

// Powers of f64 multiply logarithms of two parts; the errors of products are computed, so that none
// is fused with a sum.
// CHECK-LABEL: func.func @power_in_two_parts
// CHECK-COUNT-8: stablehlo.multiply {{.*}} {kernel.rounded} : tensor<4xf64>
// CHECK: stablehlo.exponential {{.*}} : tensor<4xf64>
func.func @power_in_two_parts(%x: tensor<4xcomplex<f64>>, %y: tensor<4xcomplex<f64>>) -> tensor<4xcomplex<f64>> {
  %0 = stablehlo.power %x, %y : tensor<4xcomplex<f64>>
  return %0 : tensor<4xcomplex<f64>>
}

// -----

// Rejected: those of f32 are exact enough with one part in f64.
// CHECK-LABEL: func.func @power_in_f64
// CHECK: stablehlo.log {{.*}} : tensor<4xf64>
// CHECK-COUNT-2: stablehlo.multiply {{.*}} {kernel.rounded} : tensor<4xf64>
// CHECK-NOT: kernel.rounded
// CHECK: return
func.func @power_in_f64(%x: tensor<4xcomplex<f32>>, %y: tensor<4xcomplex<f32>>) -> tensor<4xcomplex<f32>> {
  %0 = stablehlo.power %x, %y : tensor<4xcomplex<f32>>
  return %0 : tensor<4xcomplex<f32>>
}
