// RUN: stepwell-opt %s --pass-pipeline='builtin.module(func.func(tile{tile-sizes=8,32,0 target-op=linalg.matmul}))' | filecheck %s
// RUN: stepwell-opt %s --pass-pipeline='tile{tile-sizes=8,32 interchange=1,0 target-op=linalg.matmul}' | filecheck %s --check-prefix=ORDER
// RUN: stepwell-opt %s --pass-pipeline='tile{tile-sizes=8,32 parallel=true target-op=linalg.matmul}' | filecheck %s --check-prefix=PARALLEL
// RUN: not stepwell-opt %s --pass-pipeline='tile{tile-sizes=8,32 interchange=0,2}' 2>&1 | filecheck %s --check-prefix=ERROR

// CHECK-LABEL: func.func @matmul
// CHECK: scf.for %[[I:.*]] = %c0 to %c37 step %c8
// CHECK: scf.for %[[J:.*]] = %c0 to %c96 step %c32
// CHECK: tensor.extract_slice %arg0[%[[I]], 0]
// CHECK: linalg.matmul {{.*}}tensor<64x32xf32>
// CHECK: tensor.insert_slice

// ORDER-LABEL: func.func @matmul
// ORDER: scf.for %{{.*}} = %c0 to %c96 step %c32
// ORDER: scf.for %{{.*}} = %c0 to %c37 step %c8

// PARALLEL-LABEL: func.func @matmul
// PARALLEL: scf.forall (%{{.*}}, %{{.*}}) in (5, 3)

// ERROR: error: tile: interchange is no permutation of the loops tile-sizes names
func.func @matmul(%a: tensor<37x64xf32>, %b: tensor<64x96xf32>, %c: tensor<37x96xf32>) -> tensor<37x96xf32> {
  %r = linalg.matmul ins(%a, %b : tensor<37x64xf32>, tensor<64x96xf32>) outs(%c : tensor<37x96xf32>) -> tensor<37x96xf32>
  return %r : tensor<37x96xf32>
}

// Another operation than the one asked for, and one with too few loops.
// CHECK-LABEL: func.func @rejected
// CHECK-NOT: scf.for
// CHECK: linalg.exp
func.func @rejected(%x: tensor<64xf32>, %y: tensor<64xf32>) -> tensor<64xf32> {
  %r = linalg.exp ins(%x : tensor<64xf32>) outs(%y : tensor<64xf32>) -> tensor<64xf32>
  return %r : tensor<64xf32>
}
