// RUN: stepwell-opt %s --split-input-file --target=x86_64-v4 \
// RUN:   --pass-pipeline='builtin.module(legalize-to-linalg,form-fusion-groups,concatenate-in-place,pack-operands,lower-groups-to-affine)' \
// RUN:   | filecheck %s

// Of a slice, a kernel moves no more than that: 2048 + 512 + 4096 bytes, and 4096 + 2048 + 8192.
// CHECK: func.func private @{{.*}} attributes {kernel.bytes = 6656 : i64
// CHECK: func.func private @{{.*}} attributes {kernel.bytes = 14336 : i64
func.func @slices(%x: tensor<1x8x8x8xf32>, %v: tensor<1x1x8x16xf32>, %w: tensor<1x1x16x32xf32>) -> tensor<1x8x8x48xf32> {
  %a = stablehlo.convolution(%x, %v) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x8x8x8xf32>, tensor<1x1x8x16xf32>) -> tensor<1x8x8x16xf32>
  %b = stablehlo.convolution(%a, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x8x8x16xf32>, tensor<1x1x16x32xf32>) -> tensor<1x8x8x32xf32>
  %c = stablehlo.concatenate %a, %b, dim = 3 : (tensor<1x8x8x16xf32>, tensor<1x8x8x32xf32>) -> tensor<1x8x8x48xf32>
  return %c : tensor<1x8x8x48xf32>
}

// -----

// Whole tensors count as a whole: 2048 + 512 + 4096 bytes.
// CHECK: func.func private @kernel_0{{.*}} attributes {kernel.bytes = 6656 : i64
func.func @whole(%x: tensor<1x8x8x8xf32>, %v: tensor<1x1x8x16xf32>) -> tensor<1x8x8x16xf32> {
  %a = stablehlo.convolution(%x, %v) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x8x8x8xf32>, tensor<1x1x8x16xf32>) -> tensor<1x8x8x16xf32>
  return %a : tensor<1x8x8x16xf32>
}
