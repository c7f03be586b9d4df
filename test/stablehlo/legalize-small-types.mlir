// RUN: stepwell-opt %s --pass-pipeline='builtin.module(legalize-small-types)' --split-input-file --verify-diagnostics | filecheck %s
// RUN: stepwell-opt %s --target=cuda:sm_89 --pass-pipeline='builtin.module(legalize-small-types)' --split-input-file --verify-diagnostics | filecheck %s --check-prefixes=CHECK,FP8

// Codes are moved as bytes.
// CHECK-LABEL: func.func @moved(%arg0: tensor<4xui8>) -> tensor<2x2xui8>
// CHECK-NEXT: %[[R:.*]] = stablehlo.reshape %arg0 : (tensor<4xui8>) -> tensor<2x2xui8>
// CHECK-NEXT: return %[[R]]
func.func @moved(%a: tensor<4xf8E5M2>) -> tensor<2x2xf8E5M2> {
  %0 = stablehlo.reshape %a : (tensor<4xf8E5M2>) -> tensor<2x2xf8E5M2>
  return %0 : tensor<2x2xf8E5M2>
}

// -----

// Sums are computed in f32.
// CHECK-LABEL: func.func @sum(%arg0: tensor<4xui8>) -> tensor<4xui8>
// CHECK: %[[F:.*]] = stablehlo.bitcast_convert %{{.*}} : (tensor<4xi32>) -> tensor<4xf32>
// CHECK: %[[S:.*]] = stablehlo.add %{{.*}}, %{{.*}} : tensor<4xf32>
// CHECK: stablehlo.bitcast_convert %[[S]] : (tensor<4xf32>) -> tensor<4xi32>
// CHECK: stablehlo.convert %{{.*}} : (tensor<4xi32>) -> tensor<4xui8>
func.func @sum(%a: tensor<4xf8E4M3FN>) -> tensor<4xf8E4M3FN> {
  %0 = stablehlo.add %a, %a : tensor<4xf8E4M3FN>
  return %0 : tensor<4xf8E4M3FN>
}

// -----

// Integers are sign-extended inside, and leave without the high bits.
// CHECK-LABEL: func.func @nibbles(%arg0: tensor<4xi8>) -> tensor<4xi8>
// CHECK: %[[L:.*]] = stablehlo.shift_left %arg0, %{{.*}} : tensor<4xi8>
// CHECK: %[[E:.*]] = stablehlo.shift_right_arithmetic %[[L]], %{{.*}} : tensor<4xi8>
// CHECK: %[[P:.*]] = stablehlo.multiply %[[E]], %[[E]] : tensor<4xi8>
// CHECK: %[[M:.*]] = stablehlo.constant dense<15> : tensor<4xi8>
// CHECK: stablehlo.and %{{.*}}, %[[M]]
func.func @nibbles(%a: tensor<4xi4>) -> tensor<4xi4> {
  %0 = stablehlo.multiply %a, %a : tensor<4xi4>
  return %0 : tensor<4xi4>
}

// -----

// CHECK-LABEL: func.func @constants
// CHECK: stablehlo.constant dense<[56, 64]> : tensor<2xui8>
// CHECK: stablehlo.constant dense<[1, 2, 3]> : tensor<3xui8>
func.func @constants() -> (tensor<2xf8E4M3FN>, tensor<3xui4>) {
  %0 = stablehlo.constant dense<[1.0, 2.0]> : tensor<2xf8E4M3FN>
  %1 = stablehlo.constant dense<[1, 2, 3]> : tensor<3xui4>
  return %0, %1 : tensor<2xf8E4M3FN>, tensor<3xui4>
}

// -----

// Other types stay as they are.
// CHECK-LABEL: func.func @other(%arg0: tensor<4xbf16>) -> tensor<4xbf16>
// CHECK-NEXT: stablehlo.add %arg0, %arg0 : tensor<4xbf16>
func.func @other(%a: tensor<4xbf16>) -> tensor<4xbf16> {
  %0 = stablehlo.add %a, %a : tensor<4xbf16>
  return %0 : tensor<4xbf16>
}

// -----

// Rejected: what a call takes has a layout of its own.
func.func @called(%a: tensor<4xi4>) -> tensor<4xi8> {
  // expected-error@+1 {{stablehlo.custom_call of int4 is not supported; convert to f32 or i8 before it}}
  %0 = stablehlo.custom_call @packed(%a) : (tensor<4xi4>) -> tensor<4xi8>
  return %0 : tensor<4xi8>
}

// -----

// Two nibbles a byte, the first in its low half.
// CHECK-LABEL: func.func @packed
// CHECK: %[[S:.*]] = stablehlo.shift_left {{.*}} : tensor<4x2xui8>
// CHECK: %[[R:.*]] = stablehlo.reduce(%[[S]] {{.*}} applies stablehlo.add across dimensions = [1]
// CHECK: stablehlo.bitcast_convert %[[R]] : (tensor<4xui8>) -> tensor<4xi8>
func.func @packed(%a: tensor<4x2xi4>) -> tensor<4xi8> {
  %0 = stablehlo.bitcast_convert %a : (tensor<4x2xi4>) -> tensor<4xi8>
  return %0 : tensor<4xi8>
}

// -----

// Tensor cores multiply codes, and those that were widened; few columns do not fill an instruction.
// CHECK-LABEL: func.func @products
// FP8: %[[A:.*]] = stablehlo.bitcast_convert %arg0 : (tensor<16x32xui8>) -> tensor<16x32xf8E4M3FN>
// FP8: %[[B:.*]] = stablehlo.bitcast_convert %arg1 : (tensor<32x8xui8>) -> tensor<32x8xf8E4M3FN>
// FP8: %[[S:.*]] = stablehlo.dot_general %[[A]], %[[B]], {{.*}} -> tensor<16x8xf32>
// FP8: %[[C:.*]] = stablehlo.dot_general {{.*}}f8E4M3FN{{.*}} -> tensor<16x8xf32>
// FP8: stablehlo.convert %[[C]] : (tensor<16x8xf32>) -> tensor<16x8xbf16>
// FP8: stablehlo.dot_general {{.*}}f32{{.*}} -> tensor<16x4xf32>
func.func @products(%a: tensor<16x32xf8E4M3FN>, %b: tensor<32x8xf8E4M3FN>, %c: tensor<32x4xf8E4M3FN>) -> (tensor<16x8xf32>, tensor<16x8xbf16>, tensor<16x4xf32>) {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<16x32xf8E4M3FN>, tensor<32x8xf8E4M3FN>) -> tensor<16x8xf32>
  %1 = stablehlo.convert %a : (tensor<16x32xf8E4M3FN>) -> tensor<16x32xbf16>
  %2 = stablehlo.convert %b : (tensor<32x8xf8E4M3FN>) -> tensor<32x8xbf16>
  %3 = stablehlo.dot_general %1, %2, contracting_dims = [1] x [0] : (tensor<16x32xbf16>, tensor<32x8xbf16>) -> tensor<16x8xbf16>
  %4 = stablehlo.dot_general %a, %c, contracting_dims = [1] x [0] : (tensor<16x32xf8E4M3FN>, tensor<32x4xf8E4M3FN>) -> tensor<16x4xf32>
  return %0, %3, %4 : tensor<16x8xf32>, tensor<16x8xbf16>, tensor<16x4xf32>
}

// -----

// A factor of all elements waits for the sums.
// CHECK-LABEL: func.func @scaled
// FP8: %[[S:.*]] = stablehlo.dot_general {{.*}}f8E4M3FN{{.*}} -> tensor<16x8xf32>
// FP8: %[[M:.*]] = stablehlo.multiply %[[S]], %{{.*}} : tensor<16x8xf32>
// FP8: stablehlo.convert %[[M]] : (tensor<16x8xf32>) -> tensor<16x8xbf16>
func.func @scaled(%a: tensor<16x32xf8E4M3FN>, %b: tensor<32x8xf8E4M3FN>, %s: tensor<1xbf16>) -> tensor<16x8xbf16> {
  %0 = stablehlo.convert %a : (tensor<16x32xf8E4M3FN>) -> tensor<16x32xbf16>
  %1 = stablehlo.broadcast_in_dim %s, dims = [0] : (tensor<1xbf16>) -> tensor<16x32xbf16>
  %2 = stablehlo.multiply %1, %0 : tensor<16x32xbf16>
  %3 = stablehlo.convert %b : (tensor<32x8xf8E4M3FN>) -> tensor<32x8xbf16>
  %4 = stablehlo.dot_general %2, %3, contracting_dims = [1] x [0] : (tensor<16x32xbf16>, tensor<32x8xbf16>) -> tensor<16x8xbf16>
  return %4 : tensor<16x8xbf16>
}
