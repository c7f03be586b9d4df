// RUN: stepwell-opt %s --target=cuda:sm_90a --precision=tf32 --pass-pipeline='builtin.module(transpose-weights)' | filecheck %s
// RUN: stepwell-opt %s --target=cuda:sm_80 --precision=tf32 --pass-pipeline='builtin.module(transpose-weights)' | filecheck %s --check-prefix=WARPS

#mk = affine_map<(m, n, k) -> (m, k)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>
#bmk = affine_map<(b, m, n, k) -> (b, m, k)>
#bkn = affine_map<(b, m, n, k) -> (b, k, n)>
#bmn = affine_map<(b, m, n, k) -> (b, m, n)>

// Warpgroups take operands of 32 bits along k only: a large one is transposed for them.
// CHECK: #[[TURNED:.*]] = affine_map<(d0, d1) -> (d1, d0)>
// CHECK: #[[NK:.*]] = affine_map<(d0, d1, d2) -> (d1, d2)>
// CHECK-LABEL: func.func @large
// CHECK: %[[T:.*]] = linalg.generic {indexing_maps = [#[[TURNED]], #{{.*}}]{{.*}} ins(%arg1 : tensor<2048x4096xf32>) outs(%{{.*}} : tensor<4096x2048xf32>)
// CHECK: linalg.generic {indexing_maps = [#{{.*}}, #[[NK]], #{{.*}}]{{.*}} ins(%arg0, %[[T]] :
// WARPS-LABEL: func.func @large
// WARPS: ins(%arg0, %arg1 :
func.func @large(%x: tensor<4096x2048xf32>, %y: tensor<2048x4096xf32>, %zero: tensor<4096x4096xf32>) -> tensor<4096x4096xf32> {
  %0 = linalg.generic {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %y : tensor<4096x2048xf32>, tensor<2048x4096xf32>) outs(%zero : tensor<4096x4096xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %1 = arith.mulf %a, %b : f32
    %2 = arith.addf %c, %1 : f32
    linalg.yield %2 : f32
  } -> tensor<4096x4096xf32>
  return %0 : tensor<4096x4096xf32>
}

// Rejected: for a product of few rows that would take longer.
// CHECK-LABEL: func.func @few_rows
// CHECK: ins(%arg0, %arg1 :
func.func @few_rows(%x: tensor<64x2048xf32>, %y: tensor<2048x4096xf32>, %zero: tensor<64x4096xf32>) -> tensor<64x4096xf32> {
  %0 = linalg.generic {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %y : tensor<64x2048xf32>, tensor<2048x4096xf32>) outs(%zero : tensor<64x4096xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %1 = arith.mulf %a, %b : f32
    %2 = arith.addf %c, %1 : f32
    linalg.yield %2 : f32
  } -> tensor<64x4096xf32>
  return %0 : tensor<64x4096xf32>
}

// Rejected: rows along k would be no whole chunks, and warps multiply them anyway.
// CHECK-LABEL: func.func @odd
// CHECK: ins(%arg0, %arg1 :
func.func @odd(%x: tensor<4096x2047xf32>, %y: tensor<2047x4096xf32>, %zero: tensor<4096x4096xf32>) -> tensor<4096x4096xf32> {
  %0 = linalg.generic {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %y : tensor<4096x2047xf32>, tensor<2047x4096xf32>) outs(%zero : tensor<4096x4096xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %1 = arith.mulf %a, %b : f32
    %2 = arith.addf %c, %1 : f32
    linalg.yield %2 : f32
  } -> tensor<4096x4096xf32>
  return %0 : tensor<4096x4096xf32>
}

// Rejected: a batch, which may be attention.
// CHECK-LABEL: func.func @batch
// CHECK: ins(%arg0, %arg1 :
func.func @batch(%x: tensor<4x2048x2048xf32>, %y: tensor<4x2048x2048xf32>, %zero: tensor<4x2048x2048xf32>) -> tensor<4x2048x2048xf32> {
  %0 = linalg.generic {indexing_maps = [#bmk, #bkn, #bmn], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%x, %y : tensor<4x2048x2048xf32>, tensor<4x2048x2048xf32>) outs(%zero : tensor<4x2048x2048xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %1 = arith.mulf %a, %b : f32
    %2 = arith.addf %c, %1 : f32
    linalg.yield %2 : f32
  } -> tensor<4x2048x2048xf32>
  return %0 : tensor<4x2048x2048xf32>
}
