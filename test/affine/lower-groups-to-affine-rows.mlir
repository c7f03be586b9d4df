// RUN: stepwell-opt %s --split-input-file --target=x86_64-v4 --pass-pipeline='builtin.module(legalize-to-linalg,form-fusion-groups,lower-groups-to-affine)' | filecheck %s

// Rows of 768 channels that windows of 9x9 read again are more than L2 holds: tasks go through a part
// of the channels of all rows before the next part.
// CHECK-LABEL: func.func private @kernel
// CHECK: affine.parallel (%{{.*}}) = (0) to (192)
// CHECK: affine.for %{{.*}} = 0 to 256 step 16
func.func @windows(%x: tensor<1x40x40x768xf32>, %w: tensor<9x9x1x768xf32>) -> tensor<1x32x32x768xf32> {
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {} {batch_group_count = 1 : i64, feature_group_count = 768 : i64} : (tensor<1x40x40x768xf32>, tensor<9x9x1x768xf32>) -> tensor<1x32x32x768xf32>
  return %0 : tensor<1x32x32x768xf32>
}

// -----

// Rejected: a sum reads nothing twice, however long its rows are, and each task takes all channels.
// CHECK-LABEL: func.func private @kernel
// CHECK: affine.parallel (%{{.*}}) = (0) to (256)
// CHECK: affine.for %{{.*}} = 0 to 4096 step
func.func @sums(%x: tensor<256x64x4096xf32>) -> tensor<256x4096xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<256x64x4096xf32>, tensor<f32>) -> tensor<256x4096xf32>
  return %0 : tensor<256x4096xf32>
}

// -----

// Exponentials of long rows are kept where the result will be.
// CHECK-LABEL: func.func @long_rows
// CHECK: func.func private @kernel_0(%{{.*}}, %[[OUT:.*]]: memref<4x8192xf32>)
// CHECK-NOT: memref.alloca
// CHECK: %[[FLAT:.*]] = memref.collapse_shape %[[OUT]]
// CHECK: math.exp %{{.*}} : vector<16xf32>
// CHECK: affine.vector_store %{{.*}}, %[[FLAT]]
// CHECK-NOT: math.exp
// CHECK: affine.vector_load %[[FLAT]]
func.func @long_rows(%x: tensor<4x8192xf32>) -> tensor<4x8192xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.exponential %x : tensor<4x8192xf32>
  %1 = stablehlo.reduce(%0 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<4x8192xf32>, tensor<f32>) -> tensor<4xf32>
  %2 = stablehlo.broadcast_in_dim %1, dims = [0] : (tensor<4xf32>) -> tensor<4x8192xf32>
  %3 = stablehlo.divide %0, %2 : tensor<4x8192xf32>
  return %3 : tensor<4x8192xf32>
}

// -----

// Rejected: a result of another type has no place for them.
// CHECK-LABEL: func.func @narrower_result
// CHECK: memref.alloca() {alignment = 64 : i64} : memref<8192xf32>
func.func @narrower_result(%x: tensor<4x8192xf32>) -> tensor<4x8192xf16> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.exponential %x : tensor<4x8192xf32>
  %1 = stablehlo.reduce(%0 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<4x8192xf32>, tensor<f32>) -> tensor<4xf32>
  %2 = stablehlo.broadcast_in_dim %1, dims = [0] : (tensor<4xf32>) -> tensor<4x8192xf32>
  %3 = stablehlo.divide %0, %2 : tensor<4x8192xf32>
  %4 = stablehlo.convert %3 : (tensor<4x8192xf32>) -> tensor<4x8192xf16>
  return %4 : tensor<4x8192xf16>
}

// -----

// Exponentials of halves are kept too, though they are added up as f32.
// CHECK-LABEL: func.func @halves
// CHECK: %[[KEPT:.*]] = memref.alloca() {alignment = 64 : i64} : memref<64xf16>
// CHECK: math.exp %{{.*}} : vector<16xf16>
// CHECK: affine.vector_store %{{.*}}, %[[KEPT]]
// CHECK-NOT: math.exp
// CHECK: affine.vector_load %[[KEPT]]
func.func @halves(%x: tensor<4x64xf16>) -> tensor<4x64xf16> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.exponential %x : tensor<4x64xf16>
  %1 = stablehlo.convert %0 : (tensor<4x64xf16>) -> tensor<4x64xf32>
  %2 = stablehlo.reduce(%1 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<4x64xf32>, tensor<f32>) -> tensor<4xf32>
  %3 = stablehlo.convert %2 : (tensor<4xf32>) -> tensor<4xf16>
  %4 = stablehlo.broadcast_in_dim %3, dims = [0] : (tensor<4xf16>) -> tensor<4x64xf16>
  %5 = stablehlo.divide %0, %4 : tensor<4x64xf16>
  return %5 : tensor<4x64xf16>
}

// -----

// The second pass over a row asks for the next row, into L1.
// CHECK-LABEL: func.func @next_row
// CHECK: func.func private @kernel_0(%[[X:.*]]: memref<64x1024xf32>, %{{.*}}: memref<64x1024xf32>)
// CHECK: %[[FLAT:.*]] = memref.collapse_shape %[[X]]
// CHECK: affine.parallel (%[[ROW:.*]]) = (0) to (64)
// CHECK-NOT: affine.prefetch
// CHECK: arith.addf
// CHECK: affine.for %[[I:.*]] = 0 to 1024 step 16
// CHECK: affine.prefetch %[[FLAT]][%[[ROW]] * 1024 + %[[I]] + 1024], read, locality<3>, data
func.func @next_row(%x: tensor<64x1024xf32>) -> tensor<64x1024xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<64x1024xf32>, tensor<f32>) -> tensor<64xf32>
  %1 = stablehlo.broadcast_in_dim %0, dims = [0] : (tensor<64xf32>) -> tensor<64x1024xf32>
  %2 = stablehlo.divide %x, %1 : tensor<64x1024xf32>
  return %2 : tensor<64x1024xf32>
}

// -----

// Rejected: two rows of 16,384 bytes and more do not fit L1, and one that is read once is asked for by
// nobody.
// CHECK-LABEL: func.func @long_row
// CHECK-NOT: affine.prefetch
func.func @long_row(%x: tensor<64x4096xf32>) -> (tensor<64x4096xf32>, tensor<64xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<64x4096xf32>, tensor<f32>) -> tensor<64xf32>
  %1 = stablehlo.broadcast_in_dim %0, dims = [0] : (tensor<64xf32>) -> tensor<64x4096xf32>
  %2 = stablehlo.divide %x, %1 : tensor<64x4096xf32>
  return %2, %0 : tensor<64x4096xf32>, tensor<64xf32>
}
