// RUN: stepwell-opt %s --split-input-file \
// RUN:   --pass-pipeline='builtin.module(legalize-to-linalg,form-fusion-groups)' | filecheck %s

// Matrices that numbers choose are read by the product itself.
// CHECK-LABEL: func.func @main
// CHECK-COUNT-1: call @kernel_0(%arg0, %arg2, %arg1, %{{.*}}) : (tensor<6x10x16xf32>, tensor<6x1xi32>, tensor<4x16x24xf32>, tensor<6x10x24xf32>) -> tensor<6x10x24xf32>
// CHECK-NOT: call
// CHECK: func.func private @kernel_0
// CHECK-SAME: kernel.kind = "contraction"
// CHECK: %[[N:.*]] = tensor.extract %arg1
// CHECK: tensor.extract %arg2[%{{.*}}, %{{.*}}, %{{.*}}] : tensor<4x16x24xf32>
// CHECK: arith.mulf
func.func @main(%x: tensor<6x10x16xf32>, %w: tensor<4x16x24xf32>, %n: tensor<6x1xi32>) -> tensor<6x10x24xf32> {
  %0 = "stablehlo.gather"(%w, %n) <{dimension_numbers = #stablehlo.gather<offset_dims = [1, 2], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 16, 24>}> : (tensor<4x16x24xf32>, tensor<6x1xi32>) -> tensor<6x16x24xf32>
  %1 = stablehlo.dot_general %x, %0, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<6x10x16xf32>, tensor<6x16x24xf32>) -> tensor<6x10x24xf32>
  return %1 : tensor<6x10x24xf32>
}

// -----

// Rejected: the matrices are added to something, too, and so are copied for both.
// CHECK-LABEL: func.func @added
// CHECK: call @kernel_{{.*}} -> {{.*}}tensor<6x16x24xf32>
// CHECK: call @kernel_{{.*}}tensor<6x16x24xf32>, tensor<6x10x24xf32>) -> tensor<6x10x24xf32>
func.func @added(%x: tensor<6x10x16xf32>, %w: tensor<4x16x24xf32>, %n: tensor<6x1xi32>, %y: tensor<6x16x24xf32>) -> (tensor<6x10x24xf32>, tensor<6x16x24xf32>) {
  %0 = "stablehlo.gather"(%w, %n) <{dimension_numbers = #stablehlo.gather<offset_dims = [1, 2], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 16, 24>}> : (tensor<4x16x24xf32>, tensor<6x1xi32>) -> tensor<6x16x24xf32>
  %1 = stablehlo.dot_general %x, %0, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<6x10x16xf32>, tensor<6x16x24xf32>) -> tensor<6x10x24xf32>
  %2 = stablehlo.add %0, %y : tensor<6x16x24xf32>
  return %1, %2 : tensor<6x10x24xf32>, tensor<6x16x24xf32>
}

// -----

// Rejected: numbers choose the rows that are summed over, and not the matrix of a whole tile.
// CHECK-LABEL: func.func @rows
// CHECK: call @kernel_{{.*}} -> tensor<6x24xf32>
// CHECK: call @kernel_{{.*}}tensor<6x24xf32>, tensor<10x24xf32>) -> tensor<10x24xf32>
func.func @rows(%x: tensor<10x6xf32>, %w: tensor<4x24xf32>, %n: tensor<6x1xi32>) -> tensor<10x24xf32> {
  %0 = "stablehlo.gather"(%w, %n) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 24>}> : (tensor<4x24xf32>, tensor<6x1xi32>) -> tensor<6x24xf32>
  %1 = stablehlo.dot_general %x, %0, contracting_dims = [1] x [0] : (tensor<10x6xf32>, tensor<6x24xf32>) -> tensor<10x24xf32>
  return %1 : tensor<10x24xf32>
}
