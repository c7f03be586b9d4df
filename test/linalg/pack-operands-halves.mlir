// RUN: stepwell-opt %s --target=x86_64-v4 \
// RUN:   --pass-pipeline='builtin.module(legalize-to-linalg,hoist-constants,halve-products{products=7},form-fusion-groups,pack-operands)' \
// RUN:   | filecheck %s
// RUN: stepwell-opt %s --target=x86_64-v4 \
// RUN:   --pass-pipeline='builtin.module(legalize-to-linalg,hoist-constants,halve-products{products=7},form-fusion-groups,pack-operands{pack=false})' \
// RUN:   | filecheck %s --check-prefix=UNPACKED

// Pairs of panels make the halves of a weight. Rejected where nothing is packed: the mark is gone.

// CHECK-DAG: [[PANELS:#[a-z0-9]+]] = affine_map<(d0, d1, d2) -> (d1 floordiv 32, d2, d1 mod 32)>
// CHECK: func.func private @kernel_0(%arg0: tensor<48x64xf32>, %arg1: tensor<2x64x32xf32>
// CHECK-SAME: kernel.strategy = {half = 24 : i64, pairs = 1 : i64, rows = {{[0-9]+}} : i64, vectors = 2 : i64}
// CHECK: linalg.generic {indexing_maps = [{{#[a-z0-9]+}}, [[PANELS]], {{#[a-z0-9]+}}]
// CHECK-SAME: kernel.strassen

// UNPACKED-NOT: kernel.strassen
// UNPACKED: row_tiles
// UNPACKED-NOT: kernel.strassen
func.func @main(%x: tensor<48x64xf32>, %w: tensor<64x64xf32> {stepwell.parameter = "w"}) -> tensor<48x64xf32> {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<48x64xf32>, tensor<64x64xf32>) -> tensor<48x64xf32>
  return %0 : tensor<48x64xf32>
}
