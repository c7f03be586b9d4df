// RUN: stepwell-opt %s --pass-pipeline='builtin.module(skip-unused-elements)' --split-input-file | filecheck %s

// Tasks of six rows run where one of the rows is in use.

// CHECK-LABEL: func.func private @kernel_0(
// CHECK-SAME: %[[SIZES:arg1]]: memref<1xi64>
// CHECK: %[[N:.*]] = memref.load %[[SIZES]]
// CHECK: %[[S0:.*]] = arith.index_cast %[[N]]
// CHECK: affine.parallel (%[[TASK:.*]]) = (0) to (2)
// CHECK: %[[ROW:.*]] = affine.apply {{.*}}(%[[TASK]])
// CHECK: %[[NEEDED:.*]] = arith.cmpi slt, %[[ROW]], %[[S0]]
// CHECK: scf.if %[[NEEDED]]
// CHECK: affine.for
func.func @main(%x: memref<12x8xf32>, %sizes: memref<1xi64>, %y: memref<12x8xf32>)
    attributes {stepwell.extents = ["s0, 8"], stepwell.scalars = ["s0"], stepwell.prefixes = []} {
  call @kernel_0(%x, %sizes, %y) : (memref<12x8xf32>, memref<1xi64>, memref<12x8xf32>) -> ()
  return
}
func.func private @kernel_0(%x: memref<12x8xf32>, %sizes: memref<1xi64>, %y: memref<12x8xf32>)
    attributes {kernel.kind = "elementwise", kernel.results = 1 : i64, kernel.extents = ["12/s0, 8/8"], kernel.sizes = ["s0"]} {
  affine.parallel (%task) = (0) to (2) {
    affine.for %r = 0 to 6 {
      %0 = affine.vector_load %x[%task * 6 + %r, 0] : memref<12x8xf32>, vector<8xf32>
      affine.vector_store %0, %y[%task * 6 + %r, 0] : memref<12x8xf32>, vector<8xf32>
    }
  }
  return
}

// -----

// Of an image both rows and columns have to be in use, one more of each than there are. What is
// apart runs as it is.

// CHECK-LABEL: func.func private @kernel_0(
// CHECK: affine.parallel (%[[TASK:.*]]) = (0) to (4)
// CHECK-NEXT: affine.if
// CHECK-NEXT: affine.store {{.*}}[3, 3]
// CHECK-NEXT: } {kernel.apart}
// CHECK-NEXT: %[[ROW:.*]] = affine.apply #[[MINUS:.*]](%[[TASK]])
// CHECK-NEXT: %[[BELOW:.*]] = arith.cmpi slt, %[[ROW]]
// CHECK-NEXT: scf.if %[[BELOW]]
// CHECK-NEXT: affine.for %[[COLUMN:.*]] = 0 to 2
// CHECK: arith.cmpi slt
// CHECK: arith.cmpi slt
// CHECK-NEXT: %[[BOTH:.*]] = arith.andi
// CHECK-NEXT: scf.if %[[BOTH]]
// CHECK-NEXT: affine.for
func.func @main(%x: memref<4x4xf32>, %sizes: memref<2xi64>, %y: memref<4x4xf32>)
    attributes {stepwell.extents = ["s0, s1"], stepwell.scalars = ["s0", "s1"], stepwell.prefixes = []} {
  call @kernel_0(%x, %sizes, %y) : (memref<4x4xf32>, memref<2xi64>, memref<4x4xf32>) -> ()
  return
}
func.func private @kernel_0(%x: memref<4x4xf32>, %sizes: memref<2xi64>, %y: memref<4x4xf32>)
    attributes {kernel.kind = "elementwise", kernel.results = 1 : i64, kernel.extents = ["4/s0 + 1, 4/s1 + 1"], kernel.sizes = ["s0", "s1"]} {
  %zero = arith.constant 0.0 : f32
  affine.parallel (%task) = (0) to (4) {
    affine.if affine_set<(d0) : (d0 == 0)>(%task) {
      affine.store %zero, %y[3, 3] : memref<4x4xf32>
    } {kernel.apart}
    affine.for %half = 0 to 2 {
      affine.for %c = 0 to 2 {
        %0 = affine.load %x[%task, %half * 2 + %c] : memref<4x4xf32>
        affine.store %0, %y[%task, %half * 2 + %c] : memref<4x4xf32>
      }
    }
  }
  return
}

// -----

// An innermost loop ends with the columns in use, here where 2 * i + 1 is one of them.

// CHECK: #[[END:.*]] = affine_map<()[s0] -> (4, s0 floordiv 2)>
// CHECK-LABEL: func.func private @kernel_0(
// CHECK: %[[S0:.*]] = arith.index_cast
// CHECK: affine.parallel
// CHECK: affine.for %[[I:.*]] = 0 to min #[[END]]()[%[[S0]]]
// CHECK-NEXT: affine.load %{{.*}}[%{{.*}}, %[[I]]]
func.func @main(%x: memref<4x9xf32>, %sizes: memref<1xi64>, %y: memref<4x9xf32>)
    attributes {stepwell.extents = ["4, s0"], stepwell.scalars = ["s0"], stepwell.prefixes = []} {
  call @kernel_0(%x, %sizes, %y) : (memref<4x9xf32>, memref<1xi64>, memref<4x9xf32>) -> ()
  return
}
func.func private @kernel_0(%x: memref<4x9xf32>, %sizes: memref<1xi64>, %y: memref<4x9xf32>)
    attributes {kernel.kind = "elementwise", kernel.results = 1 : i64, kernel.extents = ["4/4, 9/s0"], kernel.sizes = ["s0"]} {
  affine.parallel (%task) = (0) to (4) {
    affine.for %i = 0 to 4 {
      %0 = affine.load %x[%task, %i] : memref<4x9xf32>
      affine.store %0, %y[%task, %i * 2 + 1] : memref<4x9xf32>
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
  call @kernel_0(%x, %sizes, %y) : (memref<12x8xf32>, memref<1xi64>, memref<12x8xf32>) -> ()
  return
}
func.func private @kernel_0(%x: memref<12x8xf32>, %sizes: memref<1xi64>, %y: memref<12x8xf32>)
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
  call @kernel_0(%x, %sizes, %y) : (memref<12x8xf32>, memref<1xi64>, memref<12x8xf32>) -> ()
  return
}
func.func private @kernel_0(%x: memref<12x8xf32>, %sizes: memref<1xi64>, %y: memref<12x8xf32>)
    attributes {kernel.kind = "elementwise", kernel.results = 1 : i64, kernel.extents = ["12/s0, 8/8"], kernel.sizes = ["s0"]} {
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
  call @kernel_0(%x, %sizes, %y) : (memref<4x20xf32>, memref<1xi64>, memref<4x20xf32>) -> ()
  return
}
func.func private @kernel_0(%x: memref<4x20xf32>, %sizes: memref<1xi64>, %y: memref<4x20xf32>)
    attributes {kernel.kind = "elementwise", kernel.results = 1 : i64, kernel.extents = ["4/4, 20/s0"], kernel.sizes = ["s0"]} {
  %flat = memref.collapse_shape %x [[0, 1]] : memref<4x20xf32> into memref<80xf32>
  %out = memref.collapse_shape %y [[0, 1]] : memref<4x20xf32> into memref<80xf32>
  affine.parallel (%task) = (0) to (10) {
    %0 = affine.vector_load %flat[%task * 8] : memref<80xf32>, vector<8xf32>
    affine.vector_store %0, %out[%task * 8] : memref<80xf32>, vector<8xf32>
  }
  return
}

// -----

// A thread of a GPU whose row is not in use does nothing.

// CHECK-LABEL: func.func private @kernel_0(
// CHECK: affine.parallel (%[[BLOCK:.*]], %[[THREAD:.*]]) = (0, 0) to (3, 4)
// CHECK-NEXT: %[[ROW:.*]] = affine.apply {{.*}}(%[[BLOCK]], %[[THREAD]])
// CHECK-NEXT: arith.cmpi slt, %[[ROW]]
// CHECK-NEXT: scf.if
// CHECK-NEXT: affine.vector_load
func.func @main(%x: memref<12x8xf32>, %sizes: memref<1xi64>, %y: memref<12x8xf32>)
    attributes {stepwell.extents = ["s0, 8"], stepwell.scalars = ["s0"], stepwell.prefixes = []} {
  call @kernel_0(%x, %sizes, %y) : (memref<12x8xf32>, memref<1xi64>, memref<12x8xf32>) -> ()
  return
}
func.func private @kernel_0(%x: memref<12x8xf32>, %sizes: memref<1xi64>, %y: memref<12x8xf32>)
    attributes {kernel.kind = "elementwise", kernel.results = 1 : i64, kernel.extents = ["12/s0, 8/8"], kernel.sizes = ["s0"]} {
  affine.parallel (%block, %thread) = (0, 0) to (3, 4) {
    %0 = affine.vector_load %x[%block * 4 + %thread, 0] : memref<12x8xf32>, vector<8xf32>
    affine.vector_store %0, %y[%block * 4 + %thread, 0] : memref<12x8xf32>, vector<8xf32>
  }
  return
}

// -----

// Where threads wait for each other, all of a block do something, or none. A row is also found by
// way of affine maps, and written at an index.

// CHECK-LABEL: func.func private @kernel_0(
// CHECK: affine.parallel (%[[BLOCK:.*]], %{{.*}}) = (0, 0) to (3, 32)
// CHECK-NEXT: %[[ROW:.*]] = affine.apply {{.*}}(%[[BLOCK]])
// CHECK-NEXT: %[[NEEDED:.*]] = arith.cmpi slt, %[[ROW]]
// CHECK-NEXT: scf.if %[[NEEDED]]
// CHECK: gpu.barrier
// CHECK-NOT: scf.if
func.func @main(%x: memref<12x8xf32>, %sizes: memref<1xi64>, %y: memref<12x8xf32>)
    attributes {stepwell.extents = ["s0, 8"], stepwell.scalars = ["s0"], stepwell.prefixes = []} {
  call @kernel_0(%x, %sizes, %y) : (memref<12x8xf32>, memref<1xi64>, memref<12x8xf32>) -> ()
  return
}
func.func private @kernel_0(%x: memref<12x8xf32>, %sizes: memref<1xi64>, %y: memref<12x8xf32>)
    attributes {kernel.kind = "elementwise", kernel.results = 1 : i64, kernel.extents = ["12/s0, 8/8"], kernel.sizes = ["s0"]} {
  %tile = memref.alloca() : memref<32xf32, #gpu.address_space<workgroup>>
  affine.parallel (%block, %thread) = (0, 0) to (3, 32) {
    %row = affine.apply affine_map<(d0, d1) -> (d0 * 4 + d1 floordiv 8)>(%block, %thread)
    %column = affine.apply affine_map<(d0) -> (d0 mod 8)>(%thread)
    %0 = affine.load %x[%row, %column] : memref<12x8xf32>
    affine.store %0, %tile[%thread] : memref<32xf32, #gpu.address_space<workgroup>>
    gpu.barrier
    %1 = affine.load %tile[31 - %thread] : memref<32xf32, #gpu.address_space<workgroup>>
    %2 = vector.broadcast %1 : f32 to vector<1xf32>
    vector.store %2, %y[%row, %column] : memref<12x8xf32>, vector<1xf32>
  }
  return
}

// -----

// Rejected: a kernel that also writes by an instruction of which nothing is known.

// CHECK-LABEL: func.func private @kernel_0(
// CHECK-NOT: scf.if
func.func @main(%x: memref<12x8xf32>, %sizes: memref<1xi64>, %y: memref<12x8xf32>)
    attributes {stepwell.extents = ["s0, 8"], stepwell.scalars = ["s0"], stepwell.prefixes = []} {
  call @kernel_0(%x, %sizes, %y) : (memref<12x8xf32>, memref<1xi64>, memref<12x8xf32>) -> ()
  return
}
func.func private @kernel_0(%x: memref<12x8xf32>, %sizes: memref<1xi64>, %y: memref<12x8xf32>)
    attributes {kernel.kind = "elementwise", kernel.results = 1 : i64, kernel.extents = ["12/s0, 8/8"], kernel.sizes = ["s0"]} {
  affine.parallel (%block, %thread) = (0, 0) to (3, 4) {
    %0 = affine.vector_load %x[%block * 4 + %thread, 0] : memref<12x8xf32>, vector<8xf32>
    llvm.inline_asm has_side_effects "red.global.add.u32 ...;", "~{memory}" : () -> ()
    affine.vector_store %0, %y[%block * 4 + %thread, 0] : memref<12x8xf32>, vector<8xf32>
  }
  return
}

// -----

// A thread that walks over a flat form ends with the last row in use.

// CHECK: #[[END:.*]] = affine_map<()[s0] -> (96, s0 * 8)>
// CHECK-LABEL: func.func private @kernel_0(
// CHECK: %[[S0:.*]] = arith.index_cast
// CHECK: affine.parallel
// CHECK: affine.for %{{.*}} to min #[[END]]()[%[[S0]]]
func.func @main(%x: memref<12x8xf32>, %sizes: memref<1xi64>, %y: memref<12x8xf32>)
    attributes {stepwell.extents = ["s0, 8"], stepwell.scalars = ["s0"], stepwell.prefixes = []} {
  call @kernel_0(%x, %sizes, %y) : (memref<12x8xf32>, memref<1xi64>, memref<12x8xf32>) -> ()
  return
}
func.func private @kernel_0(%x: memref<12x8xf32>, %sizes: memref<1xi64>, %y: memref<12x8xf32>)
    attributes {kernel.kind = "elementwise", kernel.results = 1 : i64, kernel.extents = ["12/s0, 8/8"], kernel.sizes = ["s0"]} {
  %flat = memref.collapse_shape %x [[0, 1]] : memref<12x8xf32> into memref<96xf32>
  %out = memref.collapse_shape %y [[0, 1]] : memref<12x8xf32> into memref<96xf32>
  affine.parallel (%block, %thread) = (0, 0) to (2, 4) {
    affine.for %i = affine_map<(d0, d1) -> (d0 * 4 + d1)>(%block, %thread) to 96 step 8 {
      %0 = affine.load %flat[%i] : memref<96xf32>
      affine.store %0, %out[%i] : memref<96xf32>
    }
  }
  return
}
