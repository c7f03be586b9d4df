// RUN: stepwell-opt %s --target=x86_64-v3 --pass-pipeline='builtin.module(lower-groups-to-affine)' \
// RUN:   | filecheck %s

// Two chains of a long sum side by side, each with its own vectors, added to the sums in turn.
// CHECK: func.func private @kernel_0
// CHECK: %{{.*}}:2 = affine.for %[[PAIR:[a-z0-9]+]] = 0 to 2 iter_args
// CHECK: %[[PARTS:.*]]:4 = affine.for %[[K:[a-z0-9]+]] = 0 to 192
// CHECK: affine.load %arg0[0, %[[PAIR]] * 384 + %[[K]]]
// CHECK: affine.load %arg0[0, %[[PAIR]] * 384 + %[[K]] + 192]
// CHECK: %[[FIRST:.*]] = arith.addf %{{[a-z0-9]+}}, %[[PARTS]]#0
// CHECK: arith.addf %[[FIRST]], %[[PARTS]]#2

// Rejected: an odd number of terms, which are one chain.
// CHECK: func.func private @kernel_1
// CHECK: %[[SUMS:.*]]:2 = affine.for %{{[a-z0-9]+}} = 0 to 192 step 16 iter_args
// CHECK: affine.for %{{[a-z0-9]+}} = 192 to 201 iter_args(%{{[a-z0-9]+}} = %[[SUMS]]#0

// A short sum is cut in two.
// CHECK: func.func private @kernel_2
// CHECK: affine.for %[[K:[a-z0-9]+]] = 0 to 64
// CHECK: affine.load %arg0[0, %[[K]]]
// CHECK: affine.load %arg0[0, %[[K]] + 64]
func.func @main(%x: tensor<1x768xf32>, %w: tensor<1x768x16xf32>, %y: tensor<1x201xf32>, %v: tensor<1x201x16xf32>, %z: tensor<1x128xf32>, %u: tensor<1x128x16xf32>) -> (tensor<1x16xf32>, tensor<1x16xf32>, tensor<1x16xf32>) {
  %0 = tensor.empty() : tensor<1x16xf32>
  %1 = call @kernel_0(%x, %w, %0) : (tensor<1x768xf32>, tensor<1x768x16xf32>, tensor<1x16xf32>) -> tensor<1x16xf32>
  %2 = call @kernel_1(%y, %v, %0) : (tensor<1x201xf32>, tensor<1x201x16xf32>, tensor<1x16xf32>) -> tensor<1x16xf32>
  %3 = call @kernel_2(%z, %u, %0) : (tensor<1x128xf32>, tensor<1x128x16xf32>, tensor<1x16xf32>) -> tensor<1x16xf32>
  return %1, %2, %3 : tensor<1x16xf32>, tensor<1x16xf32>, tensor<1x16xf32>
}
func.func private @kernel_0(%x: tensor<1x768xf32>, %w: tensor<1x768x16xf32>, %out: tensor<1x16xf32>) -> tensor<1x16xf32> attributes {kernel.kind = "contraction", kernel.strategy = {box = array<i64: 1, 1>, chains = 2 : i64, merge_rows = true, panels = 1 : i64, row_tiles = 1 : i64, vectors = 2 : i64}} {
  %zero = arith.constant 0.000000e+00 : f32
  %0 = linalg.fill ins(%zero : f32) outs(%out : tensor<1x16xf32>) -> tensor<1x16xf32>
  %1 = linalg.generic {
      indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n floordiv 16, k, n mod 16)>, affine_map<(m, n, k) -> (m, n)>],
      iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w : tensor<1x768xf32>, tensor<1x768x16xf32>) outs(%0 : tensor<1x16xf32>) {
  ^bb0(%a: f32, %b: f32, %sum: f32):
    %2 = arith.mulf %a, %b : f32
    %3 = arith.addf %sum, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<1x16xf32>
  return %1 : tensor<1x16xf32>
}
func.func private @kernel_1(%x: tensor<1x201xf32>, %w: tensor<1x201x16xf32>, %out: tensor<1x16xf32>) -> tensor<1x16xf32> attributes {kernel.kind = "contraction", kernel.strategy = {box = array<i64: 1, 1>, chains = 2 : i64, merge_rows = true, panels = 1 : i64, row_tiles = 1 : i64, vectors = 2 : i64}} {
  %zero = arith.constant 0.000000e+00 : f32
  %0 = linalg.fill ins(%zero : f32) outs(%out : tensor<1x16xf32>) -> tensor<1x16xf32>
  %1 = linalg.generic {
      indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n floordiv 16, k, n mod 16)>, affine_map<(m, n, k) -> (m, n)>],
      iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w : tensor<1x201xf32>, tensor<1x201x16xf32>) outs(%0 : tensor<1x16xf32>) {
  ^bb0(%a: f32, %b: f32, %sum: f32):
    %2 = arith.mulf %a, %b : f32
    %3 = arith.addf %sum, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<1x16xf32>
  return %1 : tensor<1x16xf32>
}
func.func private @kernel_2(%x: tensor<1x128xf32>, %w: tensor<1x128x16xf32>, %out: tensor<1x16xf32>) -> tensor<1x16xf32> attributes {kernel.kind = "contraction", kernel.strategy = {box = array<i64: 1, 1>, chains = 2 : i64, merge_rows = true, panels = 1 : i64, row_tiles = 1 : i64, vectors = 2 : i64}} {
  %zero = arith.constant 0.000000e+00 : f32
  %0 = linalg.fill ins(%zero : f32) outs(%out : tensor<1x16xf32>) -> tensor<1x16xf32>
  %1 = linalg.generic {
      indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n floordiv 16, k, n mod 16)>, affine_map<(m, n, k) -> (m, n)>],
      iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w : tensor<1x128xf32>, tensor<1x128x16xf32>) outs(%0 : tensor<1x16xf32>) {
  ^bb0(%a: f32, %b: f32, %sum: f32):
    %2 = arith.mulf %a, %b : f32
    %3 = arith.addf %sum, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<1x16xf32>
  return %1 : tensor<1x16xf32>
}
