// RUN: stepwell-opt %s --pass-pipeline='unroll-and-jam{factor=2}' | filecheck %s
// RUN: stepwell-opt %s --pass-pipeline='unroll-and-jam{factor=4 depth=1}' | filecheck %s --check-prefix=INNER
// RUN: not stepwell-opt %s --pass-pipeline='unroll-and-jam{factor=0}' 2>&1 | filecheck %s --check-prefix=ERROR

// ERROR: error: unroll-and-jam: factor is below 1 or depth below 0

// CHECK-LABEL: func.func @copy
// CHECK: affine.for %[[I:.*]] = 0 to 64 step 2
// CHECK-NEXT: affine.for %[[J:.*]] = 0 to 63 {
// CHECK: affine.load %arg0[%[[I]], %[[J]]]
// CHECK: affine.load %arg0[%[[I]] + 1, %[[J]]]

// What 4 does not divide follows the loop.
// INNER-LABEL: func.func @copy
// INNER: affine.for {{.*}} = 0 to 64 {
// INNER-NEXT: affine.for %[[J:.*]] = 0 to 60 step 4
// INNER: affine.load %arg0[%{{.*}}, %[[J]] + 3]
// INNER: }
// INNER: affine.for {{.*}} = 60 to 63 {
func.func @copy(%a: memref<64x63xf32>, %b: memref<64x63xf32>) {
  affine.for %i = 0 to 64 {
    affine.for %j = 0 to 63 {
      %x = affine.load %a[%i, %j] : memref<64x63xf32>
      affine.store %x, %b[%i, %j] : memref<64x63xf32>
    }
  }
  return
}

// There is no affine loop.
// CHECK-LABEL: func.func @rejected
// CHECK: scf.for {{.*}} step %{{.*}} {
// CHECK-NEXT: memref.load
// CHECK-NEXT: memref.store
// CHECK-NEXT: }
func.func @rejected(%a: memref<64xf32>, %n: index) {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  scf.for %i = %zero to %n step %one {
    %x = memref.load %a[%i] : memref<64xf32>
    memref.store %x, %a[%zero] : memref<64xf32>
  }
  return
}
