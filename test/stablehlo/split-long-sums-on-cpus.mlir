// RUN: stepwell-opt %s --target=x86_64-v4 --pass-pipeline='builtin.module(split-long-sums)' | filecheck %s

// Parts for threads.

// CHECK-LABEL: func.func @few_outputs
// CHECK: %[[X:.*]] = stablehlo.reshape %arg0 : (tensor<16384x16xf32>) -> tensor<8x2048x16xf32>
// CHECK: %[[Y:.*]] = stablehlo.reshape %arg1 : (tensor<16384x16xf32>) -> tensor<8x2048x16xf32>
// CHECK: stablehlo.dot_general %[[X]], %[[Y]], batching_dims = [0] x [0], contracting_dims = [1] x [1]
// CHECK-COUNT-7: stablehlo.add
func.func @few_outputs(%x: tensor<16384x16xf32>, %y: tensor<16384x16xf32>) -> tensor<16x16xf32> {
  %z = stablehlo.dot_general %x, %y, contracting_dims = [0] x [0]
       : (tensor<16384x16xf32>, tensor<16384x16xf32>) -> tensor<16x16xf32>
  return %z : tensor<16x16xf32>
}

// Rejected: outputs that threads can share, parts that would be short, and a vector.

// CHECK-LABEL: func.func @many_outputs
// CHECK-NEXT: stablehlo.dot_general
// CHECK-NEXT: return
func.func @many_outputs(%x: tensor<64x16384xf32>, %y: tensor<16384x64xf32>) -> tensor<64x64xf32> {
  %z = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0]
       : (tensor<64x16384xf32>, tensor<16384x64xf32>) -> tensor<64x64xf32>
  return %z : tensor<64x64xf32>
}

// CHECK-LABEL: func.func @short_sums
// CHECK-NEXT: stablehlo.dot_general
// CHECK-NEXT: return
func.func @short_sums(%x: tensor<16x2000xf32>, %y: tensor<2000x16xf32>) -> tensor<16x16xf32> {
  %z = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0]
       : (tensor<16x2000xf32>, tensor<2000x16xf32>) -> tensor<16x16xf32>
  return %z : tensor<16x16xf32>
}

// CHECK-LABEL: func.func @vector
// CHECK-NEXT: stablehlo.dot_general
// CHECK-NEXT: return
func.func @vector(%x: tensor<1x16384xf32>, %y: tensor<16384x16xf32>) -> tensor<1x16xf32> {
  %z = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0]
       : (tensor<1x16384xf32>, tensor<16384x16xf32>) -> tensor<1x16xf32>
  return %z : tensor<1x16xf32>
}
