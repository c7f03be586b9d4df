// RUN: stepwell-opt %s --target=x86_64-v4 \
// RUN:   --pass-pipeline='builtin.module(keep-weights-narrow{least-elements=64},legalize-to-linalg,hoist-constants,form-fusion-groups,pack-operands)' \
// RUN:   | filecheck %s
// RUN: stepwell-opt %s --target=x86_64-v4 \
// RUN:   --pass-pipeline='builtin.module(keep-weights-narrow{least-elements=64},legalize-to-linalg,hoist-constants,form-fusion-groups,pack-operands{pack=false})' \
// RUN:   | filecheck %s --check-prefix=UNPACKED

// Codes and scales are in panels, each of its own, and the kernel widens what it reads. The codes of
// the first weight have 4 bits and are eight to a word. Rejected: codes of more bits stay bytes.

// CHECK-DAG: [[WORDS:#[a-z0-9]+]] = affine_map<(d0, d1, d2) -> (d0, d1 floordiv 8, d2)>
// CHECK-DAG: [[BLOCKS:#[a-z0-9]+]] = affine_map<(d0, d1, d2) -> (d0, d1 floordiv 16, d2)>
// CHECK-DAG: [[PANELS:#[a-z0-9]+]] = affine_map<(d0, d1, d2) -> (d1 floordiv 16, d2, d1 mod 16)>
// CHECK-LABEL: func.func @main
// CHECK-SAME: tensor<1x2x16xi32> {stepwell.weight
// CHECK-SAME: tensor<1x1x16xf32> {stepwell.weight
// CHECK-SAME: tensor<1x16x16xi8> {stepwell.weight
// CHECK: func.func private @kernel_0
// CHECK: linalg.generic {indexing_maps = [[[WORDS]], {{#[a-z0-9]+}}], {{.*}}kernel.widened = 0.000000e+00
// CHECK: arith.shrui
// CHECK: linalg.generic {indexing_maps = [{{#[a-z0-9]+}}, [[BLOCKS]], {{#[a-z0-9]+}}], {{.*}}kernel.widened
// CHECK: linalg.generic {indexing_maps = [{{#[a-z0-9]+}}, [[PANELS]], {{#[a-z0-9]+}}]
// CHECK: func.func private @kernel_1
// CHECK-NOT: arith.shrui
// CHECK: arith.sitofp %{{.*}} : i8 to f32

// UNPACKED-LABEL: func.func @main
// UNPACKED-NOT: _packed
// UNPACKED: linalg.generic {{.*}}kernel.widened
func.func @main(%x: tensor<1x16xf32>, %y: tensor<1x16xf32>) -> (tensor<1x4xf32>, tensor<1x4xf32>) {
  %w = stablehlo.constant dense<[[-8, -3, 2, 7], [-5, 0, 5, -6], [-2, 3, -8, -3], [1, 6, -5, 0], [4, -7, -2, 3], [7, -4, 1, 6], [-6, -1, 4, -7], [-3, 2, 7, -4], [0, 5, -6, -1], [3, -8, -3, 2], [6, -5, 0, 5], [-7, -2, 3, -8], [-4, 1, 6, -5], [-1, 4, -7, -2], [2, 7, -4, 1], [5, -6, -1, 4]]> : tensor<16x4xi8>
  %v = stablehlo.constant dense<[[-50, -39, -28, -17], [-43, -32, -21, -10], [-36, -25, -14, -3], [-29, -18, -7, 4], [-22, -11, 0, 11], [-15, -4, 7, 18], [-8, 3, 14, 25], [-1, 10, 21, 32], [6, 17, 28, 39], [13, 24, 35, 46], [20, 31, 42, -47], [27, 38, 49, -40], [34, 45, -44, -33], [41, -48, -37, -26], [48, -41, -30, -19], [-45, -34, -23, -12]]> : tensor<16x4xi8>
  %s = stablehlo.constant dense<[0.5, 0.25, 0.125, 2.0]> : tensor<4xf32>
  %a = stablehlo.convert %w : (tensor<16x4xi8>) -> tensor<16x4xf32>
  %b = stablehlo.broadcast_in_dim %s, dims = [1] : (tensor<4xf32>) -> tensor<16x4xf32>
  %c = stablehlo.multiply %a, %b : tensor<16x4xf32>
  %d = stablehlo.convert %v : (tensor<16x4xi8>) -> tensor<16x4xf32>
  %0 = stablehlo.dot_general %x, %c, contracting_dims = [1] x [0] : (tensor<1x16xf32>, tensor<16x4xf32>) -> tensor<1x4xf32>
  %1 = stablehlo.dot_general %y, %d, contracting_dims = [1] x [0] : (tensor<1x16xf32>, tensor<16x4xf32>) -> tensor<1x4xf32>
  return %0, %1 : tensor<1x4xf32>, tensor<1x4xf32>
}
