// RUN: stepwell-opt %s --target=x86_64-v3 --pass-pipeline='builtin.module(propagate-transposes,cse)' | filecheck %s
// RUN: stepwell-opt %s --target=cuda:sm_90a --pass-pipeline='builtin.module(propagate-transposes,cse)' | filecheck %s --check-prefix=GPU

// Two branches that are joined before a bias and an activation: each ends with its own. GPUs, which
// do not write in place, finish them as they are joined.
// CHECK-LABEL: func.func @branches
// CHECK: %[[P:.*]] = stablehlo.add %[[A:.*]], %{{.*}} : tensor<4x3xf32>
// CHECK: %[[Q:.*]] = stablehlo.add %[[B:.*]], %{{.*}} : tensor<4x5xf32>
// CHECK: %[[U:.*]] = stablehlo.tanh %[[P]]
// CHECK: %[[V:.*]] = stablehlo.tanh %[[Q]]
// CHECK: stablehlo.concatenate %[[U]], %[[V]], dim = 1
// GPU-LABEL: func.func @branches
// GPU: %[[C:.*]] = stablehlo.concatenate
// GPU: stablehlo.add %[[C]]
func.func @branches(%x: tensor<4x6xf32>, %v: tensor<6x3xf32>, %w: tensor<6x5xf32>) -> tensor<4x8xf32> {
  %bias = stablehlo.constant dense<[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]> : tensor<8xf32>
  %a = stablehlo.dot_general %x, %v, contracting_dims = [1] x [0] : (tensor<4x6xf32>, tensor<6x3xf32>) -> tensor<4x3xf32>
  %b = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<4x6xf32>, tensor<6x5xf32>) -> tensor<4x5xf32>
  %c = stablehlo.concatenate %a, %b, dim = 1 : (tensor<4x3xf32>, tensor<4x5xf32>) -> tensor<4x8xf32>
  %e = stablehlo.broadcast_in_dim %bias, dims = [1] : (tensor<8xf32>) -> tensor<4x8xf32>
  %s = stablehlo.add %c, %e : tensor<4x8xf32>
  %y = stablehlo.tanh %s : tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

// Rows of pixels, and then columns, as of the phases of a transposed convolution, which are merged:
// x * sigmoid(x), two operations of one whole.
// CHECK-LABEL: func.func @phases
// CHECK: %[[A:.*]] = stablehlo.dot_general
// CHECK: %[[L:.*]] = stablehlo.logistic %[[A]] : tensor<4x3xf32>
// CHECK: stablehlo.multiply %[[A]], %[[L]] : tensor<4x3xf32>
// CHECK: stablehlo.concatenate {{.*}}, dim = 1
// CHECK: stablehlo.reshape {{.*}} -> tensor<8x3xf32>
// CHECK-NEXT: return
func.func @phases(%x: tensor<4x6xf32>, %v: tensor<6x3xf32>, %w: tensor<6x3xf32>) -> tensor<8x3xf32> {
  %a = stablehlo.dot_general %x, %v, contracting_dims = [1] x [0] : (tensor<4x6xf32>, tensor<6x3xf32>) -> tensor<4x3xf32>
  %b = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<4x6xf32>, tensor<6x3xf32>) -> tensor<4x3xf32>
  %p = stablehlo.reshape %a : (tensor<4x3xf32>) -> tensor<4x1x3xf32>
  %q = stablehlo.reshape %b : (tensor<4x3xf32>) -> tensor<4x1x3xf32>
  %c = stablehlo.concatenate %p, %q, dim = 1 : (tensor<4x1x3xf32>, tensor<4x1x3xf32>) -> tensor<4x2x3xf32>
  %r = stablehlo.reshape %c : (tensor<4x2x3xf32>) -> tensor<8x3xf32>
  %l = stablehlo.logistic %r : tensor<8x3xf32>
  %y = stablehlo.multiply %r, %l : tensor<8x3xf32>
  return %y : tensor<8x3xf32>
}

// Rejected: a part is an input; a sum of the whole is taken; what is added differs from part to part
// and is not known.
// CHECK-LABEL: func.func @input
// CHECK: stablehlo.tanh %{{.*}} : tensor<4x9xf32>
func.func @input(%x: tensor<4x6xf32>, %v: tensor<6x3xf32>) -> tensor<4x9xf32> {
  %a = stablehlo.dot_general %x, %v, contracting_dims = [1] x [0] : (tensor<4x6xf32>, tensor<6x3xf32>) -> tensor<4x3xf32>
  %c = stablehlo.concatenate %a, %x, dim = 1 : (tensor<4x3xf32>, tensor<4x6xf32>) -> tensor<4x9xf32>
  %y = stablehlo.tanh %c : tensor<4x9xf32>
  return %y : tensor<4x9xf32>
}

// CHECK-LABEL: func.func @read_whole
// CHECK: stablehlo.tanh %{{.*}} : tensor<4x6xf32>
func.func @read_whole(%x: tensor<4x6xf32>, %v: tensor<6x3xf32>, %w: tensor<6x3xf32>) -> (tensor<4x6xf32>, tensor<4x3xf32>) {
  %a = stablehlo.dot_general %x, %v, contracting_dims = [1] x [0] : (tensor<4x6xf32>, tensor<6x3xf32>) -> tensor<4x3xf32>
  %b = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<4x6xf32>, tensor<6x3xf32>) -> tensor<4x3xf32>
  %c = stablehlo.concatenate %a, %b, dim = 1 : (tensor<4x3xf32>, tensor<4x3xf32>) -> tensor<4x6xf32>
  %y = stablehlo.tanh %c : tensor<4x6xf32>
  %z = stablehlo.dot_general %c, %v, contracting_dims = [1] x [0] : (tensor<4x6xf32>, tensor<6x3xf32>) -> tensor<4x3xf32>
  return %y, %z : tensor<4x6xf32>, tensor<4x3xf32>
}

// CHECK-LABEL: func.func @unknown
// CHECK: stablehlo.add %{{.*}} : tensor<4x6xf32>
func.func @unknown(%x: tensor<4x6xf32>, %v: tensor<6x3xf32>, %w: tensor<6x3xf32>, %n: tensor<6xf32>) -> tensor<4x6xf32> {
  %a = stablehlo.dot_general %x, %v, contracting_dims = [1] x [0] : (tensor<4x6xf32>, tensor<6x3xf32>) -> tensor<4x3xf32>
  %b = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<4x6xf32>, tensor<6x3xf32>) -> tensor<4x3xf32>
  %c = stablehlo.concatenate %a, %b, dim = 1 : (tensor<4x3xf32>, tensor<4x3xf32>) -> tensor<4x6xf32>
  %e = stablehlo.broadcast_in_dim %n, dims = [1] : (tensor<6xf32>) -> tensor<4x6xf32>
  %y = stablehlo.add %c, %e : tensor<4x6xf32>
  return %y : tensor<4x6xf32>
}

// Rejected: what grows from layer to layer, of which each later one has a normalisation of its own.
// CHECK-LABEL: func.func @grows
// CHECK: stablehlo.tanh %{{.*}} : tensor<4x6xf32>
// CHECK: stablehlo.tanh %{{.*}} : tensor<4x9xf32>
func.func @grows(%x: tensor<4x6xf32>, %v: tensor<6x3xf32>, %w: tensor<6x3xf32>) -> tensor<4x9xf32> {
  %a = stablehlo.dot_general %x, %v, contracting_dims = [1] x [0] : (tensor<4x6xf32>, tensor<6x3xf32>) -> tensor<4x3xf32>
  %b = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<4x6xf32>, tensor<6x3xf32>) -> tensor<4x3xf32>
  %c = stablehlo.concatenate %a, %b, dim = 1 : (tensor<4x3xf32>, tensor<4x3xf32>) -> tensor<4x6xf32>
  %t = stablehlo.tanh %c : tensor<4x6xf32>
  %d = stablehlo.dot_general %t, %v, contracting_dims = [1] x [0] : (tensor<4x6xf32>, tensor<6x3xf32>) -> tensor<4x3xf32>
  %e = stablehlo.concatenate %a, %b, %d, dim = 1 : (tensor<4x3xf32>, tensor<4x3xf32>, tensor<4x3xf32>) -> tensor<4x9xf32>
  %y = stablehlo.tanh %e : tensor<4x9xf32>
  return %y : tensor<4x9xf32>
}
