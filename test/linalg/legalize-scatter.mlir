// RUN: stepwell-opt %s --pass-pipeline='legalize-scatter' | filecheck %s

// CHECK-LABEL: func.func @points
// CHECK: scf.for
// CHECK: tensor.extract %arg1
// CHECK: arith.cmpi ult
// CHECK: scf.if
// CHECK: stablehlo.add
// CHECK: tensor.insert
// CHECK-NOT: stablehlo.scatter
func.func @points(%x: tensor<8xf32>, %i: tensor<3x1xi32>, %u: tensor<3xf32>) -> tensor<8xf32> {
  %r = "stablehlo.scatter"(%x, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<
      inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }) : (tensor<8xf32>, tensor<3x1xi32>, tensor<3xf32>) -> tensor<8xf32>
  return %r : tensor<8xf32>
}

// Rows that lie inside as a whole are loops without conditions; else each element has its own.
// CHECK-LABEL: func.func @windows
// CHECK: scf.for {{.*}} %c3
// CHECK: arith.cmpi ult, %{{.*}}, %c5
// CHECK: scf.if
// CHECK-NEXT: arith.constant
// CHECK: scf.for
// CHECK-NOT: scf.if
// CHECK: else
// CHECK: scf.for
// CHECK: scf.if
// CHECK-NOT: stablehlo.scatter
func.func @windows(%x: tensor<8x6xf32>, %i: tensor<3x1xi32>, %u: tensor<3x4x6xf32>)
    -> tensor<8x6xf32> {
  %r = "stablehlo.scatter"(%x, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<
      update_window_dims = [1, 2], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }) : (tensor<8x6xf32>, tensor<3x1xi32>, tensor<3x4x6xf32>) -> tensor<8x6xf32>
  return %r : tensor<8x6xf32>
}

// One update has no branch: what falls outside is written back as it is.
// CHECK-LABEL: func.func @one_row
// CHECK-NOT: scf.if
// CHECK: arith.cmpi ult, %{{.*}}, %c8
// CHECK: arith.select %{{.*}} : index
// CHECK: tensor.extract
// CHECK: arith.select %{{.*}} : f32
// CHECK-NEXT: tensor.insert
// CHECK-NOT: scf.if
// CHECK: return
func.func @one_row(%x: tensor<8x6xf32>, %i: tensor<1x1xi32>, %u: tensor<1x1x6xf32>) -> tensor<8x6xf32> {
  %r = "stablehlo.scatter"(%x, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<
      update_window_dims = [1, 2], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    stablehlo.return %b : tensor<f32>
  }) : (tensor<8x6xf32>, tensor<1x1xi32>, tensor<1x1x6xf32>) -> tensor<8x6xf32>
  return %r : tensor<8x6xf32>
}

// A gather reads: upstream lowers it.
// CHECK-LABEL: func.func @rejected
// CHECK: stablehlo.gather
func.func @rejected(%x: tensor<8xf32>, %i: tensor<3x1xi32>) -> tensor<3xf32> {
  %r = "stablehlo.gather"(%x, %i) <{dimension_numbers = #stablehlo.gather<
      collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>,
      slice_sizes = array<i64: 1>}> : (tensor<8xf32>, tensor<3x1xi32>) -> tensor<3xf32>
  return %r : tensor<3xf32>
}
