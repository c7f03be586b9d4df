// RUN: stepwell-opt %s --target=x86_64-v3 --pass-pipeline='builtin.module(legalize-to-linalg,form-fusion-groups)' | filecheck %s

// Pixels that a product has in columns are spread by its kernel: what turns them again, or pads them,
// finds them in order.
// CHECK-LABEL: func.func @turned
// CHECK: call @[[PRODUCT:kernel_[0-9]+]]({{.*}} -> tensor<5x2x6x2x8xf32>
// CHECK: call @[[TURN:kernel_[0-9]+]]({{.*}} -> tensor<8x10x12xf32>
// CHECK-NOT: call
// CHECK: return
func.func @turned(%x: tensor<30x4xf32>, %w: tensor<4x32xf32>) -> tensor<8x10x12xf32> {
  %p = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<30x4xf32>, tensor<4x32xf32>) -> tensor<30x32xf32>
  %r = stablehlo.reshape %p : (tensor<30x32xf32>) -> tensor<5x6x2x2x8xf32>
  %t = stablehlo.transpose %r, dims = [0, 2, 1, 3, 4] : (tensor<5x6x2x2x8xf32>) -> tensor<5x2x6x2x8xf32>
  %m = stablehlo.reshape %t : (tensor<5x2x6x2x8xf32>) -> tensor<10x12x8xf32>
  %y = stablehlo.transpose %m, dims = [2, 0, 1] : (tensor<10x12x8xf32>) -> tensor<8x10x12xf32>
  return %y : tensor<8x10x12xf32>
}

// CHECK-LABEL: func.func @padded
// CHECK: call @{{.*}} -> tensor<5x2x6x2x8xf32>
// CHECK: call @{{.*}} -> tensor<12x14x8xf32>
// CHECK: return
func.func @padded(%x: tensor<30x4xf32>, %w: tensor<4x32xf32>) -> tensor<12x14x8xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %p = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<30x4xf32>, tensor<4x32xf32>) -> tensor<30x32xf32>
  %r = stablehlo.reshape %p : (tensor<30x32xf32>) -> tensor<5x6x2x2x8xf32>
  %h = stablehlo.tanh %r : tensor<5x6x2x2x8xf32>
  %t = stablehlo.transpose %h, dims = [0, 2, 1, 3, 4] : (tensor<5x6x2x2x8xf32>) -> tensor<5x2x6x2x8xf32>
  %m = stablehlo.reshape %t : (tensor<5x2x6x2x8xf32>) -> tensor<10x12x8xf32>
  %y = stablehlo.pad %m, %zero, low = [1, 1, 0], high = [1, 1, 0], interior = [0, 0, 0] : (tensor<10x12x8xf32>, tensor<f32>) -> tensor<12x14x8xf32>
  return %y : tensor<12x14x8xf32>
}

// Rejected: what is no whole vectors, what others read in the product's order, and a batch.
// CHECK-LABEL: func.func @narrow
// CHECK: call @{{.*}} -> tensor<30x12xf32>
// CHECK: call @{{.*}} -> tensor<3x10x12xf32>
func.func @narrow(%x: tensor<30x4xf32>, %w: tensor<4x12xf32>) -> tensor<3x10x12xf32> {
  %p = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<30x4xf32>, tensor<4x12xf32>) -> tensor<30x12xf32>
  %r = stablehlo.reshape %p : (tensor<30x12xf32>) -> tensor<5x6x2x2x3xf32>
  %t = stablehlo.transpose %r, dims = [0, 2, 1, 3, 4] : (tensor<5x6x2x2x3xf32>) -> tensor<5x2x6x2x3xf32>
  %m = stablehlo.reshape %t : (tensor<5x2x6x2x3xf32>) -> tensor<10x12x3xf32>
  %y = stablehlo.transpose %m, dims = [2, 0, 1] : (tensor<10x12x3xf32>) -> tensor<3x10x12xf32>
  return %y : tensor<3x10x12xf32>
}

// CHECK-LABEL: func.func @read_by_others
// CHECK: call @{{.*}} -> tensor<30x32xf32>
func.func @read_by_others(%x: tensor<30x4xf32>, %w: tensor<4x32xf32>, %v: tensor<32x4xf32>) -> (tensor<8x10x12xf32>, tensor<30x4xf32>) {
  %p = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<30x4xf32>, tensor<4x32xf32>) -> tensor<30x32xf32>
  %r = stablehlo.reshape %p : (tensor<30x32xf32>) -> tensor<5x6x2x2x8xf32>
  %t = stablehlo.transpose %r, dims = [0, 2, 1, 3, 4] : (tensor<5x6x2x2x8xf32>) -> tensor<5x2x6x2x8xf32>
  %m = stablehlo.reshape %t : (tensor<5x2x6x2x8xf32>) -> tensor<10x12x8xf32>
  %y = stablehlo.transpose %m, dims = [2, 0, 1] : (tensor<10x12x8xf32>) -> tensor<8x10x12xf32>
  %z = stablehlo.dot_general %p, %v, contracting_dims = [1] x [0] : (tensor<30x32xf32>, tensor<32x4xf32>) -> tensor<30x4xf32>
  return %y, %z : tensor<8x10x12xf32>, tensor<30x4xf32>
}

// CHECK-LABEL: func.func @batch
// CHECK: call @{{.*}} -> tensor<2x30x8xf32>
func.func @batch(%x: tensor<2x30x4xf32>, %w: tensor<2x4x8xf32>) -> tensor<60x8xf32> {
  %p = stablehlo.dot_general %x, %w, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<2x30x4xf32>, tensor<2x4x8xf32>) -> tensor<2x30x8xf32>
  %t = stablehlo.transpose %p, dims = [1, 0, 2] : (tensor<2x30x8xf32>) -> tensor<30x2x8xf32>
  %m = stablehlo.reshape %t : (tensor<30x2x8xf32>) -> tensor<60x8xf32>
  return %m : tensor<60x8xf32>
}
