// RUN: stepwell-opt %s --pass-pipeline='builtin.module(hoist-products,cse)' | filecheck %s

// CHECK-LABEL: func.func @scan
// CHECK: %[[ALL:.*]] = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0] : (tensor<12x8xf32>, tensor<8x16xf32>) -> tensor<12x16xf32>
// CHECK: %[[STEPS:.*]] = stablehlo.reshape %[[ALL]] : (tensor<12x16xf32>) -> tensor<12x1x16xf32>
// CHECK: stablehlo.while
// CHECK: do {
// CHECK-NOT: stablehlo.dot_general
// CHECK: stablehlo.dynamic_slice %[[STEPS]], %{{.*}}, sizes = [1, 1, 16]
func.func @scan(%xs: tensor<12x8xf32>, %w: tensor<8x16xf32>, %h: tensor<16xf32>) -> tensor<16xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %end = stablehlo.constant dense<12> : tensor<i32>
  %0:4 = stablehlo.while(%i = %zero, %x = %xs, %v = %w, %state = %h)
      : tensor<i32>, tensor<12x8xf32>, tensor<8x16xf32>, tensor<16xf32>
  cond {
    %c = stablehlo.compare LT, %i, %end : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %1 = stablehlo.dynamic_slice %x, %i, %zero, sizes = [1, 8] : (tensor<12x8xf32>, tensor<i32>, tensor<i32>) -> tensor<1x8xf32>
    %2 = stablehlo.reshape %1 : (tensor<1x8xf32>) -> tensor<8xf32>
    %3 = stablehlo.dot_general %2, %v, contracting_dims = [0] x [0] : (tensor<8xf32>, tensor<8x16xf32>) -> tensor<16xf32>
    %4 = stablehlo.add %state, %3 : tensor<16xf32>
    %5 = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %5, %x, %v, %4 : tensor<i32>, tensor<12x8xf32>, tensor<8x16xf32>, tensor<16xf32>
  }
  return %0#3 : tensor<16xf32>
}

// Rejected: the loop has fewer steps than there are slices.
// CHECK-LABEL: func.func @shorter
// CHECK: do {
// CHECK: stablehlo.dot_general
func.func @shorter(%xs: tensor<12x8xf32>, %w: tensor<8x16xf32>, %h: tensor<16xf32>) -> tensor<16xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %end = stablehlo.constant dense<3> : tensor<i32>
  %0:4 = stablehlo.while(%i = %zero, %x = %xs, %v = %w, %state = %h)
      : tensor<i32>, tensor<12x8xf32>, tensor<8x16xf32>, tensor<16xf32>
  cond {
    %c = stablehlo.compare LT, %i, %end : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %1 = stablehlo.dynamic_slice %x, %i, %zero, sizes = [1, 8] : (tensor<12x8xf32>, tensor<i32>, tensor<i32>) -> tensor<1x8xf32>
    %2 = stablehlo.reshape %1 : (tensor<1x8xf32>) -> tensor<8xf32>
    %3 = stablehlo.dot_general %2, %v, contracting_dims = [0] x [0] : (tensor<8xf32>, tensor<8x16xf32>) -> tensor<16xf32>
    %4 = stablehlo.add %state, %3 : tensor<16xf32>
    %5 = stablehlo.add %i, %one : tensor<i32>
    stablehlo.return %5, %x, %v, %4 : tensor<i32>, tensor<12x8xf32>, tensor<8x16xf32>, tensor<16xf32>
  }
  return %0#3 : tensor<16xf32>
}

// Rejected: the weights are others at each step.
// CHECK-LABEL: func.func @changing
// CHECK: do {
// CHECK: stablehlo.dot_general
func.func @changing(%xs: tensor<12x8xf32>, %w: tensor<8x16xf32>, %h: tensor<16xf32>) -> tensor<16xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %end = stablehlo.constant dense<12> : tensor<i32>
  %0:4 = stablehlo.while(%i = %zero, %x = %xs, %v = %w, %state = %h)
      : tensor<i32>, tensor<12x8xf32>, tensor<8x16xf32>, tensor<16xf32>
  cond {
    %c = stablehlo.compare LT, %i, %end : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %1 = stablehlo.dynamic_slice %x, %i, %zero, sizes = [1, 8] : (tensor<12x8xf32>, tensor<i32>, tensor<i32>) -> tensor<1x8xf32>
    %2 = stablehlo.reshape %1 : (tensor<1x8xf32>) -> tensor<8xf32>
    %3 = stablehlo.dot_general %2, %v, contracting_dims = [0] x [0] : (tensor<8xf32>, tensor<8x16xf32>) -> tensor<16xf32>
    %4 = stablehlo.add %state, %3 : tensor<16xf32>
    %5 = stablehlo.add %i, %one : tensor<i32>
    %6 = stablehlo.add %v, %v : tensor<8x16xf32>
    stablehlo.return %5, %x, %6, %4 : tensor<i32>, tensor<12x8xf32>, tensor<8x16xf32>, tensor<16xf32>
  }
  return %0#3 : tensor<16xf32>
}
