// RUN: stepwell-opt %s --target=x86_64-v4 --pass-pipeline='builtin.module(widen-accumulation)' | filecheck %s
// RUN: stepwell-opt %s --target=cuda:sm_80 --pass-pipeline='builtin.module(widen-accumulation)' \
// RUN:   | filecheck %s --check-prefix=GPU
// RUN: stepwell-opt %s --target=x86_64-v4+vnni+bf16 \
// RUN:   --pass-pipeline='builtin.module(widen-accumulation)' | filecheck %s --check-prefix=BFLOAT

// GPU-LABEL: func.func @dot
// GPU-NEXT: %[[Z:.*]] = stablehlo.dot_general %arg0, %arg1, {{.*}} : (tensor<4x64xbf16>, tensor<64x8xbf16>) -> tensor<4x8xf32>
// GPU-NEXT: stablehlo.convert %[[Z]] : (tensor<4x8xf32>) -> tensor<4x8xbf16>

// CHECK-LABEL: func.func @dot
// CHECK: %[[X:.*]] = stablehlo.convert %arg0 : (tensor<4x64xbf16>) -> tensor<4x64xf32>
// CHECK: %[[Y:.*]] = stablehlo.convert %arg1 : (tensor<64x8xbf16>) -> tensor<64x8xf32>
// CHECK: %[[Z:.*]] = stablehlo.dot_general %[[X]], %[[Y]], {{.*}} -> tensor<4x8xf32>
// CHECK: stablehlo.convert %[[Z]] : (tensor<4x8xf32>) -> tensor<4x8xbf16>
func.func @dot(%x: tensor<4x64xbf16>, %y: tensor<64x8xbf16>) -> tensor<4x8xbf16> {
  %z = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT]
       : (tensor<4x64xbf16>, tensor<64x8xbf16>) -> tensor<4x8xbf16>
  return %z : tensor<4x8xbf16>
}

// CHECK-LABEL: func.func @sum
// CHECK: %[[S:.*]] = stablehlo.reduce{{.*}}stablehlo.add{{.*}} -> tensor<4xf32>
// CHECK: stablehlo.convert %[[S]] : (tensor<4xf32>) -> tensor<4xf16>
// CHECK: stablehlo.reduce{{.*}}stablehlo.maximum{{.*}} -> tensor<4xf16>
func.func @sum(%a: tensor<4x8xf16>) -> (tensor<4xf16>, tensor<4xf16>) {
  %z = stablehlo.constant dense<0.0> : tensor<f16>
  %s = stablehlo.reduce(%a init: %z) applies stablehlo.add across dimensions = [1]
       : (tensor<4x8xf16>, tensor<f16>) -> tensor<4xf16>
  %m = stablehlo.reduce(%a init: %z) applies stablehlo.maximum across dimensions = [1]
       : (tensor<4x8xf16>, tensor<f16>) -> tensor<4xf16>
  return %s, %m : tensor<4xf16>, tensor<4xf16>
}

// CHECK-LABEL: func.func @rejected
// CHECK-NEXT: stablehlo.dot_general
// CHECK-NEXT: return
func.func @rejected(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %z = stablehlo.dot_general %x, %x, contracting_dims = [1] x [0]
       : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  return %z : tensor<4x4xf32>
}

// GPU-LABEL: func.func @depthwise
// GPU: stablehlo.convolution{{.*}} : (tensor<1x8x8x4xf32>, tensor<3x3x1x4xf32>) -> tensor<1x6x6x4xf32>
// GPU: stablehlo.convolution{{.*}} : (tensor<1x8x8x4xf16>, tensor<3x3x2x4xf16>) -> tensor<1x6x6x4xf32>
// CHECK-LABEL: func.func @depthwise
func.func @depthwise(%x: tensor<1x8x8x4xf16>, %w: tensor<3x3x1x4xf16>, %v: tensor<3x3x2x4xf16>)
    -> (tensor<1x6x6x4xf16>, tensor<1x6x6x4xf16>) {
  %y = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
       window = {} {batch_group_count = 1 : i64, feature_group_count = 4 : i64}
       : (tensor<1x8x8x4xf16>, tensor<3x3x1x4xf16>) -> tensor<1x6x6x4xf16>
  %z = stablehlo.convolution(%x, %v) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
       window = {} {batch_group_count = 1 : i64, feature_group_count = 2 : i64}
       : (tensor<1x8x8x4xf16>, tensor<3x3x2x4xf16>) -> tensor<1x6x6x4xf16>
  return %y, %z : tensor<1x6x6x4xf16>, tensor<1x6x6x4xf16>
}

// A CPU with products of bf16 keeps operands of words.
// BFLOAT-LABEL: func.func @words
// BFLOAT-NEXT: %[[Y:.*]] = stablehlo.dot_general %arg0, %arg1, {{.*}} : (tensor<4x64xbf16>, tensor<64x32xbf16>) -> tensor<4x32xf32>
// BFLOAT-NEXT: stablehlo.convert %[[Y]] : (tensor<4x32xf32>) -> tensor<4x32xbf16>
// BFLOAT-NEXT: stablehlo.convolution(%arg2, %arg3) {{.*}} : (tensor<1x8x8x4xbf16>, tensor<1x1x4x16xbf16>) -> tensor<1x8x8x16xf32>
// CHECK-LABEL: func.func @words
func.func @words(%x: tensor<4x64xbf16>, %w: tensor<64x32xbf16>, %a: tensor<1x8x8x4xbf16>, %v: tensor<1x1x4x16xbf16>)
    -> (tensor<4x32xbf16>, tensor<1x8x8x16xf32>) {
  %y = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<4x64xbf16>, tensor<64x32xbf16>) -> tensor<4x32xbf16>
  %z = stablehlo.convolution(%a, %v) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
       window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
       : (tensor<1x8x8x4xbf16>, tensor<1x1x4x16xbf16>) -> tensor<1x8x8x16xf32>
  return %y, %z : tensor<4x32xbf16>, tensor<1x8x8x16xf32>
}

// Rejected: odd sums, few columns, batches (attention), windows.
// BFLOAT-LABEL: func.func @no_words
// BFLOAT-COUNT-3: stablehlo.dot_general {{.*}}xf32>, tensor<{{.*}}xf32>) ->
// BFLOAT: stablehlo.convolution{{.*}} : (tensor<1x8x8x4xf32>, tensor<3x3x4x16xf32>)
// CHECK-LABEL: func.func @no_words
func.func @no_words(%x: tensor<4x63xbf16>, %w: tensor<63x32xbf16>, %u: tensor<63x8xbf16>, %q: tensor<2x4x64xbf16>, %k: tensor<2x64x32xbf16>, %a: tensor<1x8x8x4xbf16>, %v: tensor<3x3x4x16xbf16>)
    -> (tensor<4x32xf32>, tensor<4x8xf32>, tensor<2x4x32xf32>, tensor<1x6x6x16xf32>) {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<4x63xbf16>, tensor<63x32xbf16>) -> tensor<4x32xf32>
  %1 = stablehlo.dot_general %x, %u, contracting_dims = [1] x [0] : (tensor<4x63xbf16>, tensor<63x8xbf16>) -> tensor<4x8xf32>
  %2 = stablehlo.dot_general %q, %k, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<2x4x64xbf16>, tensor<2x64x32xbf16>) -> tensor<2x4x32xf32>
  %3 = stablehlo.convolution(%a, %v) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
       window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
       : (tensor<1x8x8x4xbf16>, tensor<3x3x4x16xbf16>) -> tensor<1x6x6x16xf32>
  return %0, %1, %2, %3 : tensor<4x32xf32>, tensor<4x8xf32>, tensor<2x4x32xf32>, tensor<1x6x6x16xf32>
}

// Matrices that a gather takes several times become f32 in front of it, or stay.
// CHECK-LABEL: func.func @matrices
// CHECK: %[[W:.*]] = stablehlo.convert %arg1 : (tensor<2x64x32xbf16>) -> tensor<2x64x32xf32>
// CHECK: "stablehlo.gather"(%[[W]], %arg2) {{.*}} -> tensor<3x64x32xf32>
// BFLOAT-LABEL: func.func @matrices
// BFLOAT: %[[M:.*]] = "stablehlo.gather"(%arg1, %arg2) {{.*}} -> tensor<3x64x32xbf16>
// BFLOAT: stablehlo.dot_general %arg0, %[[M]], {{.*}} -> tensor<3x4x32xf32>
func.func @matrices(%x: tensor<3x4x64xbf16>, %w: tensor<2x64x32xbf16>, %n: tensor<3x1xi32>) -> tensor<3x4x32xbf16> {
  %m = "stablehlo.gather"(%w, %n) <{dimension_numbers = #stablehlo.gather<offset_dims = [1, 2], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 64, 32>}> : (tensor<2x64x32xbf16>, tensor<3x1xi32>) -> tensor<3x64x32xbf16>
  %z = stablehlo.dot_general %x, %m, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<3x4x64xbf16>, tensor<3x64x32xbf16>) -> tensor<3x4x32xbf16>
  return %z : tensor<3x4x32xbf16>
}
