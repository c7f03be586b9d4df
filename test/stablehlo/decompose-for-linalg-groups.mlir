// RUN: stepwell-opt %s --target=cuda:sm_80 --pass-pipeline='builtin.module(decompose-for-linalg)' | filecheck %s
// RUN: stepwell-opt %s --target=cuda:sm_90a --pass-pipeline='builtin.module(decompose-for-linalg)' | filecheck %s --check-prefix=GROUPS

// How many groups are joined on GPUs. ResNeXt-50 32x4d, 56 x 56 pixels: groups of 4 channels fill
// the 32 columns of a tile of warps, or the 128 bytes of a copy of warpgroups.
// CHECK-LABEL: func.func @narrow
// CHECK: stablehlo.convolution({{.*}} feature_group_count = 4 {{.*}} tensor<3x3x32x128xf16>)
// GROUPS-LABEL: func.func @narrow
// GROUPS: stablehlo.convolution({{.*}} feature_group_count = 2 {{.*}} tensor<3x3x64x128xf16>)
func.func @narrow(%x: tensor<32x56x56x128xf16>) -> tensor<32x56x56x128xf32> {
  %w = stablehlo.constant dense<1.0> : tensor<3x3x4x128xf16>
  %y = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
       window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 32 : i64}
       : (tensor<32x56x56x128xf16>, tensor<3x3x4x128xf16>) -> tensor<32x56x56x128xf32>
  return %y : tensor<32x56x56x128xf32>
}

// Rejected: filters that are joined in every call take longer than few rows; wav2vec2's are too many
// for a constant, and RegNetY-16GF's groups fill tiles by themselves.
// CHECK-LABEL: func.func @rejected
// CHECK: stablehlo.convolution({{.*}} feature_group_count = 32
// CHECK: stablehlo.convolution({{.*}} feature_group_count = 16
// CHECK: stablehlo.convolution({{.*}} feature_group_count = 11
// GROUPS-LABEL: func.func @rejected
// GROUPS: stablehlo.convolution({{.*}} feature_group_count = 32
// GROUPS: stablehlo.convolution({{.*}} feature_group_count = 16
// GROUPS: stablehlo.convolution({{.*}} feature_group_count = 11
func.func @rejected(%x: tensor<1x14x14x256xf16>, %w: tensor<3x3x8x256xf16>, %s: tensor<8x499x768xf16>, %z: tensor<32x14x14x1232xf16>)
    -> (tensor<1x14x14x256xf32>, tensor<8x499x768xf32>, tensor<32x14x14x1232xf32>) {
  %v = stablehlo.constant dense<1.0> : tensor<128x48x768xf16>
  %u = stablehlo.constant dense<1.0> : tensor<3x3x112x1232xf16>
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
       window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 32 : i64}
       : (tensor<1x14x14x256xf16>, tensor<3x3x8x256xf16>) -> tensor<1x14x14x256xf32>
  %1 = stablehlo.convolution(%s, %v) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f],
       window = {pad = [[64, 63]]} {batch_group_count = 1 : i64, feature_group_count = 16 : i64}
       : (tensor<8x499x768xf16>, tensor<128x48x768xf16>) -> tensor<8x499x768xf32>
  %2 = stablehlo.convolution(%z, %u) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
       window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 11 : i64}
       : (tensor<32x14x14x1232xf16>, tensor<3x3x112x1232xf16>) -> tensor<32x14x14x1232xf32>
  return %0, %1, %2 : tensor<1x14x14x256xf32>, tensor<8x499x768xf32>, tensor<32x14x14x1232xf32>
}
