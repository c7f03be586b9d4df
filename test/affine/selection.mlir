// RUN: stepwell-opt %s --target=x86_64-v4 --pass-pipeline='lower-groups-to-affine' | filecheck %s

// A row a task: 64 elements are compared at a time, and the bits of those that come first looked at.
// CHECK-LABEL: func.func private @rows
// CHECK: memref.alloca() {{.*}} : memref<64xi32>
// CHECK: affine.parallel {{.*}} to (4)
// CHECK: scf.for
// CHECK: vector.load {{.*}} : memref<32000xf32>, vector<16xf32>
// CHECK: arith.bitcast {{.*}} : vector<16xf32> to vector<16xi32>
// CHECK: vector.reduction <or>
// CHECK: scf.if
// CHECK: scf.while
// CHECK: math.cttz
// CHECK: memref.store {{.*}} : memref<160xf32>
// CHECK: memref.store {{.*}} : memref<160xi64>
func.func private @rows(tensor<4x8000x1xf32>, tensor<4x40x1xf32>, tensor<4x40x1xi64>) -> (tensor<4x40x1xf32>, tensor<4x40x1xi64>)
    attributes {kernel.kind = "selection", kernel.selection = {order = "total", descends = true}}

// Sixteen rows a task, whose elements are neighbours.
// CHECK-LABEL: func.func private @columns
// CHECK: affine.parallel {{.*}} to (6)
// CHECK: scf.for {{.*}} -> (vector<16xi32>, vector<16xi32>, vector<16xi32>, vector<16xi32>)
// CHECK: vector.load {{.*}} : memref<20000xi32>, vector<16xi32>
// CHECK: vector.store {{.*}} : memref<160xi32>, vector<16xi32>
func.func private @columns(tensor<2x250x40xi32>, tensor<2x2x40xi32>, tensor<2x2x40xi32>) -> (tensor<2x2x40xi32>, tensor<2x2x40xi32>)
    attributes {kernel.kind = "selection", kernel.selection = {order = "signed", descends = true}}

// Short rows: an element of each is gathered. What little there is to do one task does.
// CHECK-LABEL: func.func private @short_rows
// CHECK: affine.parallel {{.*}} to (1)
// CHECK: vector.from_elements {{.*}} : vector<8xf64>
// CHECK-NOT: vector.load
// CHECK-NOT: scf.while
// CHECK: return
func.func private @short_rows(tensor<30x8x1xf64>, tensor<30x2x1xf64>, tensor<30x2x1xi64>) -> (tensor<30x2x1xf64>, tensor<30x2x1xi64>)
    attributes {kernel.kind = "selection", kernel.selection = {order = "number", descends = false}}
