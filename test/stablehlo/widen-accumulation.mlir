// RUN: stepwell-opt %s --pass-pipeline='builtin.module(widen-accumulation)' | filecheck %s
// RUN: stepwell-opt %s --target=cuda:sm_80 --pass-pipeline='builtin.module(widen-accumulation)' \
// RUN:   | filecheck %s --check-prefix=GPU

// GPU-LABEL: func.func @dot
// GPU-NEXT: %[[Z:.*]] = stablehlo.dot_general %arg0, %arg1, {{.*}} : (tensor<4x64xbf16>, tensor<64x8xbf16>) -> tensor<4x8xf32>
// GPU-NEXT: stablehlo.convert %[[Z]] : (tensor<4x8xf32>) -> tensor<4x8xbf16>

// CHECK-LABEL: func.func @dot
// CHECK: %[[X:.*]] = stablehlo.convert %arg0 : (tensor<4x64xbf16>) -> tensor<4x64xf32>
// CHECK: %[[Y:.*]] = stablehlo.convert %arg1 : (tensor<64x8xbf16>) -> tensor<64x8xf32>
// CHECK: %[[Z:.*]] = stablehlo.dot_general %[[X]], %[[Y]], {{.*}} -> tensor<4x8xf32>
// CHECK: stablehlo.convert %[[Z]] : (tensor<4x8xf32>) -> tensor<4x8xbf16>
func.func @dot(%x: tensor<4x64xbf16>, %y: tensor<64x8xbf16>) -> tensor<4x8xbf16> {
  %z = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT]
       : (tensor<4x64xbf16>, tensor<64x8xbf16>) -> tensor<4x8xbf16>
  return %z : tensor<4x8xbf16>
}

// CHECK-LABEL: func.func @sum
// CHECK: %[[S:.*]] = stablehlo.reduce{{.*}}stablehlo.add{{.*}} -> tensor<4xf32>
// CHECK: stablehlo.convert %[[S]] : (tensor<4xf32>) -> tensor<4xf16>
// CHECK: stablehlo.reduce{{.*}}stablehlo.maximum{{.*}} -> tensor<4xf16>
func.func @sum(%a: tensor<4x8xf16>) -> (tensor<4xf16>, tensor<4xf16>) {
  %z = stablehlo.constant dense<0.0> : tensor<f16>
  %s = stablehlo.reduce(%a init: %z) applies stablehlo.add across dimensions = [1]
       : (tensor<4x8xf16>, tensor<f16>) -> tensor<4xf16>
  %m = stablehlo.reduce(%a init: %z) applies stablehlo.maximum across dimensions = [1]
       : (tensor<4x8xf16>, tensor<f16>) -> tensor<4xf16>
  return %s, %m : tensor<4xf16>, tensor<4xf16>
}

// CHECK-LABEL: func.func @rejected
// CHECK-NEXT: stablehlo.dot_general
// CHECK-NEXT: return
func.func @rejected(%x: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %z = stablehlo.dot_general %x, %x, contracting_dims = [1] x [0]
       : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  return %z : tensor<4x4xf32>
}
