// RUN: stepwell-opt %s --pass-pipeline='builtin.module(skip-unused-elements)' --split-input-file | filecheck %s

// Tasks of six rows run where one of the rows is in use; the kernel takes the sizes.

// CHECK-LABEL: func.func @main
// CHECK: call @kernel_0(%arg0, %arg2, %arg1) : (memref<12x8xf32>, memref<12x8xf32>, memref<1xi64>) -> ()
// CHECK-LABEL: func.func private @kernel_0(
// CHECK-SAME: %[[SIZES:arg2]]: memref<1xi64>)
// CHECK: %[[N:.*]] = memref.load %[[SIZES]]
// CHECK: %[[S0:.*]] = arith.index_cast %[[N]]
// CHECK: affine.parallel (%[[TASK:.*]]) = (0) to (2)
// CHECK: %[[ROW:.*]] = affine.apply {{.*}}(%[[TASK]])
// CHECK: %[[NEEDED:.*]] = arith.cmpi slt, %[[ROW]], %[[S0]]
// CHECK: scf.if %[[NEEDED]]
// CHECK: affine.for
func.func @main(%x: memref<12x8xf32>, %sizes: memref<1xi64>, %y: memref<12x8xf32>)
    attributes {stepwell.extents = ["s0, 8"], stepwell.scalars = ["s0"], stepwell.prefixes = []} {
  call @kernel_0(%x, %y) : (memref<12x8xf32>, memref<12x8xf32>) -> ()
  return
}
func.func private @kernel_0(%x: memref<12x8xf32>, %y: memref<12x8xf32>)
    attributes {kernel.kind = "elementwise", kernel.results = 1 : i64, kernel.extents = ["12/s0, 8/8"]} {
  affine.parallel (%task) = (0) to (2) {
    affine.for %r = 0 to 6 {
      %0 = affine.vector_load %x[%task * 6 + %r, 0] : memref<12x8xf32>, vector<8xf32>
      affine.vector_store %0, %y[%task * 6 + %r, 0] : memref<12x8xf32>, vector<8xf32>
    }
  }
  return
}

// -----

// Rejected: what is in use is not a part of this kernel's rows.

// CHECK-LABEL: func.func private @kernel_0(
// CHECK-NOT: scf.if
func.func @main(%x: memref<12x8xf32>, %sizes: memref<1xi64>, %y: memref<12x8xf32>)
    attributes {stepwell.extents = ["s0, 8"], stepwell.scalars = ["s0"], stepwell.prefixes = []} {
  call @kernel_0(%x, %y) : (memref<12x8xf32>, memref<12x8xf32>) -> ()
  return
}
func.func private @kernel_0(%x: memref<12x8xf32>, %y: memref<12x8xf32>)
    attributes {kernel.kind = "elementwise", kernel.results = 1 : i64} {
  affine.parallel (%task) = (0) to (12) {
    %0 = affine.vector_load %x[%task, 0] : memref<12x8xf32>, vector<8xf32>
    affine.vector_store %0, %y[%task, 0] : memref<12x8xf32>, vector<8xf32>
  }
  return
}

// -----

// Rejected: a loop whose scratch is read behind it runs as a whole.

// CHECK-LABEL: func.func private @kernel_0(
// CHECK-NOT: scf.if
func.func @main(%x: memref<12x8xf32>, %sizes: memref<1xi64>, %y: memref<12x8xf32>)
    attributes {stepwell.extents = ["s0, 8"], stepwell.scalars = ["s0"], stepwell.prefixes = []} {
  call @kernel_0(%x, %y) : (memref<12x8xf32>, memref<12x8xf32>) -> ()
  return
}
func.func private @kernel_0(%x: memref<12x8xf32>, %y: memref<12x8xf32>)
    attributes {kernel.kind = "elementwise", kernel.results = 1 : i64, kernel.extents = ["12/s0, 8/8"]} {
  %scratch = memref.alloca() : memref<8xf32>
  affine.parallel (%task) = (0) to (12) {
    affine.for %r = 0 to 1 {
      %0 = affine.vector_load %x[%task, 0] : memref<12x8xf32>, vector<8xf32>
      affine.vector_store %0, %scratch[0] : memref<8xf32>, vector<8xf32>
      affine.vector_store %0, %y[%task, 0] : memref<12x8xf32>, vector<8xf32>
    }
  }
  %1 = affine.load %scratch[0] : memref<8xf32>
  affine.store %1, %y[0, 0] : memref<12x8xf32>
  return
}

// -----

// Rejected: a vector that ends in the next row, whose first elements are in use.

// CHECK-LABEL: func.func private @kernel_0(
// CHECK-NOT: scf.if
func.func @main(%x: memref<4x20xf32>, %sizes: memref<1xi64>, %y: memref<4x20xf32>)
    attributes {stepwell.extents = ["4, s0"], stepwell.scalars = ["s0"], stepwell.prefixes = []} {
  call @kernel_0(%x, %y) : (memref<4x20xf32>, memref<4x20xf32>) -> ()
  return
}
func.func private @kernel_0(%x: memref<4x20xf32>, %y: memref<4x20xf32>)
    attributes {kernel.kind = "elementwise", kernel.results = 1 : i64, kernel.extents = ["4/4, 20/s0"]} {
  %flat = memref.collapse_shape %x [[0, 1]] : memref<4x20xf32> into memref<80xf32>
  %out = memref.collapse_shape %y [[0, 1]] : memref<4x20xf32> into memref<80xf32>
  affine.parallel (%task) = (0) to (10) {
    %0 = affine.vector_load %flat[%task * 8] : memref<80xf32>, vector<8xf32>
    affine.vector_store %0, %out[%task * 8] : memref<80xf32>, vector<8xf32>
  }
  return
}
