// RUN: stepwell-opt %s --pass-pipeline='expand-batch-normalization-training' | filecheck %s

// CHECK-LABEL: func.func @training
// CHECK: stablehlo.reduce(%arg0 init: %{{.*}}) applies stablehlo.add across dimensions = [0, 1]
// CHECK: stablehlo.rsqrt
// CHECK-NOT: batch_norm
func.func @training(%x: tensor<4x3x2xf32>, %s: tensor<2xf32>, %o: tensor<2xf32>)
    -> (tensor<4x3x2xf32>, tensor<2xf32>, tensor<2xf32>) {
  %r:3 = "stablehlo.batch_norm_training"(%x, %s, %o) {epsilon = 1.0e-05 : f32, feature_index = 2 : i64}
    : (tensor<4x3x2xf32>, tensor<2xf32>, tensor<2xf32>) -> (tensor<4x3x2xf32>, tensor<2xf32>, tensor<2xf32>)
  return %r#0, %r#1, %r#2 : tensor<4x3x2xf32>, tensor<2xf32>, tensor<2xf32>
}

// CHECK-LABEL: func.func @grad
// CHECK-COUNT-2: stablehlo.reduce(
// CHECK-NOT: batch_norm
func.func @grad(%x: tensor<4x2xf32>, %s: tensor<2xf32>, %m: tensor<2xf32>, %v: tensor<2xf32>, %g: tensor<4x2xf32>)
    -> (tensor<4x2xf32>, tensor<2xf32>, tensor<2xf32>) {
  %r:3 = "stablehlo.batch_norm_grad"(%x, %s, %m, %v, %g) {epsilon = 1.0e-05 : f32, feature_index = 1 : i64}
    : (tensor<4x2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<4x2xf32>) -> (tensor<4x2xf32>, tensor<2xf32>, tensor<2xf32>)
  return %r#0, %r#1, %r#2 : tensor<4x2xf32>, tensor<2xf32>, tensor<2xf32>
}

// Inference is another pass's.
// CHECK-LABEL: func.func @rejected
// CHECK: stablehlo.batch_norm_inference
func.func @rejected(%x: tensor<4x2xf32>, %s: tensor<2xf32>) -> tensor<4x2xf32> {
  %r = "stablehlo.batch_norm_inference"(%x, %s, %s, %s, %s) {epsilon = 1.0e-05 : f32, feature_index = 1 : i64}
    : (tensor<4x2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>) -> tensor<4x2xf32>
  return %r : tensor<4x2xf32>
}
