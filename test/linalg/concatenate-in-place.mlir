// RUN: stepwell-opt %s --split-input-file --target=x86_64-v4 \
// RUN:   --pass-pipeline='builtin.module(legalize-to-linalg,form-fusion-groups,concatenate-in-place)' \
// RUN:   | filecheck %s

// Both parts are written where the whole has them; a reader of one reads a slice.
// CHECK-LABEL: func.func @joined
// CHECK: %[[EMPTY:.*]] = tensor.empty() : tensor<1x8x8x48xf32>
// CHECK: %[[FIRST:.*]] = call @[[K0:.*]](%arg0, %arg1, %[[EMPTY]]) : {{.*}} -> tensor<1x8x8x48xf32>
// CHECK: %[[WHOLE:.*]] = call @[[K1:.*]](%[[FIRST]], %arg2, %[[FIRST]]) {stepwell.disjoint} : {{.*}} -> tensor<1x8x8x48xf32>
// CHECK: return %[[WHOLE]]
// CHECK: func.func private @[[K0]]({{.*}}, %[[TO:.*]]: tensor<1x8x8x48xf32>) -> tensor<1x8x8x48xf32>
// CHECK: tensor.insert_slice %{{.*}} into %[[TO]][0, 0, 0, 0] [1, 8, 8, 16] [1, 1, 1, 1]
// CHECK: func.func private @[[K1]](%[[FROM:.*]]: tensor<1x8x8x48xf32>, {{.*}}, %[[TO:.*]]: tensor<1x8x8x48xf32>) -> tensor<1x8x8x48xf32>
// CHECK: tensor.extract_slice %[[FROM]][0, 0, 0, 0] [1, 8, 8, 16] [1, 1, 1, 1]
// CHECK: tensor.insert_slice %{{.*}} into %[[TO]][0, 0, 0, 16] [1, 8, 8, 32] [1, 1, 1, 1]
// CHECK-NOT: "concatenate"
func.func @joined(%x: tensor<1x8x8x8xf32>, %v: tensor<1x1x8x16xf32>, %w: tensor<1x1x16x32xf32>) -> tensor<1x8x8x48xf32> {
  %a = stablehlo.convolution(%x, %v) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x8x8x8xf32>, tensor<1x1x8x16xf32>) -> tensor<1x8x8x16xf32>
  %b = stablehlo.convolution(%a, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x8x8x16xf32>, tensor<1x1x16x32xf32>) -> tensor<1x8x8x32xf32>
  %c = stablehlo.concatenate %a, %b, dim = 3 : (tensor<1x8x8x16xf32>, tensor<1x8x8x32xf32>) -> tensor<1x8x8x48xf32>
  return %c : tensor<1x8x8x48xf32>
}

// -----

// A concatenation of a concatenation is one buffer.
// CHECK-LABEL: func.func @nested
// CHECK: tensor.empty() : tensor<1x8x8x64xf32>
// CHECK-COUNT-3: call @{{.*}} -> tensor<1x8x8x64xf32>
// CHECK-NOT: call
// CHECK: tensor.insert_slice %{{.*}} into %{{.*}}[0, 0, 0, 0] [1, 8, 8, 16] [1, 1, 1, 1]
// CHECK: tensor.insert_slice %{{.*}} into %{{.*}}[0, 0, 0, 16] [1, 8, 8, 16] [1, 1, 1, 1]
// CHECK: tensor.insert_slice %{{.*}} into %{{.*}}[0, 0, 0, 32] [1, 8, 8, 32] [1, 1, 1, 1]
func.func @nested(%x: tensor<1x8x8x8xf32>, %v: tensor<1x1x8x16xf32>, %u: tensor<1x1x16x16xf32>, %t: tensor<1x1x32x32xf32>) -> tensor<1x8x8x64xf32> {
  %a = stablehlo.convolution(%x, %v) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x8x8x8xf32>, tensor<1x1x8x16xf32>) -> tensor<1x8x8x16xf32>
  %b = stablehlo.convolution(%a, %u) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x8x8x16xf32>, tensor<1x1x16x16xf32>) -> tensor<1x8x8x16xf32>
  %c = stablehlo.concatenate %a, %b, dim = 3 : (tensor<1x8x8x16xf32>, tensor<1x8x8x16xf32>) -> tensor<1x8x8x32xf32>
  %d = stablehlo.convolution(%c, %t) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x8x8x32xf32>, tensor<1x1x32x32xf32>) -> tensor<1x8x8x32xf32>
  %e = stablehlo.concatenate %c, %d, dim = 3 : (tensor<1x8x8x32xf32>, tensor<1x8x8x32xf32>) -> tensor<1x8x8x64xf32>
  return %e : tensor<1x8x8x64xf32>
}

// -----

// What is padded keeps a kernel, for its halo and the parts that nobody writes in place: %x, and %a,
// which a product reads.
// CHECK-LABEL: func.func @padded
// CHECK: %[[A:.*]] = call @kernel_0(
// CHECK: %[[B:.*]] = call @[[K1:.*]](%[[A]], %arg2, %{{.*}}) : {{.*}} -> tensor<1x10x10x40xf32>
// CHECK: %[[WHOLE:.*]] = call @[[REST:.*]](%arg0, %[[A]], %[[B]]) : {{.*}} -> tensor<1x10x10x40xf32>
// CHECK: call @{{.*}}(%[[WHOLE]], %arg3, %{{.*}})
// CHECK: func.func private @[[K1]]({{.*}}, %[[TO:.*]]: tensor<1x10x10x40xf32>)
// CHECK: tensor.insert_slice %{{.*}} into %[[TO]][0, 1, 1, 24] [1, 8, 8, 16] [1, 1, 1, 1]
// CHECK: func.func private @[[REST]](%[[X:.*]]: tensor<1x8x8x8xf32>, %[[A:.*]]: tensor<1x8x8x16xf32>, %[[TO:.*]]: tensor<1x10x10x40xf32>) -> tensor<1x10x10x40xf32> attributes {kernel.kind = "concatenate"}
// CHECK: %[[INSIDE:.*]] = tensor.extract_slice %[[TO]][0, 1, 1, 0] [1, 8, 8, 40] [1, 1, 1, 1]
// CHECK: %[[FIRST:.*]] = tensor.insert_slice %[[X]] into %[[INSIDE]][0, 0, 0, 0] [1, 8, 8, 8]
// CHECK: %[[SECOND:.*]] = tensor.insert_slice %[[A]] into %[[FIRST]][0, 0, 0, 8] [1, 8, 8, 16]
// CHECK: tensor.pad %[[SECOND]] low[0, 1, 1, 0] high[0, 1, 1, 0]
func.func @padded(%x: tensor<1x8x8x8xf32>, %v: tensor<1x1x8x16xf32>, %u: tensor<1x1x16x16xf32>, %w: tensor<3x3x40x8xf32>) -> tensor<1x8x8x8xf32> {
  %a = stablehlo.convolution(%x, %v) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x8x8x8xf32>, tensor<1x1x8x16xf32>) -> tensor<1x8x8x16xf32>
  %b = stablehlo.convolution(%a, %u) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x8x8x16xf32>, tensor<1x1x16x16xf32>) -> tensor<1x8x8x16xf32>
  %c = stablehlo.concatenate %x, %a, %b, dim = 3 : (tensor<1x8x8x8xf32>, tensor<1x8x8x16xf32>, tensor<1x8x8x16xf32>) -> tensor<1x8x8x40xf32>
  %d = stablehlo.convolution(%c, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x8x8x40xf32>, tensor<3x3x40x8xf32>) -> tensor<1x8x8x8xf32>
  return %d : tensor<1x8x8x8xf32>
}

// -----

// Rejected: one part is a result, and one an argument.
// CHECK-LABEL: func.func @result
// CHECK: call @kernel_1(%{{.*}}, %arg0, %{{.*}}) : (tensor<1x8x8x16xf32>, tensor<1x8x8x8xf32>, tensor<1x8x8x24xf32>) -> tensor<1x8x8x24xf32>
// CHECK: "concatenate"
func.func @result(%x: tensor<1x8x8x8xf32>, %v: tensor<1x1x8x16xf32>) -> (tensor<1x8x8x16xf32>, tensor<1x8x8x24xf32>) {
  %a = stablehlo.convolution(%x, %v) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x8x8x8xf32>, tensor<1x1x8x16xf32>) -> tensor<1x8x8x16xf32>
  %b = stablehlo.concatenate %a, %x, dim = 3 : (tensor<1x8x8x16xf32>, tensor<1x8x8x8xf32>) -> tensor<1x8x8x24xf32>
  return %a, %b : tensor<1x8x8x16xf32>, tensor<1x8x8x24xf32>
}

// -----

// Rejected: no cache holds the whole, and the parts have short runs in it.
// CHECK-LABEL: func.func @large
// CHECK: "concatenate"
func.func @large(%x: tensor<1x512x512x8xf32>, %v: tensor<1x1x8x16xf32>) -> tensor<1x512x512x32xf32> {
  %a = stablehlo.convolution(%x, %v) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x512x512x8xf32>, tensor<1x1x8x16xf32>) -> tensor<1x512x512x16xf32>
  %b = stablehlo.convolution(%x, %v) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x512x512x8xf32>, tensor<1x1x8x16xf32>) -> tensor<1x512x512x16xf32>
  %c = stablehlo.concatenate %a, %b, dim = 3 : (tensor<1x512x512x16xf32>, tensor<1x512x512x16xf32>) -> tensor<1x512x512x32xf32>
  return %c : tensor<1x512x512x32xf32>
}
