// RUN: stepwell-opt %s --pass-pipeline='builtin.module(propagate-transposes,cse)' | filecheck %s

// CHECK-LABEL: func.func @cancelled
// CHECK-NOT: stablehlo.transpose
// CHECK: %[[B:.*]] = stablehlo.broadcast_in_dim %arg1, dims = [3] : (tensor<3xf32>) -> tensor<1x4x5x3xf32>
// CHECK: %[[S:.*]] = stablehlo.add %arg0, %[[B]]
// CHECK: stablehlo.maximum %[[S]]
// CHECK-NOT: stablehlo.transpose
// CHECK: return
func.func @cancelled(%x: tensor<1x4x5x3xf32>, %v: tensor<3xf32>) -> tensor<1x4x5x3xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<1x3x4x5xf32>
  %t = stablehlo.transpose %x, dims = [0, 3, 1, 2] : (tensor<1x4x5x3xf32>) -> tensor<1x3x4x5xf32>
  %b = stablehlo.broadcast_in_dim %v, dims = [1] : (tensor<3xf32>) -> tensor<1x3x4x5xf32>
  %s = stablehlo.add %t, %b : tensor<1x3x4x5xf32>
  %r = stablehlo.maximum %s, %zero : tensor<1x3x4x5xf32>
  %u = stablehlo.transpose %r, dims = [0, 2, 3, 1] : (tensor<1x3x4x5xf32>) -> tensor<1x4x5x3xf32>
  return %u : tensor<1x4x5x3xf32>
}

// Two transposed operands become one transpose of the result.
// CHECK-LABEL: func.func @residual
// CHECK-NEXT: %[[S:.*]] = stablehlo.add %arg0, %arg1
// CHECK-NEXT: stablehlo.transpose %[[S]], dims = [0, 3, 1, 2]
func.func @residual(%x: tensor<1x4x5x3xf32>, %y: tensor<1x4x5x3xf32>) -> tensor<1x3x4x5xf32> {
  %t = stablehlo.transpose %x, dims = [0, 3, 1, 2] : (tensor<1x4x5x3xf32>) -> tensor<1x3x4x5xf32>
  %u = stablehlo.transpose %y, dims = [0, 3, 1, 2] : (tensor<1x4x5x3xf32>) -> tensor<1x3x4x5xf32>
  %s = stablehlo.add %t, %u : tensor<1x3x4x5xf32>
  return %s : tensor<1x3x4x5xf32>
}

// CHECK-LABEL: func.func @concatenate
// CHECK-NEXT: %[[C:.*]] = stablehlo.concatenate %arg0, %arg1, dim = 3
// CHECK-NEXT: stablehlo.transpose %[[C]], dims = [0, 3, 1, 2]
func.func @concatenate(%x: tensor<1x4x5x3xf32>, %y: tensor<1x4x5x2xf32>) -> tensor<1x5x4x5xf32> {
  %t = stablehlo.transpose %x, dims = [0, 3, 1, 2] : (tensor<1x4x5x3xf32>) -> tensor<1x3x4x5xf32>
  %u = stablehlo.transpose %y, dims = [0, 3, 1, 2] : (tensor<1x4x5x2xf32>) -> tensor<1x2x4x5xf32>
  %c = stablehlo.concatenate %t, %u, dim = 1
       : (tensor<1x3x4x5xf32>, tensor<1x2x4x5xf32>) -> tensor<1x5x4x5xf32>
  return %c : tensor<1x5x4x5xf32>
}

// Global pooling takes the transpose up.
// CHECK-LABEL: func.func @global_pooling
// CHECK: stablehlo.reduce(%arg0 init: %{{.*}}) applies stablehlo.add across dimensions = [1, 2]
// CHECK-NOT: stablehlo.transpose
// CHECK: return
func.func @global_pooling(%x: tensor<1x4x5x3xf32>) -> tensor<1x3xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %t = stablehlo.transpose %x, dims = [0, 3, 1, 2] : (tensor<1x4x5x3xf32>) -> tensor<1x3x4x5xf32>
  %s = stablehlo.reduce(%t init: %zero) applies stablehlo.add across dimensions = [2, 3]
       : (tensor<1x3x4x5xf32>, tensor<f32>) -> tensor<1x3xf32>
  return %s : tensor<1x3xf32>
}

// The rows of the weights move instead of the activation.
// CHECK-LABEL: func.func @flatten
// CHECK: stablehlo.transpose %{{.*}}, dims = [1, 2, 0, 3] : (tensor<3x2x2x2xf32>) -> tensor<2x2x3x2xf32>
// CHECK: %[[F:.*]] = stablehlo.reshape %arg0 : (tensor<1x2x2x3xf32>) -> tensor<1x12xf32>
// CHECK: stablehlo.dot_general %[[F]]
func.func @flatten(%x: tensor<1x2x2x3xf32>) -> tensor<1x2xf32> {
  %w = stablehlo.constant dense<[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0], [1.0, 2.0],
       [3.0, 4.0], [5.0, 6.0], [7.0, 8.0], [1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]]>
       : tensor<12x2xf32>
  %t = stablehlo.transpose %x, dims = [0, 3, 1, 2] : (tensor<1x2x2x3xf32>) -> tensor<1x3x2x2xf32>
  %f = stablehlo.reshape %t : (tensor<1x3x2x2xf32>) -> tensor<1x12xf32>
  %y = stablehlo.dot_general %f, %w, contracting_dims = [1] x [0]
       : (tensor<1x12xf32>, tensor<12x2xf32>) -> tensor<1x2xf32>
  return %y : tensor<1x2xf32>
}

// A residual from an input that is transposed for a convolution anyway: the sum stays in NHWC.
// CHECK-LABEL: func.func @residual_from_input
// CHECK: %[[T:.*]] = stablehlo.transpose %arg0, dims = [0, 2, 3, 1]
// CHECK: %[[C:.*]] = stablehlo.convolution(%[[T]], %arg1)
// CHECK: %[[S:.*]] = stablehlo.add %[[C]], %[[T]]
// CHECK: stablehlo.transpose %[[S]], dims = [0, 3, 1, 2]
// CHECK-NOT: stablehlo.transpose
// CHECK: return
func.func @residual_from_input(%x: tensor<1x3x4x5xf32>, %w: tensor<1x1x3x3xf32>) -> tensor<1x3x4x5xf32> {
  %t = stablehlo.transpose %x, dims = [0, 2, 3, 1] : (tensor<1x3x4x5xf32>) -> tensor<1x4x5x3xf32>
  %c = stablehlo.convolution(%t, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {}
       {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
       : (tensor<1x4x5x3xf32>, tensor<1x1x3x3xf32>) -> tensor<1x4x5x3xf32>
  %u = stablehlo.transpose %c, dims = [0, 3, 1, 2] : (tensor<1x4x5x3xf32>) -> tensor<1x3x4x5xf32>
  %s = stablehlo.add %u, %x : tensor<1x3x4x5xf32>
  return %s : tensor<1x3x4x5xf32>
}

// Transposes into NHWC move like others where no convolution or pooling reads them; chlo.erf lets
// them pass.
// CHECK-LABEL: func.func @into_nhwc
// CHECK-NEXT: %[[E:.*]] = chlo.erf %arg0
// CHECK-NEXT: stablehlo.transpose %[[E]], dims = [0, 2, 3, 1]
func.func @into_nhwc(%x: tensor<1x3x4x5xf32>) -> tensor<1x4x5x3xf32> {
  %t = stablehlo.transpose %x, dims = [0, 2, 3, 1] : (tensor<1x3x4x5xf32>) -> tensor<1x4x5x3xf32>
  %e = chlo.erf %t : tensor<1x4x5x3xf32> -> tensor<1x4x5x3xf32>
  return %e : tensor<1x4x5x3xf32>
}

// Left alone: one of two operands would need a transpose.
// CHECK-LABEL: func.func @rejected
// CHECK: %[[T:.*]] = stablehlo.transpose %arg0, dims = [0, 3, 1, 2]
// CHECK: stablehlo.add %[[T]], %arg1
func.func @rejected(%x: tensor<1x4x5x3xf32>, %y: tensor<1x3x4x5xf32>) -> tensor<1x3x4x5xf32> {
  %t = stablehlo.transpose %x, dims = [0, 3, 1, 2] : (tensor<1x4x5x3xf32>) -> tensor<1x3x4x5xf32>
  %s = stablehlo.add %t, %y : tensor<1x3x4x5xf32>
  return %s : tensor<1x3x4x5xf32>
}

// A group normalisation that merges channels and pixels: sums and arithmetic on what was merged,
// so that the image stays in NHWC.
// CHECK-LABEL: func.func @groups
// CHECK-NOT: stablehlo.transpose
// CHECK: %[[A:.*]] = stablehlo.reshape %arg0 : (tensor<2x4x5x24xf32>) -> tensor<2x4x5x3x8xf32>
// CHECK: %[[S:.*]] = stablehlo.reduce(%[[A]] {{.*}} across dimensions = [1, 2, 4]
// CHECK: %[[B:.*]] = stablehlo.broadcast_in_dim %[[S]], dims = [0, 3] : (tensor<2x3xf32>) -> tensor<2x4x5x3x8xf32>
// CHECK: %[[C:.*]] = stablehlo.subtract %[[A]], %[[B]]
// CHECK: stablehlo.reshape %[[C]] : (tensor<2x4x5x3x8xf32>) -> tensor<2x4x5x24xf32>
// CHECK-NOT: stablehlo.transpose
// CHECK: return
func.func @groups(%x: tensor<2x4x5x24xf32>) -> tensor<2x4x5x24xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %t = stablehlo.transpose %x, dims = [0, 3, 1, 2] : (tensor<2x4x5x24xf32>) -> tensor<2x24x4x5xf32>
  %m = stablehlo.reshape %t : (tensor<2x24x4x5xf32>) -> tensor<2x3x160xf32>
  %s = stablehlo.reduce(%m init: %zero) applies stablehlo.add across dimensions = [2]
       : (tensor<2x3x160xf32>, tensor<f32>) -> tensor<2x3xf32>
  %b = stablehlo.broadcast_in_dim %s, dims = [0, 1] : (tensor<2x3xf32>) -> tensor<2x3x160xf32>
  %c = stablehlo.subtract %m, %b : tensor<2x3x160xf32>
  %r = stablehlo.reshape %c : (tensor<2x3x160xf32>) -> tensor<2x24x4x5xf32>
  %u = stablehlo.transpose %r, dims = [0, 2, 3, 1] : (tensor<2x24x4x5xf32>) -> tensor<2x4x5x24xf32>
  return %u : tensor<2x4x5x24xf32>
}

// Groups that are no whole vectors: sums of channels first, and the groups' numbers spread over them.
// CHECK-LABEL: func.func @narrow_groups
// CHECK: %[[S:.*]] = stablehlo.reduce(%arg0 {{.*}} across dimensions = [1, 2] {{.*}} -> tensor<2x6xf32>
// CHECK: %[[R:.*]] = stablehlo.reshape %[[S]] : (tensor<2x6xf32>) -> tensor<2x3x2xf32>
// CHECK: %[[G:.*]] = stablehlo.reduce(%[[R]] {{.*}} across dimensions = [2]
// CHECK: %[[B:.*]] = stablehlo.broadcast_in_dim %[[G]], dims = [0, 1] : (tensor<2x3xf32>) -> tensor<2x3x2xf32>
// CHECK: %[[C:.*]] = stablehlo.reshape %[[B]] : (tensor<2x3x2xf32>) -> tensor<2x6xf32>
// CHECK: %[[W:.*]] = stablehlo.broadcast_in_dim %[[C]], dims = [0, 3]
// CHECK: %[[D:.*]] = stablehlo.subtract %arg0, %[[W]] : tensor<2x4x5x6xf32>
// CHECK: return %[[D]]
func.func @narrow_groups(%x: tensor<2x4x5x6xf32>) -> tensor<2x4x5x6xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %t = stablehlo.transpose %x, dims = [0, 3, 1, 2] : (tensor<2x4x5x6xf32>) -> tensor<2x6x4x5xf32>
  %m = stablehlo.reshape %t : (tensor<2x6x4x5xf32>) -> tensor<2x3x40xf32>
  %s = stablehlo.reduce(%m init: %zero) applies stablehlo.add across dimensions = [2]
       : (tensor<2x3x40xf32>, tensor<f32>) -> tensor<2x3xf32>
  %b = stablehlo.broadcast_in_dim %s, dims = [0, 1] : (tensor<2x3xf32>) -> tensor<2x3x40xf32>
  %c = stablehlo.subtract %m, %b : tensor<2x3x40xf32>
  %r = stablehlo.reshape %c : (tensor<2x3x40xf32>) -> tensor<2x6x4x5xf32>
  %u = stablehlo.transpose %r, dims = [0, 2, 3, 1] : (tensor<2x6x4x5xf32>) -> tensor<2x4x5x6xf32>
  return %u : tensor<2x4x5x6xf32>
}

// Left alone: a maximum over parts of what is split, which starts at a number that is not known.
// CHECK-LABEL: func.func @rejected_groups
// CHECK: %[[R:.*]] = stablehlo.reshape %arg0
// CHECK: stablehlo.reduce(%[[R]] {{.*}} stablehlo.maximum across dimensions = [1, 3]
func.func @rejected_groups(%x: tensor<2x4x6xf32>, %least: tensor<f32>) -> tensor<2x3xf32> {
  %m = stablehlo.reshape %x : (tensor<2x4x6xf32>) -> tensor<2x4x3x2xf32>
  %s = stablehlo.reduce(%m init: %least) applies stablehlo.maximum across dimensions = [1, 3]
       : (tensor<2x4x3x2xf32>, tensor<f32>) -> tensor<2x3xf32>
  return %s : tensor<2x3xf32>
}

// Left alone: an operand that is there in the merged order alone.
// CHECK-LABEL: func.func @merged_beside
// CHECK: %[[M:.*]] = stablehlo.reshape {{.*}} -> tensor<2x3x40xf32>
// CHECK: stablehlo.add %[[M]], %arg1 : tensor<2x3x40xf32>
func.func @merged_beside(%x: tensor<2x4x5x6xf32>, %y: tensor<2x3x40xf32>) -> tensor<2x3x40xf32> {
  %t = stablehlo.transpose %x, dims = [0, 3, 1, 2] : (tensor<2x4x5x6xf32>) -> tensor<2x6x4x5xf32>
  %m = stablehlo.reshape %t : (tensor<2x6x4x5xf32>) -> tensor<2x3x40xf32>
  %s = stablehlo.add %m, %y : tensor<2x3x40xf32>
  return %s : tensor<2x3x40xf32>
}

// Attention over pixels, channels first: the operands of its second product change places.
// CHECK-LABEL: func.func @weighed_pixels
// CHECK: %[[P:.*]] = stablehlo.dot_general %arg1, %arg0, {{.*}} -> tensor<1x2x20x8xf32>
// CHECK: %[[T:.*]] = stablehlo.transpose %[[P]], dims = [0, 2, 1, 3]
// CHECK: stablehlo.reshape %[[T]] : (tensor<1x20x2x8xf32>) -> tensor<1x4x5x16xf32>
// CHECK-NOT: stablehlo.transpose
// CHECK: return
func.func @weighed_pixels(%v: tensor<1x2x8x20xf32>, %p: tensor<1x2x20x20xf32>) -> tensor<1x4x5x16xf32> {
  %d = stablehlo.dot_general %v, %p, batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [3]
       : (tensor<1x2x8x20xf32>, tensor<1x2x20x20xf32>) -> tensor<1x2x8x20xf32>
  %r = stablehlo.reshape %d : (tensor<1x2x8x20xf32>) -> tensor<1x16x4x5xf32>
  %t = stablehlo.transpose %r, dims = [0, 2, 3, 1] : (tensor<1x16x4x5xf32>) -> tensor<1x4x5x16xf32>
  return %t : tensor<1x4x5x16xf32>
}

// One operand is the other's transpose: nothing is gained by moving it, and the pass ends.
// CHECK-LABEL: func.func @symmetrized
// CHECK: %[[T:.*]] = stablehlo.transpose %arg0
// CHECK: stablehlo.add %arg0, %[[T]]
func.func @symmetrized(%x: tensor<6x6xf32>) -> tensor<6x6xf32> {
  %0 = stablehlo.transpose %x, dims = [1, 0] : (tensor<6x6xf32>) -> tensor<6x6xf32>
  %1 = stablehlo.add %x, %0 : tensor<6x6xf32>
  return %1 : tensor<6x6xf32>
}

// A transposed constant is free and no reason to move anything: with it counted, x is transposed
// forth and back without end.
// CHECK-LABEL: func.func @transposed_constant
// CHECK: stablehlo.concatenate %{{.*}}, %arg0, dim = 2
func.func @transposed_constant(%x: tensor<1x3x4xf32>) -> tensor<1x3x5xf32> {
  %c = stablehlo.constant dense<[[[1.0, 2.0, 3.0]]]> : tensor<1x1x3xf32>
  %0 = stablehlo.transpose %c, dims = [0, 2, 1] : (tensor<1x1x3xf32>) -> tensor<1x3x1xf32>
  %1 = stablehlo.concatenate %0, %x, dim = 2 : (tensor<1x3x1xf32>, tensor<1x3x4xf32>) -> tensor<1x3x5xf32>
  return %1 : tensor<1x3x5xf32>
}

// One query's scores: the keys need no transpose when the sum runs along their rows.
// CHECK-LABEL: func.func @one_query
// CHECK-NOT: stablehlo.transpose
// CHECK: %[[Q:.*]] = stablehlo.broadcast_in_dim {{.*}}, dims = [0, 2] : (tensor<2x8xf32>) -> tensor<2x5x8xf32>
// CHECK: %[[P:.*]] = stablehlo.multiply %arg1, %[[Q]]
// CHECK: stablehlo.reduce(%[[P]] init: %{{.*}}) applies stablehlo.add across dimensions = [2]
// CHECK-LABEL: func.func @two_queries
// CHECK: stablehlo.dot_general
func.func @one_query(%q: tensor<2x1x8xf32>, %k: tensor<2x5x8xf32>) -> tensor<2x1x5xf32> {
  %0 = stablehlo.transpose %k, dims = [0, 2, 1] : (tensor<2x5x8xf32>) -> tensor<2x8x5xf32>
  %1 = stablehlo.dot_general %q, %0, batching_dims = [0] x [0], contracting_dims = [2] x [1]
       : (tensor<2x1x8xf32>, tensor<2x8x5xf32>) -> tensor<2x1x5xf32>
  return %1 : tensor<2x1x5xf32>
}
func.func @two_queries(%q: tensor<2x2x8xf32>, %k: tensor<2x5x8xf32>) -> tensor<2x2x5xf32> {
  %1 = stablehlo.dot_general %q, %k, batching_dims = [0] x [0], contracting_dims = [2] x [2]
       : (tensor<2x2x8xf32>, tensor<2x5x8xf32>) -> tensor<2x2x5xf32>
  return %1 : tensor<2x2x5xf32>
}

// Rows that lie along the sum are summed.
// CHECK-LABEL: func.func @matrix_times_vector
// CHECK-NOT: dot_general
// CHECK: stablehlo.reduce
func.func @matrix_times_vector(%a: tensor<64x64xf32>, %x: tensor<64xf32>) -> tensor<64xf32> {
  %0 = stablehlo.dot_general %a, %x, contracting_dims = [1] x [0] : (tensor<64x64xf32>, tensor<64xf32>) -> tensor<64xf32>
  return %0 : tensor<64xf32>
}

// A transposed matrix is read as it lies.
// CHECK-LABEL: func.func @transpose_times_vector
// CHECK-NEXT: stablehlo.dot_general %arg0, %arg1, contracting_dims = [0] x [0]
func.func @transpose_times_vector(%a: tensor<32x64xf32>, %x: tensor<32xf32>) -> tensor<64xf32> {
  %t = stablehlo.transpose %a, dims = [1, 0] : (tensor<32x64xf32>) -> tensor<64x32xf32>
  %0 = stablehlo.dot_general %t, %x, contracting_dims = [1] x [0] : (tensor<64x32xf32>, tensor<32xf32>) -> tensor<64xf32>
  return %0 : tensor<64xf32>
}

// A loop multiplies by it again and again: it stays a product, for which it is packed.
// CHECK-LABEL: func.func @matrix_times_vector_in_loop
// CHECK: stablehlo.dot_general %{{.*}}, %{{.*}}, contracting_dims = [1] x [0]
func.func @matrix_times_vector_in_loop(%a: tensor<64x64xf32>, %x: tensor<64xf32>, %n: tensor<i32>) -> tensor<64xf32> {
  %one = stablehlo.constant dense<1> : tensor<i32>
  %0:3 = stablehlo.while(%m = %a, %i = %n, %v = %x) : tensor<64x64xf32>, tensor<i32>, tensor<64xf32>
  cond {
    %c = stablehlo.compare GT, %i, %one : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %1 = stablehlo.dot_general %m, %v, contracting_dims = [1] x [0] : (tensor<64x64xf32>, tensor<64xf32>) -> tensor<64xf32>
    %2 = stablehlo.subtract %i, %one : tensor<i32>
    stablehlo.return %m, %2, %1 : tensor<64x64xf32>, tensor<i32>, tensor<64xf32>
  }
  return %0#2 : tensor<64xf32>
}

// So does a weight, which is packed anyway, in a loop or not.
// CHECK-LABEL: func.func @weight_times_vector
// CHECK: stablehlo.dot_general %{{.*}}, %arg0, contracting_dims = [1] x [0]
// CHECK: stablehlo.dot_general %{{.*}}, %{{.*}}, contracting_dims = [1] x [0]
func.func @weight_times_vector(%x: tensor<64xf32>, %n: tensor<i32>) -> tensor<64xf32> {
  %one = stablehlo.constant dense<1> : tensor<i32>
  %w = stablehlo.constant dense<0.5> : tensor<64x64xf32>
  %y = stablehlo.dot_general %w, %x, contracting_dims = [1] x [0] : (tensor<64x64xf32>, tensor<64xf32>) -> tensor<64xf32>
  %0:3 = stablehlo.while(%m = %w, %i = %n, %v = %y) : tensor<64x64xf32>, tensor<i32>, tensor<64xf32>
  cond {
    %c = stablehlo.compare GT, %i, %one : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %1 = stablehlo.dot_general %m, %v, contracting_dims = [1] x [0] : (tensor<64x64xf32>, tensor<64xf32>) -> tensor<64xf32>
    %2 = stablehlo.subtract %i, %one : tensor<i32>
    stablehlo.return %m, %2, %1 : tensor<64x64xf32>, tensor<i32>, tensor<64xf32>
  }
  return %0#2 : tensor<64xf32>
}

// A sum that is read in both orders moves once, not to and fro: the transpose of %x is there for the
// first convolution already, and saves nothing.
// CHECK-LABEL: func.func @read_in_both_orders
// CHECK: stablehlo.transpose
// CHECK-NOT: stablehlo.transpose
// CHECK: return
func.func @read_in_both_orders(%x: tensor<1x8x6x6xf32>, %w: tensor<1x1x8x8xf32>, %zero: tensor<f32>) -> tensor<1x8xf32> {
  %x_nhwc = stablehlo.transpose %x, dims = [0, 2, 3, 1] : (tensor<1x8x6x6xf32>) -> tensor<1x6x6x8xf32>
  %a = stablehlo.convolution(%x_nhwc, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x6x6x8xf32>, tensor<1x1x8x8xf32>) -> tensor<1x6x6x8xf32>
  %a_nchw = stablehlo.transpose %a, dims = [0, 3, 1, 2] : (tensor<1x6x6x8xf32>) -> tensor<1x8x6x6xf32>
  %y = stablehlo.add %a_nchw, %x : tensor<1x8x6x6xf32>
  %y_nhwc = stablehlo.transpose %y, dims = [0, 2, 3, 1] : (tensor<1x8x6x6xf32>) -> tensor<1x6x6x8xf32>
  %b = stablehlo.convolution(%y_nhwc, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x6x6x8xf32>, tensor<1x1x8x8xf32>) -> tensor<1x6x6x8xf32>
  %b_nchw = stablehlo.transpose %b, dims = [0, 3, 1, 2] : (tensor<1x6x6x8xf32>) -> tensor<1x8x6x6xf32>
  %z = stablehlo.add %b_nchw, %y : tensor<1x8x6x6xf32>
  %sum = stablehlo.reduce(%z init: %zero) applies stablehlo.add across dimensions = [2, 3] : (tensor<1x8x6x6xf32>, tensor<f32>) -> tensor<1x8xf32>
  return %sum : tensor<1x8xf32>
}

// Rows of an image by their numbers, as to resize it.
// CHECK-LABEL: func.func @gather
// CHECK: "stablehlo.gather"(%arg0, %arg1)
// CHECK-SAME: offset_dims = [0, 2, 3], collapsed_slice_dims = [1], start_index_map = [1]
// CHECK-SAME: slice_sizes = array<i64: 1, 1, 6, 8>
// CHECK-SAME: -> tensor<1x9x6x8xf32>
// CHECK-NOT: stablehlo.transpose
func.func @gather(%x: tensor<1x5x6x8xf32>, %rows: tensor<9xi64>) -> tensor<1x9x6x8xf32> {
  %nchw = stablehlo.transpose %x, dims = [0, 3, 1, 2] : (tensor<1x5x6x8xf32>) -> tensor<1x8x5x6xf32>
  %0 = "stablehlo.gather"(%nchw, %rows) <{dimension_numbers = #stablehlo.gather<offset_dims = [0, 1, 3], collapsed_slice_dims = [2], start_index_map = [2], index_vector_dim = 1>, indices_are_sorted = false, slice_sizes = array<i64: 1, 8, 1, 6>}> : (tensor<1x8x5x6xf32>, tensor<9xi64>) -> tensor<1x8x9x6xf32>
  %nhwc = stablehlo.transpose %0, dims = [0, 2, 3, 1] : (tensor<1x8x9x6xf32>) -> tensor<1x9x6x8xf32>
  return %nhwc : tensor<1x9x6x8xf32>
}

// Rejected: parts of rows.
// CHECK-LABEL: func.func @gather_parts
// CHECK: stablehlo.transpose
// CHECK-NEXT: "stablehlo.gather"
func.func @gather_parts(%x: tensor<1x5x6x8xf32>, %rows: tensor<9xi64>) -> tensor<1x8x9x3xf32> {
  %nchw = stablehlo.transpose %x, dims = [0, 3, 1, 2] : (tensor<1x5x6x8xf32>) -> tensor<1x8x5x6xf32>
  %0 = "stablehlo.gather"(%nchw, %rows) <{dimension_numbers = #stablehlo.gather<offset_dims = [0, 1, 3], collapsed_slice_dims = [2], start_index_map = [2], index_vector_dim = 1>, indices_are_sorted = false, slice_sizes = array<i64: 1, 8, 1, 3>}> : (tensor<1x8x5x6xf32>, tensor<9xi64>) -> tensor<1x8x9x3xf32>
  return %0 : tensor<1x8x9x3xf32>
}

// Rejected: a matrix of numbers makes two dimensions of the last one, a single number none.
// CHECK-LABEL: func.func @gather_by_matrix
// CHECK-COUNT-2: stablehlo.transpose
// CHECK: "stablehlo.gather"
// CHECK: "stablehlo.gather"
func.func @gather_by_matrix(%x: tensor<2x3x4xf32>, %y: tensor<2x3x4xf32>, %rows: tensor<5x6xi64>, %row: tensor<i64>) -> (tensor<4x2x5x6xf32>, tensor<4x2xf32>) {
  %0 = stablehlo.transpose %x, dims = [2, 0, 1] : (tensor<2x3x4xf32>) -> tensor<4x2x3xf32>
  %1 = stablehlo.transpose %y, dims = [2, 0, 1] : (tensor<2x3x4xf32>) -> tensor<4x2x3xf32>
  %2 = "stablehlo.gather"(%0, %rows) <{dimension_numbers = #stablehlo.gather<offset_dims = [0, 1], collapsed_slice_dims = [2], start_index_map = [2], index_vector_dim = 2>, indices_are_sorted = false, slice_sizes = array<i64: 4, 2, 1>}> : (tensor<4x2x3xf32>, tensor<5x6xi64>) -> tensor<4x2x5x6xf32>
  %3 = "stablehlo.gather"(%1, %row) <{dimension_numbers = #stablehlo.gather<offset_dims = [0, 1], collapsed_slice_dims = [2], start_index_map = [2], index_vector_dim = 0>, indices_are_sorted = false, slice_sizes = array<i64: 4, 2, 1>}> : (tensor<4x2x3xf32>, tensor<i64>) -> tensor<4x2xf32>
  return %2, %3 : tensor<4x2x5x6xf32>, tensor<4x2xf32>
}

// A transpose moves up to what is repeated: an upsampling between convolutions stays NHWC.
// CHECK-LABEL: func.func @upsampled
// CHECK-NOT: stablehlo.transpose
// CHECK: stablehlo.broadcast_in_dim {{.*}} -> tensor<1x4x2x5x3xf32>
// CHECK: stablehlo.broadcast_in_dim {{.*}} -> tensor<1x8x5x2x3xf32>
// CHECK-NOT: stablehlo.transpose
// CHECK: return
func.func @upsampled(%x: tensor<1x4x5x3xf32>, %w: tensor<1x1x3x3xf32>) -> tensor<1x8x10x3xf32> {
  %t = stablehlo.transpose %x, dims = [0, 3, 1, 2] : (tensor<1x4x5x3xf32>) -> tensor<1x3x4x5xf32>
  %b = stablehlo.broadcast_in_dim %t, dims = [0, 1, 2, 4] : (tensor<1x3x4x5xf32>) -> tensor<1x3x4x2x5xf32>
  %r = stablehlo.reshape %b : (tensor<1x3x4x2x5xf32>) -> tensor<1x3x8x5xf32>
  %c = stablehlo.broadcast_in_dim %r, dims = [0, 1, 2, 3] : (tensor<1x3x8x5xf32>) -> tensor<1x3x8x5x2xf32>
  %s = stablehlo.reshape %c : (tensor<1x3x8x5x2xf32>) -> tensor<1x3x8x10xf32>
  %u = stablehlo.transpose %s, dims = [0, 2, 3, 1] : (tensor<1x3x8x10xf32>) -> tensor<1x8x10x3xf32>
  %y = stablehlo.convolution(%u, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {}
       {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
       : (tensor<1x8x10x3xf32>, tensor<1x1x3x3xf32>) -> tensor<1x8x10x3xf32>
  return %y : tensor<1x8x10x3xf32>
}

// A pooled branch, spread and added to what is transposed, costs no transpose.
// CHECK-LABEL: func.func @spread
// CHECK-NOT: stablehlo.transpose
// CHECK: %[[S:.*]] = stablehlo.add %{{.*}} : tensor<1x4x5x3xf32>
// CHECK-NEXT: %[[T:.*]] = stablehlo.transpose %[[S]], dims = [0, 3, 1, 2]
// CHECK-NEXT: return %[[T]]
func.func @spread(%x: tensor<1x4x5x3xf32>, %v: tensor<3xf32>, %w: tensor<3xf32>) -> tensor<1x3x4x5xf32> {
  %t = stablehlo.transpose %x, dims = [0, 3, 1, 2] : (tensor<1x4x5x3xf32>) -> tensor<1x3x4x5xf32>
  %a = stablehlo.broadcast_in_dim %v, dims = [1] : (tensor<3xf32>) -> tensor<1x3x20xf32>
  %b = stablehlo.broadcast_in_dim %w, dims = [1] : (tensor<3xf32>) -> tensor<1x3x20xf32>
  %m = stablehlo.multiply %a, %b : tensor<1x3x20xf32>
  %r = stablehlo.reshape %m : (tensor<1x3x20xf32>) -> tensor<1x3x4x5xf32>
  %s = stablehlo.add %t, %r : tensor<1x3x4x5xf32>
  return %s : tensor<1x3x4x5xf32>
}

// Rejected: below the repetition there is no other transpose that it would meet.
// CHECK-LABEL: func.func @upsampled_input
// CHECK: %[[R:.*]] = stablehlo.reshape %{{.*}} -> tensor<2x3x8x5xf32>
// CHECK-NEXT: stablehlo.transpose %[[R]], dims = [0, 2, 3, 1]
func.func @upsampled_input(%x: tensor<2x3x4x5xf32>) -> tensor<2x8x5x3xf32> {
  %b = stablehlo.broadcast_in_dim %x, dims = [0, 1, 2, 4] : (tensor<2x3x4x5xf32>) -> tensor<2x3x4x2x5xf32>
  %r = stablehlo.reshape %b : (tensor<2x3x4x2x5xf32>) -> tensor<2x3x8x5xf32>
  %u = stablehlo.transpose %r, dims = [0, 2, 3, 1] : (tensor<2x3x8x5xf32>) -> tensor<2x8x5x3xf32>
  return %u : tensor<2x8x5x3xf32>
}

// A block that normalises before it convolves, on an input: the input is transposed once.
// CHECK-LABEL: func.func @activated_first
// CHECK: %[[T:.*]] = stablehlo.transpose %arg0, dims = [0, 2, 3, 1]
// CHECK-NOT: stablehlo.transpose
// CHECK: %[[R:.*]] = stablehlo.maximum %{{.*}} : tensor<1x4x5x3xf32>
// CHECK: %[[C:.*]] = stablehlo.convolution(%[[R]], %arg1)
// CHECK: %[[S:.*]] = stablehlo.add %[[T]], %[[C]]
// CHECK: stablehlo.transpose %[[S]], dims = [0, 3, 1, 2]
// CHECK-NOT: stablehlo.transpose
// CHECK: return
func.func @activated_first(%x: tensor<1x3x4x5xf32>, %w: tensor<1x1x3x3xf32>, %v: tensor<3xf32>) -> tensor<1x3x4x5xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<1x3x4x5xf32>
  %b = stablehlo.broadcast_in_dim %v, dims = [1] : (tensor<3xf32>) -> tensor<1x3x4x5xf32>
  %m = stablehlo.multiply %x, %b : tensor<1x3x4x5xf32>
  %r = stablehlo.maximum %m, %zero : tensor<1x3x4x5xf32>
  %t = stablehlo.transpose %r, dims = [0, 2, 3, 1] : (tensor<1x3x4x5xf32>) -> tensor<1x4x5x3xf32>
  %c = stablehlo.convolution(%t, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {}
       {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
       : (tensor<1x4x5x3xf32>, tensor<1x1x3x3xf32>) -> tensor<1x4x5x3xf32>
  %u = stablehlo.transpose %c, dims = [0, 3, 1, 2] : (tensor<1x4x5x3xf32>) -> tensor<1x3x4x5xf32>
  %s = stablehlo.add %x, %u : tensor<1x3x4x5xf32>
  return %s : tensor<1x3x4x5xf32>
}

// Rejected: nobody else reads the input, and of two inputs each would need a transpose.
// CHECK-LABEL: func.func @activated_once
// CHECK: %[[M:.*]] = stablehlo.maximum %arg0, %{{.*}} : tensor<1x3x4x5xf32>
// CHECK: stablehlo.transpose %[[M]], dims = [0, 2, 3, 1]
// CHECK: %[[A:.*]] = stablehlo.add %arg1, %arg2 : tensor<1x3x4x5xf32>
// CHECK: stablehlo.transpose %[[A]], dims = [0, 2, 3, 1]
func.func @activated_once(%x: tensor<1x3x4x5xf32>, %y: tensor<1x3x4x5xf32>, %z: tensor<1x3x4x5xf32>, %w: tensor<1x1x3x3xf32>) -> (tensor<1x4x5x3xf32>, tensor<1x4x5x3xf32>, tensor<1x3x4x5xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<1x3x4x5xf32>
  %m = stablehlo.maximum %x, %zero : tensor<1x3x4x5xf32>
  %t = stablehlo.transpose %m, dims = [0, 2, 3, 1] : (tensor<1x3x4x5xf32>) -> tensor<1x4x5x3xf32>
  %c = stablehlo.convolution(%t, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {}
       {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
       : (tensor<1x4x5x3xf32>, tensor<1x1x3x3xf32>) -> tensor<1x4x5x3xf32>
  %a = stablehlo.add %y, %z : tensor<1x3x4x5xf32>
  %u = stablehlo.transpose %a, dims = [0, 2, 3, 1] : (tensor<1x3x4x5xf32>) -> tensor<1x4x5x3xf32>
  %d = stablehlo.convolution(%u, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {}
       {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
       : (tensor<1x4x5x3xf32>, tensor<1x1x3x3xf32>) -> tensor<1x4x5x3xf32>
  %n = stablehlo.negate %y : tensor<1x3x4x5xf32>
  return %c, %d, %n : tensor<1x4x5x3xf32>, tensor<1x4x5x3xf32>, tensor<1x3x4x5xf32>
}

// Rejected: a transpose that moves nothing but a dimension of one element is a reshape, which the
// concatenation keeps in front of it.
// CHECK-LABEL: func.func @moves_one_element
// CHECK-NOT: stablehlo.transpose
// CHECK: stablehlo.concatenate %{{.*}} : (tensor<4x5x1x3xf32>, tensor<4x5x1x3xf32>) -> tensor<4x5x1x6xf32>
// CHECK-NOT: stablehlo.transpose
func.func @moves_one_element(%x: tensor<1x4x5x3xf32>, %y: tensor<4x5x1x3xf32>) -> tensor<4x5x1x6xf32> {
  %t = stablehlo.transpose %x, dims = [1, 2, 0, 3] : (tensor<1x4x5x3xf32>) -> tensor<4x5x1x3xf32>
  %c = stablehlo.concatenate %t, %y, dim = 3 : (tensor<4x5x1x3xf32>, tensor<4x5x1x3xf32>) -> tensor<4x5x1x6xf32>
  return %c : tensor<4x5x1x6xf32>
}
