// RUN: stepwell-opt %s --target=cuda:sm_90a --pass-pipeline='legalize-scatter' --split-input-file | filecheck %s

// CHECK-LABEL: func.func @sum
// CHECK: call @kernel_scatter_0(%arg1, %arg2, %arg0)
// CHECK: func.func private @kernel_scatter_0
// CHECK-SAME: kernel.kind = "scatter"
// CHECK-SAME: combiner = "add", distinct = false
func.func @sum(%x: tensor<8x6xf32>, %i: tensor<3x1xi32>, %u: tensor<3x6xf32>) -> tensor<8x6xf32> {
  %r = "stablehlo.scatter"(%x, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<
      update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0],
      index_vector_dim = 1>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }) : (tensor<8x6xf32>, tensor<3x1xi32>, tensor<3x6xf32>) -> tensor<8x6xf32>
  return %r : tensor<8x6xf32>
}

// -----

// Many updates that may meet: a scatter by maximum says which is the last.
// CHECK-LABEL: func.func @replace
// CHECK: %[[NONE:.*]] = stablehlo.constant dense<-1> : tensor<8xi32>
// CHECK: %[[LAST:.*]] = call @kernel_scatter_0(%arg1, %{{.*}}, %[[NONE]])
// CHECK: call @kernel_scatter_1(%arg1, %arg2, %[[LAST]], %arg0)
// CHECK: func.func private @kernel_scatter_0
// CHECK-SAME: combiner = "max"
// CHECK: func.func private @kernel_scatter_1
// CHECK-SAME: combiner = "replace"
func.func @replace(%x: tensor<8x6xf32>, %i: tensor<90x1xi32>, %u: tensor<90x6xf32>)
    -> tensor<8x6xf32> {
  %r = "stablehlo.scatter"(%x, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<
      update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0],
      index_vector_dim = 1>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    stablehlo.return %b : tensor<f32>
  }) : (tensor<8x6xf32>, tensor<90x1xi32>, tensor<90x6xf32>) -> tensor<8x6xf32>
  return %r : tensor<8x6xf32>
}

// -----

// The gradient of a pool, from its operand's side.
// CHECK-LABEL: func.func @pool
// CHECK-NOT: scf.for
// CHECK: stablehlo.compare GE
// CHECK: %[[SUM:.*]] = stablehlo.add
// CHECK: %[[SELECTED:.*]] = stablehlo.compare EQ
// CHECK: stablehlo.select %[[SELECTED]], %[[SUM]]
// CHECK-NOT: scf.for
// CHECK: return
func.func @pool(%x: tensor<8xf32>, %g: tensor<4xf32>, %zero: tensor<f32>) -> tensor<8xf32> {
  %r = "stablehlo.select_and_scatter"(%x, %g, %zero) <{window_dimensions = array<i64: 2>,
      window_strides = array<i64: 2>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %c = stablehlo.compare GE, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }, {
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }) : (tensor<8xf32>, tensor<4xf32>, tensor<f32>) -> tensor<8xf32>
  return %r : tensor<8xf32>
}

// -----

// A kernel for each of two operands that are updated at the same places.
// CHECK-LABEL: func.func @two
// CHECK: call @kernel_scatter_0(%arg2, %arg3, %arg0)
// CHECK: call @kernel_scatter_1(%arg2, %arg4, %arg1)
// CHECK-NOT: scf.for
func.func @two(%x: tensor<8xf32>, %y: tensor<8xi32>, %i: tensor<3x1xi32>, %u: tensor<3xf32>,
    %v: tensor<3xi32>) -> (tensor<8xf32>, tensor<8xi32>) {
  %r:2 = "stablehlo.scatter"(%x, %y, %i, %u, %v) <{scatter_dimension_numbers = #stablehlo.scatter<
      inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<i32>, %c: tensor<f32>, %d: tensor<i32>):
    %s = stablehlo.add %a, %c : tensor<f32>
    %t = stablehlo.maximum %b, %d : tensor<i32>
    stablehlo.return %s, %t : tensor<f32>, tensor<i32>
  }) : (tensor<8xf32>, tensor<8xi32>, tensor<3x1xi32>, tensor<3xf32>, tensor<3xi32>)
      -> (tensor<8xf32>, tensor<8xi32>)
  return %r#0, %r#1 : tensor<8xf32>, tensor<8xi32>
}

// -----

// A body that is not one known operation remains a loop.
// CHECK-LABEL: func.func @rejected
// CHECK: scf.for
// CHECK-NOT: kernel.scatter
func.func @rejected(%x: tensor<8xf32>, %i: tensor<3x1xi32>, %u: tensor<3xf32>) -> tensor<8xf32> {
  %r = "stablehlo.scatter"(%x, %i, %u) <{scatter_dimension_numbers = #stablehlo.scatter<
      inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = stablehlo.tanh %a : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }) : (tensor<8xf32>, tensor<3x1xi32>, tensor<3xf32>) -> tensor<8xf32>
  return %r : tensor<8xf32>
}
