// RUN: stepwell-opt %s --pass-pipeline='fuse-epilogues' | filecheck %s

// CHECK-LABEL: func.func @chain
// CHECK-SAME: %arg2: tensor<40x96xf32>
// CHECK-NOT: tensor.empty
// CHECK: linalg.generic {{.*}} ins(%arg0, %arg1 : {{.*}}) outs(%arg2 :
// CHECK: arith.addf
// CHECK: math.exp
// CHECK-NOT: linalg.generic
func.func @chain(%a: tensor<40x96xf32>, %b: tensor<40x96xf32>, %out: tensor<40x96xf32>) -> tensor<40x96xf32> {
  %e = tensor.empty() : tensor<40x96xf32>
  %r = linalg.add ins(%a, %b : tensor<40x96xf32>, tensor<40x96xf32>) outs(%e : tensor<40x96xf32>) -> tensor<40x96xf32>
  %f = linalg.exp ins(%r : tensor<40x96xf32>) outs(%out : tensor<40x96xf32>) -> tensor<40x96xf32>
  return %f : tensor<40x96xf32>
}

// A value with two readers stays: fusing it would compute it twice.
// CHECK-LABEL: func.func @rejected
// CHECK: linalg.generic
// CHECK: arith.addf
// CHECK: linalg.generic
// CHECK: math.exp
func.func @rejected(%a: tensor<8xf32>, %b: tensor<8xf32>, %out: tensor<8xf32>, %other: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
  %r = linalg.add ins(%a, %b : tensor<8xf32>, tensor<8xf32>) outs(%other : tensor<8xf32>) -> tensor<8xf32>
  %f = linalg.exp ins(%r : tensor<8xf32>) outs(%out : tensor<8xf32>) -> tensor<8xf32>
  return %f, %r : tensor<8xf32>, tensor<8xf32>
}
