// RUN: stepwell-opt %s --split-input-file --verify-diagnostics \
// RUN:   --pass-pipeline='builtin.module(split-tasks)' | filecheck %s

// CHECK-LABEL: func.func private @parallel
// CHECK-SAME: (%arg0: memref<48xf32>, %[[BEGIN:.*]]: index, %[[END:.*]]: index) attributes {{.*}}kernel.tasks = 48 : i64
// CHECK: affine.for %[[T:.*]] = %[[BEGIN]] to %[[END]]
// CHECK: affine.store %{{.*}}, %arg0[%[[T]]]
// CHECK-NOT: affine.parallel
func.func private @parallel(%x: memref<48xf32>) attributes {kernel.kind = "elementwise"} {
  %zero = arith.constant 0.0 : f32
  affine.parallel (%t) = (0) to (48) {
    affine.store %zero, %x[%t] : memref<48xf32>
  }
  return
}

// A kernel without a parallel loop is one task.
// CHECK-LABEL: func.func private @serial
// CHECK-SAME: kernel.tasks = 1 : i64
func.func private @serial(%x: memref<48xf32>) attributes {kernel.kind = "scalar"} {
  return
}

// What the first task does apart comes before the loop: tasks 0 to 0 do it alone.
// CHECK-LABEL: func.func private @padded
// CHECK-SAME: (%arg0: memref<50xf32>, %[[BEGIN:.*]]: index, %[[END:.*]]: index)
// CHECK: affine.if #{{.*}}(%[[BEGIN]]) {
// CHECK: affine.store %{{.*}}, %arg0[49]
// CHECK: } {kernel.apart}
// CHECK: affine.for %{{.*}} = %[[BEGIN]] to %[[END]] {
// CHECK-NEXT: affine.store
func.func private @padded(%x: memref<50xf32>) attributes {kernel.kind = "elementwise"} {
  %zero = arith.constant 0.0 : f32
  affine.parallel (%t) = (0) to (48) {
    affine.if affine_set<(d0) : (d0 == 0)>(%t) {
      affine.store %zero, %x[0] : memref<50xf32>
      affine.store %zero, %x[49] : memref<50xf32>
    } {kernel.apart}
    affine.store %zero, %x[%t + 1] : memref<50xf32>
  }
  return
}

// Tasks that do nothing are not counted through.
// CHECK-LABEL: func.func private @used
// CHECK-SAME: (%arg0: memref<48xf32>, %arg1: index, %[[BEGIN:.*]]: index, %[[END:.*]]: index)
// CHECK: %[[TASKS:.*]] = arith.ceildivsi %arg1, %{{.*}} : index
// CHECK: %[[LAST:.*]] = arith.minsi %[[END]], %[[TASKS]] : index
// CHECK: affine.for %{{.*}} = %[[BEGIN]] to %[[LAST]] {
// CHECK-NEXT: affine.store
func.func private @used(%x: memref<48xf32>, %used: index) attributes {kernel.kind = "elementwise"} {
  %zero = arith.constant 0.0 : f32
  affine.parallel (%t) = (0) to (12) {
    %first = affine.apply affine_map<(d0) -> (d0 * 4)>(%t)
    %needed = arith.cmpi slt, %first, %used : index
    scf.if %needed {
      affine.store %zero, %x[%t * 4] : memref<48xf32>
    }
  }
  return
}

// A condition that ends elsewhere stays.
// CHECK-LABEL: func.func private @backwards
// CHECK: scf.if
func.func private @backwards(%x: memref<48xf32>, %used: index) attributes {kernel.kind = "elementwise"} {
  %zero = arith.constant 0.0 : f32
  affine.parallel (%t) = (0) to (12) {
    %first = affine.apply affine_map<(d0) -> (47 - d0 * 4)>(%t)
    %needed = arith.cmpi slt, %first, %used : index
    scf.if %needed {
      affine.store %zero, %x[%t * 4] : memref<48xf32>
    }
  }
  return
}

// Rejected: functions that are no kernels stay as they are.
// CHECK-LABEL: func.func @host
// CHECK-SAME: (%arg0: memref<48xf32>) {
func.func @host(%x: memref<48xf32>) {
  return
}

// -----

// expected-error@+1 {{two: a kernel has one parallel loop, this one 2}}
func.func private @two(%x: memref<48xf32>) attributes {kernel.kind = "elementwise"} {
  affine.parallel (%t) = (0) to (48) {
  }
  affine.parallel (%t) = (0) to (48) {
  }
  return
}
