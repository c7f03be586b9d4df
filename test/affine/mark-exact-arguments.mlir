// RUN: stepwell-opt %s --pass-pipeline='builtin.module(mark-exact-arguments)' --split-input-file | filecheck %s

// Rows below s0 are read, in vectors that stay in their row, and written.

// CHECK-LABEL: func.func @main
// CHECK-SAME: stepwell.exact_inputs = array<i64: 0>
// CHECK-SAME: stepwell.exact_results = array<i64: 0>
func.func @main(%x: memref<1x16x32xf32>, %sizes: memref<1xi64>, %y: memref<16x32xf32>)
    attributes {stepwell.extents = ["1, s0, 32"], stepwell.result_extents = ["s0, 32"], stepwell.scalars = ["s0"]} {
  %rows = memref.collapse_shape %x [[0, 1], [2]] : memref<1x16x32xf32> into memref<16x32xf32>
  call @kernel_0(%rows, %sizes, %y) : (memref<16x32xf32>, memref<1xi64>, memref<16x32xf32>) -> ()
  return
}
func.func private @kernel_0(%x: memref<16x32xf32>, %sizes: memref<1xi64>, %y: memref<16x32xf32>)
    attributes {kernel.results = 1 : i64, kernel.sizes = ["s0"]} {
  %c0 = arith.constant 0 : index
  %flat = memref.collapse_shape %x [[0, 1]] : memref<16x32xf32> into memref<512xf32>
  %n = memref.load %sizes[%c0] : memref<1xi64>
  %s0 = arith.index_cast %n : i64 to index
  affine.parallel (%i) = (0) to (16) {
    %row = affine.apply affine_map<(d0) -> (d0)>(%i)
    %needed = arith.cmpi slt, %row, %s0 : index
    scf.if %needed {
      affine.for %j = 0 to 32 step 8 {
        %0 = affine.vector_load %flat[%i * 32 + %j] : memref<512xf32>, vector<8xf32>
        affine.vector_store %0, %y[%i, %j] : memref<16x32xf32>, vector<8xf32>
      }
    }
  }
  return
}

// -----

// Rejected: the row behind one that is in use is read; what is written is exact.

// CHECK-LABEL: func.func @main
// CHECK-SAME: stepwell.exact_inputs = array<i64>
// CHECK-SAME: stepwell.exact_results = array<i64: 0>
func.func @main(%x: memref<16xf32>, %sizes: memref<1xi64>, %y: memref<16xf32>)
    attributes {stepwell.extents = ["s0 + 1"], stepwell.result_extents = ["s0"], stepwell.scalars = ["s0", "s0 + 1"]} {
  call @kernel_0(%x, %sizes, %y) : (memref<16xf32>, memref<1xi64>, memref<16xf32>) -> ()
  return
}
func.func private @kernel_0(%x: memref<16xf32>, %sizes: memref<1xi64>, %y: memref<16xf32>)
    attributes {kernel.results = 1 : i64, kernel.sizes = ["s0", "s0 + 1"]} {
  %c0 = arith.constant 0 : index
  %n = memref.load %sizes[%c0] : memref<1xi64>
  %s0 = arith.index_cast %n : i64 to index
  affine.parallel (%i) = (0) to (15) {
    %row = affine.apply affine_map<(d0) -> (d0)>(%i)
    %needed = arith.cmpi slt, %row, %s0 : index
    scf.if %needed {
      %0 = affine.load %x[%i + 1] : memref<16xf32>
      affine.store %0, %y[%i] : memref<16xf32>
    }
  }
  return
}

// -----

// Rows that are accessed where both of two conditions hold.

// CHECK-LABEL: func.func @main
// CHECK-SAME: stepwell.exact_inputs = array<i64: 0>
func.func @main(%x: memref<16x32xf32>, %sizes: memref<2xi64>, %y: memref<32x16xf32>)
    attributes {stepwell.extents = ["s0, 32"], stepwell.result_extents = ["s1, s0"], stepwell.scalars = ["s0", "s1"]} {
  call @kernel_0(%x, %sizes, %y) : (memref<16x32xf32>, memref<2xi64>, memref<32x16xf32>) -> ()
  return
}
func.func private @kernel_0(%x: memref<16x32xf32>, %sizes: memref<2xi64>, %y: memref<32x16xf32>)
    attributes {kernel.results = 1 : i64, kernel.sizes = ["s0", "s1"]} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %n0 = memref.load %sizes[%c0] : memref<2xi64>
  %s0 = arith.index_cast %n0 : i64 to index
  %n1 = memref.load %sizes[%c1] : memref<2xi64>
  %s1 = arith.index_cast %n1 : i64 to index
  affine.parallel (%i) = (0) to (16) {
    affine.for %j = 0 to 32 {
      %row = affine.apply affine_map<(d0) -> (d0)>(%i)
      %below = arith.cmpi slt, %row, %s0 : index
      %column = affine.apply affine_map<(d0) -> (d0)>(%j)
      %beside = arith.cmpi slt, %column, %s1 : index
      %needed = arith.andi %below, %beside : i1
      scf.if %needed {
        %0 = affine.load %x[%i, %j] : memref<16x32xf32>
        affine.store %0, %y[%j, %i] : memref<32x16xf32>
      }
    }
  }
  return
}

// -----

// A loop ends at the rows that were counted. Rejected: the result, of which all is written.

// CHECK-LABEL: func.func @main
// CHECK-SAME: stepwell.exact_inputs = array<i64: 0>
// CHECK-SAME: stepwell.exact_results = array<i64>
func.func @main(%x: memref<16x8xf32>, %sizes: memref<1xi64>, %used: memref<16xi1>, %y: memref<16x8xf32>)
    attributes {stepwell.extents = ["s0, 8"], stepwell.result_extents = ["s0, 8"], stepwell.scalars = ["s0"]} {
  call @kernel_0(%x, %used, %y) : (memref<16x8xf32>, memref<16xi1>, memref<16x8xf32>) -> ()
  return
}
func.func private @kernel_0(%x: memref<16x8xf32>, %used: memref<16xi1>, %y: memref<16x8xf32>) {
  %c0 = arith.constant 0 : index
  %cst = arith.constant dense<0.0> : vector<8xf32>
  %flags = builtin.unrealized_conversion_cast %used : memref<16xi1> to memref<16xi8>
  %count = affine.for %i = 0 to 16 iter_args(%n = %c0) -> (index) {
    %0 = affine.load %flags[%i] : memref<16xi8>
    %1 = arith.index_castui %0 : i8 to index
    %2 = arith.addi %n, %1 : index
    affine.yield %2 : index
  } {kernel.counted = "s0"}
  %sum = affine.for %i = 0 to min affine_map<()[s0] -> (s0, 16)>()[%count] iter_args(%s = %cst) -> (vector<8xf32>) {
    %0 = affine.vector_load %x[%i, 0] : memref<16x8xf32>, vector<8xf32>
    %1 = arith.addf %s, %0 : vector<8xf32>
    affine.yield %1 : vector<8xf32>
  }
  affine.for %i = 0 to 16 {
    affine.vector_store %sum, %y[%i, 0] : memref<16x8xf32>, vector<8xf32>
  }
  return
}

// -----

// Rejected: rows of columns in use do not lie together.

// CHECK-LABEL: func.func @main
// CHECK-SAME: stepwell.exact_inputs = array<i64>
func.func @main(%x: memref<4x16xf32>, %sizes: memref<1xi64>)
    attributes {stepwell.extents = ["4, s0"], stepwell.result_extents = [], stepwell.scalars = ["s0"]} {
  return
}
