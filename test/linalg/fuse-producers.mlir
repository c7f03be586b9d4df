// RUN: stepwell-opt %s --pass-pipeline='fuse-producers{tile-sizes=8,32}' | filecheck %s
// RUN: not stepwell-opt %s --pass-pipeline='fuse-producers{tile-sizes=8,-1}' 2>&1 | filecheck %s --check-prefix=ERROR

// ERROR: error: fuse-producers: a tile size is negative

// CHECK-LABEL: func.func @layer
// CHECK-NOT: linalg
// CHECK: scf.for
// CHECK: scf.for
// CHECK: linalg.fill {{.*}}tensor<8x32xf32>
// CHECK: linalg.matmul {{.*}}tensor<8x64xf32>, tensor<64x32xf32>
// CHECK: linalg.exp {{.*}}tensor<8x32xf32>
// CHECK: tensor.insert_slice
func.func @layer(%a: tensor<40x64xf32>, %b: tensor<64x96xf32>, %out: tensor<40x96xf32>) -> tensor<40x96xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<40x96xf32>
  %i = linalg.fill ins(%zero : f32) outs(%e : tensor<40x96xf32>) -> tensor<40x96xf32>
  %r = linalg.matmul ins(%a, %b : tensor<40x64xf32>, tensor<64x96xf32>) outs(%i : tensor<40x96xf32>) -> tensor<40x96xf32>
  %f = linalg.exp ins(%r : tensor<40x96xf32>) outs(%out : tensor<40x96xf32>) -> tensor<40x96xf32>
  return %f : tensor<40x96xf32>
}

// One loop only, where two are to be tiled.
// CHECK-LABEL: func.func @rejected
// CHECK-NOT: scf.for
// CHECK: linalg.exp
func.func @rejected(%x: tensor<64xf32>, %y: tensor<64xf32>) -> tensor<64xf32> {
  %r = linalg.exp ins(%x : tensor<64xf32>) outs(%y : tensor<64xf32>) -> tensor<64xf32>
  return %r : tensor<64xf32>
}
