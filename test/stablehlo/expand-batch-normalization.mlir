// RUN: stepwell-opt %s --pass-pipeline='builtin.module(expand-batch-normalization,fold-constants)' \
// RUN:   | filecheck %s

// scale / sqrt(3.75 + 0.25) = 3 and 5 - 7 * 3 = -16.
// CHECK-LABEL: func.func @inference
// CHECK: %[[FACTOR:.*]] = stablehlo.constant dense<3.000000e+00> : tensor<2x4x3xf32>
// CHECK: %[[SCALED:.*]] = stablehlo.multiply %arg0, %[[FACTOR]]
// CHECK: %[[SHIFT:.*]] = stablehlo.constant dense<-1.600000e+01> : tensor<2x4x3xf32>
// CHECK: stablehlo.add %[[SCALED]], %[[SHIFT]]
func.func @inference(%x: tensor<2x4x3xf32>) -> tensor<2x4x3xf32> {
  %scale = stablehlo.constant dense<6.0> : tensor<4xf32>
  %offset = stablehlo.constant dense<5.0> : tensor<4xf32>
  %mean = stablehlo.constant dense<7.0> : tensor<4xf32>
  %variance = stablehlo.constant dense<3.75> : tensor<4xf32>
  %y = "stablehlo.batch_norm_inference"(%x, %scale, %offset, %mean, %variance)
       {epsilon = 0.25 : f32, feature_index = 1 : i64}
       : (tensor<2x4x3xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>)
       -> tensor<2x4x3xf32>
  return %y : tensor<2x4x3xf32>
}

// Left alone: normalisation for training, which has three results.
// CHECK-LABEL: func.func @rejected
// CHECK: stablehlo.batch_norm_training
func.func @rejected(%x: tensor<2x4xf32>, %s: tensor<4xf32>) -> tensor<2x4xf32> {
  %y, %m, %v = "stablehlo.batch_norm_training"(%x, %s, %s)
       {epsilon = 0.25 : f32, feature_index = 1 : i64}
       : (tensor<2x4xf32>, tensor<4xf32>, tensor<4xf32>)
       -> (tensor<2x4xf32>, tensor<4xf32>, tensor<4xf32>)
  return %y : tensor<2x4xf32>
}
