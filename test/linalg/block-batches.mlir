// RUN: stepwell-opt %s --pass-pipeline='block-batches{cache-bytes=1500000}' --split-input-file --target=x86_64-v3 | filecheck %s

// All of the batch is more than the cache holds, one image is not: image by image. What is the same
// for every image stays outside of the loop, and the result begins as nothing.
// CHECK-LABEL: func.func @in_parts
// CHECK: %[[BIAS:.*]] = stablehlo.broadcast_in_dim %arg3, dims = [3] : (tensor<64xf32>) -> tensor<1x56x56x64xf32>
// CHECK: %[[OUT:.*]] = tensor.empty() : tensor<8x56x56x64xf32>
// CHECK: stablehlo.while(%[[I:.*]] = %{{.*}}, %[[Y:.*]] = %[[OUT]])
// CHECK: do
// CHECK: %[[PART:.*]] = stablehlo.dynamic_slice %arg0, %[[I]], {{.*}} sizes = [1, 56, 56, 64]
// CHECK: %[[A:.*]] = stablehlo.convolution(%[[PART]], %arg1)
// CHECK: %[[B:.*]] = stablehlo.add %[[A]], %[[BIAS]] : tensor<1x56x56x64xf32>
// CHECK: %[[C:.*]] = stablehlo.convolution(%[[B]], %arg2)
// CHECK: %[[D:.*]] = stablehlo.add %[[C]], %[[PART]]
// CHECK: stablehlo.dynamic_update_slice %[[Y]], %[[D]], %[[I]]
// CHECK-NOT: tensor<8x56x56x64xf32>)
// CHECK: return
func.func @in_parts(%x: tensor<8x56x56x64xf32>, %v: tensor<1x1x64x64xf32>, %w: tensor<1x1x64x64xf32>, %b: tensor<64xf32>) -> tensor<8x56x56x64xf32> {
  %bias = stablehlo.broadcast_in_dim %b, dims = [3] : (tensor<64xf32>) -> tensor<8x56x56x64xf32>
  %0 = stablehlo.convolution(%x, %v) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<8x56x56x64xf32>, tensor<1x1x64x64xf32>) -> tensor<8x56x56x64xf32>
  %1 = stablehlo.add %0, %bias : tensor<8x56x56x64xf32>
  %2 = stablehlo.convolution(%1, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<8x56x56x64xf32>, tensor<1x1x64x64xf32>) -> tensor<8x56x56x64xf32>
  %3 = stablehlo.add %2, %x : tensor<8x56x56x64xf32>
  return %3 : tensor<8x56x56x64xf32>
}

// -----

// The first two layers only: the filters of the last two are read once for the whole batch.
// CHECK-LABEL: func.func @first_layers
// CHECK: stablehlo.while
// CHECK: stablehlo.convolution
// CHECK-SAME: -> tensor<1x56x56x64xf32>
// CHECK: stablehlo.convolution
// CHECK-SAME: -> tensor<1x2x2x64xf32>
// CHECK: stablehlo.convolution
// CHECK-SAME: -> tensor<8x2x2x2048xf32>
// CHECK: stablehlo.convolution
// CHECK-SAME: -> tensor<8x2x2x512xf32>
func.func @first_layers(%x: tensor<8x56x56x64xf32>, %v: tensor<1x1x64x64xf32>, %w: tensor<1x1x64x64xf32>, %u: tensor<1x1x64x2048xf32>, %t: tensor<1x1x2048x512xf32>) -> tensor<8x2x2x512xf32> {
  %0 = stablehlo.convolution(%x, %v) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<8x56x56x64xf32>, tensor<1x1x64x64xf32>) -> tensor<8x56x56x64xf32>
  %1 = stablehlo.convolution(%0, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [28, 28]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<8x56x56x64xf32>, tensor<1x1x64x64xf32>) -> tensor<8x2x2x64xf32>
  %2 = stablehlo.convolution(%1, %u) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<8x2x2x64xf32>, tensor<1x1x64x2048xf32>) -> tensor<8x2x2x2048xf32>
  %3 = stablehlo.convolution(%2, %t) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<8x2x2x2048xf32>, tensor<1x1x2048x512xf32>) -> tensor<8x2x2x512xf32>
  return %3 : tensor<8x2x2x512xf32>
}

// -----

// Rejected: the cache holds all of it.
// CHECK-LABEL: func.func @small
// CHECK-NOT: stablehlo.while
func.func @small(%x: tensor<8x14x14x16xf32>, %v: tensor<1x1x16x16xf32>) -> tensor<8x14x14x16xf32> {
  %0 = stablehlo.convolution(%x, %v) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<8x14x14x16xf32>, tensor<1x1x16x16xf32>) -> tensor<8x14x14x16xf32>
  %1 = stablehlo.convolution(%0, %v) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<8x14x14x16xf32>, tensor<1x1x16x16xf32>) -> tensor<8x14x14x16xf32>
  return %1 : tensor<8x14x14x16xf32>
}

// -----

// Rejected: a mean over the batch stands between the layers.
// CHECK-LABEL: func.func @mean_of_the_batch
// CHECK-NOT: stablehlo.while
func.func @mean_of_the_batch(%x: tensor<8x56x56x64xf32>, %v: tensor<1x1x64x64xf32>) -> tensor<8x56x56x64xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.convolution(%x, %v) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<8x56x56x64xf32>, tensor<1x1x64x64xf32>) -> tensor<8x56x56x64xf32>
  %1 = stablehlo.reduce(%0 init: %zero) applies stablehlo.add across dimensions = [0, 1, 2] : (tensor<8x56x56x64xf32>, tensor<f32>) -> tensor<64xf32>
  %2 = stablehlo.broadcast_in_dim %1, dims = [3] : (tensor<64xf32>) -> tensor<8x56x56x64xf32>
  %3 = stablehlo.subtract %0, %2 : tensor<8x56x56x64xf32>
  return %3 : tensor<8x56x56x64xf32>
}

// -----

// Rejected: products of the images with one another, as in attention, end the layers.
// CHECK-LABEL: func.func @products
// CHECK-NOT: stablehlo.while
func.func @products(%x: tensor<8x56x56x64xf32>, %v: tensor<1x1x64x64xf32>) -> tensor<8x56x56x56xf32> {
  %0 = stablehlo.convolution(%x, %v) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<8x56x56x64xf32>, tensor<1x1x64x64xf32>) -> tensor<8x56x56x64xf32>
  %1 = stablehlo.dot_general %0, %0, batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [3] : (tensor<8x56x56x64xf32>, tensor<8x56x56x64xf32>) -> tensor<8x56x56x56xf32>
  return %1 : tensor<8x56x56x56xf32>
}

// -----

// A branch that reads an image without having it as an operand ends the layers before it: it stands
// between two loops.
// CHECK-LABEL: func.func @branch
// CHECK: %[[FIRST:.*]]:2 = stablehlo.while
// CHECK: stablehlo.dynamic_update_slice
// CHECK: "stablehlo.if"(%arg2)
// CHECK: stablehlo.negate %[[FIRST]]#1
// CHECK: stablehlo.while
func.func @branch(%x: tensor<8x56x56x64xf32>, %v: tensor<1x1x64x64xf32>, %c: tensor<i1>) -> (tensor<8x56x56x64xf32>, tensor<8x56x56x64xf32>) {
  %0 = stablehlo.convolution(%x, %v) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<8x56x56x64xf32>, tensor<1x1x64x64xf32>) -> tensor<8x56x56x64xf32>
  %1 = stablehlo.convolution(%0, %v) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<8x56x56x64xf32>, tensor<1x1x64x64xf32>) -> tensor<8x56x56x64xf32>
  %2 = "stablehlo.if"(%c) ({
    %a = stablehlo.negate %1 : tensor<8x56x56x64xf32>
    stablehlo.return %a : tensor<8x56x56x64xf32>
  }, {
    stablehlo.return %1 : tensor<8x56x56x64xf32>
  }) : (tensor<i1>) -> tensor<8x56x56x64xf32>
  %3 = stablehlo.convolution(%1, %v) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<8x56x56x64xf32>, tensor<1x1x64x64xf32>) -> tensor<8x56x56x64xf32>
  %4 = stablehlo.convolution(%3, %v) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<8x56x56x64xf32>, tensor<1x1x64x64xf32>) -> tensor<8x56x56x64xf32>
  return %2, %4 : tensor<8x56x56x64xf32>, tensor<8x56x56x64xf32>
}

// -----

// Rejected: of a batch whose size is open, few images may be in use.
// CHECK-LABEL: func.func @open_batch
// CHECK-NOT: stablehlo.while
func.func @open_batch(%x: tensor<8x56x56x64xf32>, %v: tensor<1x1x64x64xf32>) -> tensor<8x56x56x64xf32> attributes {stepwell.extents = ["8/n, 56/56, 56/56, 64/64", "1/1, 1/1, 64/64, 64/64"]} {
  %0 = stablehlo.convolution(%x, %v) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<8x56x56x64xf32>, tensor<1x1x64x64xf32>) -> tensor<8x56x56x64xf32>
  %1 = stablehlo.convolution(%0, %v) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<8x56x56x64xf32>, tensor<1x1x64x64xf32>) -> tensor<8x56x56x64xf32>
  return %1 : tensor<8x56x56x64xf32>
}
