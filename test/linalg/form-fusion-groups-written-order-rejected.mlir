// RUN: stepwell-opt %s --target=cuda:sm_90a \
// RUN:   --pass-pipeline='builtin.module(legalize-to-linalg,form-fusion-groups)' | filecheck %s

// Rejected: a batch of products reads heads where they lie, and what others read stays as it is.
// CHECK: func.func private @kernel_0({{.*}}) -> tensor<2x4x16x8xf32> attributes {kernel.kind = "contraction"}
func.func @batch(%a: tensor<2x4x16x16xf32>, %v: tensor<2x4x16x8xf32>, %w: tensor<2x16x8x5xf32>) -> tensor<2x16x4x5xf32> {
  %0 = stablehlo.dot_general %a, %v, batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [2]
       : (tensor<2x4x16x16xf32>, tensor<2x4x16x8xf32>) -> tensor<2x4x16x8xf32>
  %1 = stablehlo.transpose %0, dims = [0, 2, 1, 3] : (tensor<2x4x16x8xf32>) -> tensor<2x16x4x8xf32>
  %3 = stablehlo.dot_general %1, %w, batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [2]
       : (tensor<2x16x4x8xf32>, tensor<2x16x8x5xf32>) -> tensor<2x16x4x5xf32>
  return %3 : tensor<2x16x4x5xf32>
}
