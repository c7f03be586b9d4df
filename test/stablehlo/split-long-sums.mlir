// RUN: stepwell-opt %s --target=cuda:sm_90a --pass-pipeline='builtin.module(split-long-sums)' | filecheck %s
// RUN: stepwell-opt %s --pass-pipeline='builtin.module(split-long-sums)' | filecheck %s --check-prefix=CPU

// CPU-NOT: stablehlo.reduce

// CHECK-LABEL: func.func @few_outputs
// CHECK: %[[X:.*]] = stablehlo.reshape %arg0 : (tensor<64x16384xf16>) -> tensor<64x[[S:[0-9]+]]x[[K:[0-9]+]]xf16>
// CHECK: %[[Y:.*]] = stablehlo.reshape %arg1 : (tensor<16384x64xf16>) -> tensor<[[S]]x[[K]]x64xf16>
// CHECK: %[[Z:.*]] = stablehlo.dot_general %[[X]], %[[Y]], batching_dims = [1] x [0], contracting_dims = [2] x [1]
// CHECK-SAME: -> tensor<[[S]]x64x64xf32>
// CHECK: stablehlo.reduce(%[[Z]] init: %{{.*}}) applies stablehlo.add across dimensions = [0]
func.func @few_outputs(%x: tensor<64x16384xf16>, %y: tensor<16384x64xf16>) -> tensor<64x64xf32> {
  %z = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0]
       : (tensor<64x16384xf16>, tensor<16384x64xf16>) -> tensor<64x64xf32>
  return %z : tensor<64x64xf32>
}

// Rejected: a batch, which may be attention.

// CHECK-LABEL: func.func @batch
// CHECK-NEXT: stablehlo.dot_general
// CHECK-NEXT: return
func.func @batch(%x: tensor<2x64x16384xf16>, %y: tensor<2x16384x64xf16>) -> tensor<2x64x64xf32> {
  %z = stablehlo.dot_general %x, %y, batching_dims = [0] x [0], contracting_dims = [2] x [1]
       : (tensor<2x64x16384xf16>, tensor<2x16384x64xf16>) -> tensor<2x64x64xf32>
  return %z : tensor<2x64x64xf32>
}

// Products of f32 that tensor cores do not take, of one row as well.

// CHECK-LABEL: func.func @by_threads
// CHECK: stablehlo.dot_general {{.*}} batching_dims = [1] x [0]
// CHECK: stablehlo.reduce
// CHECK: stablehlo.dot_general {{.*}} batching_dims = [1] x [0]
// CHECK: stablehlo.reduce
func.func @by_threads(%x: tensor<64x16384xf32>, %y: tensor<16384x64xf32>, %r: tensor<1x3072xf32>, %w: tensor<3072x768xf32>)
    -> (tensor<64x64xf32>, tensor<1x768xf32>) {
  %0 = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0]
       : (tensor<64x16384xf32>, tensor<16384x64xf32>) -> tensor<64x64xf32>
  %1 = stablehlo.dot_general %r, %w, contracting_dims = [1] x [0]
       : (tensor<1x3072xf32>, tensor<3072x768xf32>) -> tensor<1x768xf32>
  return %0, %1 : tensor<64x64xf32>, tensor<1x768xf32>
}

// Rejected: outputs that fill the GPU, short sums, f64.

// CHECK-LABEL: func.func @rejected
// CHECK-NOT: stablehlo.reduce
func.func @rejected(%x: tensor<4096x4096xf16>, %s: tensor<64x512xf16>, %t: tensor<512x64xf16>, %f: tensor<64x16384xf64>, %g: tensor<16384x64xf64>)
    -> (tensor<4096x4096xf32>, tensor<64x64xf32>, tensor<64x64xf64>) {
  %0 = stablehlo.dot_general %x, %x, contracting_dims = [1] x [0]
       : (tensor<4096x4096xf16>, tensor<4096x4096xf16>) -> tensor<4096x4096xf32>
  %1 = stablehlo.dot_general %s, %t, contracting_dims = [1] x [0]
       : (tensor<64x512xf16>, tensor<512x64xf16>) -> tensor<64x64xf32>
  %2 = stablehlo.dot_general %f, %g, contracting_dims = [1] x [0]
       : (tensor<64x16384xf64>, tensor<16384x64xf64>) -> tensor<64x64xf64>
  return %0, %1, %2 : tensor<4096x4096xf32>, tensor<64x64xf32>, tensor<64x64xf64>
}

// Rejected: blocks of warpgroups share the tiles of such a product, which takes less.

// CHECK-LABEL: func.func @shared_tiles
// CHECK-NOT: stablehlo.reduce
func.func @shared_tiles(%x: tensor<392x2048xf16>, %y: tensor<2048x512xf16>) -> tensor<392x512xf32> {
  %z = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0]
       : (tensor<392x2048xf16>, tensor<2048x512xf16>) -> tensor<392x512xf32>
  return %z : tensor<392x512xf32>
}
