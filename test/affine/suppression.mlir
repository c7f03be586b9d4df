// RUN: stepwell-opt %s --target=x86_64-v4 --pass-pipeline='lower-groups-to-affine' | filecheck %s

// A group a task. Scores as integers, padded to whole blocks, and the maxima of these; a box is
// compared with those chosen, sixteen at a time.
// CHECK-LABEL: func.func private @suppression
// CHECK: memref.alloca() {{.*}} : memref<1024xi32>
// CHECK: memref.alloca() {{.*}} : memref<16xi32>
// CHECK: memref.alloca() {{.*}} : memref<112xf32>
// CHECK: affine.parallel {{.*}} to (6)
// CHECK: vector.reduction <maxsi>
// CHECK: scf.while
// CHECK: math.cttz
// CHECK: scf.while
// CHECK: arith.divf {{.*}} : vector<16xf32>
// CHECK: scf.if
// CHECK: memref.store {{.*}} : memref<600xi64>
func.func private @suppression(tensor<2x4x1000xf32>, tensor<2x3x1000xf32>, tensor<1xf32>, tensor<1xf32>, tensor<6x100xi64>) -> tensor<6x100xi64>
    attributes {kernel.kind = "suppression", kernel.suppression}
