// RUN: stepwell-opt %s --target=x86_64-v4 \
// RUN:   --pass-pipeline='builtin.module(keep-weights-narrow{least-elements=64})' | filecheck %s
// RUN: stepwell-opt %s --target=cuda:sm_90a \
// RUN:   --pass-pipeline='builtin.module(keep-weights-narrow{least-elements=64})' | filecheck %s --check-prefix=OFF

// OFF-NOT: stepwell.widen

// A number a column.
// CHECK-LABEL: func.func @columns
// CHECK: %[[W:.*]] = stablehlo.custom_call @stepwell.widen(%{{.*}}, %{{.*}}) : (tensor<16x4xi8>, tensor<1x4xf32>) -> tensor<16x4xf32>
// CHECK: stablehlo.dot_general %arg0, %[[W]], contracting_dims = [1] x [0]
func.func @columns(%x: tensor<1x16xf32>) -> tensor<1x4xf32> {
  %w = stablehlo.constant dense<[[-8, -3, 2, 7], [-5, 0, 5, -6], [-2, 3, -8, -3], [1, 6, -5, 0], [4, -7, -2, 3], [7, -4, 1, 6], [-6, -1, 4, -7], [-3, 2, 7, -4], [0, 5, -6, -1], [3, -8, -3, 2], [6, -5, 0, 5], [-7, -2, 3, -8], [-4, 1, 6, -5], [-1, 4, -7, -2], [2, 7, -4, 1], [5, -6, -1, 4]]> : tensor<16x4xi8>
  %s = stablehlo.constant dense<[0.5, 0.25, 0.125, 2.0]> : tensor<4xf32>
  %a = stablehlo.convert %w : (tensor<16x4xi8>) -> tensor<16x4xf32>
  %b = stablehlo.broadcast_in_dim %s, dims = [1] : (tensor<4xf32>) -> tensor<16x4xf32>
  %c = stablehlo.multiply %a, %b : tensor<16x4xf32>
  %z = stablehlo.dot_general %x, %c, contracting_dims = [1] x [0] : (tensor<1x16xf32>, tensor<16x4xf32>) -> tensor<1x4xf32>
  return %z : tensor<1x4xf32>
}

// Blocks of 8 rows with zero points of their own; unsigned bytes become signed ones. The weight is
// stored by columns, and the product of f16 is one of f32.
// CHECK-LABEL: func.func @blocks
// CHECK: %[[W:.*]] = stablehlo.custom_call @stepwell.widen(%{{.*}}, %{{.*}}, %{{.*}}) : (tensor<16x4xi8>, tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<16x4xf32>
// CHECK: %[[X:.*]] = stablehlo.convert %arg0 : (tensor<1x16xf16>) -> tensor<1x16xf32>
// CHECK: stablehlo.dot_general %[[X]], %[[W]], contracting_dims = [1] x [0]
// CHECK: stablehlo.convert {{.*}} -> tensor<1x4xf16>
func.func @blocks(%x: tensor<1x16xf16>) -> tensor<1x4xf16> {
  %w = stablehlo.constant dense<[[0, 3, 6, 9, 12, 15, 2, 5, 8, 11, 14, 1, 4, 7, 10, 13], [5, 8, 11, 14, 1, 4, 7, 10, 13, 0, 3, 6, 9, 12, 15, 2], [10, 13, 0, 3, 6, 9, 12, 15, 2, 5, 8, 11, 14, 1, 4, 7], [15, 2, 5, 8, 11, 14, 1, 4, 7, 10, 13, 0, 3, 6, 9, 12]]> : tensor<4x16xui8>
  %s = stablehlo.constant dense<[1.0, 2.0]> : tensor<2xf32>
  %p = stablehlo.constant dense<[8, 7]> : tensor<2xui8>
  %r = stablehlo.reshape %w : (tensor<4x16xui8>) -> tensor<4x2x8xui8>
  %a = stablehlo.convert %r : (tensor<4x2x8xui8>) -> tensor<4x2x8xf32>
  %q = stablehlo.convert %p : (tensor<2xui8>) -> tensor<2xf32>
  %b = stablehlo.broadcast_in_dim %q, dims = [1] : (tensor<2xf32>) -> tensor<4x2x8xf32>
  %c = stablehlo.subtract %a, %b : tensor<4x2x8xf32>
  %d = stablehlo.broadcast_in_dim %s, dims = [1] : (tensor<2xf32>) -> tensor<4x2x8xf32>
  %e = stablehlo.multiply %c, %d : tensor<4x2x8xf32>
  %f = stablehlo.reshape %e : (tensor<4x2x8xf32>) -> tensor<4x16xf32>
  %g = stablehlo.convert %f : (tensor<4x16xf32>) -> tensor<4x16xf16>
  %z = stablehlo.dot_general %x, %g, contracting_dims = [1] x [1] : (tensor<1x16xf16>, tensor<4x16xf16>) -> tensor<1x4xf16>
  return %z : tensor<1x4xf16>
}

// CHECK-LABEL: func.func @halves
// CHECK: stablehlo.custom_call @stepwell.widen(%{{.*}}) : (tensor<16x4xf16>) -> tensor<16x4xf32>
func.func @halves(%x: tensor<2x16xf32>) -> tensor<2x4xf32> {
  %h = stablehlo.constant dense<[[0.0, 0.25, 0.5, 0.75], [0.25, 0.5, 0.75, 1.0], [0.5, 0.75, 1.0, 1.25], [0.75, 1.0, 1.25, 1.5], [1.0, 1.25, 1.5, 0.0], [1.25, 1.5, 0.0, 0.25], [1.5, 0.0, 0.25, 0.5], [0.0, 0.25, 0.5, 0.75], [0.25, 0.5, 0.75, 1.0], [0.5, 0.75, 1.0, 1.25], [0.75, 1.0, 1.25, 1.5], [1.0, 1.25, 1.5, 0.0], [1.25, 1.5, 0.0, 0.25], [1.5, 0.0, 0.25, 0.5], [0.0, 0.25, 0.5, 0.75], [0.25, 0.5, 0.75, 1.0]]> : tensor<16x4xf16>
  %a = stablehlo.convert %h : (tensor<16x4xf16>) -> tensor<16x4xf32>
  %z = stablehlo.dot_general %x, %a, contracting_dims = [1] x [0] : (tensor<2x16xf32>, tensor<16x4xf32>) -> tensor<2x4xf32>
  return %z : tensor<2x4xf32>
}

// Weights on the left: the product of the transposes, transposed.
// CHECK-LABEL: func.func @left
// CHECK: %[[W:.*]] = stablehlo.custom_call @stepwell.widen(%{{.*}}) : (tensor<16x4xi8>) -> tensor<16x4xf32>
// CHECK: %[[P:.*]] = stablehlo.dot_general %arg0, %[[W]], contracting_dims = [0] x [0] : (tensor<16x2xf32>, tensor<16x4xf32>) -> tensor<2x4xf32>
// CHECK: stablehlo.transpose %[[P]], dims = [1, 0]
func.func @left(%x: tensor<16x2xf32>) -> tensor<4x2xf32> {
  %w = stablehlo.constant dense<[[-8, -5, -2, 1, 4, 7, -6, -3, 0, 3, 6, -7, -4, -1, 2, 5], [-3, 0, 3, 6, -7, -4, -1, 2, 5, -8, -5, -2, 1, 4, 7, -6], [2, 5, -8, -5, -2, 1, 4, 7, -6, -3, 0, 3, 6, -7, -4, -1], [7, -6, -3, 0, 3, 6, -7, -4, -1, 2, 5, -8, -5, -2, 1, 4]]> : tensor<4x16xi8>
  %a = stablehlo.convert %w : (tensor<4x16xi8>) -> tensor<4x16xf32>
  %z = stablehlo.dot_general %a, %x, contracting_dims = [1] x [0] : (tensor<4x16xf32>, tensor<16x2xf32>) -> tensor<4x2xf32>
  return %z : tensor<4x2xf32>
}

// Rejected: halves that meet many rows; one number everywhere; a scale for each row; a weight that
// is an argument; a small weight.
// CHECK-LABEL: func.func @rows
// CHECK-NOT: stepwell.widen
func.func @rows(%x: tensor<64x16xf32>) -> tensor<64x4xf32> {
  %h = stablehlo.constant dense<[[0.0, 0.25, 0.5, 0.75], [0.25, 0.5, 0.75, 1.0], [0.5, 0.75, 1.0, 1.25], [0.75, 1.0, 1.25, 1.5], [1.0, 1.25, 1.5, 0.0], [1.25, 1.5, 0.0, 0.25], [1.5, 0.0, 0.25, 0.5], [0.0, 0.25, 0.5, 0.75], [0.25, 0.5, 0.75, 1.0], [0.5, 0.75, 1.0, 1.25], [0.75, 1.0, 1.25, 1.5], [1.0, 1.25, 1.5, 0.0], [1.25, 1.5, 0.0, 0.25], [1.5, 0.0, 0.25, 0.5], [0.0, 0.25, 0.5, 0.75], [0.25, 0.5, 0.75, 1.0]]> : tensor<16x4xf16>
  %a = stablehlo.convert %h : (tensor<16x4xf16>) -> tensor<16x4xf32>
  %z = stablehlo.dot_general %x, %a, contracting_dims = [1] x [0] : (tensor<64x16xf32>, tensor<16x4xf32>) -> tensor<64x4xf32>
  return %z : tensor<64x4xf32>
}

// CHECK-LABEL: func.func @one_number
// CHECK-NOT: stepwell.widen
func.func @one_number(%x: tensor<1x16xf32>) -> tensor<1x4xf32> {
  %w = stablehlo.constant dense<3> : tensor<16x4xi8>
  %a = stablehlo.convert %w : (tensor<16x4xi8>) -> tensor<16x4xf32>
  %z = stablehlo.dot_general %x, %a, contracting_dims = [1] x [0] : (tensor<1x16xf32>, tensor<16x4xf32>) -> tensor<1x4xf32>
  return %z : tensor<1x4xf32>
}

// CHECK-LABEL: func.func @each_row
// CHECK-NOT: stepwell.widen
func.func @each_row(%x: tensor<1x16xf32>) -> tensor<1x4xf32> {
  %w = stablehlo.constant dense<[[-8, -3, 2, 7], [-5, 0, 5, -6], [-2, 3, -8, -3], [1, 6, -5, 0], [4, -7, -2, 3], [7, -4, 1, 6], [-6, -1, 4, -7], [-3, 2, 7, -4], [0, 5, -6, -1], [3, -8, -3, 2], [6, -5, 0, 5], [-7, -2, 3, -8], [-4, 1, 6, -5], [-1, 4, -7, -2], [2, 7, -4, 1], [5, -6, -1, 4]]> : tensor<16x4xi8>
  %a = stablehlo.convert %w : (tensor<16x4xi8>) -> tensor<16x4xf32>
  %s = stablehlo.constant dense<[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0, 16.0]> : tensor<16xf32>
  %b = stablehlo.broadcast_in_dim %s, dims = [0] : (tensor<16xf32>) -> tensor<16x4xf32>
  %c = stablehlo.multiply %a, %b : tensor<16x4xf32>
  %z = stablehlo.dot_general %x, %c, contracting_dims = [1] x [0] : (tensor<1x16xf32>, tensor<16x4xf32>) -> tensor<1x4xf32>
  return %z : tensor<1x4xf32>
}

// CHECK-LABEL: func.func @argument
// CHECK-NOT: stepwell.widen
func.func @argument(%x: tensor<1x16xf32>, %w: tensor<16x4xi8>) -> tensor<1x4xf32> {
  %a = stablehlo.convert %w : (tensor<16x4xi8>) -> tensor<16x4xf32>
  %z = stablehlo.dot_general %x, %a, contracting_dims = [1] x [0] : (tensor<1x16xf32>, tensor<16x4xf32>) -> tensor<1x4xf32>
  return %z : tensor<1x4xf32>
}

// CHECK-LABEL: func.func @small
// CHECK-NOT: stepwell.widen
func.func @small(%x: tensor<1x2xf32>) -> tensor<1x4xf32> {
  %w = stablehlo.constant dense<[[1, 2, 3, 4], [5, 6, 7, 8]]> : tensor<2x4xi8>
  %a = stablehlo.convert %w : (tensor<2x4xi8>) -> tensor<2x4xf32>
  %z = stablehlo.dot_general %x, %a, contracting_dims = [1] x [0] : (tensor<1x2xf32>, tensor<2x4xf32>) -> tensor<1x4xf32>
  return %z : tensor<1x4xf32>
}
