// RUN: stepwell-opt %s --split-input-file \
// RUN:   --pass-pipeline='builtin.module(legalize-to-linalg,form-fusion-groups)' | filecheck %s

// The difference to the mean is computed again for the result: no kernel stores it. The groups'
// means are spread over their channels once.
// CHECK-LABEL: func.func @normalize
// CHECK-SAME: %[[X:.*]]: tensor<4x16x12xf32>
// CHECK-COUNT-1: call @kernel_0(%[[X]], %{{.*}}) : (tensor<4x16x12xf32>, tensor<12xf32>) -> tensor<12xf32>
// CHECK: %[[M:.*]] = call @kernel_{{.*}} -> tensor<3x4xf32>
// CHECK: %[[V:.*]] = call @kernel_{{.*}}%[[X]]{{.*}} -> tensor<12xf32>
// CHECK: call @kernel_{{.*}}%[[X]]{{.*}} -> tensor<4x16x12xf32>
// CHECK-NOT: call
func.func @normalize(%x: tensor<4x16x12xf32>) -> tensor<4x16x12xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0, 1] : (tensor<4x16x12xf32>, tensor<f32>) -> tensor<12xf32>
  %1 = stablehlo.slice %0 [0:12:4] : (tensor<12xf32>) -> tensor<3xf32>
  %2 = stablehlo.broadcast_in_dim %1, dims = [0] : (tensor<3xf32>) -> tensor<3x4xf32>
  %3 = stablehlo.reshape %2 : (tensor<3x4xf32>) -> tensor<12xf32>
  %4 = stablehlo.broadcast_in_dim %3, dims = [2] : (tensor<12xf32>) -> tensor<4x16x12xf32>
  %5 = stablehlo.subtract %x, %4 : tensor<4x16x12xf32>
  %6 = stablehlo.multiply %5, %5 : tensor<4x16x12xf32>
  %7 = stablehlo.reduce(%6 init: %zero) applies stablehlo.add across dimensions = [0, 1] : (tensor<4x16x12xf32>, tensor<f32>) -> tensor<12xf32>
  %8 = stablehlo.broadcast_in_dim %7, dims = [2] : (tensor<12xf32>) -> tensor<4x16x12xf32>
  %9 = stablehlo.multiply %5, %8 : tensor<4x16x12xf32>
  return %9 : tensor<4x16x12xf32>
}

// -----

// Left alone: an exponential is stored.
// CHECK-LABEL: func.func @rejected
// CHECK: %[[E:.*]]:2 = call @kernel_{{.*}} -> (tensor<4x16x16xf32>, tensor<4x16x16xf32>)
func.func @rejected(%x: tensor<4x16x16xf32>) -> tensor<4x16x16xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0, 1] : (tensor<4x16x16xf32>, tensor<f32>) -> tensor<16xf32>
  %4 = stablehlo.broadcast_in_dim %0, dims = [2] : (tensor<16xf32>) -> tensor<4x16x16xf32>
  %s = stablehlo.subtract %x, %4 : tensor<4x16x16xf32>
  %5 = stablehlo.exponential %s : tensor<4x16x16xf32>
  %6 = stablehlo.multiply %5, %x : tensor<4x16x16xf32>
  %7 = stablehlo.reduce(%6 init: %zero) applies stablehlo.add across dimensions = [0, 1] : (tensor<4x16x16xf32>, tensor<f32>) -> tensor<16xf32>
  %8 = stablehlo.broadcast_in_dim %7, dims = [2] : (tensor<16xf32>) -> tensor<4x16x16xf32>
  %9 = stablehlo.multiply %5, %8 : tensor<4x16x16xf32>
  return %9 : tensor<4x16x16xf32>
}

// -----

// Bytes of which a product is made: who adds them to it as floats converts them.
// CHECK-LABEL: func.func @residual
// CHECK: call @kernel_{{.*}} -> (tensor<8x16xi8>, tensor<8x16xi32>)
// CHECK: call @kernel_{{.*}}tensor<8x16xi8>{{.*}} -> tensor<8x16xf32>
// CHECK-NOT: call
func.func @residual(%x: tensor<8x16xf32>, %w: tensor<16x16xi32>) -> tensor<8x16xf32> {
  %half = stablehlo.constant dense<0.5> : tensor<8x16xf32>
  %0 = stablehlo.abs %x : tensor<8x16xf32>
  %1 = stablehlo.convert %0 : (tensor<8x16xf32>) -> tensor<8x16xi8>
  %2 = stablehlo.convert %1 : (tensor<8x16xi8>) -> tensor<8x16xi32>
  %3 = stablehlo.dot_general %2, %w, contracting_dims = [1] x [0] : (tensor<8x16xi32>, tensor<16x16xi32>) -> tensor<8x16xi32>
  %4 = stablehlo.convert %3 : (tensor<8x16xi32>) -> tensor<8x16xf32>
  %5 = stablehlo.convert %1 : (tensor<8x16xi8>) -> tensor<8x16xf32>
  %6 = stablehlo.multiply %5, %half : tensor<8x16xf32>
  %7 = stablehlo.add %4, %6 : tensor<8x16xf32>
  return %7 : tensor<8x16xf32>
}

// -----

// Floats that are read twice are stored.
// CHECK-LABEL: func.func @read_twice
// CHECK: call @kernel_{{.*}} -> (tensor<8x16xi32>, tensor<8x16xf32>)
func.func @read_twice(%x: tensor<8x16xf32>, %w: tensor<16x16xi32>) -> (tensor<8x16xf32>, tensor<8x16xf32>) {
  %0 = stablehlo.abs %x : tensor<8x16xf32>
  %1 = stablehlo.convert %0 : (tensor<8x16xf32>) -> tensor<8x16xi8>
  %2 = stablehlo.convert %1 : (tensor<8x16xi8>) -> tensor<8x16xi32>
  %3 = stablehlo.dot_general %2, %w, contracting_dims = [1] x [0] : (tensor<8x16xi32>, tensor<16x16xi32>) -> tensor<8x16xi32>
  %4 = stablehlo.convert %3 : (tensor<8x16xi32>) -> tensor<8x16xf32>
  %5 = stablehlo.convert %1 : (tensor<8x16xi8>) -> tensor<8x16xf32>
  %6 = stablehlo.add %4, %5 : tensor<8x16xf32>
  return %6, %5 : tensor<8x16xf32>, tensor<8x16xf32>
}
