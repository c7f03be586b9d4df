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

#bmk = affine_map<(b, m, n, k) -> (b, m, k)>
#bkn = affine_map<(b, m, n, k) -> (b, k, n)>
#bmn = affine_map<(b, m, n, k) -> (b, m, n)>
#all = affine_map<(b, k, n) -> (b, k, n)>

// Matrices that numbers choose: all of them are transposed, and slices of that are read.
// CHECK-LABEL: func.func @slices
// CHECK-SAME: %[[T:[a-z0-9]+]]: tensor<1x4x2xi8> {stepwell.weight = "{{.*}}_along_k"}
// CHECK: tensor.extract %[[T]][%{{.*}}, %{{.*}}, %{{.*}}] : tensor<1x4x2xi8>
// CHECK: linalg.generic {{.*}} ins(%{{.*}}, %{{.*}} : tensor<3x8x2xi8>, tensor<3x4x2xi8>)
func.func @slices(%x: tensor<3x8x2xi8>, %n: tensor<3xi32>, %zero: tensor<3x8x4xi32>) -> tensor<3x8x4xi32> {
  %w = arith.constant dense<[[[1, 2, 3, 4], [5, 6, 7, 8]]]> : tensor<1x2x4xi8>
  %e = tensor.empty() : tensor<3x2x4xi8>
  %s = linalg.generic {indexing_maps = [#all], iterator_types = ["parallel", "parallel", "parallel"]}
      outs(%e : tensor<3x2x4xi8>) {
  ^bb0(%o: i8):
    %b = linalg.index 0 : index
    %k = linalg.index 1 : index
    %c = linalg.index 2 : index
    %i = tensor.extract %n[%b] : tensor<3xi32>
    %j = arith.index_cast %i : i32 to index
    %v = tensor.extract %w[%j, %k, %c] : tensor<1x2x4xi8>
    linalg.yield %v : i8
  } -> tensor<3x2x4xi8>
  %0 = linalg.generic {indexing_maps = [#bmk, #bkn, #bmn], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%x, %s : tensor<3x8x2xi8>, tensor<3x2x4xi8>) outs(%zero : tensor<3x8x4xi32>) {
  ^bb0(%a: i8, %b: i8, %c: i32):
    %1 = arith.extsi %a : i8 to i32
    %2 = arith.extsi %b : i8 to i32
    %3 = arith.muli %1, %2 : i32
    %4 = arith.addi %c, %3 : i32
    linalg.yield %4 : i32
  } -> tensor<3x8x4xi32>
  return %0 : tensor<3x8x4xi32>
}

#kbn = affine_map<(b, m, n, k) -> (k, b, n)>

// The outputs of a grouped convolution are split into groups.
// CHECK-LABEL: func.func @groups
// CHECK-SAME: %[[T:[a-z0-9]+]]: tensor<2x3x2xi8> {stepwell.weight = "{{.*}}_along_k"}
// CHECK: linalg.generic {{.*}} ins(%arg0, %[[T]] : tensor<2x8x2xi8>, tensor<2x3x2xi8>)
func.func @groups(%x: tensor<2x8x2xi8>, %zero: tensor<2x8x3xi32>) -> tensor<2x8x3xi32> {
  %w = arith.constant dense<[[1, 2, 3, 4, 5, 6], [7, 8, 9, 10, 11, 12]]> : tensor<2x6xi8>
  %g = tensor.expand_shape %w [[0], [1, 2]] output_shape [2, 2, 3] : tensor<2x6xi8> into tensor<2x2x3xi8>
  %0 = linalg.generic {indexing_maps = [#bmk, #kbn, #bmn], iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%x, %g : tensor<2x8x2xi8>, tensor<2x2x3xi8>) outs(%zero : tensor<2x8x3xi32>) {
  ^bb0(%a: i8, %b: i8, %c: i32):
    %1 = arith.extsi %a : i8 to i32
    %2 = arith.extsi %b : i8 to i32
    %3 = arith.muli %1, %2 : i32
    %4 = arith.addi %c, %3 : i32
    linalg.yield %4 : i32
  } -> tensor<2x8x3xi32>
  return %0 : tensor<2x8x3xi32>
}
