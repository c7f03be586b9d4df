// RUN: stepwell-opt %s --target=cuda:sm_90a --pass-pipeline='builtin.module(narrow-products)' \
// RUN:   | filecheck %s
// RUN: stepwell-opt %s --target=x86_64-v3 --pass-pipeline='builtin.module(narrow-products)' \
// RUN:   | filecheck %s --check-prefix=CPU

// CPU: stablehlo.dot_general {{.*}} : (tensor<8x64xf32>, tensor<64x4xf32>) -> tensor<8x4xf32>

// CHECK-LABEL: func.func @linear
// CHECK-NEXT: stablehlo.dot_general %arg0, %arg1, {{.*}} : (tensor<8x64xf16>, tensor<64x4xf16>) -> tensor<8x4xf32>
func.func @linear(%x: tensor<8x64xf16>, %w: tensor<64x4xf16>) -> tensor<8x4xf32> {
  %a = stablehlo.convert %x : (tensor<8x64xf16>) -> tensor<8x64xf32>
  %b = stablehlo.convert %w : (tensor<64x4xf16>) -> tensor<64x4xf32>
  %z = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
       : (tensor<8x64xf32>, tensor<64x4xf32>) -> tensor<8x4xf32>
  return %z : tensor<8x4xf32>
}

// PyTorch's batches of products are broadcast to the shape that they have.
// CHECK-LABEL: func.func @batches
// CHECK-NEXT: stablehlo.dot_general %arg0, %arg1, {{.*}} : (tensor<2x8x64xf16>, tensor<2x64x4xf16>) -> tensor<2x8x4xf32>
func.func @batches(%x: tensor<2x8x64xf16>, %w: tensor<2x64x4xf16>) -> tensor<2x8x4xf32> {
  %a = stablehlo.convert %x : (tensor<2x8x64xf16>) -> tensor<2x8x64xf32>
  %b = stablehlo.convert %w : (tensor<2x64x4xf16>) -> tensor<2x64x4xf32>
  %c = stablehlo.broadcast_in_dim %b, dims = [0, 1, 2] : (tensor<2x64x4xf32>) -> tensor<2x64x4xf32>
  %z = stablehlo.dot_general %a, %c, batching_dims = [0] x [0], contracting_dims = [2] x [1]
       : (tensor<2x8x64xf32>, tensor<2x64x4xf32>) -> tensor<2x8x4xf32>
  return %z : tensor<2x8x4xf32>
}

// Rejected: operands of two types, of f32, and sums that are not f32.
// CHECK-LABEL: func.func @others
// CHECK: stablehlo.dot_general {{.*}} : (tensor<8x64xf32>, tensor<64x4xf32>) -> tensor<8x4xf32>
// CHECK: stablehlo.dot_general {{.*}} : (tensor<8x64xf32>, tensor<64x4xf32>) -> tensor<8x4xf32>
// CHECK: stablehlo.dot_general {{.*}} : (tensor<8x64xf32>, tensor<64x4xf32>) -> tensor<8x4xf64>
func.func @others(%x: tensor<8x64xf16>, %w: tensor<64x4xbf16>, %v: tensor<64x4xf32>)
    -> (tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x4xf64>) {
  %a = stablehlo.convert %x : (tensor<8x64xf16>) -> tensor<8x64xf32>
  %b = stablehlo.convert %w : (tensor<64x4xbf16>) -> tensor<64x4xf32>
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
       : (tensor<8x64xf32>, tensor<64x4xf32>) -> tensor<8x4xf32>
  %1 = stablehlo.dot_general %a, %v, contracting_dims = [1] x [0]
       : (tensor<8x64xf32>, tensor<64x4xf32>) -> tensor<8x4xf32>
  %2 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
       : (tensor<8x64xf32>, tensor<64x4xf32>) -> tensor<8x4xf64>
  return %0, %1, %2 : tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x4xf64>
}
