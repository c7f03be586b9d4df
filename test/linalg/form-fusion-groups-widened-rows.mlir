// RUN: stepwell-opt %s --pass-pipeline='builtin.module(legalize-to-linalg,form-fusion-groups)' | filecheck %s

// What a reduction of rows widens is written narrow.
// CHECK: func.func private @kernel_0({{.*}}) -> tensor<8x32xf16> attributes {kernel.kind = "contraction"}
// CHECK: func.func private @kernel_1(%arg0: tensor<8x32xf16>, {{.*}}) -> tensor<8x32xf32>
func.func @norm(%x: tensor<8x16xf16>, %w: tensor<16x32xf16>) -> tensor<8x32xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<8x16xf16>, tensor<16x32xf16>) -> tensor<8x32xf32>
  %1 = stablehlo.convert %0 : (tensor<8x32xf32>) -> tensor<8x32xf16>
  %2 = stablehlo.convert %1 : (tensor<8x32xf16>) -> tensor<8x32xf32>
  %3 = stablehlo.reduce(%2 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<8x32xf32>, tensor<f32>) -> tensor<8xf32>
  %4 = stablehlo.broadcast_in_dim %3, dims = [0] : (tensor<8xf32>) -> tensor<8x32xf32>
  %5 = stablehlo.subtract %2, %4 : tensor<8x32xf32>
  return %5 : tensor<8x32xf32>
}
