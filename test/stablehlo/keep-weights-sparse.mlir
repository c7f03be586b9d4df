// RUN: stepwell-opt %s --target=x86_64-v4 \
// RUN:   --pass-pipeline='builtin.module(keep-weights-sparse{least-elements=16})' | filecheck %s
// RUN: stepwell-opt %s --target=x86_64-v4 --precision=strict \
// RUN:   --pass-pipeline='builtin.module(keep-weights-sparse{least-elements=16})' | filecheck %s --check-prefix=OFF
// RUN: stepwell-opt %s --target=cuda:sm_90a \
// RUN:   --pass-pipeline='builtin.module(keep-weights-sparse{least-elements=16})' | filecheck %s --check-prefix=OFF

// OFF-NOT: stepwell.sparse_dot

// Rows 0 and 2 have a term, row 1 has two, row 3 none.
// CHECK-LABEL: func.func @right
// CHECK: %[[T:.*]] = stablehlo.transpose %arg0, dims = [1, 0] : (tensor<256x8xf32>) -> tensor<8x256xf32>
// CHECK: %[[X:.*]] = stablehlo.reshape %[[T]] : (tensor<8x256xf32>) -> tensor<1x8x256xf32>
// CHECK-NEXT: %[[V:.*]] = stablehlo.constant dense<[1.000000e+00, 2.000000e+00, 3.000000e+00, 4.000000e+00]> : tensor<4xf32>
// CHECK-NEXT: %[[P:.*]] = stablehlo.constant dense<[3, 0, 7, 1]> : tensor<4xi16>
// CHECK-NEXT: %[[S:.*]] = stablehlo.constant dense<[0, 1, 3, 4, 4]> : tensor<5xi32>
// CHECK: %[[Y:.*]] = stablehlo.custom_call @stepwell.sparse_dot(%[[V]], %[[P]], %[[S]], %[[X]]) : {{.*}} -> tensor<1x4x256xf32>
// CHECK: %[[R:.*]] = stablehlo.reshape %[[Y]] : (tensor<1x4x256xf32>) -> tensor<4x256xf32>
// CHECK: stablehlo.transpose %[[R]], dims = [1, 0] : (tensor<4x256xf32>) -> tensor<256x4xf32>
func.func @right(%x: tensor<256x8xf32>) -> tensor<256x4xf32> {
  %w = stablehlo.constant dense<[[0.0, 2.0, 0.0, 0.0], [0.0, 0.0, 4.0, 0.0], [0.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0], [0.0, 3.0, 0.0, 0.0]]> : tensor<8x4xf32>
  %z = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<256x8xf32>, tensor<8x4xf32>) -> tensor<256x4xf32>
  return %z : tensor<256x4xf32>
}

// The matrix on the left, its columns contracted: nothing is transposed. It is stored in 16 bits.
// CHECK-LABEL: func.func @left
// CHECK-NOT: stablehlo.dot_general
// CHECK: stablehlo.custom_call @stepwell.sparse_dot({{.*}}) : (tensor<2xf32>, tensor<2xi16>, tensor<5xi32>, tensor<1x8x64xf32>) -> tensor<1x4x64xf32>
// CHECK: %[[R:.*]] = stablehlo.reshape {{.*}} -> tensor<4x2x32xf32>
// CHECK: return %[[R]]
func.func @left(%x: tensor<8x2x32xf32>) -> tensor<4x2x32xf32> {
  %h = stablehlo.constant dense<[[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.5, 0.0]]> : tensor<4x8xf64>
  %w = stablehlo.convert %h : (tensor<4x8xf64>) -> tensor<4x8xf32>
  %z = stablehlo.dot_general %w, %x, contracting_dims = [1] x [0] : (tensor<4x8xf32>, tensor<8x2x32xf32>) -> tensor<4x2x32xf32>
  return %z : tensor<4x2x32xf32>
}

// Windows of one element, images by channels: these are read as they lie, in rows of whole vectors.
// CHECK-LABEL: func.func @pixels
// CHECK: %[[P:.*]] = stablehlo.reshape {{.*}} -> tensor<2x8x36xf32>
// CHECK: %[[X:.*]] = stablehlo.pad %[[P]], %{{.*}}, low = [0, 0, 0], high = [0, 0, 12]{{.*}} -> tensor<2x8x48xf32>
// CHECK: %[[Y:.*]] = stablehlo.custom_call @stepwell.sparse_dot({{.*}}, %[[X]]) : {{.*}} -> tensor<2x4x36xf32>
// CHECK: stablehlo.reshape %[[Y]] : (tensor<2x4x36xf32>) -> tensor<2x4x6x6xf32>
func.func @pixels(%x: tensor<2x8x6x6xf32>) -> tensor<2x4x6x6xf32> {
  %w = stablehlo.constant dense<[[[[0.0]], [[0.0]], [[0.0]], [[0.0]], [[0.0]], [[0.0]], [[0.0]], [[0.0]]], [[[0.0]], [[1.0]], [[0.0]], [[0.0]], [[0.0]], [[0.0]], [[0.0]], [[0.0]]], [[[0.0]], [[0.0]], [[0.0]], [[0.0]], [[0.0]], [[0.0]], [[0.0]], [[0.0]]], [[[0.0]], [[0.0]], [[0.0]], [[0.0]], [[0.0]], [[0.0]], [[0.5]], [[0.0]]]]> : tensor<4x8x1x1xf32>
  %z = stablehlo.convolution(%x, %w) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1], window = {stride = [1, 1]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<2x8x6x6xf32>, tensor<4x8x1x1xf32>) -> tensor<2x4x6x6xf32>
  return %z : tensor<2x4x6x6xf32>
}

// With a stride, of the pixels that are used.
// CHECK-LABEL: func.func @strided
// CHECK: stablehlo.slice %arg0 [0:2, 0:8, 0:7:2, 0:36:2] : (tensor<2x8x7x36xf32>) -> tensor<2x8x4x18xf32>
// CHECK: stablehlo.custom_call @stepwell.sparse_dot({{.*}}) : {{.*}} -> tensor<2x4x72xf32>
func.func @strided(%x: tensor<2x8x7x36xf32>) -> tensor<2x4x4x18xf32> {
  %w = stablehlo.constant dense<[[[[0.0]], [[0.0]], [[0.0]], [[0.0]], [[0.0]], [[0.0]], [[0.0]], [[0.0]]], [[[0.0]], [[1.0]], [[0.0]], [[0.0]], [[0.0]], [[0.0]], [[0.0]], [[0.0]]], [[[0.0]], [[0.0]], [[0.0]], [[0.0]], [[0.0]], [[0.0]], [[0.0]], [[0.0]]], [[[0.0]], [[0.0]], [[0.0]], [[0.0]], [[0.0]], [[0.0]], [[0.5]], [[0.0]]]]> : tensor<4x8x1x1xf32>
  %z = stablehlo.convolution(%x, %w) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1], window = {stride = [2, 2]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<2x8x7x36xf32>, tensor<4x8x1x1xf32>) -> tensor<2x4x4x18xf32>
  return %z : tensor<2x4x4x18xf32>
}

// Rejected: too few zeros; an argument; float64; a matrix of zeros, which is folded.
// CHECK-LABEL: func.func @dense
// CHECK-NOT: stepwell.sparse_dot
func.func @dense(%x: tensor<32x4xf32>) -> tensor<32x4xf32> {
  %w = stablehlo.constant dense<[[1.0, 2.0, 0.0, 3.0], [0.0, 1.0, 4.0, 0.0], [0.0, 0.0, 1.0, 2.0], [1.0, 0.0, 0.0, 1.0]]> : tensor<4x4xf32>
  %z = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<32x4xf32>, tensor<4x4xf32>) -> tensor<32x4xf32>
  return %z : tensor<32x4xf32>
}

// CHECK-LABEL: func.func @argument
// CHECK-NOT: stepwell.sparse_dot
func.func @argument(%x: tensor<32x8xf32>, %w: tensor<8x4xf32>) -> tensor<32x4xf32> {
  %z = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<32x8xf32>, tensor<8x4xf32>) -> tensor<32x4xf32>
  return %z : tensor<32x4xf32>
}

// CHECK-LABEL: func.func @doubles
// CHECK-NOT: stepwell.sparse_dot
func.func @doubles(%x: tensor<32x8xf64>) -> tensor<32x4xf64> {
  %w = stablehlo.constant dense<[[0.0, 2.0, 0.0, 0.0], [0.0, 0.0, 4.0, 0.0], [0.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0], [0.0, 3.0, 0.0, 0.0]]> : tensor<8x4xf64>
  %z = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<32x8xf64>, tensor<8x4xf64>) -> tensor<32x4xf64>
  return %z : tensor<32x4xf64>
}

// CHECK-LABEL: func.func @zeros
// CHECK-NOT: stepwell.sparse_dot
func.func @zeros(%x: tensor<32x8xf32>) -> tensor<32x4xf32> {
  %w = stablehlo.constant dense<0.0> : tensor<8x4xf32>
  %z = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<32x8xf32>, tensor<8x4xf32>) -> tensor<32x4xf32>
  return %z : tensor<32x4xf32>
}
