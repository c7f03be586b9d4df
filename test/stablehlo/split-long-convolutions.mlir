// RUN: stepwell-opt %s --target=cuda:sm_90a --pass-pipeline='builtin.module(split-long-convolutions)' | filecheck %s
// RUN: stepwell-opt %s --pass-pipeline='builtin.module(split-long-convolutions)' | filecheck %s --check-prefix=CPU

// CPU-NOT: stablehlo.reduce

// CHECK-LABEL: func.func @few_outputs
// CHECK: %[[W:.*]] = stablehlo.reshape %{{.*}} : (tensor<3x3x512x512xf16>) -> tensor<3x3x[[P:[0-9]+]]x[[C:[0-9]+]]x512xf16>
// CHECK: %[[T:.*]] = stablehlo.transpose %[[W]], dims = [0, 1, 3, 2, 4] : {{.*}} -> tensor<3x3x[[C]]x[[P]]x512xf16>
// CHECK: %[[G:.*]] = stablehlo.reshape %[[T]] : {{.*}} -> tensor<3x3x[[C]]x[[O:[0-9]+]]xf16>
// CHECK: %[[Z:.*]] = stablehlo.convolution(%arg0, %[[G]]) {{.*}} feature_group_count = [[P]] : i64
// CHECK-SAME: -> tensor<1x7x7x[[O]]xf32>
// CHECK: %[[S:.*]] = stablehlo.reshape %[[Z]] : {{.*}} -> tensor<1x7x7x[[P]]x512xf32>
// CHECK: stablehlo.slice %[[S]] [0:1, 0:7, 0:7, 0:1, 0:512]
// CHECK: stablehlo.slice %[[S]] [0:1, 0:7, 0:7, 1:2, 0:512]
// CHECK: stablehlo.add
func.func @few_outputs(%x: tensor<1x7x7x512xf16>) -> tensor<1x7x7x512xf32> {
  %w = stablehlo.constant dense<1.0> : tensor<3x3x512x512xf16>
  %z = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
       window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
       : (tensor<1x7x7x512xf16>, tensor<3x3x512x512xf16>) -> tensor<1x7x7x512xf32>
  return %z : tensor<1x7x7x512xf32>
}

// The outputs of the kernel before its inputs.
// CHECK-LABEL: func.func @outputs_first
// CHECK: stablehlo.transpose %{{.*}}, dims = [3, 0, 1, 2, 4] : (tensor<512x3x3x[[P:[0-9]+]]x[[C:[0-9]+]]xi8>) -> tensor<[[P]]x512x3x3x[[C]]xi8>
func.func @outputs_first(%x: tensor<1x7x7x1024xi8>) -> tensor<1x7x7x512xi32> {
  %w = stablehlo.constant dense<1> : tensor<512x3x3x1024xi8>
  %z = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[o, 0, 1, i]->[b, 0, 1, f],
       window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
       : (tensor<1x7x7x1024xi8>, tensor<512x3x3x1024xi8>) -> tensor<1x7x7x512xi32>
  return %z : tensor<1x7x7x512xi32>
}

// An argument with its outputs last.
// CHECK-LABEL: func.func @argument
// CHECK: %[[T:.*]] = stablehlo.transpose %{{.*}}, dims = [0, 1, 3, 2, 4] : (tensor<3x3x[[P:[0-9]+]]x[[C:[0-9]+]]x512xf32>)
// CHECK: stablehlo.convolution({{.*}} feature_group_count = [[P]]
// CHECK: stablehlo.add
func.func @argument(%x: tensor<1x7x7x512xf32>, %w: tensor<3x3x512x512xf32>) -> tensor<1x7x7x512xf32> {
  %z = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
       window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
       : (tensor<1x7x7x512xf32>, tensor<3x3x512x512xf32>) -> tensor<1x7x7x512xf32>
  return %z : tensor<1x7x7x512xf32>
}

// Rejected: outputs that fill the GPU, few channels, groups, channels first, a kernel that is
// computed, or an argument with its inputs last.
// CHECK-LABEL: func.func @rejected
// CHECK-NOT: stablehlo.reduce
func.func @rejected(%x: tensor<32x56x56x256xf16>, %y: tensor<1x7x7x64xf16>, %u: tensor<1x7x7x512xf16>,
                    %t: tensor<1x512x7x7xf16>, %a: tensor<3x3x512x512xf16>, %o: tensor<3x3x512x512xf16>)
    -> (tensor<32x56x56x256xf32>, tensor<1x7x7x512xf32>, tensor<1x7x7x512xf32>, tensor<1x512x7x7xf32>, tensor<1x7x7x512xf32>, tensor<1x7x7x512xf32>) {
  %w = stablehlo.constant dense<1.0> : tensor<3x3x256x256xf16>
  %v = stablehlo.constant dense<1.0> : tensor<3x3x64x512xf16>
  %g = stablehlo.constant dense<1.0> : tensor<3x3x256x512xf16>
  %k = stablehlo.constant dense<1.0> : tensor<3x3x512x512xf16>
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
       window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
       : (tensor<32x56x56x256xf16>, tensor<3x3x256x256xf16>) -> tensor<32x56x56x256xf32>
  %1 = stablehlo.convolution(%y, %v) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
       window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
       : (tensor<1x7x7x64xf16>, tensor<3x3x64x512xf16>) -> tensor<1x7x7x512xf32>
  %2 = stablehlo.convolution(%u, %g) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
       window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 2 : i64}
       : (tensor<1x7x7x512xf16>, tensor<3x3x256x512xf16>) -> tensor<1x7x7x512xf32>
  %3 = stablehlo.convolution(%t, %k) dim_numbers = [b, f, 0, 1]x[0, 1, i, o]->[b, f, 0, 1],
       window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
       : (tensor<1x512x7x7xf16>, tensor<3x3x512x512xf16>) -> tensor<1x512x7x7xf32>
  %b = stablehlo.add %a, %o : tensor<3x3x512x512xf16>
  %4 = stablehlo.convolution(%u, %b) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
       window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
       : (tensor<1x7x7x512xf16>, tensor<3x3x512x512xf16>) -> tensor<1x7x7x512xf32>
  %5 = stablehlo.convolution(%u, %o) dim_numbers = [b, 0, 1, f]x[0, 1, o, i]->[b, 0, 1, f],
       window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
       : (tensor<1x7x7x512xf16>, tensor<3x3x512x512xf16>) -> tensor<1x7x7x512xf32>
  return %0, %1, %2, %3, %4, %5 : tensor<32x56x56x256xf32>, tensor<1x7x7x512xf32>, tensor<1x7x7x512xf32>, tensor<1x512x7x7xf32>, tensor<1x7x7x512xf32>, tensor<1x7x7x512xf32>
}
