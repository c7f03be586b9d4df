// RUN: stepwell-opt %s --pass-pipeline='builtin.module(legalize-open-sizes)' --split-input-file --verify-diagnostics | filecheck %s

// A sum over rows of which s0 are in use: the others count as zero.

// CHECK-LABEL: func.func @main(
// CHECK-SAME: %[[X:arg0]]: tensor<16x4xf32>, %[[SIZES:arg1]]: tensor<1xi64>, %[[USED:arg2]]: tensor<16xi1>)
// CHECK-SAME: stepwell.prefixes = {{\[\[}}"s0", 16]]
// CHECK-SAME: stepwell.scalars = ["s0"]
// CHECK: %[[WHERE:.*]] = stablehlo.broadcast_in_dim %[[USED]], dims = [0] : (tensor<16xi1>) -> tensor<16x4xi1>
// CHECK: %[[MASKED:.*]] = stablehlo.select %[[WHERE]], %[[X]], %{{.*}}
// CHECK: stablehlo.reduce(%[[MASKED]] init: %{{.*}}) applies stablehlo.add across dimensions = [0]
func.func @main(%x: tensor<16x4xf32>) -> tensor<4xf32>
    attributes {stepwell.capacities = array<i64: 16>, stepwell.extents = ["s0, 4"]} {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0]
     : (tensor<16x4xf32>, tensor<f32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// Rows of a softmax are masked once: what is -inf stays it, and its exponential is zero.

// CHECK-LABEL: func.func @main(
// CHECK: stablehlo.select
// CHECK-NOT: stablehlo.select
// CHECK: return
func.func @main(%x: tensor<4x16xf32>) -> tensor<4xf32>
    attributes {stepwell.capacities = array<i64: 16>, stepwell.extents = ["4, s0"]} {
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.reduce(%x init: %low) applies stablehlo.maximum across dimensions = [1]
     : (tensor<4x16xf32>, tensor<f32>) -> tensor<4xf32>
  %1 = stablehlo.broadcast_in_dim %0, dims = [0] {stepwell.extents = ["4, s0"]}
     : (tensor<4xf32>) -> tensor<4x16xf32>
  %2 = stablehlo.subtract %x, %1 {stepwell.extents = ["4, s0"]} : tensor<4x16xf32>
  %3 = stablehlo.exponential %2 {stepwell.extents = ["4, s0"]} : tensor<4x16xf32>
  %4 = stablehlo.reduce(%3 init: %zero) applies stablehlo.add across dimensions = [1]
     : (tensor<4x16xf32>, tensor<f32>) -> tensor<4xf32>
  return %4 : tensor<4xf32>
}

// -----

// Bounds and numbers that depend on sizes are computed.

// CHECK-LABEL: func.func @main(
// CHECK: %[[LAST:.*]] = stablehlo.reshape %{{.*}} : (tensor<1xi64>) -> tensor<i64>
// CHECK: stablehlo.dynamic_slice %{{.*}}, %[[LAST]], %{{.*}}, sizes = [1, 4]
// CHECK: %[[COUNT:.*]] = stablehlo.convert %{{.*}} : (tensor<i64>) -> tensor<f32>
// CHECK: stablehlo.broadcast_in_dim %[[COUNT]], dims = []
// CHECK-NOT: stepwell.bounds
func.func @main(%x: tensor<16x4xf32>) -> tensor<1x4xf32>
    attributes {stepwell.capacities = array<i64: 16>, stepwell.extents = ["s0, 4"]} {
  %0 = stablehlo.slice %x [15:16, 0:4] {stepwell.bounds.start_indices = ["s0 - 1", "0"]}
     : (tensor<16x4xf32>) -> tensor<1x4xf32>
  %n = stablehlo.constant {stepwell.scalars = ["s0"]} dense<16.0> : tensor<1x4xf32>
  %1 = stablehlo.divide %0, %n : tensor<1x4xf32>
  return %1 : tensor<1x4xf32>
}

// -----

// A part that follows one of open size begins where that ends.

// CHECK-LABEL: func.func @main(
// CHECK: %[[WHOLE:.*]] = stablehlo.pad %arg0
// CHECK: stablehlo.dynamic_update_slice %[[WHOLE]], %arg0, %{{.*}} : (tensor<32xf32>, tensor<16xf32>, tensor<i64>) -> tensor<32xf32>
func.func @main(%x: tensor<16xf32>) -> tensor<32xf32>
    attributes {stepwell.capacities = array<i64: 16>, stepwell.extents = ["s0"]} {
  %0 = stablehlo.concatenate %x, %x, dim = 0 {stepwell.extents = ["2*s0"]}
     : (tensor<16xf32>, tensor<16xf32>) -> tensor<32xf32>
  return %0 : tensor<32xf32>
}

// -----

// Nothing is done where no size is open.

// CHECK-LABEL: func.func @closed(%arg0: tensor<4xf32>) -> tensor<4xf32>
func.func @closed(%x: tensor<4xf32>) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}

// -----

// The last element in use comes first.

// CHECK-LABEL: func.func @main(
// CHECK: %[[LAST:.*]] = stablehlo.broadcast_in_dim %{{.*}}, dims = [] : (tensor<i64>) -> tensor<16xi64>
// CHECK: %[[PLACE:.*]] = stablehlo.subtract %[[LAST]], %{{.*}}
// CHECK: %[[INSIDE:.*]] = stablehlo.maximum %[[PLACE]], %{{.*}}
// CHECK: "stablehlo.gather"(%{{.*}}, %[[INSIDE]])
func.func @main(%x: tensor<4x16xf32>) -> tensor<4x16xf32>
    attributes {stepwell.capacities = array<i64: 16>, stepwell.extents = ["4, s0"]} {
  %0 = stablehlo.reverse %x, dims = [0, 1] {stepwell.extents = ["4, s0"]} : tensor<4x16xf32>
  return %0 : tensor<4x16xf32>
}

// -----

// Rejected: those of a product do not lie one behind another.

// expected-error@+1 {{a dimension that is a product is reversed}}
module {
  func.func @main(%x: tensor<4x16xf32>) -> tensor<64xf32>
      attributes {stepwell.capacities = array<i64: 16>, stepwell.extents = ["4, s0"]} {
    %0 = stablehlo.reshape %x {stepwell.extents = ["4*s0"]} : (tensor<4x16xf32>) -> tensor<64xf32>
    %1 = stablehlo.reverse %0, dims = [0] {stepwell.extents = ["4*s0"]} : tensor<64xf32>
    return %1 : tensor<64xf32>
  }
}

// -----

// The windows of running sums are all elements in front: what is beyond does not reach into these.

// CHECK-LABEL: func.func @main(
// CHECK: padding = dense<{{\[\[}}15, 0]]>
// CHECK-SAME: window_dimensions = array<i64: 16>
// CHECK-NOT: stepwell.bounds
func.func @main(%x: tensor<16xf32>) -> tensor<16xf32>
    attributes {stepwell.capacities = array<i64: 16>, stepwell.extents = ["s0"]} {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = "stablehlo.reduce_window"(%x, %zero) <{
    padding = dense<[[15, 0]]> : tensor<1x2xi64>, window_dimensions = array<i64: 16>
  }> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }) {
    stepwell.extents = ["s0"], stepwell.bounds.window_dimensions = ["s0"],
    stepwell.bounds.padding = ["s0 - 1", "0"]
  } : (tensor<16xf32>, tensor<f32>) -> tensor<16xf32>
  return %0 : tensor<16xf32>
}

// -----

// Rejected: other windows may not depend on sizes.

// expected-error@+1 {{the windows of a reduction depend on the sizes}}
module {
  func.func @main(%x: tensor<16xf32>) -> tensor<1xf32>
      attributes {stepwell.capacities = array<i64: 16>, stepwell.extents = ["s0"]} {
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %0 = "stablehlo.reduce_window"(%x, %zero) <{window_dimensions = array<i64: 16>}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %s = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %s : tensor<f32>
    }) {stepwell.bounds.window_dimensions = ["s0"]}
      : (tensor<16xf32>, tensor<f32>) -> tensor<1xf32>
    return %0 : tensor<1xf32>
  }
}

// -----

// A result of s0 * s1 rows has those in use in front: row r stands at (r / s1) * 8 + r % s1.

// CHECK-LABEL: func.func @main(
// CHECK: %[[ROWS:.*]] = stablehlo.iota dim = 0 : tensor<32xi64>
// CHECK: %[[COLUMN:.*]] = stablehlo.remainder %[[ROWS]], %[[COUNT:.*]] : tensor<32xi64>
// CHECK: stablehlo.divide %[[ROWS]], %[[COUNT]]
// CHECK: stablehlo.gather
// CHECK-SAME: -> tensor<32x2xf32>
func.func @main(%x: tensor<4x8x2xf32>) -> tensor<32x2xf32>
    attributes {stepwell.capacities = array<i64: 4, 8>, stepwell.extents = ["s0, s1, 2"]} {
  %0 = stablehlo.reshape %x {stepwell.extents = ["s0*s1, 2"]}
     : (tensor<4x8x2xf32>) -> tensor<32x2xf32>
  return %0 : tensor<32x2xf32>
}

// -----

// Matrices that are not in use are zero.

// CHECK-LABEL: func.func @main(
// CHECK-SAME: %[[X:arg0]]: tensor<16x4x4xf32>, %[[SIZES:arg1]]: tensor<1xi64>, %[[USED:arg2]]: tensor<16xi1>)
// CHECK: %[[WHERE:.*]] = stablehlo.broadcast_in_dim %[[USED]], dims = [0] : (tensor<16xi1>) -> tensor<16x4x4xi1>
// CHECK: %[[ZERO:.*]] = stablehlo.select %[[WHERE]], %[[X]], %{{.*}}
// CHECK: stablehlo.custom_call @lapack_sgetrf_ffi(%[[ZERO]])
func.func @main(%x: tensor<16x4x4xf32>) -> tensor<16x4x4xf32>
    attributes {stepwell.capacities = array<i64: 16>, stepwell.extents = ["s0, 4, 4"]} {
  %0:3 = stablehlo.custom_call @lapack_sgetrf_ffi(%x) {stepwell.extents = ["s0, 4, 4", "s0, 4", "s0"]}
     : (tensor<16x4x4xf32>) -> (tensor<16x4x4xf32>, tensor<16x4xi32>, tensor<16xi32>)
  return %0#0 : tensor<16x4x4xf32>
}

// -----

// Of the updates of an operand, those that are not in use have no place.

// CHECK-LABEL: func.func @main(
// CHECK: %[[NOWHERE:.*]] = stablehlo.constant dense<-1> : tensor<16x1xi32>
// CHECK: %[[PLACES:.*]] = stablehlo.select %{{.*}}, %arg1, %[[NOWHERE]]
// CHECK: "stablehlo.scatter"(%arg0, %[[PLACES]], %arg2)
func.func @main(%x: tensor<9xf32>, %i: tensor<16x1xi32>, %u: tensor<16xf32>) -> tensor<9xf32>
    attributes {stepwell.capacities = array<i64: 16>, stepwell.extents = ["9", "s0, 1", "s0"]} {
  %0 = "stablehlo.scatter"(%x, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<
      inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }) : (tensor<9xf32>, tensor<16x1xi32>, tensor<16xf32>) -> tensor<9xf32>
  return %0 : tensor<9xf32>
}

// -----

// Random bits in use stand one behind another among those of the capacities; the next state counts
// no more of them.

// CHECK-LABEL: func.func @main(
// CHECK: %[[STATE:.*]], %[[BITS:.*]] = stablehlo.rng_bit_generator
// CHECK: stablehlo.gather
// CHECK: %[[NEXT:.*]] = stablehlo.subtract %[[STATE]], %{{.*}} : tensor<2xui64>
// CHECK: return %[[NEXT]], %{{.*}}
func.func @main(%s: tensor<2xui64>, %x: tensor<3x16xf32>) -> (tensor<2xui64>, tensor<3x16xui32>)
    attributes {stepwell.capacities = array<i64: 16>, stepwell.extents = ["2", "3, s0"]} {
  %0, %1 = stablehlo.rng_bit_generator %s, algorithm = PHILOX {stepwell.extents = ["2", "3, s0"]}
     : (tensor<2xui64>) -> (tensor<2xui64>, tensor<3x16xui32>)
  return %0, %1 : tensor<2xui64>, tensor<3x16xui32>
}

// -----

// Strides need not divide a size: the number of windows in use is rounded down.

// CHECK-LABEL: func.func @main(
// CHECK-SAME: %[[SIZES:arg1]]: tensor<2xi64>, %[[USED:arg2]]: tensor<16xi1>, %[[WINDOWS:arg3]]: tensor<8xi1>)
// CHECK-SAME: stepwell.prefixes = {{\[\[}}"s0", 16], ["(s0 + 1) floordiv 2", 8]]
// CHECK-SAME: stepwell.scalars = ["s0", "(s0 + 1) floordiv 2"]
// CHECK: stablehlo.broadcast_in_dim %[[USED]]
// CHECK: stablehlo.slice %[[SIZES]] [1:2]
// CHECK: "stablehlo.reduce_window"
// CHECK: stablehlo.broadcast_in_dim %[[WINDOWS]]
// CHECK: stablehlo.reduce
// CHECK: stablehlo.divide %{{.*}}, %{{.*}} : tensor<4xf32>
func.func @main(%x: tensor<4x16xf32>) -> tensor<4xf32>
    attributes {stepwell.capacities = array<i64: 16>, stepwell.extents = ["4, s0"]} {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = "stablehlo.reduce_window"(%x, %zero) <{window_dimensions = array<i64: 1, 3>,
      window_strides = array<i64: 1, 2>, padding = dense<[[0, 0], [1, 1]]> : tensor<2x2xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }) {stepwell.extents = ["4, (s0 + 1) floordiv 2"]}
    : (tensor<4x16xf32>, tensor<f32>) -> tensor<4x8xf32>
  %1 = stablehlo.reduce(%0 init: %zero) applies stablehlo.add across dimensions = [1]
     : (tensor<4x8xf32>, tensor<f32>) -> tensor<4xf32>
  %n = stablehlo.constant {stepwell.scalars = ["(s0 + 1) floordiv 2"]} dense<8.0> : tensor<4xf32>
  %2 = stablehlo.divide %1, %n : tensor<4xf32>
  return %2 : tensor<4xf32>
}

// -----

// Padding in front that depends on the size: the image is put at a place of a larger one.

// CHECK-LABEL: func.func @main(
// CHECK: stablehlo.select
// CHECK: %[[WHOLE:.*]] = stablehlo.dynamic_update_slice %{{.*}} : (tensor<18xf32>, tensor<16xf32>, tensor<i64>) -> tensor<18xf32>
// CHECK: %[[X:.*]] = stablehlo.slice %[[WHOLE]] [0:18]
// CHECK: "stablehlo.reduce_window"(%[[X]], %{{.*}}) <{padding = dense<0> : tensor<1x2xi64>
func.func @main(%x: tensor<16xf32>) -> tensor<8xf32>
    attributes {stepwell.capacities = array<i64: 16>, stepwell.extents = ["s0"],
                stepwell.result_extents = ["(s0 + 1) floordiv 2"]} {
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %0 = "stablehlo.reduce_window"(%x, %low) <{window_dimensions = array<i64: 4>,
      window_strides = array<i64: 2>, padding = dense<[[1, 1]]> : tensor<1x2xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = stablehlo.maximum %a, %b : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }) {stepwell.bounds.padding = ["2*((s0 + 1) floordiv 2) - s0 + 1", "1"],
      stepwell.extents = ["(s0 + 1) floordiv 2"]} : (tensor<16xf32>, tensor<f32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}

// -----

// Values of which so many are in front that the sizes tell, are put into a whole of these.

// CHECK-LABEL: func.func @main(
// CHECK: %[[X:.*]] = stablehlo.select %{{.*}}, %arg0, %{{.*}} : tensor<16xi1>, tensor<16xf32>
// CHECK: %[[FRONT:.*]] = stablehlo.reshape %{{.*}} : (tensor<1xi64>) -> tensor<i64>
// CHECK: %[[WHOLE:.*]] = stablehlo.broadcast_in_dim %{{.*}}, dims = [] : (tensor<f32>) -> tensor<24xf32>
// CHECK: stablehlo.dynamic_update_slice %[[WHOLE]], %[[X]], %[[FRONT]]
func.func @main(%x: tensor<16xf32>, %n: tensor<8xi1>) -> tensor<24xf32>
    attributes {stepwell.capacities = array<i64: 16, 8>, stepwell.extents = ["s0", "s1"],
                stepwell.result_extents = ["s0 + s1"]} {
  %one = stablehlo.constant dense<1.0> : tensor<f32>
  %0 = stablehlo.pad %x, %one, low = [8], high = [0], interior = [0]
      {stepwell.bounds.edge_padding_low = ["s1"], stepwell.extents = ["s0 + s1"]}
      : (tensor<16xf32>, tensor<f32>) -> tensor<24xf32>
  return %0 : tensor<24xf32>
}

// -----

// Copies of rows, of which there are s0, stand one behind another.

// CHECK-LABEL: func.func @main(
// CHECK-SAME: ["3*s0", 24]
func.func @main(%x: tensor<3xf32>, %n: tensor<8xi1>) -> tensor<f32>
    attributes {stepwell.capacities = array<i64: 8>, stepwell.extents = ["3", "s0"]} {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.broadcast_in_dim %x, dims = [1] {stepwell.extents = ["s0, 3"]}
      : (tensor<3xf32>) -> tensor<8x3xf32>
  %1 = stablehlo.reshape %0 {stepwell.extents = ["3*s0"]} : (tensor<8x3xf32>) -> tensor<24xf32>
  %2 = stablehlo.reduce(%1 init: %zero) applies stablehlo.add across dimensions = [0]
     : (tensor<24xf32>, tensor<f32>) -> tensor<f32>
  return %2 : tensor<f32>
}

// -----

// Rejected: the fewer there are, the more are in front.

// expected-error@+1 {{how much is padded in front depends on the sizes}}
module {
  func.func @main(%x: tensor<16xf32>) -> tensor<16xf32>
      attributes {stepwell.capacities = array<i64: 16>, stepwell.extents = ["s0"]} {
    %one = stablehlo.constant dense<1.0> : tensor<f32>
    %0 = stablehlo.pad %x, %one, low = [0], high = [0], interior = [0]
        {stepwell.bounds.edge_padding_low = ["-s0 + 16"], stepwell.extents = ["16"]}
        : (tensor<16xf32>, tensor<f32>) -> tensor<16xf32>
    return %0 : tensor<16xf32>
  }
}

// -----

// Rejected: between elements that are apart, nothing is put in front.

// expected-error@+1 {{how much is padded in front depends on the sizes}}
module {
  func.func @main(%x: tensor<1x16x1xf32>, %w: tensor<3x1x1xf32>) -> tensor<1x16x1xf32>
      attributes {stepwell.capacities = array<i64: 16>, stepwell.extents = ["1, s0, 1", "3, 1, 1"]} {
    %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f],
        window = {stride = [2], pad = [[1, 2]], lhs_dilate = [2]}
        {batch_group_count = 1 : i64, feature_group_count = 1 : i64,
         stepwell.bounds.padding = ["2*((s0 + 1) floordiv 2) - s0 + 1", "2"],
         stepwell.extents = ["1, s0, 1"]}
        : (tensor<1x16x1xf32>, tensor<3x1x1xf32>) -> tensor<1x16x1xf32>
    return %0 : tensor<1x16x1xf32>
  }
}

// -----

// A slice that is all there is of the capacity is a part of other sizes.

// CHECK-LABEL: func.func @main(
// CHECK-SAME: ["2*(s0 floordiv 2)", 16]
// CHECK: stablehlo.select
func.func @main(%x: tensor<16xf32>) -> tensor<f32>
    attributes {stepwell.capacities = array<i64: 16>, stepwell.extents = ["s0"]} {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.slice %x [0:16] {stepwell.bounds.limit_indices = ["2*(s0 floordiv 2)"],
      stepwell.extents = ["2*(s0 floordiv 2)"]} : (tensor<16xf32>) -> tensor<16xf32>
  %1 = stablehlo.reduce(%0 init: %zero) applies stablehlo.add across dimensions = [0]
     : (tensor<16xf32>, tensor<f32>) -> tensor<f32>
  return %1 : tensor<f32>
}

// -----

// Rejected: the elements that a transform would mix are not all in use.

// expected-error@+1 {{a dimension of open size is transformed}}
module {
  func.func @main(%x: tensor<4x16xcomplex<f32>>) -> tensor<4x16xcomplex<f32>>
      attributes {stepwell.capacities = array<i64: 16>, stepwell.extents = ["4, s0"]} {
    %0 = stablehlo.fft %x, type = FFT, length = [16] {stepwell.extents = ["4, s0"]}
       : (tensor<4x16xcomplex<f32>>) -> tensor<4x16xcomplex<f32>>
    return %0 : tensor<4x16xcomplex<f32>>
  }
}

// -----

// What is behind the elements in use stays there when they are sorted.

// CHECK-LABEL: func.func @main(
// CHECK: %[[NAN:.*]] = stablehlo.constant dense<0x7FC00000> : tensor<16xf32>
// CHECK: %[[KEYS:.*]] = stablehlo.select %{{.*}}, %arg0, %[[NAN]]
// CHECK: "stablehlo.sort"(%[[KEYS]], %arg1)
func.func @main(%x: tensor<16xf32>, %y: tensor<16xi64>) -> tensor<16xi64>
    attributes {stepwell.capacities = array<i64: 16>, stepwell.extents = ["s0", "s0"]} {
  %0:2 = "stablehlo.sort"(%x, %y) <{dimension = 0 : i64, is_stable = true}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>, %c: tensor<i64>, %d: tensor<i64>):
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %nan = stablehlo.constant dense<0x7FC00000> : tensor<f32>
    %za = stablehlo.compare EQ, %a, %zero : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %a0 = stablehlo.select %za, %zero, %a : tensor<i1>, tensor<f32>
    %na = stablehlo.compare NE, %a, %a : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %a1 = stablehlo.select %na, %nan, %a0 : tensor<i1>, tensor<f32>
    %zb = stablehlo.compare EQ, %b, %zero : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %b0 = stablehlo.select %zb, %zero, %b : tensor<i1>, tensor<f32>
    %nb = stablehlo.compare NE, %b, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %b1 = stablehlo.select %nb, %nan, %b0 : tensor<i1>, tensor<f32>
    %less = stablehlo.compare LT, %a1, %b1, TOTALORDER
        : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %less : tensor<i1>
  }) {stepwell.extents = ["s0", "s0"]}
     : (tensor<16xf32>, tensor<16xi64>) -> (tensor<16xf32>, tensor<16xi64>)
  return %0#1 : tensor<16xi64>
}

// -----

// Positions of what is true are those among all, up to how many are in use.

// CHECK-LABEL: func.func @main(
// CHECK: %[[TRUE:.*]] = stablehlo.select %{{.*}}, %arg0, %{{.*}} : tensor<16xi1>
// CHECK: %[[END:.*]] = stablehlo.constant dense<16> : tensor<16xi64>
// CHECK: %[[KEYS:.*]] = stablehlo.select %[[TRUE]], %{{.*}}, %[[END]]
// CHECK: %[[PLACES:.*]] = "stablehlo.sort"(%[[KEYS]])
// CHECK: stablehlo.minimum %[[PLACES]], %{{.*}} : tensor<16xi64>
func.func @main(%mask: tensor<16xi1>) -> tensor<16xi64>
    attributes {stepwell.capacities = array<i64: 16>, stepwell.extents = ["s0"]} {
  %count = stablehlo.constant {stepwell.extents = ["s0"], stepwell.scalars = ["s0"]}
      dense<16> : tensor<16xi64>
  %numbers = stablehlo.iota dim = 0 {stepwell.extents = ["s0"]} : tensor<16xi64>
  %keys = stablehlo.select %mask, %numbers, %count {stepwell.extents = ["s0"]}
      : tensor<16xi1>, tensor<16xi64>
  %0 = "stablehlo.sort"(%keys) <{dimension = 0 : i64, is_stable = true}> ({
  ^bb0(%a: tensor<i64>, %b: tensor<i64>):
    %less = stablehlo.compare LT, %a, %b : (tensor<i64>, tensor<i64>) -> tensor<i1>
    stablehlo.return %less : tensor<i1>
  }) {stepwell.extents = ["s0"]} : (tensor<16xi64>) -> tensor<16xi64>
  return %0 : tensor<16xi64>
}

// -----

// Rejected: what comes last by a comparator of two operands is not known.

// expected-error@+1 {{an open dimension is sorted by a comparator that is not known}}
module {
  func.func @main(%x: tensor<16xi64>, %y: tensor<16xi64>) -> tensor<16xi64>
      attributes {stepwell.capacities = array<i64: 16>, stepwell.extents = ["s0", "s0"]} {
    %0:2 = "stablehlo.sort"(%x, %y) <{dimension = 0 : i64, is_stable = true}> ({
    ^bb0(%a: tensor<i64>, %b: tensor<i64>, %c: tensor<i64>, %d: tensor<i64>):
      %0 = stablehlo.add %a, %c : tensor<i64>
      %1 = stablehlo.add %b, %d : tensor<i64>
      %less = stablehlo.compare LT, %0, %1 : (tensor<i64>, tensor<i64>) -> tensor<i1>
      stablehlo.return %less : tensor<i1>
    }) {stepwell.extents = ["s0", "s0"]}
       : (tensor<16xi64>, tensor<16xi64>) -> (tensor<16xi64>, tensor<16xi64>)
    return %0#0 : tensor<16xi64>
  }
}

// -----

// Of as many rows as columns, others are in use than the result has: the elements are moved.

// CHECK-LABEL: func.func @main(
// CHECK: %[[FLAT:.*]] = stablehlo.reshape %arg0 : (tensor<16x16xf32>) -> tensor<256xf32>
// CHECK: "stablehlo.gather"(%[[FLAT]], %{{.*}}) {{.*}} (tensor<256xf32>, tensor<256xi64>) -> tensor<256xf32>
func.func @main(%x: tensor<16x16xf32>) -> tensor<16x16xf32>
    attributes {stepwell.capacities = array<i64: 16, 16>, stepwell.extents = ["s0, s1"]} {
  %0 = stablehlo.reshape %x {stepwell.extents = ["s1, s0"]}
     : (tensor<16x16xf32>) -> tensor<16x16xf32>
  return %0 : tensor<16x16xf32>
}

// -----

// Rejected: as many elements as are in use have to be so in the result.

// expected-error@+1 {{s0*s1 elements are reshaped to s0*s0}}
module {
  func.func @main(%x: tensor<16x16xf32>) -> tensor<16x16xf32>
      attributes {stepwell.capacities = array<i64: 16, 16>, stepwell.extents = ["s0, s1"]} {
    %0 = stablehlo.reshape %x {stepwell.extents = ["s0, s0"]}
       : (tensor<16x16xf32>) -> tensor<16x16xf32>
    return %0 : tensor<16x16xf32>
  }
}

