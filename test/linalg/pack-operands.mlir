// RUN: stepwell-opt %s --target=x86_64-v4 \
// RUN:   --pass-pipeline='builtin.module(legalize-to-linalg,hoist-constants,form-fusion-groups,pack-operands)' \
// RUN:   | filecheck %s
// RUN: stepwell-opt %s --target=x86_64-v4 \
// RUN:   --pass-pipeline='builtin.module(legalize-to-linalg,hoist-constants,form-fusion-groups,pack-operands{pack=false})' \
// RUN:   | filecheck %s --check-prefix=UNPACKED

// The weight is stored in panels of 16 columns, the last one filled with zeros, and read through the
// map that says so. Rejected: the rhs of the second contraction is no weight and stays as it is; its
// kernel gets a strategy all the same.

// CHECK-DAG: [[PANELS:#[a-z0-9]+]] = affine_map<(d0, d1, d2) -> (d1 floordiv 16, d2, d1 mod 16)>
// CHECK-LABEL: func.func @main
// CHECK-SAME: %[[PACKED:[a-z0-9]+]]: tensor<1x2x16xf32> {stepwell.weight = "{{[a-z0-9_]+}}_packed{{[^"]*}}"}) -> tensor<5x4xf32>
// CHECK: call @kernel_0(%arg0, %[[PACKED]], %{{[0-9]+}})
// CHECK: call @kernel_1(%{{[0-9]+}}, %arg1, %{{[0-9]+}})
// CHECK: func.func private @kernel_0(%arg0: tensor<5x2xf32>, %arg1: tensor<1x2x16xf32>
// CHECK-SAME: kernel.strategy = {
// CHECK: linalg.generic {indexing_maps = [{{#[a-z0-9]+}}, [[PANELS]], {{#[a-z0-9]+}}]
// CHECK: func.func private @kernel_1(%arg0: tensor<5x8xf32>, %arg1: tensor<8x4xf32>
// CHECK-SAME: kernel.strategy = {

// UNPACKED-LABEL: func.func @main
// UNPACKED-NOT: _packed
// UNPACKED: func.func private @kernel_0(%arg0: tensor<5x2xf32>, %arg1: tensor<2x8xf32>
// UNPACKED-SAME: kernel.strategy = {
func.func @main(%x: tensor<5x2xf32>, %v: tensor<8x4xf32>) -> tensor<5x4xf32> {
  %w = stablehlo.constant dense<[[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]]> : tensor<2x8xf32>
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<5x2xf32>, tensor<2x8xf32>) -> tensor<5x8xf32>
  %1 = stablehlo.dot_general %0, %v, contracting_dims = [1] x [0] : (tensor<5x8xf32>, tensor<8x4xf32>) -> tensor<5x4xf32>
  return %1 : tensor<5x4xf32>
}
