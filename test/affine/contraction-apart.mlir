// RUN: stepwell-opt %s --target=x86_64-v3 --pass-pipeline='builtin.module(lower-groups-to-affine)' \
// RUN:   | filecheck %s

// Chains of a long sum apart: the loop over them is around the tiles, each adds to the totals of its
// rows in scratch, and what comes next of the rhs is asked for meanwhile. The epilogue reads the
// totals in the end.
// CHECK: func.func private @kernel_0
// CHECK: %[[TOTALS:.*]] = memref.alloca() {alignment = 64 : i64} : memref<12x16xf32>
// CHECK: affine.parallel
// CHECK: affine.for %{{.*}} = 0 to 12
// CHECK: affine.vector_store %{{.*}}, %[[TOTALS]]
// CHECK: affine.for %{{[a-z0-9]+}} = 0 to 3 {
// CHECK: affine.for %[[TILE:[a-z0-9]+]] = 0 to min
// CHECK: affine.for %{{.*}} = 0 to 256 step 4 iter_args
// CHECK: affine.prefetch %arg1
// CHECK-COUNT-32: vector.fma
// CHECK-NOT: vector.fma
// CHECK: affine.vector_load %[[TOTALS]][%[[TILE]] * 4, 0]
// CHECK: affine.vector_store %{{.*}}, %[[TOTALS]][%[[TILE]] * 4, 0]
// CHECK: affine.for %{{[a-z0-9]+}} = 0 to min
// CHECK: affine.vector_load %[[TOTALS]]
// CHECK: arith.negf
// CHECK: affine.vector_store %{{.*}}, %arg2

// Without, the totals are carried from chain to chain.
// CHECK: func.func private @kernel_1
// CHECK-NOT: memref.alloca
// CHECK: affine.for %{{[a-z0-9]+}} = 0 to 3 iter_args
// CHECK: affine.for %{{.*}} = 0 to 256 step 4 iter_args
func.func @main(%x: tensor<12x768xf32>, %w: tensor<1x768x16xf32>) -> (tensor<12x16xf32>, tensor<12x16xf32>) {
  %0 = tensor.empty() : tensor<12x16xf32>
  %1 = call @kernel_0(%x, %w, %0) : (tensor<12x768xf32>, tensor<1x768x16xf32>, tensor<12x16xf32>) -> tensor<12x16xf32>
  %2 = call @kernel_1(%x, %w, %0) : (tensor<12x768xf32>, tensor<1x768x16xf32>, tensor<12x16xf32>) -> tensor<12x16xf32>
  return %1, %2 : tensor<12x16xf32>, tensor<12x16xf32>
}
func.func private @kernel_0(%x: tensor<12x768xf32>, %w: tensor<1x768x16xf32>, %out: tensor<12x16xf32>) -> tensor<12x16xf32> attributes {kernel.kind = "contraction", kernel.strategy = {apart = true, box = array<i64: 1, 4>, merge_rows = true, panels = 1 : i64, row_tiles = 3 : i64, vectors = 2 : i64}} {
  %zero = arith.constant 0.000000e+00 : f32
  %0 = tensor.empty() : tensor<12x16xf32>
  %1 = linalg.fill ins(%zero : f32) outs(%0 : tensor<12x16xf32>) -> tensor<12x16xf32>
  %2 = linalg.generic {
      indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n floordiv 16, k, n mod 16)>, affine_map<(m, n, k) -> (m, n)>],
      iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w : tensor<12x768xf32>, tensor<1x768x16xf32>) outs(%1 : tensor<12x16xf32>) {
  ^bb0(%a: f32, %b: f32, %sum: f32):
    %3 = arith.mulf %a, %b : f32
    %4 = arith.addf %sum, %3 : f32
    linalg.yield %4 : f32
  } -> tensor<12x16xf32>
  %5 = linalg.generic {
      indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
      ins(%2 : tensor<12x16xf32>) outs(%out : tensor<12x16xf32>) {
  ^bb0(%a: f32, %old: f32):
    %6 = arith.negf %a : f32
    linalg.yield %6 : f32
  } -> tensor<12x16xf32>
  return %5 : tensor<12x16xf32>
}
func.func private @kernel_1(%x: tensor<12x768xf32>, %w: tensor<1x768x16xf32>, %out: tensor<12x16xf32>) -> tensor<12x16xf32> attributes {kernel.kind = "contraction", kernel.strategy = {apart = false, box = array<i64: 1, 4>, merge_rows = true, panels = 1 : i64, row_tiles = 3 : i64, vectors = 2 : i64}} {
  %zero = arith.constant 0.000000e+00 : f32
  %0 = tensor.empty() : tensor<12x16xf32>
  %1 = linalg.fill ins(%zero : f32) outs(%0 : tensor<12x16xf32>) -> tensor<12x16xf32>
  %2 = linalg.generic {
      indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n floordiv 16, k, n mod 16)>, affine_map<(m, n, k) -> (m, n)>],
      iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w : tensor<12x768xf32>, tensor<1x768x16xf32>) outs(%1 : tensor<12x16xf32>) {
  ^bb0(%a: f32, %b: f32, %sum: f32):
    %3 = arith.mulf %a, %b : f32
    %4 = arith.addf %sum, %3 : f32
    linalg.yield %4 : f32
  } -> tensor<12x16xf32>
  %5 = linalg.generic {
      indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>], iterator_types = ["parallel", "parallel"]}
      ins(%2 : tensor<12x16xf32>) outs(%out : tensor<12x16xf32>) {
  ^bb0(%a: f32, %old: f32):
    %6 = arith.negf %a : f32
    linalg.yield %6 : f32
  } -> tensor<12x16xf32>
  return %5 : tensor<12x16xf32>
}
