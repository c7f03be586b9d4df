// RUN: stepwell-opt %s --split-input-file --target=x86_64-v4 \
// RUN:   --pass-pipeline='builtin.module(legalize-to-linalg,form-fusion-groups)' | filecheck %s
// RUN: stepwell-opt %s --split-input-file --target=cuda:sm_90a \
// RUN:   --pass-pipeline='builtin.module(legalize-to-linalg,form-fusion-groups)' \
// RUN:   | filecheck %s --check-prefixes=CHECK,GPU

// Scores, softmax and the weighed sum of values are one kernel, with the mask between them and the
// activation behind: no buffer of all scores is left.
// CHECK-LABEL: func.func @attention
// CHECK-NOT: tensor<2x8x16xf32>
// CHECK: call @kernel_0(%arg0, %arg1, %arg3, %arg2, %{{.*}})
// CHECK-NOT: call
// CHECK: func.func private @kernel_0({{.*}}) -> tensor<2x8x4xf32> attributes {kernel.kind = "attention"}
// CHECK-COUNT-2: arith.mulf
// CHECK: math.tanh
func.func @attention(%q: tensor<2x8x4xf32>, %k: tensor<2x4x16xf32>, %v: tensor<2x16x4xf32>, %mask: tensor<8x16xf32>) -> tensor<2x8x4xf32> {
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %s = stablehlo.dot_general %q, %k, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<2x8x4xf32>, tensor<2x4x16xf32>) -> tensor<2x8x16xf32>
  %m = stablehlo.broadcast_in_dim %mask, dims = [1, 2] : (tensor<8x16xf32>) -> tensor<2x8x16xf32>
  %x = stablehlo.add %s, %m : tensor<2x8x16xf32>
  %0 = stablehlo.reduce(%x init: %low) applies stablehlo.maximum across dimensions = [2] : (tensor<2x8x16xf32>, tensor<f32>) -> tensor<2x8xf32>
  %1 = stablehlo.broadcast_in_dim %0, dims = [0, 1] : (tensor<2x8xf32>) -> tensor<2x8x16xf32>
  %2 = stablehlo.subtract %x, %1 : tensor<2x8x16xf32>
  %3 = stablehlo.exponential %2 : tensor<2x8x16xf32>
  %4 = stablehlo.reduce(%3 init: %zero) applies stablehlo.add across dimensions = [2] : (tensor<2x8x16xf32>, tensor<f32>) -> tensor<2x8xf32>
  %5 = stablehlo.broadcast_in_dim %4, dims = [0, 1] : (tensor<2x8xf32>) -> tensor<2x8x16xf32>
  %w = stablehlo.divide %3, %5 : tensor<2x8x16xf32>
  %o = stablehlo.dot_general %w, %v, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<2x8x16xf32>, tensor<2x16x4xf32>) -> tensor<2x8x4xf32>
  %y = stablehlo.tanh %o : tensor<2x8x4xf32>
  return %y : tensor<2x8x4xf32>
}

// -----

// Weights that the host wants, too, have to be written: three kernels.
// CHECK-LABEL: func.func @weights_wanted
// CHECK-COUNT-3: call @kernel_
// CHECK-NOT: "attention"
func.func @weights_wanted(%q: tensor<2x8x4xf32>, %k: tensor<2x4x16xf32>, %v: tensor<2x16x4xf32>) -> (tensor<2x8x4xf32>, tensor<2x8x16xf32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %s = stablehlo.dot_general %q, %k, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<2x8x4xf32>, tensor<2x4x16xf32>) -> tensor<2x8x16xf32>
  %3 = stablehlo.exponential %s : tensor<2x8x16xf32>
  %4 = stablehlo.reduce(%3 init: %zero) applies stablehlo.add across dimensions = [2] : (tensor<2x8x16xf32>, tensor<f32>) -> tensor<2x8xf32>
  %5 = stablehlo.broadcast_in_dim %4, dims = [0, 1] : (tensor<2x8xf32>) -> tensor<2x8x16xf32>
  %w = stablehlo.divide %3, %5 : tensor<2x8x16xf32>
  %o = stablehlo.dot_general %w, %v, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<2x8x16xf32>, tensor<2x16x4xf32>) -> tensor<2x8x4xf32>
  return %o, %w : tensor<2x8x4xf32>, tensor<2x8x16xf32>
}

// -----

// Two linear layers with a softmax between them: weights are packed, which attention does not do.
// CHECK-LABEL: func.func @linear_layers
// CHECK-COUNT-3: call @kernel_
// CHECK-NOT: "attention"
func.func @linear_layers(%x: tensor<8x4xf32>, %w1: tensor<4x16xf32> {stepwell.parameter}, %w2: tensor<16x4xf32> {stepwell.parameter}) -> tensor<8x4xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %s = stablehlo.dot_general %x, %w1, contracting_dims = [1] x [0] : (tensor<8x4xf32>, tensor<4x16xf32>) -> tensor<8x16xf32>
  %3 = stablehlo.exponential %s : tensor<8x16xf32>
  %4 = stablehlo.reduce(%3 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<8x16xf32>, tensor<f32>) -> tensor<8xf32>
  %5 = stablehlo.broadcast_in_dim %4, dims = [0] : (tensor<8xf32>) -> tensor<8x16xf32>
  %w = stablehlo.divide %3, %5 : tensor<8x16xf32>
  %o = stablehlo.dot_general %w, %w2, contracting_dims = [1] x [0] : (tensor<8x16xf32>, tensor<16x4xf32>) -> tensor<8x4xf32>
  return %o : tensor<8x4xf32>
}

// -----

// Rows of weights that the second product takes as columns are not those of a block of queries.
// CHECK-LABEL: func.func @transposed_weights
// CHECK-COUNT-3: call @kernel_
// CHECK-NOT: "attention"
func.func @transposed_weights(%q: tensor<2x16x4xf32>, %k: tensor<2x4x16xf32>, %v: tensor<2x16x4xf32>) -> tensor<2x16x4xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %s = stablehlo.dot_general %q, %k, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<2x16x4xf32>, tensor<2x4x16xf32>) -> tensor<2x16x16xf32>
  %3 = stablehlo.exponential %s : tensor<2x16x16xf32>
  %4 = stablehlo.reduce(%3 init: %zero) applies stablehlo.add across dimensions = [2] : (tensor<2x16x16xf32>, tensor<f32>) -> tensor<2x16xf32>
  %5 = stablehlo.broadcast_in_dim %4, dims = [0, 1] : (tensor<2x16xf32>) -> tensor<2x16x16xf32>
  %w = stablehlo.divide %3, %5 : tensor<2x16x16xf32>
  %o = stablehlo.dot_general %w, %v, batching_dims = [0] x [0], contracting_dims = [1] x [1] : (tensor<2x16x16xf32>, tensor<2x16x4xf32>) -> tensor<2x16x4xf32>
  return %o : tensor<2x16x4xf32>
}

// -----

// GPUs take the sums of a softmax as they go, and know no other form of weights.
// CHECK-LABEL: func.func @unshifted
// GPU-COUNT-3: call @kernel_
// GPU-NOT: "attention"
func.func @unshifted(%q: tensor<2x8x4xf32>, %k: tensor<2x4x16xf32>, %v: tensor<2x16x4xf32>) -> tensor<2x8x4xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %s = stablehlo.dot_general %q, %k, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<2x8x4xf32>, tensor<2x4x16xf32>) -> tensor<2x8x16xf32>
  %3 = stablehlo.exponential %s : tensor<2x8x16xf32>
  %4 = stablehlo.reduce(%3 init: %zero) applies stablehlo.add across dimensions = [2] : (tensor<2x8x16xf32>, tensor<f32>) -> tensor<2x8xf32>
  %5 = stablehlo.broadcast_in_dim %4, dims = [0, 1] : (tensor<2x8xf32>) -> tensor<2x8x16xf32>
  %w = stablehlo.divide %3, %5 : tensor<2x8x16xf32>
  %o = stablehlo.dot_general %w, %v, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<2x8x16xf32>, tensor<2x16x4xf32>) -> tensor<2x8x4xf32>
  return %o : tensor<2x8x4xf32>
}

// -----

// Causal attention: of 8 queries, r sees the keys up to r + 8.
// CHECK-LABEL: func.func @causal
// GPU: func.func private @kernel_{{.*}}attributes {kernel.diagonal = array<i64: 8, 8>, kernel.kind = "attention"}
func.func @causal(%q: tensor<2x8x4xf32>, %k: tensor<2x4x16xf32>, %v: tensor<2x16x4xf32>) -> tensor<2x8x4xf32> {
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %lows = stablehlo.constant dense<0xFF800000> : tensor<2x8x16xf32>
  %s = stablehlo.dot_general %q, %k, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<2x8x4xf32>, tensor<2x4x16xf32>) -> tensor<2x8x16xf32>
  %row = stablehlo.iota dim = 1 : tensor<2x8x16xi32>
  %column = stablehlo.iota dim = 2 : tensor<2x8x16xi32>
  %eight = stablehlo.constant dense<8> : tensor<2x8x16xi32>
  %last = stablehlo.add %row, %eight : tensor<2x8x16xi32>
  %seen = stablehlo.compare LE, %column, %last, SIGNED : (tensor<2x8x16xi32>, tensor<2x8x16xi32>) -> tensor<2x8x16xi1>
  %x = stablehlo.select %seen, %s, %lows : tensor<2x8x16xi1>, tensor<2x8x16xf32>
  %0 = stablehlo.reduce(%x init: %low) applies stablehlo.maximum across dimensions = [2] : (tensor<2x8x16xf32>, tensor<f32>) -> tensor<2x8xf32>
  %1 = stablehlo.broadcast_in_dim %0, dims = [0, 1] : (tensor<2x8xf32>) -> tensor<2x8x16xf32>
  %2 = stablehlo.subtract %x, %1 : tensor<2x8x16xf32>
  %3 = stablehlo.exponential %2 : tensor<2x8x16xf32>
  %4 = stablehlo.reduce(%3 init: %zero) applies stablehlo.add across dimensions = [2] : (tensor<2x8x16xf32>, tensor<f32>) -> tensor<2x8xf32>
  %5 = stablehlo.broadcast_in_dim %4, dims = [0, 1] : (tensor<2x8xf32>) -> tensor<2x8x16xf32>
  %w = stablehlo.divide %3, %5 : tensor<2x8x16xf32>
  %o = stablehlo.dot_general %w, %v, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<2x8x16xf32>, tensor<2x16x4xf32>) -> tensor<2x8x4xf32>
  return %o : tensor<2x8x4xf32>
}

// -----

// On GPUs the keys of few queries are split into parts; another kernel joins them and has the
// epilogue.
// GPU-LABEL: func.func @few_queries
// GPU: %[[PARTS:.*]]:3 = call @kernel_0(%arg0, %arg1, %arg2, {{.*}}) : {{.*}} -> (tensor<4x2x4xf32>, tensor<4x2xf32>, tensor<4x2xf32>)
// GPU: call @kernel_1(%[[PARTS]]#0, %[[PARTS]]#1, %[[PARTS]]#2, %{{.*}})
// GPU-NOT: call
// GPU: func.func private @kernel_0{{.*}}attributes {kernel.key_parts = 4 : i64, kernel.kind = "attention"}
// GPU: func.func private @kernel_1{{.*}}attributes {kernel.kind = "elementwise"}
// GPU-COUNT-3: arith.maximumf
// GPU-COUNT-4: math.exp
// GPU: arith.divf
// GPU: math.tanh
func.func @few_queries(%q: tensor<2x1x4xf16>, %k: tensor<2x4x1024xf16>, %v: tensor<2x1024x4xf16>) -> tensor<2x1x4xf32> {
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %s = stablehlo.dot_general %q, %k, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<2x1x4xf16>, tensor<2x4x1024xf16>) -> tensor<2x1x1024xf32>
  %0 = stablehlo.reduce(%s init: %low) applies stablehlo.maximum across dimensions = [2] : (tensor<2x1x1024xf32>, tensor<f32>) -> tensor<2x1xf32>
  %1 = stablehlo.broadcast_in_dim %0, dims = [0, 1] : (tensor<2x1xf32>) -> tensor<2x1x1024xf32>
  %2 = stablehlo.subtract %s, %1 : tensor<2x1x1024xf32>
  %3 = stablehlo.exponential %2 : tensor<2x1x1024xf32>
  %4 = stablehlo.reduce(%3 init: %zero) applies stablehlo.add across dimensions = [2] : (tensor<2x1x1024xf32>, tensor<f32>) -> tensor<2x1xf32>
  %5 = stablehlo.broadcast_in_dim %4, dims = [0, 1] : (tensor<2x1xf32>) -> tensor<2x1x1024xf32>
  %w = stablehlo.divide %3, %5 : tensor<2x1x1024xf32>
  %h = stablehlo.convert %w : (tensor<2x1x1024xf32>) -> tensor<2x1x1024xf16>
  %o = stablehlo.dot_general %h, %v, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<2x1x1024xf16>, tensor<2x1024x4xf16>) -> tensor<2x1x4xf32>
  %y = stablehlo.tanh %o : tensor<2x1x4xf32>
  return %y : tensor<2x1x4xf32>
}
