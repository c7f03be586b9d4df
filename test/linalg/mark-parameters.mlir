// RUN: stepwell-opt %s --split-input-file --pass-pipeline='builtin.module(legalize-to-linalg,mark-parameters)' | filecheck %s

// CHECK-LABEL: func.func @layers
// CHECK-SAME: %arg0: tensor<8x64xf32>,
// CHECK-SAME: %arg1: tensor<64x64xf32> {stepwell.parameter}
// CHECK-SAME: %arg2: tensor<64x64xf32> {stepwell.parameter}
// CHECK-SAME: %arg3: tensor<64x64xf32> {stepwell.parameter}
func.func @layers(%x: tensor<8x64xf32>, %a: tensor<64x64xf32>, %b: tensor<64x64xf32>, %c: tensor<64x64xf32>) -> tensor<8x64xf32> {
  %0 = stablehlo.dot %x, %a : (tensor<8x64xf32>, tensor<64x64xf32>) -> tensor<8x64xf32>
  %1 = stablehlo.dot %0, %b : (tensor<8x64xf32>, tensor<64x64xf32>) -> tensor<8x64xf32>
  %2 = stablehlo.dot %1, %c : (tensor<8x64xf32>, tensor<64x64xf32>) -> tensor<8x64xf32>
  return %2 : tensor<8x64xf32>
}

// -----

// Rejected: a product of two arguments does not make one of them a weight.
// CHECK-LABEL: func.func @product
// CHECK-NOT: stepwell.parameter
func.func @product(%x: tensor<64x64xf32>, %y: tensor<64x64xf32>) -> tensor<64x64xf32> {
  %0 = stablehlo.dot %x, %y : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  return %0 : tensor<64x64xf32>
}

// -----

// Rejected: a result of the type of the weights may be one that was updated.
// CHECK-LABEL: func.func @step
// CHECK-NOT: stepwell.parameter
func.func @step(%x: tensor<8x64xf32>, %a: tensor<64x64xf32>, %b: tensor<64x64xf32>, %c: tensor<64x64xf32>) -> (tensor<8x64xf32>, tensor<64x64xf32>) {
  %0 = stablehlo.dot %x, %a : (tensor<8x64xf32>, tensor<64x64xf32>) -> tensor<8x64xf32>
  %1 = stablehlo.dot %0, %b : (tensor<8x64xf32>, tensor<64x64xf32>) -> tensor<8x64xf32>
  %2 = stablehlo.dot %1, %c : (tensor<8x64xf32>, tensor<64x64xf32>) -> tensor<8x64xf32>
  %3 = stablehlo.dot_general %0, %1, contracting_dims = [0] x [0] : (tensor<8x64xf32>, tensor<8x64xf32>) -> tensor<64x64xf32>
  return %2, %3 : tensor<8x64xf32>, tensor<64x64xf32>
}

// -----

// Rejected: the third weight is also added, so that it is needed as it is.
// CHECK-LABEL: func.func @added
// CHECK-NOT: stepwell.parameter
func.func @added(%x: tensor<64x64xf32>, %a: tensor<64x64xf32>, %b: tensor<64x64xf32>, %c: tensor<64x64xf32>) -> tensor<1xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.dot %x, %a : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %1 = stablehlo.dot %0, %b : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %2 = stablehlo.dot %1, %c : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %3 = stablehlo.add %2, %c : tensor<64x64xf32>
  %4 = stablehlo.slice %3 [0:1, 0:1] : (tensor<64x64xf32>) -> tensor<1x1xf32>
  %5 = stablehlo.reshape %4 : (tensor<1x1xf32>) -> tensor<1xf32>
  return %5 : tensor<1xf32>
}

// -----

// A weight that a loop of the host reads pays for being packed alone.
// CHECK-LABEL: func.func @loop
// CHECK-SAME: %arg1: tensor<64x64xf32> {stepwell.parameter}
func.func @loop(%x: tensor<8x64xf32>, %w: tensor<64x64xf32>, %n: tensor<i1>) -> tensor<8x64xf32> {
  %r = scf.while (%y = %x) : (tensor<8x64xf32>) -> tensor<8x64xf32> {
    %c = tensor.extract %n[] : tensor<i1>
    scf.condition(%c) %y : tensor<8x64xf32>
  } do {
  ^bb0(%y: tensor<8x64xf32>):
    %z = stablehlo.dot %y, %w : (tensor<8x64xf32>, tensor<64x64xf32>) -> tensor<8x64xf32>
    scf.yield %z : tensor<8x64xf32>
  }
  return %r : tensor<8x64xf32>
}

// -----

// Matrices that numbers choose for the batch of a product.
// CHECK-LABEL: func.func @experts
// CHECK-SAME: %arg2: tensor<4x64x64xf32> {stepwell.parameter}
// CHECK-SAME: %arg3: tensor<64x64xf32> {stepwell.parameter}
// CHECK-SAME: %arg4: tensor<64x64xf32> {stepwell.parameter}
func.func @experts(%x: tensor<3x8x64xf32>, %n: tensor<3x1xi32>, %w: tensor<4x64x64xf32>, %b: tensor<64x64xf32>, %c: tensor<64x64xf32>) -> tensor<3x8x64xf32> {
  %0 = "stablehlo.gather"(%w, %n) <{dimension_numbers = #stablehlo.gather<offset_dims = [1, 2], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 64, 64>}> : (tensor<4x64x64xf32>, tensor<3x1xi32>) -> tensor<3x64x64xf32>
  %1 = stablehlo.dot_general %x, %0, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<3x8x64xf32>, tensor<3x64x64xf32>) -> tensor<3x8x64xf32>
  %2 = stablehlo.dot_general %1, %b, contracting_dims = [2] x [0] : (tensor<3x8x64xf32>, tensor<64x64xf32>) -> tensor<3x8x64xf32>
  %3 = stablehlo.dot_general %2, %c, contracting_dims = [2] x [0] : (tensor<3x8x64xf32>, tensor<64x64xf32>) -> tensor<3x8x64xf32>
  return %3 : tensor<3x8x64xf32>
}
