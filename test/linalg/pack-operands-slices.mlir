// RUN: stepwell-opt %s --split-input-file --target=x86_64-v4 \
// RUN:   --pass-pipeline='builtin.module(legalize-to-linalg,hoist-constants,form-fusion-groups,pack-operands)' \
// RUN:   | filecheck %s

// Matrices that numbers choose lie in panels, each once, and their slices are read there.
// CHECK-DAG: [[PANELS:#[a-z0-9]+]] = affine_map<(d0, d1, d2, d3) -> (d0, d2 floordiv 16, d3, d2 mod 16)>
// CHECK-LABEL: func.func @main
// CHECK-SAME: tensor<2x1x2x16xf32> {stepwell.weight = "{{[a-z0-9_]+}}_packed{{[^"]*}}"}
// CHECK: func.func private @kernel_0(%arg0: tensor<3x5x2xf32>, %arg1: tensor<3x1xi32>, %arg2: tensor<2x1x2x16xf32>
// CHECK-NOT: -> tensor<3x2x4xf32>
// CHECK: tensor.extract %arg2[%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}] : tensor<2x1x2x16xf32>
// CHECK: linalg.generic {indexing_maps = [{{#[a-z0-9]+}}, [[PANELS]], {{#[a-z0-9]+}}]
func.func @main(%x: tensor<3x5x2xf32>, %n: tensor<3x1xi32>) -> tensor<3x5x4xf32> {
  %w = stablehlo.constant dense<[[[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]], [[1.5, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]]]> : tensor<2x2x4xf32>
  %0 = "stablehlo.gather"(%w, %n) <{dimension_numbers = #stablehlo.gather<offset_dims = [1, 2], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 2, 4>}> : (tensor<2x2x4xf32>, tensor<3x1xi32>) -> tensor<3x2x4xf32>
  %1 = stablehlo.dot_general %x, %0, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<3x5x2xf32>, tensor<3x2x4xf32>) -> tensor<3x5x4xf32>
  return %1 : tensor<3x5x4xf32>
}

// -----

// Rejected: two dimensions tell which matrix; they are read where they lie, in no panels.
// CHECK-LABEL: func.func @two
// CHECK-NOT: _packed
// CHECK: func.func private @kernel_0
// CHECK-SAME: tensor<2x2x4xf32>
func.func @two(%x: tensor<3x2x5x2xf32>, %n: tensor<3x2x1xi32>) -> tensor<3x2x5x4xf32> {
  %w = stablehlo.constant dense<[[[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]], [[1.5, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]]]> : tensor<2x2x4xf32>
  %0 = "stablehlo.gather"(%w, %n) <{dimension_numbers = #stablehlo.gather<offset_dims = [2, 3], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 2>, slice_sizes = array<i64: 1, 2, 4>}> : (tensor<2x2x4xf32>, tensor<3x2x1xi32>) -> tensor<3x2x2x4xf32>
  %1 = stablehlo.dot_general %x, %0, batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [2] : (tensor<3x2x5x2xf32>, tensor<3x2x2x4xf32>) -> tensor<3x2x5x4xf32>
  return %1 : tensor<3x2x5x4xf32>
}
