// RUN: stepwell-opt %s --target=cuda:sm_90a --pass-pipeline='builtin.module(hoist-constants,transpose-weights)' | filecheck %s
// RUN: stepwell-opt %s --pass-pipeline='builtin.module(hoist-constants,transpose-weights)' | filecheck %s --check-prefix=CPU

#mk = affine_map<(m, n, k) -> (m, k)>
#kn = affine_map<(m, n, k) -> (k, n)>
#mn = affine_map<(m, n, k) -> (m, n)>

// Bytes are multiplied along k only: the weight has a transposed copy.
// CHECK: #[[NK:.*]] = affine_map<(d0, d1, d2) -> (d1, d2)>
// CHECK-LABEL: func.func @bytes
// CHECK-SAME: tensor<2x4xi8> {stepwell.weight = "{{.*}}"}, %[[T:.*]]: tensor<4x2xi8> {stepwell.weight = "{{.*}}_along_k"}
// CHECK: linalg.generic {indexing_maps = [#{{.*}}, #[[NK]], #{{.*}}]{{.*}} ins(%arg0, %[[T]] :
// CPU-LABEL: func.func @bytes
// CPU-NOT: along_k
func.func @bytes(%x: tensor<8x2xi8>, %zero: tensor<8x4xi32>) -> tensor<8x4xi32> {
  %w = arith.constant dense<[[1, 2, 3, 4], [5, 6, 7, 8]]> : tensor<2x4xi8>
  %0 = linalg.generic {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w : tensor<8x2xi8>, tensor<2x4xi8>) outs(%zero : tensor<8x4xi32>) {
  ^bb0(%a: i8, %b: i8, %c: i32):
    %1 = arith.extsi %a : i8 to i32
    %2 = arith.extsi %b : i8 to i32
    %3 = arith.muli %1, %2 : i32
    %4 = arith.addi %c, %3 : i32
    linalg.yield %4 : i32
  } -> tensor<8x4xi32>
  return %0 : tensor<8x4xi32>
}

// Rejected: floats of 16 bits are multiplied as they lie.
// CHECK-LABEL: func.func @halves
// CHECK-NOT: along_k
func.func @halves(%x: tensor<8x2xf16>, %zero: tensor<8x4xf32>) -> tensor<8x4xf32> {
  %w = arith.constant dense<[[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]]> : tensor<2x4xf16>
  %0 = linalg.generic {indexing_maps = [#mk, #kn, #mn], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w : tensor<8x2xf16>, tensor<2x4xf16>) outs(%zero : tensor<8x4xf32>) {
  ^bb0(%a: f16, %b: f16, %c: f32):
    %1 = arith.extf %a : f16 to f32
    %2 = arith.extf %b : f16 to f32
    %3 = arith.mulf %1, %2 : f32
    %4 = arith.addf %c, %3 : f32
    linalg.yield %4 : f32
  } -> tensor<8x4xf32>
  return %0 : tensor<8x4xf32>
}
