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
