// RUN: stepwell-opt %s --target=x86_64-v3 --pass-pipeline='builtin.module(lower-groups-to-affine)' \
// RUN:   | filecheck %s

// 11 rows are a half of 6 and one of 5, whose sixth row is of zeros. The sums of rows are checked for
// numbers that are not finite; then blocks are multiplied as they are. Otherwise three products are by
// blocks of the weights; of four others, the first register tile subtracts blocks, and keeps what it
// multiplies by. Results are summed, then finished.
// CHECK: func.func private @kernel_0
// CHECK-DAG: %[[LEFT:.*]] = memref.alloca() {{.*}} : memref<7x192xf32>
// CHECK-DAG: %[[SUMMED:.*]] = memref.alloca() {{.*}} : memref<16x8xf32>
// CHECK-DAG: %[[PRODUCTS:.*]] = memref.alloca() {{.*}} : memref<7x64xf32>
// CHECK-DAG: %[[CHECK:.*]] = memref.alloca() {{.*}} : memref<1xf32>
// CHECK: affine.parallel
// CHECK: affine.for %{{.*}} = 0 to min
// CHECK-COUNT-4: affine.vector_load %arg0
// CHECK: affine.for %{{.*}} = 5 to 6
// CHECK-COUNT-2: affine.vector_load %arg0
// CHECK: affine.load %[[CHECK]]
// CHECK: arith.cmpf uno
// CHECK: scf.if
// CHECK: scf.if
// CHECK: } else {
// CHECK: affine.for %{{.*}} = 0 to 3 {
// CHECK: affine.prefetch %
// CHECK: arith.subf
// CHECK: affine.vector_store %{{.*}}, %[[SUMMED]]
// CHECK-COUNT-3: vector.fma
// CHECK: affine.vector_load %[[SUMMED]]
// CHECK: affine.for %{{.*}} = 0 to 48 step 8 {
// CHECK-COUNT-7: affine.vector_load %[[PRODUCTS]]
// CHECK-COUNT-4: affine.vector_store %{{.*}}, %[[PRODUCTS]]
// CHECK: affine.vector_load %[[PRODUCTS]]
// CHECK: arith.negf
// CHECK: affine.vector_store %{{.*}}, %arg2
func.func @main(%x: tensor<11x32xf32>, %w: tensor<4x32x8xf32>) -> tensor<11x32xf32> {
  %0 = tensor.empty() : tensor<11x32xf32>
  %1 = call @kernel_0(%x, %w, %0) : (tensor<11x32xf32>, tensor<4x32x8xf32>, tensor<11x32xf32>) -> tensor<11x32xf32>
  return %1 : tensor<11x32xf32>
}
func.func private @kernel_0(%x: tensor<11x32xf32>, %w: tensor<4x32x8xf32>, %out: tensor<11x32xf32>) -> tensor<11x32xf32> attributes {kernel.kind = "contraction", kernel.strategy = {half = 6 : i64, pairs = 1 : i64, rows = 3 : i64, vectors = 1 : i64}} {
  %zero = arith.constant 0.000000e+00 : f32
  %0 = tensor.empty() : tensor<11x32xf32>
  %1 = linalg.fill ins(%zero : f32) outs(%0 : tensor<11x32xf32>) -> tensor<11x32xf32>
  %2 = linalg.generic {
    indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (n floordiv 8, k, n mod 8)>, affine_map<(m, n, k) -> (m, n)>],
    iterator_types = ["parallel", "parallel", "reduction"]}
    ins(%x, %w : tensor<11x32xf32>, tensor<4x32x8xf32>) outs(%1 : tensor<11x32xf32>) attrs = {kernel.strassen} {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %3 = arith.mulf %a, %b : f32
    %4 = arith.addf %c, %3 : f32
    linalg.yield %4 : f32
  } -> tensor<11x32xf32>
  %5 = linalg.generic {
    indexing_maps = [affine_map<(m, n) -> (m, n)>, affine_map<(m, n) -> (m, n)>],
    iterator_types = ["parallel", "parallel"]}
    ins(%2 : tensor<11x32xf32>) outs(%out : tensor<11x32xf32>) {
  ^bb0(%a: f32, %b: f32):
    %6 = arith.negf %a : f32
    linalg.yield %6 : f32
  } -> tensor<11x32xf32>
  return %5 : tensor<11x32xf32>
}
