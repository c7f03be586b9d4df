// RUN: stepwell-opt %s --target=x86_64-v4 --pass-pipeline='builtin.module(fold-constants,legalize-to-linalg,hoist-constants,choose-convolution)' | filecheck %s
// RUN: stepwell-opt %s --target=x86_64-v4 --pass-pipeline='builtin.module(fold-constants,legalize-to-linalg,hoist-constants,choose-convolution{tile=-1})' | filecheck %s --check-prefix=NEVER

// NEVER-NOT: kernel.winograd

// The padding is widened from 16x16 to the 18x18 that whole 4x4 tiles read.
// CHECK-LABEL: func.func @chosen
// CHECK: tensor.pad %arg0 low[0, 1, 1, 0] high[0, 3, 3, 0]
// CHECK: linalg.generic
// CHECK-SAME: tensor<1x18x18x256xf32>
// CHECK-SAME: kernel.winograd = 4
func.func @chosen(%x: tensor<1x14x14x256xf32>, %w: tensor<3x3x256x256xf32> {stepwell.weight = "w"}) -> tensor<1x14x14x256xf32> {
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x14x14x256xf32>, tensor<3x3x256x256xf32>) -> tensor<1x14x14x256xf32>
  return %0 : tensor<1x14x14x256xf32>
}

// A filter of equal elements becomes a weight: its transform has different ones.
// CHECK-LABEL: func.func @splat
// CHECK-SAME: %arg1: tensor<3x3x256x256xf32> {stepwell.weight =
// CHECK: kernel.winograd = 4
func.func @splat(%x: tensor<1x14x14x256xf32>) -> tensor<1x14x14x256xf32> {
  %w = stablehlo.constant dense<0.5> : tensor<3x3x256x256xf32>
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x14x14x256xf32>, tensor<3x3x256x256xf32>) -> tensor<1x14x14x256xf32>
  return %0 : tensor<1x14x14x256xf32>
}

// Every other row and column is an image of its own: 7 of 14 rows, which tiles cover with 8.
// CHECK-LABEL: func.func @dilated
// CHECK: tensor.pad %arg0 low[0, 2, 2, 0] high[0, 4, 4, 0]
// CHECK: linalg.generic
// CHECK-SAME: tensor<1x20x20x256xf32>
// CHECK-SAME: kernel.winograd = 4
func.func @dilated(%x: tensor<1x14x14x256xf32>, %w: tensor<3x3x256x256xf32> {stepwell.weight = "w"}) -> tensor<1x14x14x256xf32> {
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {pad = [[2, 2], [2, 2]], rhs_dilate = [2, 2]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x14x14x256xf32>, tensor<3x3x256x256xf32>) -> tensor<1x14x14x256xf32>
  return %0 : tensor<1x14x14x256xf32>
}

// The depth of a filter, of any stride, is summed over like channels.
// CHECK-LABEL: func.func @three_dimensions
// CHECK: tensor.pad %arg0 low[0, 1, 1, 1, 0] high[0, 1, 3, 3, 0]
// CHECK: linalg.generic
// CHECK-SAME: kernel.winograd = 4
func.func @three_dimensions(%x: tensor<1x8x14x14x64xf32>, %w: tensor<3x3x3x64x64xf32> {stepwell.weight = "w"}) -> tensor<1x4x14x14x64xf32> {
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, 2, f]x[0, 1, 2, i, o]->[b, 0, 1, 2, f], window = {stride = [2, 1, 1], pad = [[1, 1], [1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x8x14x14x64xf32>, tensor<3x3x3x64x64xf32>) -> tensor<1x4x14x14x64xf32>
  return %0 : tensor<1x4x14x14x64xf32>
}

// Two groups: the padding lies before the reshape that sets their channels apart.
// CHECK-LABEL: func.func @groups
// CHECK: %[[P:.*]] = tensor.pad %arg0 low[0, 1, 1, 0] high[0, 3, 3, 0]
// CHECK: tensor.expand_shape %[[P]] {{.*}} into tensor<1x18x18x2x128xf32>
// CHECK: linalg.generic
// CHECK-SAME: kernel.winograd = 4
func.func @groups(%x: tensor<1x14x14x256xf32>, %w: tensor<3x3x128x256xf32> {stepwell.weight = "w"}) -> tensor<1x14x14x256xf32> {
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 2 : i64} : (tensor<1x14x14x256xf32>, tensor<3x3x128x256xf32>) -> tensor<1x14x14x256xf32>
  return %0 : tensor<1x14x14x256xf32>
}

// Even and odd rows are images of their own: tiles cover 26 rows with 28, which read 57.
// CHECK-LABEL: func.func @strided
// CHECK: tensor.pad %arg0 low[0, 1, 1, 0] high[0, 4, 4, 0]
// CHECK: linalg.generic
// CHECK-SAME: tensor<1x57x57x128xf32>
// CHECK-SAME: kernel.winograd = 4
func.func @strided(%x: tensor<1x52x52x128xf32>, %w: tensor<3x3x128x128xf32> {stepwell.weight = "w"}) -> tensor<1x26x26x128xf32> {
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [2, 2], pad = [[1, 0], [1, 0]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x52x52x128xf32>, tensor<3x3x128x128xf32>) -> tensor<1x26x26x128xf32>
  return %0 : tensor<1x26x26x128xf32>
}

// A filter of 5x5 has tiles of 2x2 alone: 8 of them cover 15 rows, and read 20.
// CHECK-LABEL: func.func @five
// CHECK: tensor.pad %arg0 low[0, 2, 2, 0] high[0, 3, 3, 0]
// CHECK: linalg.generic
// CHECK-SAME: kernel.winograd = 2
func.func @five(%x: tensor<1x15x15x64xf32>, %w: tensor<5x5x64x64xf32> {stepwell.weight = "w"}) -> tensor<1x15x15x64xf32> {
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[2, 2], [2, 2]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x15x15x64xf32>, tensor<5x5x64x64xf32>) -> tensor<1x15x15x64xf32>
  return %0 : tensor<1x15x15x64xf32>
}

// Columns are transformed alone, and padded so.
// CHECK-LABEL: func.func @columns
// CHECK: tensor.pad %arg0 low[0, 0, 3, 0] high[0, 0, 4, 0]
// CHECK: linalg.generic
// CHECK-SAME: kernel.winograd = 2
func.func @columns(%x: tensor<1x17x17x128xf32>, %w: tensor<1x7x128x128xf32> {stepwell.weight = "w"}) -> tensor<1x17x17x128xf32> {
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[0, 0], [3, 3]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x17x17x128xf32>, tensor<1x7x128x128xf32>) -> tensor<1x17x17x128xf32>
  return %0 : tensor<1x17x17x128xf32>
}

// A signal has one dimension.
// CHECK-LABEL: func.func @signal
// CHECK: kernel.winograd = 4
func.func @signal(%x: tensor<1x402x128xf32>, %w: tensor<3x128x128xf32> {stepwell.weight = "w"}) -> tensor<1x400x128xf32> {
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {stride = [1]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x402x128xf32>, tensor<3x128x128xf32>) -> tensor<1x400x128xf32>
  return %0 : tensor<1x400x128xf32>
}

// Eleven terms are three times four, the last of which is zero.
// CHECK-LABEL: func.func @long
// CHECK-SAME: tensor<3x4x128x128xf32> {stepwell.weight = "{{[a-z0-9_]+}}_divided"}
// CHECK: tensor.pad %arg0 low[0, 5, 0] high[0, 6, 0]
// CHECK: linalg.generic {{.*}} ins(%{{.*}}, %{{.*}} : tensor<1x411x128xf32>, tensor<3x4x128x128xf32>)
// CHECK-SAME: kernel.winograd = 4
func.func @long(%x: tensor<1x400x128xf32>) -> tensor<1x400x128xf32> {
  %r = stablehlo.constant dense<[[[1.0, 2.0]]]> : tensor<1x1x2xf32>
  %z = stablehlo.constant dense<0.5> : tensor<f32>
  %w = stablehlo.pad %r, %z, low = [0, 0, 0], high = [10, 127, 126], interior = [0, 0, 0] : (tensor<1x1x2xf32>, tensor<f32>) -> tensor<11x128x128xf32>
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {stride = [1], pad = [[5, 5]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x400x128xf32>, tensor<11x128x128xf32>) -> tensor<1x400x128xf32>
  return %0 : tensor<1x400x128xf32>
}

// Rejected: filters that do not overlap, and one of eleven terms whose data is not known.
// CHECK-LABEL: func.func @windows
// CHECK-NOT: kernel.winograd
func.func @windows(%x: tensor<1x40x128xf32>, %w: tensor<2x128x128xf32> {stepwell.weight = "w"}, %v: tensor<11x128x128xf32> {stepwell.weight = "v"}) -> (tensor<1x20x128xf32>, tensor<1x30x128xf32>) {
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {stride = [2]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x40x128xf32>, tensor<2x128x128xf32>) -> tensor<1x20x128xf32>
  %1 = stablehlo.convolution(%x, %v) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f], window = {stride = [1]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x40x128xf32>, tensor<11x128x128xf32>) -> tensor<1x30x128xf32>
  return %0, %1 : tensor<1x20x128xf32>, tensor<1x30x128xf32>
}

// Rejected: a stride of three, and one of two between dilated terms.
// CHECK-LABEL: func.func @far_apart
// CHECK-NOT: kernel.winograd
func.func @far_apart(%x: tensor<1x45x45x128xf32>, %w: tensor<3x3x128x128xf32> {stepwell.weight = "w"}) -> (tensor<1x15x15x128xf32>, tensor<1x21x21x128xf32>) {
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [3, 3]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x45x45x128xf32>, tensor<3x3x128x128xf32>) -> tensor<1x15x15x128xf32>
  %1 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [2, 2], rhs_dilate = [2, 2]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x45x45x128xf32>, tensor<3x3x128x128xf32>) -> tensor<1x21x21x128xf32>
  return %0, %1 : tensor<1x15x15x128xf32>, tensor<1x21x21x128xf32>
}

// Rejected: the filter is an argument of the model, and not known to be the same at every call.
// CHECK-LABEL: func.func @argument
// CHECK-NOT: kernel.winograd
func.func @argument(%x: tensor<1x16x16x256xf32>, %w: tensor<3x3x256x256xf32>) -> tensor<1x14x14x256xf32> {
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x16x16x256xf32>, tensor<3x3x256x256xf32>) -> tensor<1x14x14x256xf32>
  return %0 : tensor<1x14x14x256xf32>
}
