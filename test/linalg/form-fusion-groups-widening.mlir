// RUN: stepwell-opt %s --target=cuda:sm_80 \
// RUN:   --pass-pipeline='builtin.module(legalize-to-linalg,form-fusion-groups)' | filecheck %s
// RUN: stepwell-opt %s --target=x86_64-v4 \
// RUN:   --pass-pipeline='builtin.module(legalize-to-linalg,form-fusion-groups)' \
// RUN:   | filecheck %s --check-prefix=CPU

// A contraction may extend its operands: instructions do.
// CHECK: func.func private @kernel_0({{.*}}) -> tensor<8x32xf32> attributes {kernel.kind = "contraction"}
// CPU: func.func private @kernel_0({{.*}}) -> tensor<8x32xf32> attributes {kernel.kind = "contraction"}
func.func @widening(%x: tensor<8x16xf16>, %w: tensor<16x32xf16>) -> tensor<8x32xf32> {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<8x16xf16>, tensor<16x32xf16>) -> tensor<8x32xf32>
  return %0 : tensor<8x32xf32>
}
