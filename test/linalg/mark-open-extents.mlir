// RUN: stepwell-opt %s --pass-pipeline='builtin.module(mark-open-extents)' --split-input-file | filecheck %s

#rows = affine_map<(d0, d1) -> (d0, d1)>
#first = affine_map<(d0, d1) -> (d0)>

// Rows computed from rows in use; and a reshape of them.

// CHECK-LABEL: func.func @main
// CHECK: call @kernel_0(%arg0, %arg1, %{{.*}})
// CHECK-LABEL: func.func private @kernel_0
// CHECK-SAME: %arg1: tensor<1xi64>
// CHECK-SAME: kernel.extents = ["16/s0, 8/8"], kernel.sizes = ["s0"]
// CHECK-LABEL: func.func private @kernel_1
// CHECK-SAME: kernel.extents = ["64/4*s0, 2/2"]
func.func @main(%x: tensor<16x8xf32>, %sizes: tensor<1xi64>) -> tensor<64x2xf32>
    attributes {stepwell.extents = ["s0, 8"], stepwell.scalars = ["s0"], stepwell.prefixes = []} {
  %e = tensor.empty() : tensor<16x8xf32>
  %0 = call @kernel_0(%x, %e) : (tensor<16x8xf32>, tensor<16x8xf32>) -> tensor<16x8xf32>
  %f = tensor.empty() : tensor<64x2xf32>
  %1 = call @kernel_1(%0, %f) : (tensor<16x8xf32>, tensor<64x2xf32>) -> tensor<64x2xf32>
  return %1 : tensor<64x2xf32>
}
func.func private @kernel_0(%x: tensor<16x8xf32>, %y: tensor<16x8xf32>) -> tensor<16x8xf32> {
  %0 = linalg.generic {indexing_maps = [#rows, #rows], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<16x8xf32>) outs(%y : tensor<16x8xf32>) {
  ^bb0(%a: f32, %b: f32):
    %1 = math.exp %a : f32
    linalg.yield %1 : f32
  } -> tensor<16x8xf32>
  return %0 : tensor<16x8xf32>
}
func.func private @kernel_1(%x: tensor<16x8xf32>, %y: tensor<64x2xf32>) -> tensor<64x2xf32> {
  %0 = tensor.expand_shape %x [[0], [1, 2]] output_shape [16, 4, 2] : tensor<16x8xf32> into tensor<16x4x2xf32>
  %1 = tensor.collapse_shape %0 [[0, 1], [2]] : tensor<16x4x2xf32> into tensor<64x2xf32>
  %2 = linalg.generic {indexing_maps = [#rows, #rows], iterator_types = ["parallel", "parallel"]}
      ins(%1 : tensor<64x2xf32>) outs(%y : tensor<64x2xf32>) {
  ^bb0(%a: f32, %b: f32):
    %3 = math.exp %a : f32
    linalg.yield %3 : f32
  } -> tensor<64x2xf32>
  return %2 : tensor<64x2xf32>
}

// -----

#rows = affine_map<(d0, d1) -> (d0, d1)>
#first = affine_map<(d0, d1) -> (d0)>

// Rejected: what stands in rows that are not in use is put there by a vector of booleans.

// CHECK-LABEL: func.func private @kernel_0
// CHECK-NOT: kernel.extents
func.func @main(%x: tensor<16x8xf32>, %sizes: tensor<1xi64>, %used: tensor<16xi1>) -> tensor<16x8xf32>
    attributes {stepwell.extents = ["s0, 8"], stepwell.scalars = ["s0"], stepwell.prefixes = [["s0", 16]]} {
  %e = tensor.empty() : tensor<16x8xf32>
  %0 = call @kernel_0(%x, %used, %e) : (tensor<16x8xf32>, tensor<16xi1>, tensor<16x8xf32>) -> tensor<16x8xf32>
  return %0 : tensor<16x8xf32>
}
func.func private @kernel_0(%x: tensor<16x8xf32>, %used: tensor<16xi1>, %y: tensor<16x8xf32>) -> tensor<16x8xf32> {
  %zero = arith.constant 0.0 : f32
  %0 = linalg.generic {indexing_maps = [#rows, #first, #rows], iterator_types = ["parallel", "parallel"]}
      ins(%x, %used : tensor<16x8xf32>, tensor<16xi1>) outs(%y : tensor<16x8xf32>) {
  ^bb0(%a: f32, %m: i1, %b: f32):
    %1 = arith.select %m, %a, %zero : f32
    linalg.yield %1 : f32
  } -> tensor<16x8xf32>
  return %0 : tensor<16x8xf32>
}

// -----

#image = affine_map<(d0, d1) -> (d0, d1)>
#rows = affine_map<(d0, d1) -> (d0)>
#window = affine_map<(d0, d1, d2) -> (d0 * 2 + d2, d1)>
#taps = affine_map<(d0, d1, d2) -> (d2)>
#sums = affine_map<(d0, d1, d2) -> (d0, d1)>

// Rows that were filled are needed as far as windows of three, two rows apart, read them: 2 * (s0
// floordiv 2 - 1) + 3 of them. What is filled is needed of what is chosen alone.

// CHECK-LABEL: func.func private @kernel_0
// CHECK-SAME: kernel.extents = ["17/s0 + 1, 8/8"]
// CHECK: kernel.needed = "17/s0, 8/8"
// CHECK-LABEL: func.func private @kernel_1
// CHECK-SAME: kernel.extents = ["8/s0 floordiv 2, 8/8"]
// CHECK: kernel.needed = "8/s0 floordiv 2, 8/8"
func.func @main(%x: tensor<17x8x4xf32>, %sizes: tensor<2xi64>, %used: tensor<17xi1>, %w: tensor<3xf32>) -> tensor<8x8xf32>
    attributes {stepwell.extents = ["s0, 8, 4"], stepwell.result_extents = ["s0 floordiv 2, 8"],
                stepwell.scalars = ["s0", "s0 floordiv 2"], stepwell.prefixes = [["s0", 17]]} {
  %e = tensor.empty() : tensor<17x8xf32>
  %0 = call @kernel_0(%x, %used, %e) : (tensor<17x8x4xf32>, tensor<17xi1>, tensor<17x8xf32>) -> tensor<17x8xf32>
  %f = tensor.empty() : tensor<8x8xf32>
  %1 = call @kernel_1(%0, %w, %f) : (tensor<17x8xf32>, tensor<3xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  return %1 : tensor<8x8xf32>
}
func.func private @kernel_0(%x: tensor<17x8x4xf32>, %used: tensor<17xi1>, %y: tensor<17x8xf32>) -> tensor<17x8xf32> {
  %zero = arith.constant 0.0 : f32
  %0 = linalg.generic {indexing_maps = [affine_map<(d0, d1, d2) -> (d0, d1, d2)>, #sums],
      iterator_types = ["parallel", "parallel", "reduction"]} ins(%x : tensor<17x8x4xf32>) outs(%y : tensor<17x8xf32>) {
  ^bb0(%a: f32, %s: f32):
    %3 = arith.addf %s, %a : f32
    linalg.yield %3 : f32
  } -> tensor<17x8xf32>
  %1 = tensor.empty() : tensor<17x8xf32>
  %2 = linalg.generic {indexing_maps = [#rows, #image, #image], iterator_types = ["parallel", "parallel"]}
      ins(%used, %0 : tensor<17xi1>, tensor<17x8xf32>) outs(%1 : tensor<17x8xf32>) {
  ^bb0(%m: i1, %a: f32, %b: f32):
    %3 = arith.select %m, %a, %zero : f32
    linalg.yield %3 : f32
  } -> tensor<17x8xf32>
  return %2 : tensor<17x8xf32>
}
func.func private @kernel_1(%x: tensor<17x8xf32>, %w: tensor<3xf32>, %y: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %0 = linalg.generic {indexing_maps = [#window, #taps, #sums], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w : tensor<17x8xf32>, tensor<3xf32>) outs(%y : tensor<8x8xf32>) {
  ^bb0(%a: f32, %b: f32, %s: f32):
    %1 = arith.mulf %a, %b : f32
    %2 = arith.addf %s, %1 : f32
    linalg.yield %2 : f32
  } -> tensor<8x8xf32>
  return %0 : tensor<8x8xf32>
}

// -----

#all = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#last = affine_map<(d0, d1, d2) -> (d2)>
#rows = affine_map<(d0, d1) -> (d0, d1)>

// What is filled along one dimension stays in use in part along others, also when these are joined.

// CHECK-LABEL: func.func private @kernel_0
// CHECK-SAME: kernel.extents = ["4/s0, 3/3, 16/16"]
// CHECK-LABEL: func.func private @kernel_1
// CHECK-SAME: kernel.extents = ["12/3*s0, 16/16"]
func.func @main(%x: tensor<4x3x16xf32>, %sizes: tensor<2xi64>, %used: tensor<16xi1>) -> tensor<12x16xf32>
    attributes {stepwell.extents = ["s0, 3, s1"], stepwell.scalars = ["s0", "s1"], stepwell.prefixes = [["s1", 16]]} {
  %e = tensor.empty() : tensor<4x3x16xf32>
  %0 = call @kernel_0(%x, %used, %e) : (tensor<4x3x16xf32>, tensor<16xi1>, tensor<4x3x16xf32>) -> tensor<4x3x16xf32>
  %f = tensor.empty() : tensor<12x16xf32>
  %1 = call @kernel_1(%0, %f) : (tensor<4x3x16xf32>, tensor<12x16xf32>) -> tensor<12x16xf32>
  return %1 : tensor<12x16xf32>
}
func.func private @kernel_0(%x: tensor<4x3x16xf32>, %used: tensor<16xi1>, %y: tensor<4x3x16xf32>) -> tensor<4x3x16xf32> {
  %zero = arith.constant 0.0 : f32
  %0 = linalg.generic {indexing_maps = [#last, #all, #all], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%used, %x : tensor<16xi1>, tensor<4x3x16xf32>) outs(%y : tensor<4x3x16xf32>) {
  ^bb0(%u: i1, %a: f32, %b: f32):
    %1 = arith.select %u, %a, %zero : f32
    linalg.yield %1 : f32
  } -> tensor<4x3x16xf32>
  return %0 : tensor<4x3x16xf32>
}
func.func private @kernel_1(%x: tensor<4x3x16xf32>, %y: tensor<12x16xf32>) -> tensor<12x16xf32> {
  %0 = tensor.collapse_shape %x [[0, 1], [2]] : tensor<4x3x16xf32> into tensor<12x16xf32>
  %1 = linalg.generic {indexing_maps = [#rows, #rows], iterator_types = ["parallel", "parallel"]}
      ins(%0 : tensor<12x16xf32>) outs(%y : tensor<12x16xf32>) {
  ^bb0(%a: f32, %b: f32):
    %2 = math.exp %a : f32
    linalg.yield %2 : f32
  } -> tensor<12x16xf32>
  return %1 : tensor<12x16xf32>
}
