// RUN: stepwell-opt %s --target=cuda:sm_90a --split-input-file --pass-pipeline='builtin.module(lower-groups-to-affine)' | filecheck %s

// Blocks that share tiles, by a strategy of its own: rounds, tiles of each, and steps of the tiles, for
// those that copy and those that multiply. Partial sums go by way of slots, whose flags are down, zeros,
// before each launch and behind it.

// CHECK-DAG: %[[SLOTS:.*]] = memref.alloc() : memref<32x8x128x4xf32>
// CHECK-DAG: %[[FLAGS:.*]] = memref.alloc() {stepwell.zeroed} : memref<32xi32>
// CHECK: call @kernel_0(%{{.*}}, %{{.*}}, %{{.*}}, %[[SLOTS]], %[[FLAGS]])
// CHECK: func.func private @kernel_0({{.*}}, %[[S:.*]]: memref<32x8x128x4xf32>, %{{.*}}: memref<32xi32>)
// CHECK-SAME: kernel.resident_blocks = 1
// CHECK-SAME: kernel.results = 1
// CHECK: affine.parallel (%{{.*}}, %{{.*}}) = (0, 0) to (16, 384) {
// CHECK: affine.for %{{.*}} = 0 to min
// CHECK: affine.for %{{.*}} = max
// CHECK: affine.for %{{.*}} = max
// CHECK: affine.for %{{.*}} = 0 to min
// CHECK: affine.for %{{.*}} = max
// CHECK: affine.for %{{.*}} = max
// CHECK: vector.store %{{.*}}, %[[S]][
// CHECK: st.release.gpu
// CHECK: scf.for
// CHECK: ld.acquire.gpu
// CHECK: st.relaxed.gpu
// CHECK: vector.load %[[S]][
func.func private @kernel_0(%x: tensor<512x640xf16>, %w: tensor<128x640xf16>, %out: tensor<512x128xf32>) -> tensor<512x128xf32>
    attributes {kernel.kind = "contraction",
                kernel.strategy = {rows = 128 : i64, columns = 64 : i64, stages = 3 : i64, cluster = 2 : i64, sharing = 16 : i64}} {
  %zero = arith.constant 0.0 : f32
  %0 = linalg.fill ins(%zero : f32) outs(%out : tensor<512x128xf32>) -> tensor<512x128xf32>
  %1 = linalg.generic {
      indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>],
      iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w : tensor<512x640xf16>, tensor<128x640xf16>) outs(%0 : tensor<512x128xf32>) {
  ^bb0(%a: f16, %b: f16, %sum: f32):
    %2 = arith.extf %a : f16 to f32
    %3 = arith.extf %b : f16 to f32
    %4 = arith.mulf %2, %3 : f32
    %5 = arith.addf %sum, %4 : f32
    linalg.yield %5 : f32
  } -> tensor<512x128xf32>
  return %1 : tensor<512x128xf32>
}
func.func @main(%x: tensor<512x640xf16>, %w: tensor<128x640xf16>) -> tensor<512x128xf32> {
  %0 = tensor.empty() : tensor<512x128xf32>
  %1 = call @kernel_0(%x, %w, %0) : (tensor<512x640xf16>, tensor<128x640xf16>, tensor<512x128xf32>) -> tensor<512x128xf32>
  return %1 : tensor<512x128xf32>
}

// -----

// Rejected: 15 blocks are no whole clusters of two. The threads of one block do it.

// CHECK: func.func private @kernel_0
// CHECK-SAME: kernel.kind = "scalar"
// CHECK-NOT: stepwell.zeroed
func.func private @kernel_0(%x: tensor<512x640xf16>, %w: tensor<128x640xf16>, %out: tensor<512x128xf32>) -> tensor<512x128xf32>
    attributes {kernel.kind = "contraction",
                kernel.strategy = {rows = 128 : i64, columns = 64 : i64, stages = 3 : i64, cluster = 2 : i64, sharing = 15 : i64}} {
  %zero = arith.constant 0.0 : f32
  %0 = linalg.fill ins(%zero : f32) outs(%out : tensor<512x128xf32>) -> tensor<512x128xf32>
  %1 = linalg.generic {
      indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n, k)>, affine_map<(m, n, k) -> (m, n)>],
      iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w : tensor<512x640xf16>, tensor<128x640xf16>) outs(%0 : tensor<512x128xf32>) {
  ^bb0(%a: f16, %b: f16, %sum: f32):
    %2 = arith.extf %a : f16 to f32
    %3 = arith.extf %b : f16 to f32
    %4 = arith.mulf %2, %3 : f32
    %5 = arith.addf %sum, %4 : f32
    linalg.yield %5 : f32
  } -> tensor<512x128xf32>
  return %1 : tensor<512x128xf32>
}
func.func @main(%x: tensor<512x640xf16>, %w: tensor<128x640xf16>) -> tensor<512x128xf32> {
  %0 = tensor.empty() : tensor<512x128xf32>
  %1 = call @kernel_0(%x, %w, %0) : (tensor<512x640xf16>, tensor<128x640xf16>, tensor<512x128xf32>) -> tensor<512x128xf32>
  return %1 : tensor<512x128xf32>
}
