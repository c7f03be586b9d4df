// RUN: stepwell-opt %s --split-input-file \
// RUN:   --pass-pipeline='builtin.module(legalize-to-linalg,form-fusion-groups)' | filecheck %s

// Two products that one subtraction reads are computed where it is.
// CHECK-LABEL: func.func @difference
// CHECK-COUNT-1: call @kernel_0(%{{.*}}, %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}})
// CHECK-NOT: call
// CHECK: func.func private @kernel_0({{.*}}) -> tensor<8x32xf32> attributes {kernel.kind = "elementwise"}
// CHECK-NOT: func.func private
func.func @difference(%a: tensor<8x32xf32>, %b: tensor<8x32xf32>, %c: tensor<8x32xf32>, %d: tensor<8x32xf32>) -> tensor<8x32xf32> {
  %0 = stablehlo.multiply %a, %b : tensor<8x32xf32>
  %1 = stablehlo.multiply %c, %d : tensor<8x32xf32>
  %2 = stablehlo.subtract %0, %1 : tensor<8x32xf32>
  return %2 : tensor<8x32xf32>
}

// -----

// Sums over the same rows, of which only their quotient is wanted, are one kernel.
// CHECK-LABEL: func.func @rows
// CHECK-COUNT-1: call @kernel_0
// CHECK-NOT: call
func.func @rows(%x: tensor<8x32xf32>, %y: tensor<8x32xf32>) -> tensor<8xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<8x32xf32>, tensor<f32>) -> tensor<8xf32>
  %1 = stablehlo.reduce(%y init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<8x32xf32>, tensor<f32>) -> tensor<8xf32>
  %2 = stablehlo.divide %0, %1 : tensor<8xf32>
  return %2 : tensor<8xf32>
}

// -----

// Sums over rows of different lengths are not.
// CHECK-LABEL: func.func @other_rows
// CHECK-COUNT-2: call @kernel_
func.func @other_rows(%x: tensor<8x32xf32>, %y: tensor<8x16xf32>) -> tensor<8xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<8x32xf32>, tensor<f32>) -> tensor<8xf32>
  %1 = stablehlo.reduce(%y init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<8x16xf32>, tensor<f32>) -> tensor<8xf32>
  %2 = stablehlo.divide %0, %1 : tensor<8xf32>
  return %2 : tensor<8xf32>
}

// -----

// What an epilogue reads at its own elements is computed in the contraction.
// CHECK-LABEL: func.func @epilogue
// CHECK-COUNT-1: call @kernel_0
// CHECK-NOT: call
// CHECK: kernel.kind = "contraction"
func.func @epilogue(%x: tensor<8x16xf32>, %w: tensor<16x32xf32>, %a: tensor<8x32xf32>, %b: tensor<8x32xf32>) -> tensor<8x32xf32> {
  %0 = stablehlo.multiply %a, %b : tensor<8x32xf32>
  %1 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<8x16xf32>, tensor<16x32xf32>) -> tensor<8x32xf32>
  %2 = stablehlo.add %0, %1 : tensor<8x32xf32>
  return %2 : tensor<8x32xf32>
}

// -----

// The same where it stands behind the contraction, as conversions of a residual do.
// CHECK-LABEL: func.func @residual
// CHECK-COUNT-1: call @kernel_0
// CHECK-NOT: call
// CHECK: kernel.kind = "contraction"
func.func @residual(%x: tensor<8x16xf32>, %w: tensor<16x32xf32>, %a: tensor<8x32xf16>) -> tensor<8x32xf16> {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<8x16xf32>, tensor<16x32xf32>) -> tensor<8x32xf32>
  %1 = stablehlo.convert %a : (tensor<8x32xf16>) -> tensor<8x32xf32>
  %2 = stablehlo.add %0, %1 : tensor<8x32xf32>
  %3 = stablehlo.convert %2 : (tensor<8x32xf32>) -> tensor<8x32xf16>
  return %3 : tensor<8x32xf16>
}

// -----

// Not where rows are reduced on the way: the sum is computed with them, and no kernel is added.
// CHECK-LABEL: func.func @normalised
// CHECK-COUNT-2: call @kernel_
// CHECK-NOT: call
func.func @normalised(%x: tensor<8x16xf32>, %w: tensor<16x32xf32>, %a: tensor<8x32xf32>) -> tensor<8x32xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<8x16xf32>, tensor<16x32xf32>) -> tensor<8x32xf32>
  %1 = stablehlo.reduce(%a init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<8x32xf32>, tensor<f32>) -> tensor<8xf32>
  %2 = stablehlo.broadcast_in_dim %1, dims = [0] : (tensor<8xf32>) -> tensor<8x32xf32>
  %3 = stablehlo.divide %a, %2 : tensor<8x32xf32>
  %4 = stablehlo.add %0, %3 : tensor<8x32xf32>
  %5 = stablehlo.reduce(%4 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<8x32xf32>, tensor<f32>) -> tensor<8xf32>
  %6 = stablehlo.broadcast_in_dim %5, dims = [0] : (tensor<8xf32>) -> tensor<8x32xf32>
  %7 = stablehlo.divide %4, %6 : tensor<8x32xf32>
  return %7 : tensor<8x32xf32>
}

// -----

// What the contraction itself reads is not: it would be computed anew for every column.
// CHECK-LABEL: func.func @operand
// CHECK-COUNT-2: call @kernel_
func.func @operand(%a: tensor<8x16xf32>, %b: tensor<8x16xf32>, %w: tensor<16x16xf32>) -> tensor<8x16xf32> {
  %0 = stablehlo.multiply %a, %b : tensor<8x16xf32>
  %1 = stablehlo.dot_general %0, %w, contracting_dims = [1] x [0] : (tensor<8x16xf32>, tensor<16x16xf32>) -> tensor<8x16xf32>
  %2 = stablehlo.add %0, %1 : tensor<8x16xf32>
  return %2 : tensor<8x16xf32>
}

// -----

// A product that is wanted elsewhere, too, is written once and read twice.
// CHECK-LABEL: func.func @wanted_twice
// CHECK: %[[A:.*]] = call @kernel_0(%arg0, %arg1, %{{.*}})
// CHECK: call @kernel_1({{.*}}%[[A]]
// CHECK: call @kernel_2({{.*}}%[[A]]
func.func @wanted_twice(%a: tensor<8x32xf32>, %b: tensor<8x32xf32>, %c: tensor<8x32xf32>, %w: tensor<32x4xf32>) -> (tensor<8x32xf32>, tensor<8x4xf32>) {
  %0 = stablehlo.multiply %a, %b : tensor<8x32xf32>
  %1 = stablehlo.exponential %c : tensor<8x32xf32>
  %2 = stablehlo.subtract %0, %1 : tensor<8x32xf32>
  %3 = stablehlo.dot_general %0, %w, contracting_dims = [1] x [0] : (tensor<8x32xf32>, tensor<32x4xf32>) -> tensor<8x4xf32>
  return %2, %3 : tensor<8x32xf32>, tensor<8x4xf32>
}

// -----

// The parts of a concatenation are computed where they lie: halves of heads turned by the angles of
// their positions, which are looked up in a table, are one kernel.
// CHECK-LABEL: func.func @rotary
// CHECK-COUNT-1: call @kernel_0
// CHECK-NOT: call
// CHECK: kernel.kind = "concatenate"
func.func @rotary(%x: tensor<4x16x64xf32>, %table: tensor<128x32xf32>, %at: tensor<16x1xi32>) -> tensor<4x16x64xf32> {
  %rows = "stablehlo.gather"(%table, %at) {dimension_numbers = #stablehlo.gather<offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, slice_sizes = array<i64: 1, 32>} : (tensor<128x32xf32>, tensor<16x1xi32>) -> tensor<16x32xf32>
  %c = stablehlo.broadcast_in_dim %rows, dims = [1, 2] : (tensor<16x32xf32>) -> tensor<4x16x32xf32>
  %0 = stablehlo.slice %x [0:4, 0:16, 0:32] : (tensor<4x16x64xf32>) -> tensor<4x16x32xf32>
  %1 = stablehlo.slice %x [0:4, 0:16, 32:64] : (tensor<4x16x64xf32>) -> tensor<4x16x32xf32>
  %2 = stablehlo.multiply %0, %c : tensor<4x16x32xf32>
  %3 = stablehlo.multiply %1, %c : tensor<4x16x32xf32>
  %4 = stablehlo.subtract %2, %1 : tensor<4x16x32xf32>
  %5 = stablehlo.add %3, %0 : tensor<4x16x32xf32>
  %6 = stablehlo.concatenate %4, %5, dim = 2 : (tensor<4x16x32xf32>, tensor<4x16x32xf32>) -> tensor<4x16x64xf32>
  return %6 : tensor<4x16x64xf32>
}

// -----

// A part that is read in three places of the result would be computed three times.
// CHECK-LABEL: func.func @part_read_often
// CHECK: %[[A:.*]] = call @kernel_0(%arg0, %{{.*}})
// CHECK: call @kernel_1(%[[A]], %{{.*}})
// CHECK: func.func private @kernel_1({{.*}}"concatenate"
func.func @part_read_often(%x: tensor<8x32xf32>) -> tensor<8x96xf32> {
  %0 = stablehlo.exponential %x : tensor<8x32xf32>
  %1 = stablehlo.concatenate %0, %0, %0, dim = 1 : (tensor<8x32xf32>, tensor<8x32xf32>, tensor<8x32xf32>) -> tensor<8x96xf32>
  return %1 : tensor<8x96xf32>
}

// -----

// An epilogue goes to the concatenation only where the contraction's own result is written anyway.
// CHECK-LABEL: func.func @epilogue_stays
// CHECK: %[[A:.*]] = call @kernel_0(%arg0, %arg1, %{{.*}})
// CHECK: call @kernel_1(%[[A]], %arg2, %{{.*}})
// CHECK: func.func private @kernel_0
// CHECK: math.tanh
// CHECK: func.func private @kernel_1
// CHECK-NOT: math.tanh
func.func @epilogue_stays(%x: tensor<8x16xf32>, %w: tensor<16x32xf32>, %y: tensor<8x32xf32>) -> tensor<8x64xf32> {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<8x16xf32>, tensor<16x32xf32>) -> tensor<8x32xf32>
  %1 = stablehlo.tanh %0 : tensor<8x32xf32>
  %2 = stablehlo.concatenate %1, %y, dim = 1 : (tensor<8x32xf32>, tensor<8x32xf32>) -> tensor<8x64xf32>
  return %2 : tensor<8x64xf32>
}

// -----

// Indices that are read at the element's own place are computed in the kernel that looks up.
// CHECK-LABEL: func.func @indices
// CHECK-COUNT-1: call @kernel_0(%{{.*}}, %{{.*}}, %{{.*}})
// CHECK-NOT: call
// CHECK: tensor.extract
func.func @indices(%x: tensor<8x32xf32>, %at: tensor<8x4xi32>) -> tensor<8x4xf32> {
  %one = stablehlo.constant dense<1> : tensor<8x4xi32>
  %0 = stablehlo.subtract %at, %one : tensor<8x4xi32>
  %1 = "stablehlo.gather"(%x, %0) {dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [1], operand_batching_dims = [0], start_indices_batching_dims = [0], start_index_map = [1], index_vector_dim = 2>, slice_sizes = array<i64: 1, 1>} : (tensor<8x32xf32>, tensor<8x4xi32>) -> tensor<8x4xf32>
  %2 = stablehlo.negate %1 : tensor<8x4xf32>
  return %2 : tensor<8x4xf32>
}

// -----

// A table that is computed has to be written before something is looked up in it.
// CHECK-LABEL: func.func @table
// CHECK-COUNT-2: call @kernel_
func.func @table(%x: tensor<8x32xf32>, %at: tensor<8x4xi32>) -> tensor<8x4xf32> {
  %0 = stablehlo.exponential %x : tensor<8x32xf32>
  %1 = "stablehlo.gather"(%0, %at) {dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [1], operand_batching_dims = [0], start_indices_batching_dims = [0], start_index_map = [1], index_vector_dim = 2>, slice_sizes = array<i64: 1, 1>} : (tensor<8x32xf32>, tensor<8x4xi32>) -> tensor<8x4xf32>
  return %1 : tensor<8x4xf32>
}

// -----

// A sum over rows computes what it reads, once for each element.
// CHECK-LABEL: func.func @outer_sum
// CHECK-COUNT-1: call @kernel_0(%arg0, %arg1, %{{.*}})
// CHECK-NOT: call
// CHECK: kernel.kind = "outer-reduction"
func.func @outer_sum(%x: tensor<16x32xf32>, %y: tensor<16x32xf32>) -> tensor<32xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.multiply %x, %y : tensor<16x32xf32>
  %1 = stablehlo.reduce(%0 init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<16x32xf32>, tensor<f32>) -> tensor<32xf32>
  return %1 : tensor<32xf32>
}

// -----

// What is costly is not computed by a sum to few elements, which few threads share.
// CHECK-LABEL: func.func @costly_sum
// CHECK-COUNT-2: call @kernel_
func.func @costly_sum(%x: tensor<1024x32xf32>) -> tensor<32xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.exponential %x : tensor<1024x32xf32>
  %1 = stablehlo.reduce(%0 init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<1024x32xf32>, tensor<f32>) -> tensor<32xf32>
  return %1 : tensor<32xf32>
}

// -----

// Nor what windows that overlap would compute several times.
// CHECK-LABEL: func.func @windows
// CHECK-COUNT-2: call @kernel_
func.func @windows(%x: tensor<16x32xf32>, %y: tensor<16x32xf32>) -> tensor<14x32xf32> {
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %0 = stablehlo.multiply %x, %y : tensor<16x32xf32>
  %1 = "stablehlo.reduce_window"(%0, %low) <{window_dimensions = array<i64: 3, 1>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %2 = stablehlo.maximum %a, %b : tensor<f32>
    stablehlo.return %2 : tensor<f32>
  }) : (tensor<16x32xf32>, tensor<f32>) -> tensor<14x32xf32>
  return %1 : tensor<14x32xf32>
}

// What the second product's kernel reads of the first are bytes, which become numbers there.
// CHECK-LABEL: func.func @bytes
// CHECK: call @[[FIRST:kernel_[0-9]+]]({{.*}} -> tensor<64x32xi8>
// CHECK: call @[[SECOND:kernel_[0-9]+]]({{.*}}tensor<64x32xi8>
// CHECK: return
func.func @bytes(%x: tensor<64x48xf32>, %v: tensor<48x32xf32>, %w: tensor<48x32xf32>) -> tensor<64x32xf32> {
  %half = stablehlo.constant dense<5.000000e-01> : tensor<64x32xf32>
  %0 = stablehlo.dot_general %x, %v, contracting_dims = [1] x [0] : (tensor<64x48xf32>, tensor<48x32xf32>) -> tensor<64x32xf32>
  %1 = stablehlo.convert %0 : (tensor<64x32xf32>) -> tensor<64x32xui8>
  %2 = stablehlo.convert %1 : (tensor<64x32xui8>) -> tensor<64x32xf32>
  %3 = stablehlo.multiply %2, %half : tensor<64x32xf32>
  %4 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<64x48xf32>, tensor<48x32xf32>) -> tensor<64x32xf32>
  %5 = stablehlo.add %4, %3 : tensor<64x32xf32>
  return %5 : tensor<64x32xf32>
}

// Not where another kernel reads the numbers too: they are written once.
// CHECK-LABEL: func.func @numbers
// CHECK: call @kernel_{{[0-9]+}}({{.*}} -> tensor<64x32xf32>
func.func @numbers(%x: tensor<64x48xf32>, %v: tensor<48x32xf32>, %w: tensor<48x32xf32>) -> (tensor<64x32xf32>, tensor<64x32xf32>) {
  %half = stablehlo.constant dense<5.000000e-01> : tensor<64x32xf32>
  %0 = stablehlo.dot_general %x, %v, contracting_dims = [1] x [0] : (tensor<64x48xf32>, tensor<48x32xf32>) -> tensor<64x32xf32>
  %1 = stablehlo.convert %0 : (tensor<64x32xf32>) -> tensor<64x32xui8>
  %2 = stablehlo.convert %1 : (tensor<64x32xui8>) -> tensor<64x32xf32>
  %3 = stablehlo.multiply %2, %half : tensor<64x32xf32>
  %4 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<64x48xf32>, tensor<48x32xf32>) -> tensor<64x32xf32>
  %5 = stablehlo.add %4, %3 : tensor<64x32xf32>
  return %5, %3 : tensor<64x32xf32>, tensor<64x32xf32>
}

// -----

// Two results that read one value, and need nothing of each other, are one kernel with it.
// CHECK-LABEL: func.func @shared
// CHECK-COUNT-1: call @kernel_0
// CHECK-NOT: call
// CHECK: func.func private @kernel_0({{.*}}) -> (tensor<8x32xf32>, tensor<8x32xf32>)
// CHECK-NOT: func.func private
func.func @shared(%a: tensor<8x32xf32>, %b: tensor<8x32xf32>, %c: tensor<8x32xf32>, %d: tensor<8x32xf32>) -> (tensor<8x32xf32>, tensor<8x32xf32>) {
  %0 = stablehlo.compare LT, %a, %b : (tensor<8x32xf32>, tensor<8x32xf32>) -> tensor<8x32xi1>
  %1 = stablehlo.multiply %a, %c : tensor<8x32xf32>
  %2 = stablehlo.select %0, %1, %a : tensor<8x32xi1>, tensor<8x32xf32>
  %3 = stablehlo.multiply %b, %d : tensor<8x32xf32>
  %4 = stablehlo.select %0, %3, %b : tensor<8x32xi1>, tensor<8x32xf32>
  return %2, %4 : tensor<8x32xf32>, tensor<8x32xf32>
}

// -----

// Where one of them needs the other by way of a product, the value is computed once for both.
// CHECK-LABEL: func.func @one_after_another
// CHECK-COUNT-3: call @kernel_
// CHECK-NOT: call
func.func @one_after_another(%a: tensor<32x32xf32>, %b: tensor<32x32xf32>, %c: tensor<32x32xf32>, %d: tensor<32x32xf32>) -> tensor<32x32xf32> {
  %0 = stablehlo.compare LT, %a, %b : (tensor<32x32xf32>, tensor<32x32xf32>) -> tensor<32x32xi1>
  %1 = stablehlo.multiply %a, %c : tensor<32x32xf32>
  %2 = stablehlo.select %0, %1, %a : tensor<32x32xi1>, tensor<32x32xf32>
  %3 = stablehlo.dot_general %2, %d, contracting_dims = [1] x [0] : (tensor<32x32xf32>, tensor<32x32xf32>) -> tensor<32x32xf32>
  %4 = stablehlo.select %0, %3, %b : tensor<32x32xi1>, tensor<32x32xf32>
  return %4 : tensor<32x32xf32>
}

// -----

// Parts whose elements alternate are computed where they are written, with what they share.
// CHECK-LABEL: func.func @alternating
// CHECK-COUNT-1: call @kernel_0
// CHECK-NOT: call
// CHECK: func.func private @kernel_0({{.*}}) -> tensor<64x2xf32> attributes {kernel.kind = "concatenate"}
// CHECK-NOT: func.func private
func.func @alternating(%a: tensor<64xf32>, %b: tensor<64xf32>) -> tensor<64x2xf32> {
  %0 = stablehlo.exponential %a : tensor<64xf32>
  %1 = stablehlo.multiply %0, %a : tensor<64xf32>
  %2 = stablehlo.multiply %0, %b : tensor<64xf32>
  %3 = stablehlo.reshape %1 : (tensor<64xf32>) -> tensor<64x1xf32>
  %4 = stablehlo.reshape %2 : (tensor<64xf32>) -> tensor<64x1xf32>
  %5 = stablehlo.concatenate %3, %4, dim = 1 : (tensor<64x1xf32>, tensor<64x1xf32>) -> tensor<64x2xf32>
  return %5 : tensor<64x2xf32>
}

// -----

// Parts that are written one after another would compute it twice.
// CHECK-LABEL: func.func @sharing_runs
// CHECK-COUNT-2: call @kernel_
// CHECK-NOT: call
func.func @sharing_runs(%a: tensor<64x8xf32>, %b: tensor<64x8xf32>) -> tensor<64x16xf32> {
  %0 = stablehlo.exponential %a : tensor<64x8xf32>
  %1 = stablehlo.multiply %0, %a : tensor<64x8xf32>
  %2 = stablehlo.multiply %0, %b : tensor<64x8xf32>
  %3 = stablehlo.concatenate %1, %2, dim = 1 : (tensor<64x8xf32>, tensor<64x8xf32>) -> tensor<64x16xf32>
  return %3 : tensor<64x16xf32>
}
