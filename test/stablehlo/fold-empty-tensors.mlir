// RUN: stepwell-opt %s --pass-pipeline='builtin.module(func.func(fold-empty-tensors))' | filecheck %s

// CHECK-LABEL: func.func @no_terms
// CHECK-NEXT: %[[ZERO:.*]] = stablehlo.constant dense<0.000000e+00> : tensor<4x3xf32>
// CHECK-NEXT: return %[[ZERO]]
func.func @no_terms(%a: tensor<4x0xf32>, %b: tensor<0x3xf32>) -> tensor<4x3xf32> {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<4x0xf32>, tensor<0x3xf32>) -> tensor<4x3xf32>
  return %0 : tensor<4x3xf32>
}

// CHECK-LABEL: func.func @no_rows
// CHECK: stablehlo.broadcast_in_dim %{{.*}}, dims = []
// CHECK-NOT: stablehlo.reduce
func.func @no_rows(%a: tensor<0x4xf32>, %init: tensor<f32>) -> tensor<4xf32> {
  %0 = stablehlo.reduce(%a init: %init) applies stablehlo.add across dimensions = [0] : (tensor<0x4xf32>, tensor<f32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// Rejected: there is something to add.
// CHECK-LABEL: func.func @some_rows
// CHECK: stablehlo.reduce
func.func @some_rows(%a: tensor<1x4xf32>, %init: tensor<f32>) -> tensor<4xf32> {
  %0 = stablehlo.reduce(%a init: %init) applies stablehlo.add across dimensions = [0] : (tensor<1x4xf32>, tensor<f32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// CHECK-LABEL: func.func @no_part
// CHECK-NEXT: stablehlo.concatenate %arg0, %arg2, dim = 0
func.func @no_part(%a: tensor<2x4xf32>, %b: tensor<0x4xf32>, %c: tensor<1x4xf32>) -> tensor<3x4xf32> {
  %0 = stablehlo.concatenate %a, %b, %c, dim = 0 : (tensor<2x4xf32>, tensor<0x4xf32>, tensor<1x4xf32>) -> tensor<3x4xf32>
  return %0 : tensor<3x4xf32>
}

// CHECK-LABEL: func.func @no_other_part
// CHECK-NEXT: return %arg0
func.func @no_other_part(%a: tensor<2x4xf32>, %b: tensor<0x4xf32>) -> tensor<2x4xf32> {
  %0 = stablehlo.concatenate %a, %b, dim = 0 : (tensor<2x4xf32>, tensor<0x4xf32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}

// CHECK-LABEL: func.func @no_update
// CHECK-NEXT: return %arg0
func.func @no_update(%a: tensor<4xf32>, %b: tensor<0xf32>, %i: tensor<i32>) -> tensor<4xf32> {
  %0 = stablehlo.dynamic_update_slice %a, %b, %i : (tensor<4xf32>, tensor<0xf32>, tensor<i32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// CHECK-LABEL: func.func @only_padding
// CHECK-NEXT: stablehlo.broadcast_in_dim %arg1, dims = []
func.func @only_padding(%a: tensor<0xf32>, %v: tensor<f32>) -> tensor<3xf32> {
  %0 = stablehlo.pad %a, %v, low = [1], high = [2], interior = [0] : (tensor<0xf32>, tensor<f32>) -> tensor<3xf32>
  return %0 : tensor<3xf32>
}

// In branches, and branches of loops.
// CHECK-LABEL: func.func @branch
// CHECK: stablehlo.while
// CHECK: stablehlo.case
// CHECK-NOT: stablehlo.reduce
// CHECK: stablehlo.broadcast_in_dim %{{.*}}, dims = []
func.func @branch(%i: tensor<i32>, %a: tensor<0x4xf32>, %x: tensor<4xf32>) -> tensor<4xf32> {
  %0:2 = stablehlo.while(%k = %i, %y = %x) : tensor<i32>, tensor<4xf32> cond {
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %more = stablehlo.compare GT, %k, %zero : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %more : tensor<i1>
  } do {
    %one = stablehlo.constant dense<1> : tensor<i32>
    %next = stablehlo.subtract %k, %one : tensor<i32>
    %1 = "stablehlo.case"(%k) ({
      stablehlo.return %y : tensor<4xf32>
    }, {
      %init = stablehlo.constant dense<1.0> : tensor<f32>
      %2 = stablehlo.reduce(%a init: %init) applies stablehlo.add across dimensions = [0] : (tensor<0x4xf32>, tensor<f32>) -> tensor<4xf32>
      stablehlo.return %2 : tensor<4xf32>
    }) : (tensor<i32>) -> tensor<4xf32>
    stablehlo.return %next, %1 : tensor<i32>, tensor<4xf32>
  }
  return %0#1 : tensor<4xf32>
}

// Windows on padding alone.
// CHECK-LABEL: func.func @windows
// CHECK: %[[ONES:.*]] = stablehlo.broadcast_in_dim %arg1, dims = [] : (tensor<f32>) -> tensor<3x6xf32>
// CHECK: "stablehlo.reduce_window"(%[[ONES]], %arg1)
// CHECK-NOT: padding
func.func @windows(%a: tensor<0x3xf32>, %init: tensor<f32>) -> tensor<3x5xf32> {
  %0 = "stablehlo.reduce_window"(%a, %init) <{window_dimensions = array<i64: 1, 2>, base_dilations = array<i64: 1, 2>, padding = dense<[[2, 1], [0, 1]]> : tensor<2x2xi64>}> ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    %1 = stablehlo.multiply %x, %y : tensor<f32>
    stablehlo.return %1 : tensor<f32>
  }) : (tensor<0x3xf32>, tensor<f32>) -> tensor<3x5xf32>
  return %0 : tensor<3x5xf32>
}
