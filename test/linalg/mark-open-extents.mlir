// RUN: stepwell-opt %s --pass-pipeline='builtin.module(mark-open-extents)' --split-input-file | filecheck %s

#rows = affine_map<(d0, d1) -> (d0, d1)>
#first = affine_map<(d0, d1) -> (d0)>

// Rows computed from rows in use; and a reshape of them.

// CHECK-LABEL: func.func private @kernel_0
// CHECK-SAME: kernel.extents = ["16/s0, 8/8"]
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
