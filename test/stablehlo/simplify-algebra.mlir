// RUN: stepwell-opt %s --pass-pipeline='builtin.module(simplify-algebra)' | filecheck %s

// CHECK-LABEL: func.func @neutral
// CHECK-NEXT: return %arg0
func.func @neutral(%x: tensor<4xf32>) -> tensor<4xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %zeros = stablehlo.broadcast_in_dim %zero, dims = [] : (tensor<f32>) -> tensor<4xf32>
  %one = stablehlo.constant dense<1.0> : tensor<4xf32>
  %0 = stablehlo.add %zeros, %x : tensor<4xf32>
  %1 = stablehlo.multiply %0, %one : tensor<4xf32>
  %2 = stablehlo.divide %1, %one : tensor<4xf32>
  %3 = stablehlo.negate %2 : tensor<4xf32>
  %4 = stablehlo.negate %3 : tensor<4xf32>
  %5 = stablehlo.maximum %4, %4 : tensor<4xf32>
  return %5 : tensor<4xf32>
}

// CHECK-LABEL: func.func @strength
// CHECK: %[[EIGHTH:.*]] = stablehlo.constant dense<1.250000e-01>
// CHECK: %[[M:.*]] = stablehlo.multiply %arg0, %[[EIGHTH]]
// CHECK: %[[S:.*]] = stablehlo.multiply %[[M]], %[[M]]
// CHECK: stablehlo.sqrt %[[S]]
func.func @strength(%x: tensor<4xf32>) -> tensor<4xf32> {
  %eight = stablehlo.constant dense<8.0> : tensor<4xf32>
  %two = stablehlo.constant dense<2.0> : tensor<4xf32>
  %half = stablehlo.constant dense<0.5> : tensor<4xf32>
  %0 = stablehlo.divide %x, %eight : tensor<4xf32>
  %1 = stablehlo.power %0, %two : tensor<4xf32>
  %2 = stablehlo.power %1, %half : tensor<4xf32>
  return %2 : tensor<4xf32>
}

// CHECK-LABEL: func.func @roots
// CHECK: %[[R:.*]] = stablehlo.sqrt %arg0
// CHECK: %[[RR:.*]] = stablehlo.sqrt %[[R]]
// CHECK: stablehlo.multiply %[[R]], %[[RR]]
func.func @roots(%x: tensor<4xf32>) -> tensor<4xf32> {
  %exponent = stablehlo.constant dense<0.75> : tensor<4xf32>
  %0 = stablehlo.power %x, %exponent : tensor<4xf32>
  return %0 : tensor<4xf32>
}

// CHECK-LABEL: func.func @no_roots_of_halves
// CHECK: stablehlo.power
func.func @no_roots_of_halves(%x: tensor<4xf16>) -> tensor<4xf16> {
  %exponent = stablehlo.constant dense<0.75> : tensor<4xf16>
  %0 = stablehlo.power %x, %exponent : tensor<4xf16>
  return %0 : tensor<4xf16>
}

// CHECK-LABEL: func.func @shapes
// CHECK-NEXT: return %arg0
func.func @shapes(%x: tensor<2x3x1xf32>) -> tensor<2x3x1xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.transpose %x, dims = [1, 2, 0] : (tensor<2x3x1xf32>) -> tensor<3x1x2xf32>
  %1 = stablehlo.transpose %0, dims = [2, 0, 1] : (tensor<3x1x2xf32>) -> tensor<2x3x1xf32>
  %2 = stablehlo.reshape %1 : (tensor<2x3x1xf32>) -> tensor<6xf32>
  %3 = stablehlo.reshape %2 : (tensor<6xf32>) -> tensor<2x1x3xf32>
  %4 = stablehlo.reduce(%3 init: %zero) applies stablehlo.add across dimensions = [1]
       : (tensor<2x1x3xf32>, tensor<f32>) -> tensor<2x3xf32>
  %5 = stablehlo.broadcast_in_dim %4, dims = [0, 1] : (tensor<2x3xf32>) -> tensor<2x3x1xf32>
  %6 = stablehlo.slice %5 [0:2, 0:3, 0:1] : (tensor<2x3x1xf32>) -> tensor<2x3x1xf32>
  %7 = stablehlo.pad %6, %zero, low = [0, 0, 0], high = [0, 0, 0], interior = [1, 1, 0]
       : (tensor<2x3x1xf32>, tensor<f32>) -> tensor<3x5x1xf32>
  %8 = stablehlo.concatenate %6, dim = 0 : (tensor<2x3x1xf32>) -> tensor<2x3x1xf32>
  return %8 : tensor<2x3x1xf32>
}

// CHECK-LABEL: func.func @unit_transpose
// CHECK-NEXT: stablehlo.reshape %arg0 : (tensor<1x1x1x8xf32>) -> tensor<1x8x1x1xf32>
func.func @unit_transpose(%x: tensor<1x1x1x8xf32>) -> tensor<1x8x1x1xf32> {
  %0 = stablehlo.transpose %x, dims = [0, 3, 1, 2] : (tensor<1x1x1x8xf32>) -> tensor<1x8x1x1xf32>
  return %0 : tensor<1x8x1x1xf32>
}

// CHECK-LABEL: func.func @slice_of_concatenate
// CHECK-NEXT: stablehlo.slice %arg1 [1:3]
func.func @slice_of_concatenate(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<2xf32> {
  %0 = stablehlo.concatenate %x, %y, dim = 0 : (tensor<4xf32>, tensor<4xf32>) -> tensor<8xf32>
  %1 = stablehlo.slice %0 [5:7] : (tensor<8xf32>) -> tensor<2xf32>
  return %1 : tensor<2xf32>
}

// Arithmetic goes into the parts, the other operand being cut.
// Slices that lie side by side are one. Rejected: they leave a gap, or change places.
// CHECK-LABEL: func.func @neighbouring_slices
// CHECK: %[[WHOLE:.*]] = stablehlo.slice %arg0 [0:4, 1:5] : (tensor<4x8xf32>) -> tensor<4x4xf32>
// CHECK: %[[GAP:.*]] = stablehlo.concatenate
// CHECK: %[[BACK:.*]] = stablehlo.concatenate
// CHECK: return %arg0, %[[WHOLE]], %[[GAP]], %[[BACK]]
func.func @neighbouring_slices(%x: tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x5xf32>) {
  %0 = stablehlo.slice %x [0:4, 0:3] : (tensor<4x8xf32>) -> tensor<4x3xf32>
  %1 = stablehlo.slice %x [0:4, 3:8] : (tensor<4x8xf32>) -> tensor<4x5xf32>
  %2 = stablehlo.concatenate %0, %1, dim = 1 : (tensor<4x3xf32>, tensor<4x5xf32>) -> tensor<4x8xf32>
  %3 = stablehlo.slice %x [0:4, 1:3] : (tensor<4x8xf32>) -> tensor<4x2xf32>
  %4 = stablehlo.slice %x [0:4, 3:5] : (tensor<4x8xf32>) -> tensor<4x2xf32>
  %5 = stablehlo.slice %x [0:4, 6:8] : (tensor<4x8xf32>) -> tensor<4x2xf32>
  %6 = stablehlo.concatenate %3, %4, dim = 1 : (tensor<4x2xf32>, tensor<4x2xf32>) -> tensor<4x4xf32>
  %7 = stablehlo.concatenate %3, %5, dim = 1 : (tensor<4x2xf32>, tensor<4x2xf32>) -> tensor<4x4xf32>
  %8 = stablehlo.concatenate %4, %0, dim = 1 : (tensor<4x2xf32>, tensor<4x3xf32>) -> tensor<4x5xf32>
  return %2, %6, %7, %8 : tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x5xf32>
}

// CHECK-LABEL: func.func @arithmetic_on_concatenate
// CHECK: %[[Z0:.*]] = stablehlo.slice %arg2 [0:4]
// CHECK: %[[A:.*]] = stablehlo.multiply %arg0, %[[Z0]]
// CHECK: %[[Z1:.*]] = stablehlo.slice %arg2 [4:7]
// CHECK: %[[B:.*]] = stablehlo.multiply %arg1, %[[Z1]]
// CHECK: stablehlo.concatenate %[[A]], %[[B]], dim = 0
func.func @arithmetic_on_concatenate(%x: tensor<4xf32>, %y: tensor<3xf32>, %z: tensor<7xf32>) -> tensor<7xf32> {
  %0 = stablehlo.concatenate %x, %y, dim = 0 : (tensor<4xf32>, tensor<3xf32>) -> tensor<7xf32>
  %1 = stablehlo.multiply %0, %z : tensor<7xf32>
  return %1 : tensor<7xf32>
}

// It stays behind where the other operand is a product that it is the epilogue of, and where the
// concatenation is read elsewhere, too.
// CHECK-LABEL: func.func @arithmetic_stays
// CHECK: stablehlo.concatenate %arg0, %arg1
// CHECK-NEXT: stablehlo.add
func.func @arithmetic_stays(%x: tensor<4x8xf32>, %y: tensor<3x8xf32>, %a: tensor<7x8xf32>, %b: tensor<8x8xf32>) -> (tensor<7x8xf32>, tensor<7x8xf32>, tensor<7x8xf32>) {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<7x8xf32>, tensor<8x8xf32>) -> tensor<7x8xf32>
  %1 = stablehlo.concatenate %x, %y, dim = 0 : (tensor<4x8xf32>, tensor<3x8xf32>) -> tensor<7x8xf32>
  %2 = stablehlo.add %1, %0 : tensor<7x8xf32>
  %3 = stablehlo.concatenate %y, %x, dim = 0 : (tensor<3x8xf32>, tensor<4x8xf32>) -> tensor<7x8xf32>
  // CHECK: %[[C:.*]] = stablehlo.concatenate %arg1, %arg0
  // CHECK-NEXT: stablehlo.multiply %[[C]], %arg2
  %4 = stablehlo.multiply %3, %a : tensor<7x8xf32>
  return %2, %3, %4 : tensor<7x8xf32>, tensor<7x8xf32>, tensor<7x8xf32>
}

// CHECK-LABEL: func.func @broadcast
// CHECK-NEXT: %[[R:.*]] = stablehlo.reshape %arg0 : (tensor<1x8x1xf32>) -> tensor<8xf32>
// CHECK-NEXT: stablehlo.broadcast_in_dim %[[R]], dims = [2] : (tensor<8xf32>) -> tensor<2x3x8x4xf32>
func.func @broadcast(%x: tensor<1x8x1xf32>) -> tensor<2x3x8x4xf32> {
  %0 = stablehlo.broadcast_in_dim %x, dims = [0, 1, 2] : (tensor<1x8x1xf32>) -> tensor<3x8x1xf32>
  %1 = stablehlo.broadcast_in_dim %0, dims = [1, 2, 3] : (tensor<3x8x1xf32>) -> tensor<2x3x8x4xf32>
  return %1 : tensor<2x3x8x4xf32>
}

// CHECK-LABEL: func.func @choice
// CHECK-NEXT: return %arg1
func.func @choice(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
  %false = stablehlo.constant dense<false> : tensor<4xi1>
  %0 = stablehlo.select %false, %x, %y : tensor<4xi1>, tensor<4xf32>
  return %0 : tensor<4xf32>
}

// Left alone: x * 0 and x - x of floats (x may be infinite), a division by three, and a conversion
// that rounds.
// CHECK-LABEL: func.func @rejected
// CHECK: stablehlo.multiply
// CHECK: stablehlo.subtract
// CHECK: stablehlo.divide
// CHECK: stablehlo.convert {{.*}} -> tensor<4xf16>
// CHECK: stablehlo.convert {{.*}} -> tensor<4xf32>
func.func @rejected(%x: tensor<4xf32>)
    -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<4xf32>
  %three = stablehlo.constant dense<3.0> : tensor<4xf32>
  %0 = stablehlo.multiply %x, %zero : tensor<4xf32>
  %1 = stablehlo.subtract %x, %x : tensor<4xf32>
  %2 = stablehlo.divide %x, %three : tensor<4xf32>
  %3 = stablehlo.convert %x : (tensor<4xf32>) -> tensor<4xf16>
  %4 = stablehlo.convert %3 : (tensor<4xf16>) -> tensor<4xf32>
  return %0, %1, %2, %4 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}

// -----

// The operands of a product change places where what is left of the first is wanted last; not where
// the transpose leaves it before that of the second, or the product is read in its own order, too.
// CHECK-LABEL: func.func @swapped_product
// CHECK: %[[P:.*]] = stablehlo.dot_general %arg1, %arg0, batching_dims = [0] x [0], contracting_dims = [2] x [1], precision = [DEFAULT, HIGHEST] : (tensor<2x4x5xf32>, tensor<2x5x3xf32>) -> tensor<2x4x3xf32>
// CHECK-NOT: stablehlo.transpose
// CHECK: return %[[P]]
func.func @swapped_product(%v: tensor<2x5x3xf32>, %w: tensor<2x4x5xf32>) -> tensor<2x4x3xf32> {
  %0 = stablehlo.dot_general %v, %w, batching_dims = [0] x [0], contracting_dims = [1] x [2], precision = [HIGHEST, DEFAULT] : (tensor<2x5x3xf32>, tensor<2x4x5xf32>) -> tensor<2x3x4xf32>
  %1 = stablehlo.transpose %0, dims = [0, 2, 1] : (tensor<2x3x4xf32>) -> tensor<2x4x3xf32>
  return %1 : tensor<2x4x3xf32>
}

// CHECK-LABEL: func.func @product_of_heads
// CHECK: stablehlo.dot_general %arg0, %arg1
// CHECK: stablehlo.transpose
func.func @product_of_heads(%v: tensor<2x5x3xf32>, %w: tensor<2x4x5xf32>) -> tensor<3x2x4xf32> {
  %0 = stablehlo.dot_general %v, %w, batching_dims = [0] x [0], contracting_dims = [1] x [2] : (tensor<2x5x3xf32>, tensor<2x4x5xf32>) -> tensor<2x3x4xf32>
  %1 = stablehlo.transpose %0, dims = [1, 0, 2] : (tensor<2x3x4xf32>) -> tensor<3x2x4xf32>
  return %1 : tensor<3x2x4xf32>
}

// CHECK-LABEL: func.func @product_read_twice
// CHECK: stablehlo.dot_general %arg0, %arg1
// CHECK: stablehlo.transpose
func.func @product_read_twice(%v: tensor<5x3xf32>, %w: tensor<4x5xf32>) -> (tensor<3x4xf32>, tensor<4x3xf32>) {
  %0 = stablehlo.dot_general %v, %w, contracting_dims = [0] x [1] : (tensor<5x3xf32>, tensor<4x5xf32>) -> tensor<3x4xf32>
  %1 = stablehlo.transpose %0, dims = [1, 0] : (tensor<3x4xf32>) -> tensor<4x3xf32>
  return %0, %1 : tensor<3x4xf32>, tensor<4x3xf32>
}

// -----

// A batch dimension that is split after a product and was merged before it is left as it was. Not
// where an operand was not merged, or was merged from others.
// CHECK-LABEL: func.func @split_batch
// CHECK: %[[K:.*]] = stablehlo.transpose %arg1, dims = [0, 1, 3, 2]
// CHECK: %[[P:.*]] = stablehlo.dot_general %arg0, %[[K]], batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [2]
// CHECK: return %[[P]]
func.func @split_batch(%q: tensor<2x4x3x5xf32>, %k: tensor<2x4x6x5xf32>) -> tensor<2x4x3x6xf32> {
  %0 = stablehlo.reshape %q : (tensor<2x4x3x5xf32>) -> tensor<8x3x5xf32>
  %1 = stablehlo.reshape %k : (tensor<2x4x6x5xf32>) -> tensor<8x6x5xf32>
  %2 = stablehlo.transpose %1, dims = [0, 2, 1] : (tensor<8x6x5xf32>) -> tensor<8x5x6xf32>
  %3 = stablehlo.dot_general %0, %2, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<8x3x5xf32>, tensor<8x5x6xf32>) -> tensor<8x3x6xf32>
  %4 = stablehlo.reshape %3 : (tensor<8x3x6xf32>) -> tensor<2x4x3x6xf32>
  return %4 : tensor<2x4x3x6xf32>
}

// CHECK-LABEL: func.func @batch_of_others
// CHECK: stablehlo.dot_general {{.*}} batching_dims = [0] x [0]
func.func @batch_of_others(%q: tensor<2x4x3x5xf32>, %k: tensor<4x2x5x6xf32>) -> tensor<2x4x3x6xf32> {
  %0 = stablehlo.reshape %q : (tensor<2x4x3x5xf32>) -> tensor<8x3x5xf32>
  %1 = stablehlo.reshape %k : (tensor<4x2x5x6xf32>) -> tensor<8x5x6xf32>
  %2 = stablehlo.dot_general %0, %1, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<8x3x5xf32>, tensor<8x5x6xf32>) -> tensor<8x3x6xf32>
  %3 = stablehlo.reshape %2 : (tensor<8x3x6xf32>) -> tensor<2x4x3x6xf32>
  return %3 : tensor<2x4x3x6xf32>
}

// CHECK-LABEL: func.func @batch_as_given
// CHECK: stablehlo.dot_general {{.*}} batching_dims = [0] x [0]
func.func @batch_as_given(%q: tensor<8x3x5xf32>, %k: tensor<8x5x6xf32>) -> tensor<2x4x3x6xf32> {
  %0 = stablehlo.dot_general %q, %k, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<8x3x5xf32>, tensor<8x5x6xf32>) -> tensor<8x3x6xf32>
  %1 = stablehlo.reshape %0 : (tensor<8x3x6xf32>) -> tensor<2x4x3x6xf32>
  return %1 : tensor<2x4x3x6xf32>
}

// -----

// Of the window over an axis of length one, the middle alone meets the image; of the dilated filter,
// the last two rows.
// CHECK-LABEL: func.func @terms_in_padding
// CHECK: %[[A:.*]] = stablehlo.slice %arg1 [1:2, 0:3, 0:4, 0:6]
// CHECK: stablehlo.convolution(%arg0, %[[A]]) {{.*}}pad = {{\[\[}}0, 0], [1, 1]]
// CHECK: %[[B:.*]] = stablehlo.slice %arg3 [1:3, 0:3, 0:4, 0:6]
// CHECK: stablehlo.convolution(%arg2, %[[B]]) {{.*}}stride = [2, 1], pad = {{\[\[}}2, 1], [1, 1]], rhs_dilate = [4, 1]
func.func @terms_in_padding(%x: tensor<2x1x7x4xf32>, %w: tensor<3x3x4x6xf32>, %y: tensor<2x6x7x4xf32>, %v: tensor<3x3x4x6xf32>) -> (tensor<2x1x7x6xf32>, tensor<2x3x7x6xf32>) {
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<2x1x7x4xf32>, tensor<3x3x4x6xf32>) -> tensor<2x1x7x6xf32>
  %1 = stablehlo.convolution(%y, %v) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [2, 1], pad = [[6, 2], [1, 1]], rhs_dilate = [4, 1]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<2x6x7x4xf32>, tensor<3x3x4x6xf32>) -> tensor<2x3x7x6xf32>
  return %0, %1 : tensor<2x1x7x6xf32>, tensor<2x3x7x6xf32>
}

// Not where each term meets the image somewhere, nor in transposed convolutions.
// CHECK-LABEL: func.func @terms_in_image
// CHECK-NOT: stablehlo.slice
// CHECK: return
func.func @terms_in_image(%x: tensor<2x2x7x4xf32>, %w: tensor<3x3x4x6xf32>, %y: tensor<2x1x7x4xf32>) -> (tensor<2x2x7x6xf32>, tensor<2x1x13x6xf32>) {
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<2x2x7x4xf32>, tensor<3x3x4x6xf32>) -> tensor<2x2x7x6xf32>
  %1 = stablehlo.convolution(%y, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {pad = [[1, 1], [1, 1]], lhs_dilate = [2, 2]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<2x1x7x4xf32>, tensor<3x3x4x6xf32>) -> tensor<2x1x13x6xf32>
  return %0, %1 : tensor<2x2x7x6xf32>, tensor<2x1x13x6xf32>
}

// -----

// Conversions to small integers keep to what these hold.
// CHECK-LABEL: func.func @clamped_convert
// CHECK-NEXT: %[[A:.*]] = stablehlo.convert %arg0 : (tensor<4xf32>) -> tensor<4xui8>
// CHECK-NEXT: %[[B:.*]] = stablehlo.convert %arg0 : (tensor<4xf32>) -> tensor<4xi8>
// CHECK-NEXT: return %[[A]], %[[B]]
func.func @clamped_convert(%x: tensor<4xf32>) -> (tensor<4xui8>, tensor<4xi8>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %most = stablehlo.constant dense<255.0> : tensor<f32>
  %0 = stablehlo.clamp %zero, %x, %most : (tensor<f32>, tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %1 = stablehlo.convert %0 : (tensor<4xf32>) -> tensor<4xui8>
  %low = stablehlo.constant dense<-128.0> : tensor<f32>
  %high = stablehlo.constant dense<127.0> : tensor<f32>
  %2 = stablehlo.clamp %low, %x, %high : (tensor<f32>, tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %3 = stablehlo.convert %2 : (tensor<4xf32>) -> tensor<4xi8>
  return %1, %3 : tensor<4xui8>, tensor<4xi8>
}

// Not where they could hold more.
// CHECK-LABEL: func.func @clamped_further
// CHECK: stablehlo.clamp
func.func @clamped_further(%x: tensor<4xf32>) -> tensor<4xui8> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %most = stablehlo.constant dense<127.0> : tensor<f32>
  %0 = stablehlo.clamp %zero, %x, %most : (tensor<f32>, tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  %1 = stablehlo.convert %0 : (tensor<4xf32>) -> tensor<4xui8>
  return %1 : tensor<4xui8>
}

// -----

// One exponential for the factor of Mish, as ONNX has it, JAX, and PyTorch.
// CHECK-LABEL: func.func @tanh_of_softplus
// CHECK-COUNT-3: stablehlo.exponential
// CHECK-NOT: stablehlo.{{tanh|log_plus_one}}
// CHECK: return
func.func @tanh_of_softplus(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<4xf32>
  %far = stablehlo.constant dense<20.0> : tensor<4xf32>
  %size = stablehlo.abs %x : tensor<4xf32>
  %negated = stablehlo.negate %size : tensor<4xf32>
  %small = stablehlo.exponential %negated : tensor<4xf32>
  %log = stablehlo.log_plus_one %small : tensor<4xf32>
  %positive = stablehlo.maximum %x, %zero : tensor<4xf32>
  %0 = stablehlo.add %log, %positive : tensor<4xf32>
  %a = stablehlo.tanh %0 : tensor<4xf32>
  %1 = stablehlo.add %positive, %log : tensor<4xf32>
  %nan = stablehlo.compare NE, %x, %x, FLOAT : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xi1>
  %2 = stablehlo.select %nan, %x, %1 : tensor<4xi1>, tensor<4xf32>
  %b = stablehlo.tanh %2 : tensor<4xf32>
  %grown = stablehlo.exponential %x : tensor<4xf32>
  %3 = stablehlo.log_plus_one %grown : tensor<4xf32>
  %linear = stablehlo.compare GT, %x, %far, FLOAT : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xi1>
  %4 = stablehlo.select %linear, %x, %3 : tensor<4xi1>, tensor<4xf32>
  %c = stablehlo.tanh %4 : tensor<4xf32>
  return %a, %b, %c : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}

// -----

// Not of f16, whose squares overflow, of another bound, or where softplus is read again.
// CHECK-LABEL: func.func @tanh_kept
// CHECK-COUNT-3: stablehlo.tanh
func.func @tanh_kept(%h: tensor<4xf16>, %x: tensor<4xf32>) -> (tensor<4xf16>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %far = stablehlo.constant dense<20.0> : tensor<4xf16>
  %grown = stablehlo.exponential %h : tensor<4xf16>
  %0 = stablehlo.log_plus_one %grown : tensor<4xf16>
  %linear = stablehlo.compare GT, %h, %far, FLOAT : (tensor<4xf16>, tensor<4xf16>) -> tensor<4xi1>
  %1 = stablehlo.select %linear, %h, %0 : tensor<4xi1>, tensor<4xf16>
  %a = stablehlo.tanh %1 : tensor<4xf16>
  %near = stablehlo.constant dense<2.0> : tensor<4xf32>
  %g = stablehlo.exponential %x : tensor<4xf32>
  %2 = stablehlo.log_plus_one %g : tensor<4xf32>
  %bounded = stablehlo.compare GT, %x, %near, FLOAT : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xi1>
  %3 = stablehlo.select %bounded, %x, %2 : tensor<4xi1>, tensor<4xf32>
  %b = stablehlo.tanh %3 : tensor<4xf32>
  %twenty = stablehlo.constant dense<20.0> : tensor<4xf32>
  %beyond = stablehlo.compare GT, %x, %twenty, FLOAT : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xi1>
  %4 = stablehlo.select %beyond, %x, %2 : tensor<4xi1>, tensor<4xf32>
  %c = stablehlo.tanh %4 : tensor<4xf32>
  return %a, %b, %c, %4 : tensor<4xf16>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}

// -----

// CHECK-LABEL: func.func @slice_of_reverse
// CHECK-NEXT: %[[S:.*]] = stablehlo.slice %arg0 [1:3, 3:8:2]
// CHECK-NEXT: %[[R:.*]] = stablehlo.reverse %[[S]], dims = [1]
// CHECK-NEXT: return %[[R]]
func.func @slice_of_reverse(%x: tensor<4x9xf32>) -> tensor<2x3xf32> {
  %0 = stablehlo.reverse %x, dims = [1] : tensor<4x9xf32>
  %1 = stablehlo.slice %0 [1:3, 1:6:2] : (tensor<4x9xf32>) -> tensor<2x3xf32>
  return %1 : tensor<2x3xf32>
}

// -----

// PyTorch's x[:, :, rows, columns], of rows and columns that depend on each other.
// CHECK-LABEL: func.func @places
// CHECK: %[[S:.*]] = stablehlo.concatenate %{{.*}}, %{{.*}}, dim = 2 : {{.*}} -> tensor<5x6x2xi64>
// CHECK: "stablehlo.gather"(%arg0, %[[S]]) <{dimension_numbers = #stablehlo.gather<offset_dims = [0, 1], collapsed_slice_dims = [2, 3], start_index_map = [2, 3], index_vector_dim = 2>
// CHECK-SAME: slice_sizes = array<i64: 2, 3, 1, 1>
func.func @places(%x: tensor<2x3x8x9xf32>, %r: tensor<5x6xi64>, %c: tensor<5x6xi64>) -> tensor<2x3x5x6xf32> {
  %0 = stablehlo.iota dim = 0 : tensor<2xi64>
  %1 = stablehlo.broadcast_in_dim %0, dims = [0] : (tensor<2xi64>) -> tensor<2x3x5x6xi64>
  %2 = stablehlo.reshape %1 : (tensor<2x3x5x6xi64>) -> tensor<2x3x5x6x1xi64>
  %3 = stablehlo.iota dim = 0 : tensor<3xi64>
  %4 = stablehlo.broadcast_in_dim %3, dims = [1] : (tensor<3xi64>) -> tensor<2x3x5x6xi64>
  %5 = stablehlo.reshape %4 : (tensor<2x3x5x6xi64>) -> tensor<2x3x5x6x1xi64>
  %6 = stablehlo.broadcast_in_dim %r, dims = [2, 3] : (tensor<5x6xi64>) -> tensor<2x3x5x6xi64>
  %7 = stablehlo.reshape %6 : (tensor<2x3x5x6xi64>) -> tensor<2x3x5x6x1xi64>
  %8 = stablehlo.broadcast_in_dim %c, dims = [2, 3] : (tensor<5x6xi64>) -> tensor<2x3x5x6xi64>
  %9 = stablehlo.reshape %8 : (tensor<2x3x5x6xi64>) -> tensor<2x3x5x6x1xi64>
  %10 = stablehlo.concatenate %2, %5, %7, %9, dim = 4 : (tensor<2x3x5x6x1xi64>, tensor<2x3x5x6x1xi64>, tensor<2x3x5x6x1xi64>, tensor<2x3x5x6x1xi64>) -> tensor<2x3x5x6x4xi64>
  %11 = "stablehlo.gather"(%x, %10) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0, 1, 2, 3], start_index_map = [0, 1, 2, 3], index_vector_dim = 4>, slice_sizes = array<i64: 1, 1, 1, 1>}> : (tensor<2x3x8x9xf32>, tensor<2x3x5x6x4xi64>) -> tensor<2x3x5x6xf32>
  return %11 : tensor<2x3x5x6xf32>
}

// -----

// A batch that other places depend on; rows and columns apart are looked up after each other.
// CHECK-LABEL: func.func @along_axes
// CHECK: operand_batching_dims = [0], start_indices_batching_dims = [0], start_index_map = [1], index_vector_dim = 2
// CHECK: %[[C:.*]] = "stablehlo.gather"(%arg0, %{{.*}}start_index_map = [1]{{.*}} -> tensor<4x5xf32>
// CHECK: "stablehlo.gather"(%[[C]], {{.*}}start_index_map = [0]
func.func @along_axes(%x: tensor<4x8xf32>, %i: tensor<4x6xi64>, %r: tensor<3xi64>, %c: tensor<5xi64>) -> (tensor<4x6xf32>, tensor<3x5xf32>) {
  %0 = stablehlo.iota dim = 0 : tensor<4x6x1xi64>
  %1 = stablehlo.reshape %i : (tensor<4x6xi64>) -> tensor<4x6x1xi64>
  %2 = stablehlo.concatenate %0, %1, dim = 2 : (tensor<4x6x1xi64>, tensor<4x6x1xi64>) -> tensor<4x6x2xi64>
  %3 = "stablehlo.gather"(%x, %2) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0, 1], start_index_map = [0, 1], index_vector_dim = 2>, slice_sizes = array<i64: 1, 1>}> : (tensor<4x8xf32>, tensor<4x6x2xi64>) -> tensor<4x6xf32>
  %4 = stablehlo.broadcast_in_dim %r, dims = [0] : (tensor<3xi64>) -> tensor<3x5xi64>
  %5 = stablehlo.reshape %4 : (tensor<3x5xi64>) -> tensor<3x5x1xi64>
  %6 = stablehlo.broadcast_in_dim %c, dims = [1] : (tensor<5xi64>) -> tensor<3x5xi64>
  %7 = stablehlo.reshape %6 : (tensor<3x5xi64>) -> tensor<3x5x1xi64>
  %8 = stablehlo.concatenate %5, %7, dim = 2 : (tensor<3x5x1xi64>, tensor<3x5x1xi64>) -> tensor<3x5x2xi64>
  %9 = "stablehlo.gather"(%x, %8) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0, 1], start_index_map = [0, 1], index_vector_dim = 2>, slice_sizes = array<i64: 1, 1>}> : (tensor<4x8xf32>, tensor<3x5x2xi64>) -> tensor<3x5xf32>
  return %3, %9 : tensor<4x6xf32>, tensor<3x5xf32>
}

// -----

// Rejected: components that depend on the same dimension, and start indices of another making.
// CHECK-LABEL: func.func @points
// CHECK-COUNT-2: collapsed_slice_dims = [0, 1], start_index_map = [0, 1], index_vector_dim = 1>
func.func @points(%x: tensor<4x8xf32>, %r: tensor<3xi64>, %c: tensor<3xi64>, %s: tensor<3x2xi64>) -> (tensor<3xf32>, tensor<3xf32>) {
  %0 = stablehlo.reshape %r : (tensor<3xi64>) -> tensor<3x1xi64>
  %1 = stablehlo.reshape %c : (tensor<3xi64>) -> tensor<3x1xi64>
  %2 = stablehlo.concatenate %0, %1, dim = 1 : (tensor<3x1xi64>, tensor<3x1xi64>) -> tensor<3x2xi64>
  %3 = "stablehlo.gather"(%x, %2) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0, 1], start_index_map = [0, 1], index_vector_dim = 1>, slice_sizes = array<i64: 1, 1>}> : (tensor<4x8xf32>, tensor<3x2xi64>) -> tensor<3xf32>
  %4 = "stablehlo.gather"(%x, %s) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0, 1], start_index_map = [0, 1], index_vector_dim = 1>, slice_sizes = array<i64: 1, 1>}> : (tensor<4x8xf32>, tensor<3x2xi64>) -> tensor<3xf32>
  return %3, %4 : tensor<3xf32>, tensor<3xf32>
}

// -----

// Rows of one value each that become columns are joined as columns.
// CHECK-LABEL: func.func @columns
// CHECK-NOT: transpose
// CHECK: stablehlo.concatenate {{.*}}, dim = 1 : (tensor<64x1xf32>, tensor<64x1xf32>, tensor<64x1xf32>) -> tensor<64x3xf32>
func.func @columns(%a: tensor<1x64xf32>, %b: tensor<1x64xf32>, %c: tensor<1x64xf32>) -> tensor<64x3xf32> {
  %0 = stablehlo.concatenate %a, %b, %c, dim = 0 : (tensor<1x64xf32>, tensor<1x64xf32>, tensor<1x64xf32>) -> tensor<3x64xf32>
  %1 = stablehlo.transpose %0, dims = [1, 0] : (tensor<3x64xf32>) -> tensor<64x3xf32>
  return %1 : tensor<64x3xf32>
}

// -----

// Rejected: parts of several rows, and parts that are transposed themselves.
// CHECK-LABEL: func.func @blocks
// CHECK-COUNT-2: stablehlo.transpose
func.func @blocks(%a: tensor<2x64xf32>, %b: tensor<1x64xf32>, %c: tensor<1x8x64xf32>) -> (tensor<64x3xf32>, tensor<64x8x2xf32>) {
  %0 = stablehlo.concatenate %a, %b, dim = 0 : (tensor<2x64xf32>, tensor<1x64xf32>) -> tensor<3x64xf32>
  %1 = stablehlo.transpose %0, dims = [1, 0] : (tensor<3x64xf32>) -> tensor<64x3xf32>
  %2 = stablehlo.concatenate %c, %c, dim = 0 : (tensor<1x8x64xf32>, tensor<1x8x64xf32>) -> tensor<2x8x64xf32>
  %3 = stablehlo.transpose %2, dims = [2, 1, 0] : (tensor<2x8x64xf32>) -> tensor<64x8x2xf32>
  return %1, %3 : tensor<64x3xf32>, tensor<64x8x2xf32>
}

// -----

// A product that contracts nothing is a multiplication, in the result's type.
// CHECK-LABEL: func.func @without_sums
// CHECK: %[[L:.*]] = stablehlo.broadcast_in_dim %arg0, dims = [1, 0] : (tensor<3x2xf32>) -> tensor<2x3x5xf32>
// CHECK: %[[R:.*]] = stablehlo.broadcast_in_dim %arg1, dims = [0, 2] : (tensor<2x5xf32>) -> tensor<2x3x5xf32>
// CHECK: %[[P:.*]] = stablehlo.multiply %[[L]], %[[R]] : tensor<2x3x5xf32>
// CHECK: %[[A:.*]] = stablehlo.broadcast_in_dim %arg2, dims = [0] : (tensor<3xi8>) -> tensor<3x4xi8>
// CHECK: %[[A32:.*]] = stablehlo.convert %[[A]] : (tensor<3x4xi8>) -> tensor<3x4xi32>
// CHECK: %[[B:.*]] = stablehlo.broadcast_in_dim %arg3, dims = [1] : (tensor<4xi8>) -> tensor<3x4xi8>
// CHECK: %[[B32:.*]] = stablehlo.convert %[[B]] : (tensor<3x4xi8>) -> tensor<3x4xi32>
// CHECK: stablehlo.multiply %[[A32]], %[[B32]] : tensor<3x4xi32>
// CHECK: stablehlo.multiply {{.*}} : tensor<3x3xcomplex<f32>>
// CHECK: stablehlo.convert %{{.*}} : (tensor<3x3xf8E4M3FN>) -> tensor<3x3xf32>
// CHECK: stablehlo.multiply {{.*}} : tensor<3x3xf32>
// CHECK-NOT: dot_general
func.func @without_sums(%x: tensor<3x2xf32>, %y: tensor<2x5xf32>, %a: tensor<3xi8>, %b: tensor<4xi8>, %c: tensor<3xcomplex<f32>>, %e: tensor<3xf8E4M3FN>)
    -> (tensor<2x3x5xf32>, tensor<3x4xi32>, tensor<3x3xcomplex<f32>>, tensor<3x3xf32>) {
  %0 = stablehlo.dot_general %x, %y, batching_dims = [1] x [0], contracting_dims = [] x [] : (tensor<3x2xf32>, tensor<2x5xf32>) -> tensor<2x3x5xf32>
  %1 = stablehlo.dot_general %a, %b, contracting_dims = [] x [] : (tensor<3xi8>, tensor<4xi8>) -> tensor<3x4xi32>
  %2 = stablehlo.dot_general %c, %c, contracting_dims = [] x [] : (tensor<3xcomplex<f32>>, tensor<3xcomplex<f32>>) -> tensor<3x3xcomplex<f32>>
  %3 = stablehlo.dot_general %e, %e, contracting_dims = [] x [] : (tensor<3xf8E4M3FN>, tensor<3xf8E4M3FN>) -> tensor<3x3xf32>
  return %0, %1, %2, %3 : tensor<2x3x5xf32>, tensor<3x4xi32>, tensor<3x3xcomplex<f32>>, tensor<3x3xf32>
}

// -----

// Rejected: a sum, and a type of the result that the operands do not fit.
// CHECK-LABEL: func.func @sums
// CHECK-COUNT-2: stablehlo.dot_general
// CHECK-NOT: stablehlo.multiply
func.func @sums(%x: tensor<3x2xf32>, %y: tensor<2x5xf32>, %a: tensor<3xf32>) -> (tensor<3x5xf32>, tensor<3x3xbf16>) {
  %0 = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : (tensor<3x2xf32>, tensor<2x5xf32>) -> tensor<3x5xf32>
  %1 = stablehlo.dot_general %a, %a, contracting_dims = [] x [] : (tensor<3xf32>, tensor<3xf32>) -> tensor<3x3xbf16>
  return %0, %1 : tensor<3x5xf32>, tensor<3x3xbf16>
}
