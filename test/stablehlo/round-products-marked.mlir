// RUN: stepwell-opt %s --target=x86_64-v4+vnni+bf16 \
// RUN:   --pass-pipeline='builtin.module(round-products)' | filecheck %s
// RUN: stepwell-opt %s --target=cuda:sm_80 \
// RUN:   --pass-pipeline='builtin.module(round-products)' | filecheck %s
// RUN: stepwell-opt %s --target=x86_64-v4+vnni+bf16 --precision=strict \
// RUN:   --pass-pipeline='builtin.module(round-products)' | filecheck %s --check-prefix=NOT

// NOT-NOT: bf16

// Rounded because the model lets it be. Rejected: the same product without that mark.
// CHECK-LABEL: func.func @main
// CHECK: stablehlo.dot_general {{.*}} : (tensor<8x4xbf16>, tensor<4x2xbf16>) -> tensor<8x2xf32>
// CHECK: stablehlo.dot_general {{.*}} : (tensor<8x4xf32>, tensor<4x2xf32>) -> tensor<8x2xf32>
func.func @main(%x: tensor<8x4xf32>) -> (tensor<8x2xf32>, tensor<8x2xf32>) {
  %w = stablehlo.constant dense<[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]]> : tensor<4x2xf32>
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] {stepwell.roundable} : (tensor<8x4xf32>, tensor<4x2xf32>) -> tensor<8x2xf32>
  %1 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<8x4xf32>, tensor<4x2xf32>) -> tensor<8x2xf32>
  return %0, %1 : tensor<8x2xf32>, tensor<8x2xf32>
}
