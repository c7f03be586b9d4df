// RUN: stepwell-opt %s --split-input-file --pass-pipeline='builtin.module(simplify-algebra)' | filecheck %s

// Rows taken at positions that are the same along dimension 2, with negative ones counted from the end.
// CHECK-LABEL: func.func @rows
// CHECK: stablehlo.select {{.*}} tensor<2x5xi64>
// CHECK: "stablehlo.gather"(%arg0, %{{.*}}) <{dimension_numbers = #stablehlo.gather<offset_dims = [2], collapsed_slice_dims = [1], operand_batching_dims = [0], start_indices_batching_dims = [0], start_index_map = [1], index_vector_dim = 2>
// CHECK-SAME: slice_sizes = array<i64: 1, 1, 16>
func.func @rows(%x: tensor<2x9x16xf32>, %i: tensor<2x5xi64>) -> tensor<2x5x16xf32> {
  %zero = stablehlo.constant dense<0> : tensor<2x5x16xi64>
  %nine = stablehlo.constant dense<9> : tensor<2x5x16xi64>
  %0 = stablehlo.broadcast_in_dim %i, dims = [0, 1] : (tensor<2x5xi64>) -> tensor<2x5x16xi64>
  %1 = stablehlo.compare LT, %0, %zero : (tensor<2x5x16xi64>, tensor<2x5x16xi64>) -> tensor<2x5x16xi1>
  %2 = stablehlo.add %0, %nine : tensor<2x5x16xi64>
  %3 = stablehlo.select %1, %2, %0 : tensor<2x5x16xi1>, tensor<2x5x16xi64>
  %4 = "stablehlo.gather"(%x, %3) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [1], operand_batching_dims = [0, 2], start_indices_batching_dims = [0, 2], start_index_map = [1], index_vector_dim = 3>, slice_sizes = array<i64: 1, 1, 1>}> : (tensor<2x9x16xf32>, tensor<2x5x16xi64>) -> tensor<2x5x16xf32>
  return %4 : tensor<2x5x16xf32>
}

// -----

// Rejected: positions that differ along both dimensions.
// CHECK-LABEL: func.func @elements
// CHECK: operand_batching_dims = [0, 2], start_indices_batching_dims = [0, 2]
func.func @elements(%x: tensor<2x9x16xf32>, %i: tensor<2x5x16xi64>) -> tensor<2x5x16xf32> {
  %0 = "stablehlo.gather"(%x, %i) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [1], operand_batching_dims = [0, 2], start_indices_batching_dims = [0, 2], start_index_map = [1], index_vector_dim = 3>, slice_sizes = array<i64: 1, 1, 1>}> : (tensor<2x9x16xf32>, tensor<2x5x16xi64>) -> tensor<2x5x16xf32>
  return %0 : tensor<2x5x16xf32>
}

// -----

// Rows written, of which `%used` tells those of an open size: what one component puts outside stays there.
// CHECK-LABEL: func.func @written_rows
// CHECK: %[[I:.*]] = stablehlo.select %{{.*}} : tensor<5x1xi1>, tensor<5x1xi64>
// CHECK: "stablehlo.scatter"(%arg0, %[[I]], %arg2) <{{.*}}update_window_dims = [1, 2], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>
func.func @written_rows(%x: tensor<9x4x16xf32>, %i: tensor<5xi64>, %u: tensor<5x3x16xf32>, %used: tensor<5xi1>) -> tensor<9x4x16xf32> {
  %out = stablehlo.constant dense<-1> : tensor<5x3x16x1xi64>
  %0 = stablehlo.broadcast_in_dim %i, dims = [0] : (tensor<5xi64>) -> tensor<5x3x16xi64>
  %1 = stablehlo.reshape %0 : (tensor<5x3x16xi64>) -> tensor<5x3x16x1xi64>
  %2 = stablehlo.iota dim = 1 : tensor<5x3x16x1xi64>
  %3 = stablehlo.iota dim = 2 : tensor<5x3x16x1xi64>
  %4 = stablehlo.broadcast_in_dim %used, dims = [0] : (tensor<5xi1>) -> tensor<5x3x16x1xi1>
  %5 = stablehlo.select %4, %1, %out : tensor<5x3x16x1xi1>, tensor<5x3x16x1xi64>
  %6 = stablehlo.select %4, %2, %out : tensor<5x3x16x1xi1>, tensor<5x3x16x1xi64>
  %7 = stablehlo.select %4, %3, %out : tensor<5x3x16x1xi1>, tensor<5x3x16x1xi64>
  %8 = stablehlo.concatenate %5, %6, %7, dim = 3 : (tensor<5x3x16x1xi64>, tensor<5x3x16x1xi64>, tensor<5x3x16x1xi64>) -> tensor<5x3x16x3xi64>
  %9 = "stablehlo.scatter"(%x, %8, %u) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0, 1, 2], scatter_dims_to_operand_dims = [0, 1, 2], index_vector_dim = 3>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }) : (tensor<9x4x16xf32>, tensor<5x3x16x3xi64>, tensor<5x3x16xf32>) -> tensor<9x4x16xf32>
  return %9 : tensor<9x4x16xf32>
}

// -----

// Rejected: another component differs along what counts; windows would be in another order; a mask that no
// other component has.
// CHECK-LABEL: func.func @written_elements
// CHECK-COUNT-3: #stablehlo.scatter<inserted_window_dims = [0, 1]
func.func @written_elements(%x: tensor<9x16xf32>, %y: tensor<16x9xf32>, %i: tensor<5x16xi64>, %r: tensor<5xi64>, %u: tensor<5x16xf32>, %used: tensor<5xi1>) -> (tensor<9x16xf32>, tensor<16x9xf32>, tensor<9x16xf32>) {
  %0 = stablehlo.reshape %i : (tensor<5x16xi64>) -> tensor<5x16x1xi64>
  %1 = stablehlo.iota dim = 1 : tensor<5x16x1xi64>
  %2 = stablehlo.concatenate %0, %1, dim = 2 : (tensor<5x16x1xi64>, tensor<5x16x1xi64>) -> tensor<5x16x2xi64>
  %3 = "stablehlo.scatter"(%x, %2, %u) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0, 1], scatter_dims_to_operand_dims = [0, 1], index_vector_dim = 2>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    stablehlo.return %b : tensor<f32>
  }) : (tensor<9x16xf32>, tensor<5x16x2xi64>, tensor<5x16xf32>) -> tensor<9x16xf32>
  %4 = stablehlo.iota dim = 0 : tensor<5x16x1xi64>
  %5 = stablehlo.concatenate %0, %4, dim = 2 : (tensor<5x16x1xi64>, tensor<5x16x1xi64>) -> tensor<5x16x2xi64>
  %6 = "stablehlo.scatter"(%y, %5, %u) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0, 1], scatter_dims_to_operand_dims = [0, 1], index_vector_dim = 2>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    stablehlo.return %b : tensor<f32>
  }) : (tensor<16x9xf32>, tensor<5x16x2xi64>, tensor<5x16xf32>) -> tensor<16x9xf32>
  %out = stablehlo.constant dense<-1> : tensor<5x16x1xi64>
  %7 = stablehlo.broadcast_in_dim %r, dims = [0] : (tensor<5xi64>) -> tensor<5x16x1xi64>
  %8 = stablehlo.broadcast_in_dim %used, dims = [0] : (tensor<5xi1>) -> tensor<5x16x1xi1>
  %9 = stablehlo.select %8, %1, %out : tensor<5x16x1xi1>, tensor<5x16x1xi64>
  %10 = stablehlo.concatenate %7, %9, dim = 2 : (tensor<5x16x1xi64>, tensor<5x16x1xi64>) -> tensor<5x16x2xi64>
  %11 = "stablehlo.scatter"(%x, %10, %u) <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0, 1], scatter_dims_to_operand_dims = [0, 1], index_vector_dim = 2>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    stablehlo.return %b : tensor<f32>
  }) : (tensor<9x16xf32>, tensor<5x16x2xi64>, tensor<5x16xf32>) -> tensor<9x16xf32>
  return %3, %6, %11 : tensor<9x16xf32>, tensor<16x9xf32>, tensor<9x16xf32>
}
