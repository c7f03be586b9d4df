// RUN: stepwell-opt %s --target=cuda:sm_90a --pass-pipeline='builtin.module(fill-channels)' | filecheck %s
// RUN: stepwell-opt %s --pass-pipeline='builtin.module(fill-channels)' | filecheck %s --check-prefix=CPU

// CPU-NOT: stablehlo.pad

// CHECK-LABEL: func.func @stem
// CHECK: %[[X:.*]] = stablehlo.pad %arg0, %{{.*}}, low = [0, 3, 3, 0], high = [0, 3, 3, 1]
// CHECK: %[[R:.*]] = stablehlo.reshape %[[X]] : (tensor<1x230x230x4xf16>) -> tensor<1x115x2x115x2x4xf16>
// CHECK: %[[T:.*]] = stablehlo.transpose %[[R]], dims = [0, 1, 3, 2, 4, 5]
// CHECK: %[[I:.*]] = stablehlo.reshape %[[T]] : {{.*}} -> tensor<1x115x115x16xf16>
// CHECK: %[[W:.*]] = stablehlo.reshape %{{.*}} -> tensor<4x4x16x64xf16>
// CHECK: stablehlo.convolution(%[[I]], %[[W]]) {{.*}}stride = [1, 1]
// CHECK-SAME: -> tensor<1x112x112x64xf32>
func.func @stem(%x: tensor<1x224x224x3xf16>) -> tensor<1x112x112x64xf32> {
  %w = stablehlo.constant dense<1.0> : tensor<7x7x3x64xf16>
  %z = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
       window = {stride = [2, 2], pad = [[3, 3], [3, 3]]}
       {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
       : (tensor<1x224x224x3xf16>, tensor<7x7x3x64xf16>) -> tensor<1x112x112x64xf32>
  return %z : tensor<1x112x112x64xf32>
}

// Rejected: whole chunks, filters that are computed, types without tensor cores, channels first, windows
// that are read backwards.
// CHECK-LABEL: func.func @rejected
// CHECK-NOT: stablehlo.pad
func.func @rejected(%x: tensor<1x32x32x8xf16>, %y: tensor<1x32x32x3xf16>, %f: tensor<1x32x32x3xf64>,
                    %t: tensor<1x3x32x32xf16>, %v: tensor<3x3x3x64xf16>)
    -> (tensor<1x30x30x64xf32>, tensor<1x30x30x64xf32>, tensor<1x30x30x64xf64>, tensor<1x64x30x30xf32>, tensor<1x30x30x64xf32>) {
  %w8 = stablehlo.constant dense<1.0> : tensor<3x3x8x64xf16>
  %w3 = stablehlo.constant dense<1.0> : tensor<3x3x3x64xf16>
  %wf = stablehlo.constant dense<1.0> : tensor<3x3x3x64xf64>
  %0 = stablehlo.convolution(%x, %w8) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {}
       {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
       : (tensor<1x32x32x8xf16>, tensor<3x3x8x64xf16>) -> tensor<1x30x30x64xf32>
  %1 = stablehlo.convolution(%y, %v) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {}
       {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
       : (tensor<1x32x32x3xf16>, tensor<3x3x3x64xf16>) -> tensor<1x30x30x64xf32>
  %2 = stablehlo.convolution(%f, %wf) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {}
       {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
       : (tensor<1x32x32x3xf64>, tensor<3x3x3x64xf64>) -> tensor<1x30x30x64xf64>
  %3 = stablehlo.convolution(%t, %w3) dim_numbers = [b, f, 0, 1]x[0, 1, i, o]->[b, f, 0, 1], window = {}
       {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
       : (tensor<1x3x32x32xf16>, tensor<3x3x3x64xf16>) -> tensor<1x64x30x30xf32>
  %4 = stablehlo.convolution(%y, %w3) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {reverse = [true, false]}
       {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
       : (tensor<1x32x32x3xf16>, tensor<3x3x3x64xf16>) -> tensor<1x30x30x64xf32>
  return %0, %1, %2, %3, %4 : tensor<1x30x30x64xf32>, tensor<1x30x30x64xf32>, tensor<1x30x30x64xf64>, tensor<1x64x30x30xf32>, tensor<1x30x30x64xf32>
}
