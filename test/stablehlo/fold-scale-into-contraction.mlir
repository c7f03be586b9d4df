// RUN: stepwell-opt %s --pass-pipeline='builtin.module(fold-scale-into-contraction)' | filecheck %s

// Batch normalisation after a convolution: the factor 1.5 goes into the weights.
// CHECK-LABEL: func.func @convolution
// CHECK: %[[W:.*]] = stablehlo.constant dense<{{.*}}1.500000e+00{{.*}}3.000000e+00{{.*}}> : tensor<2x1x1x1xf32>
// CHECK: %[[C:.*]] = stablehlo.convolution(%arg0, %[[W]])
// CHECK: %[[B:.*]] = stablehlo.constant dense<[-1.500000e+00, -1.000000e+00]> : tensor<2xf32>
// CHECK: %[[V:.*]] = stablehlo.broadcast_in_dim %[[B]], dims = [1]
// CHECK: stablehlo.add %[[C]], %[[V]]
// CHECK-NEXT: return
func.func @convolution(%x: tensor<1x1x4x4xf32>) -> tensor<1x2x4x4xf32> {
  %w = stablehlo.constant dense<[[[[1.0]]], [[[2.0]]]]> : tensor<2x1x1x1xf32>
  %mean = stablehlo.constant dense<[2.0, 2.0]> : tensor<2xf32>
  %scale = stablehlo.constant dense<[[[[1.5]], [[1.5]]]]> : tensor<1x2x1x1xf32>
  %bias = stablehlo.constant dense<[1.5, 2.0]> : tensor<2xf32>
  %c = stablehlo.convolution(%x, %w) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1],
       window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
       : (tensor<1x1x4x4xf32>, tensor<2x1x1x1xf32>) -> tensor<1x2x4x4xf32>
  %m = stablehlo.broadcast_in_dim %mean, dims = [1] : (tensor<2xf32>) -> tensor<1x2x4x4xf32>
  %s = stablehlo.broadcast_in_dim %scale, dims = [0, 1, 2, 3]
       : (tensor<1x2x1x1xf32>) -> tensor<1x2x4x4xf32>
  %b = stablehlo.broadcast_in_dim %bias, dims = [1] : (tensor<2xf32>) -> tensor<1x2x4x4xf32>
  %0 = stablehlo.subtract %c, %m : tensor<1x2x4x4xf32>
  %1 = stablehlo.multiply %0, %s : tensor<1x2x4x4xf32>
  %2 = stablehlo.add %1, %b : tensor<1x2x4x4xf32>
  return %2 : tensor<1x2x4x4xf32>
}

// Batch normalisation after something else: one multiply and one add.
// CHECK-LABEL: func.func @alone
// CHECK: stablehlo.multiply %arg0
// CHECK: stablehlo.add
// CHECK-NOT: stablehlo.{{add|subtract|multiply|divide}}
// CHECK: return
func.func @alone(%x: tensor<5x2xf32>) -> tensor<5x2xf32> {
  %v = stablehlo.constant dense<[2.0, 4.0]> : tensor<2xf32>
  %b = stablehlo.broadcast_in_dim %v, dims = [1] : (tensor<2xf32>) -> tensor<5x2xf32>
  %0 = stablehlo.subtract %x, %b : tensor<5x2xf32>
  %1 = stablehlo.divide %0, %b : tensor<5x2xf32>
  %2 = stablehlo.multiply %1, %b : tensor<5x2xf32>
  %3 = stablehlo.add %2, %b : tensor<5x2xf32>
  return %3 : tensor<5x2xf32>
}

// Left alone: the convolution has a second use, the factor varies along the contracted dimension of
// the weights, and the factor is no constant.
// CHECK-LABEL: func.func @rejected
// CHECK: %[[D:.*]] = stablehlo.dot_general
// CHECK: stablehlo.multiply %[[D]]
// CHECK: %[[E:.*]] = stablehlo.dot_general
// CHECK: stablehlo.multiply %[[E]]
// CHECK: %[[F:.*]] = stablehlo.dot_general
// CHECK: stablehlo.multiply %[[F]]
func.func @rejected(%x: tensor<2x2xf32>)
    -> (tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>) {
  %w = stablehlo.constant dense<[[1.0, 2.0], [3.0, 4.0]]> : tensor<2x2xf32>
  %u = stablehlo.constant dense<[[5.0, 6.0], [7.0, 8.0]]> : tensor<2x2xf32>
  %t = stablehlo.constant dense<[[5.0, 6.0], [7.0, 9.0]]> : tensor<2x2xf32>
  %v = stablehlo.constant dense<[2.0, 4.0]> : tensor<2xf32>
  %b = stablehlo.broadcast_in_dim %v, dims = [1] : (tensor<2xf32>) -> tensor<2x2xf32>
  %r = stablehlo.broadcast_in_dim %v, dims = [0] : (tensor<2xf32>) -> tensor<2x2xf32>
  %d = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
       : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
  %0 = stablehlo.multiply %d, %b : tensor<2x2xf32>
  %e = stablehlo.dot_general %x, %u, contracting_dims = [1] x [0]
       : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
  %1 = stablehlo.multiply %e, %r : tensor<2x2xf32>
  %f = stablehlo.dot_general %x, %t, contracting_dims = [1] x [0]
       : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
  %2 = stablehlo.multiply %f, %x : tensor<2x2xf32>
  return %d, %0, %1, %2 : tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>, tensor<2x2xf32>
}

// Queries and keys both scaled: one factor, on the smaller operand. Not in 16 bits.
// CHECK-LABEL: func.func @queries_and_keys
// CHECK: %[[T:.*]] = stablehlo.transpose %arg1, dims = [1, 0]
// CHECK: %[[F:.*]] = stablehlo.constant dense<2.500000e-01> : tensor<1x8xf32>
// CHECK: %[[Q:.*]] = stablehlo.multiply %arg0, %[[F]]
// CHECK: stablehlo.dot_general %[[Q]], %[[T]]
// CHECK-LABEL: func.func @half_precision
// CHECK: stablehlo.multiply %arg1
func.func @queries_and_keys(%q: tensor<1x8xf32>, %k: tensor<5x8xf32>) -> tensor<1x5xf32> {
  %c = stablehlo.constant dense<0.5> : tensor<1x8xf32>
  %d = stablehlo.constant dense<0.5> : tensor<5x8xf32>
  %0 = stablehlo.multiply %q, %c : tensor<1x8xf32>
  %1 = stablehlo.multiply %k, %d : tensor<5x8xf32>
  %2 = stablehlo.transpose %1, dims = [1, 0] : (tensor<5x8xf32>) -> tensor<8x5xf32>
  %3 = stablehlo.dot_general %0, %2, contracting_dims = [1] x [0]
       : (tensor<1x8xf32>, tensor<8x5xf32>) -> tensor<1x5xf32>
  return %3 : tensor<1x5xf32>
}
func.func @half_precision(%q: tensor<1x8xf16>, %k: tensor<8x5xf16>) -> tensor<1x5xf16> {
  %d = stablehlo.constant dense<0.5> : tensor<8x5xf16>
  %1 = stablehlo.multiply %k, %d : tensor<8x5xf16>
  %3 = stablehlo.dot_general %q, %1, contracting_dims = [1] x [0]
       : (tensor<1x8xf16>, tensor<8x5xf16>) -> tensor<1x5xf16>
  return %3 : tensor<1x5xf16>
}

// What is left of %x is exact, and the second constant what the first has lost.
// CHECK-LABEL: func.func @rounded
// CHECK: %[[D:.*]] = stablehlo.subtract %arg0
// CHECK: stablehlo.add %[[D]]
func.func @rounded(%x: tensor<4xf64>) -> tensor<4xf64> {
  %a = stablehlo.constant dense<1.4616321449683622> : tensor<4xf64>
  %b = stablehlo.constant dense<9.549995429965697e-17> : tensor<4xf64>
  %d = stablehlo.subtract %x, %a {kernel.rounded} : tensor<4xf64>
  %y = stablehlo.subtract %d, %b : tensor<4xf64>
  return %y : tensor<4xf64>
}
