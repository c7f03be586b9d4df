// RUN: stepwell-opt %s --pass-pipeline='builtin.module(fold-constants)' | filecheck %s

// CHECK-LABEL: func.func @chain
// CHECK-NEXT: %[[C:.*]] = stablehlo.constant dense<{{\[\[}}3.000000e+00, 6.000000e+00], [4.000000e+00, 8.000000e+00]]>
// CHECK-NEXT: return %[[C]]
func.func @chain() -> tensor<2x2xf32> {
  %x = stablehlo.constant dense<[[1.0, 2.0], [3.0, 4.0], [6.0, 8.0]]> : tensor<3x2xf32>
  %s = stablehlo.slice %x [1:3, 0:2] : (tensor<3x2xf32>) -> tensor<2x2xf32>
  %t = stablehlo.transpose %s, dims = [1, 0] : (tensor<2x2xf32>) -> tensor<2x2xf32>
  return %t : tensor<2x2xf32>
}

// Large results are resources, named after the weight that they come from.
// CHECK-LABEL: func.func @resource
// CHECK-NEXT: stablehlo.constant dense_resource<weight> : tensor<20xf32>
func.func @resource() -> tensor<20xf32> {
  %x = stablehlo.iota dim = 0 : tensor<20xf32>
  %y = stablehlo.negate %x : tensor<20xf32>
  return %y : tensor<20xf32>
}

// A splat stays a splat.
// CHECK-LABEL: func.func @splat
// CHECK-NEXT: stablehlo.constant dense<7.000000e+00> : tensor<1000x1000xf32>
func.func @splat() -> tensor<1000x1000xf32> {
  %x = stablehlo.constant dense<3.0> : tensor<1000x1000xf32>
  %y = stablehlo.constant dense<4.0> : tensor<f32>
  %z = stablehlo.broadcast_in_dim %y, dims = [] : (tensor<f32>) -> tensor<1000x1000xf32>
  %s = stablehlo.add %x, %z : tensor<1000x1000xf32>
  return %s : tensor<1000x1000xf32>
}

// Integer division truncates.
// CHECK-LABEL: func.func @truncation
// CHECK: stablehlo.constant dense<[-3, 3, -3]> : tensor<3xi32>
func.func @truncation() -> tensor<3xi32> {
  %x = stablehlo.constant dense<[-7, 7, 7]> : tensor<3xi32>
  %y = stablehlo.constant dense<[2, 2, -2]> : tensor<3xi32>
  %q = stablehlo.divide %x, %y : tensor<3xi32>
  return %q : tensor<3xi32>
}

// A computation on a broadcast is done before it; constants do not grow.
// CHECK-LABEL: func.func @broadcast
// CHECK-NEXT: %[[C:.*]] = stablehlo.constant dense<[-1.000000e+00, -2.000000e+00]> : tensor<2xf32>
// CHECK-NEXT: %[[B:.*]] = stablehlo.broadcast_in_dim %[[C]], dims = [1] : (tensor<2xf32>) -> tensor<1x2x9x9xf32>
// CHECK-NEXT: stablehlo.add %arg0, %[[B]]
func.func @broadcast(%x: tensor<1x2x9x9xf32>) -> tensor<1x2x9x9xf32> {
  %v = stablehlo.constant dense<[1.0, 2.0]> : tensor<2xf32>
  %b = stablehlo.broadcast_in_dim %v, dims = [1] : (tensor<2xf32>) -> tensor<1x2x9x9xf32>
  %n = stablehlo.negate %b : tensor<1x2x9x9xf32>
  %y = stablehlo.add %x, %n : tensor<1x2x9x9xf32>
  return %y : tensor<1x2x9x9xf32>
}

// Left alone: a division by zero, a conversion out of range, a large iota, an unknown operand.
// CHECK-LABEL: func.func @rejected
// CHECK: stablehlo.divide
// CHECK: stablehlo.convert
// CHECK: stablehlo.iota
// CHECK: stablehlo.add
func.func @rejected(%x: tensor<f32>) -> (tensor<i32>, tensor<i8>, tensor<5000xf32>, tensor<f32>) {
  %one = stablehlo.constant dense<1> : tensor<i32>
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %q = stablehlo.divide %one, %zero : tensor<i32>
  %large = stablehlo.constant dense<300.0> : tensor<f32>
  %c = stablehlo.convert %large : (tensor<f32>) -> tensor<i8>
  %i = stablehlo.iota dim = 0 : tensor<5000xf32>
  %s = stablehlo.add %x, %large : tensor<f32>
  return %q, %c, %i, %s : tensor<i32>, tensor<i8>, tensor<5000xf32>, tensor<f32>
}

// A product of bf16 is computed in f32.
// CHECK-LABEL: func.func @bf16
// CHECK-NEXT: stablehlo.constant dense<2.000000e+00> : tensor<1x1xbf16>
func.func @bf16() -> tensor<1x1xbf16> {
  %x = stablehlo.constant dense<1.0> : tensor<1x2xbf16>
  %z = stablehlo.dot_general %x, %x, contracting_dims = [1] x [1]
       : (tensor<1x2xbf16>, tensor<1x2xbf16>) -> tensor<1x1xbf16>
  return %z : tensor<1x1xbf16>
}

// A model without inputs computes when it runs; what moves data is done before.
// CHECK-LABEL: func.func @closed
// CHECK-NEXT: %[[C:.*]] = stablehlo.constant dense<[2.000000e+00, 1.000000e+00]>
// CHECK-NEXT: stablehlo.multiply %[[C]], %[[C]]
func.func @closed() -> tensor<2xf32> attributes {stepwell.inputs = []} {
  %x = stablehlo.constant dense<[1.0, 2.0]> : tensor<2xf32>
  %r = stablehlo.reverse %x, dims = [0] : tensor<2xf32>
  %y = stablehlo.multiply %r, %r : tensor<2xf32>
  return %y : tensor<2xf32>
}
