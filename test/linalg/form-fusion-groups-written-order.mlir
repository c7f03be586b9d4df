// RUN: stepwell-opt %s --target=cuda:sm_90a \
// RUN:   --pass-pipeline='builtin.module(legalize-to-linalg,form-fusion-groups)' | filecheck %s
// RUN: stepwell-opt %s --target=x86_64-v4 \
// RUN:   --pass-pipeline='builtin.module(legalize-to-linalg,form-fusion-groups)' \
// RUN:   | filecheck %s --check-prefix=CPU

// On GPUs the kernel before a transpose writes what a product reads.
// CHECK: func.func private @kernel_0({{.*}}) -> tensor<2x16x4x8xf32> attributes {kernel.kind = "contraction"}
// CPU: func.func private @kernel_0({{.*}}) -> tensor<2x4x16x8xf32> attributes {kernel.kind = "contraction"}
func.func @heads(%a: tensor<2x4x16x16xf32>, %v: tensor<2x4x16x8xf32>, %w: tensor<32x24xf32>) -> tensor<32x24xf32> {
  %0 = stablehlo.dot_general %a, %v, batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [2]
       : (tensor<2x4x16x16xf32>, tensor<2x4x16x8xf32>) -> tensor<2x4x16x8xf32>
  %1 = stablehlo.transpose %0, dims = [0, 2, 1, 3] : (tensor<2x4x16x8xf32>) -> tensor<2x16x4x8xf32>
  %2 = stablehlo.reshape %1 : (tensor<2x16x4x8xf32>) -> tensor<32x32xf32>
  %3 = stablehlo.dot_general %2, %w, contracting_dims = [1] x [0] : (tensor<32x32xf32>, tensor<32x24xf32>) -> tensor<32x24xf32>
  return %3 : tensor<32x24xf32>
}
