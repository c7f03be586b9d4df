// RUN: stepwell-opt %s --split-input-file --target=x86_64-v4 \
// RUN:   --pass-pipeline='builtin.module(chain-kernels{cache-bytes=8192 threads=1 least-gain=0})' | filecheck %s
// RUN: stepwell-opt %s --split-input-file --target=x86_64-v4 \
// RUN:   --pass-pipeline='builtin.module(chain-kernels{cache-bytes=16384 threads=2 least-gain=0})' | filecheck %s --check-prefix=TWO
// RUN: stepwell-opt %s --split-input-file --target=x86_64-v4 \
// RUN:   --pass-pipeline='builtin.module(chain-kernels{cache-bytes=65536 threads=1 least-gain=0})' | filecheck %s --check-prefix=FITS

// Each row of the second kernel needs three rows of the first. A band of four rows, and the six that it
// needs, fill no more than the part of the cache that they may.
// CHECK-LABEL: func.func @window
// CHECK: call @double({{.*}}stepwell.chain = array<i64: 0, 1, 0, 6, 4, 10, {{.*}} 66>}
// CHECK: call @three({{.*}}stepwell.chain = array<i64: 0, 1, 0, 4, 4, 8, {{.*}} 64>}

// Two threads have three bands each.
// TWO-LABEL: func.func @window
// TWO: call @double({{.*}}stepwell.chain = array<i64: 0, 1, 0, 13, 11, 23, 21, 34, 32, 45, 43, 55, 53, 66>}

// FITS-LABEL: func.func @window
// FITS-NOT: stepwell.chain
func.func @window(%x: memref<66x64xf32>, %y: memref<64x64xf32>) {
  %a = memref.alloc() : memref<66x64xf32>
  call @double(%x, %a) : (memref<66x64xf32>, memref<66x64xf32>) -> ()
  call @three(%a, %y) : (memref<66x64xf32>, memref<64x64xf32>) -> ()
  return
}
func.func private @double(%x: memref<66x64xf32>, %y: memref<66x64xf32>)
    attributes {kernel.kind = "elementwise", kernel.flops = 4224 : i64, kernel.bytes = 33792 : i64} {
  affine.parallel (%t) = (0) to (66) {
    affine.for %i = 0 to 64 step 16 {
      %0 = affine.vector_load %x[%t, %i] : memref<66x64xf32>, vector<16xf32>
      %1 = arith.addf %0, %0 : vector<16xf32>
      affine.vector_store %1, %y[%t, %i] : memref<66x64xf32>, vector<16xf32>
    }
  }
  return
}
func.func private @three(%x: memref<66x64xf32>, %y: memref<64x64xf32>)
    attributes {kernel.kind = "outer-reduction", kernel.flops = 4096 : i64, kernel.bytes = 33280 : i64} {
  affine.parallel (%t) = (0) to (64) {
    affine.for %i = 0 to 64 step 16 {
      %0 = affine.vector_load %x[%t, %i] : memref<66x64xf32>, vector<16xf32>
      %1 = affine.vector_load %x[%t + 2, %i] : memref<66x64xf32>, vector<16xf32>
      %2 = arith.addf %0, %1 : vector<16xf32>
      affine.vector_store %2, %y[%t, %i] : memref<64x64xf32>, vector<16xf32>
    }
  }
  return
}

// -----

// The last tasks of a kernel do what its tiles leave of each row: they are a run of their own.
// CHECK-LABEL: func.func @edges
// CHECK: call @tiles({{.*}}stepwell.chain = array<i64: 0, 2, 0, [[END:[0-9]+]], 64, [[EDGE:[0-9]+]], {{.*}} 64, {{[0-9]+}}, 128>}
// CHECK: call @copy({{.*}}stepwell.chain = array<i64: 0, 1, 0, {{.*}} 64>}
func.func @edges(%x: memref<64x80xf32>, %y: memref<64x80xf32>) {
  %a = memref.alloc() : memref<64x80xf32>
  call @tiles(%x, %a) : (memref<64x80xf32>, memref<64x80xf32>) -> ()
  call @copy(%a, %y) : (memref<64x80xf32>, memref<64x80xf32>) -> ()
  return
}
func.func private @tiles(%x: memref<64x80xf32>, %y: memref<64x80xf32>)
    attributes {kernel.kind = "elementwise", kernel.flops = 5120 : i64, kernel.bytes = 40960 : i64} {
  affine.parallel (%t) = (0) to (128) {
    affine.if affine_set<(d0) : (-d0 + 63 >= 0)>(%t) {
      affine.for %i = 0 to 64 step 16 {
        %0 = affine.vector_load %x[%t, %i] : memref<64x80xf32>, vector<16xf32>
        affine.vector_store %0, %y[%t, %i] : memref<64x80xf32>, vector<16xf32>
      }
    } else {
      %0 = affine.vector_load %x[%t - 64, 64] : memref<64x80xf32>, vector<16xf32>
      affine.vector_store %0, %y[%t - 64, 64] : memref<64x80xf32>, vector<16xf32>
    }
  }
  return
}
func.func private @copy(%x: memref<64x80xf32>, %y: memref<64x80xf32>)
    attributes {kernel.kind = "elementwise", kernel.flops = 5120 : i64, kernel.bytes = 40960 : i64} {
  affine.parallel (%t) = (0) to (64) {
    affine.for %i = 0 to 80 step 16 {
      %0 = affine.vector_load %x[%t, %i] : memref<64x80xf32>, vector<16xf32>
      affine.vector_store %0, %y[%t, %i] : memref<64x80xf32>, vector<16xf32>
    }
  }
  return
}

// -----

// The second kernel needs all rows for each one of its own; the third one reads what it writes, and
// the fourth writes what the one before it reads.
// CHECK-LABEL: func.func @apart
// CHECK-NOT: stepwell.chain
func.func @apart(%x: memref<64x64xf32>) {
  %a = memref.alloc() : memref<64x64xf32>
  %b = memref.alloc() : memref<64x64xf32>
  call @copy(%x, %a) : (memref<64x64xf32>, memref<64x64xf32>) -> ()
  call @transpose(%a, %b) : (memref<64x64xf32>, memref<64x64xf32>) -> ()
  call @add(%b, %a) : (memref<64x64xf32>, memref<64x64xf32>) -> ()
  call @copy(%a, %b) : (memref<64x64xf32>, memref<64x64xf32>) -> ()
  call @copy(%b, %a) : (memref<64x64xf32>, memref<64x64xf32>) -> ()
  return
}
func.func private @copy(%x: memref<64x64xf32>, %y: memref<64x64xf32>)
    attributes {kernel.kind = "elementwise", kernel.flops = 4096 : i64, kernel.bytes = 32768 : i64} {
  affine.parallel (%t) = (0) to (64) {
    affine.for %i = 0 to 64 step 16 {
      %0 = affine.vector_load %x[%t, %i] : memref<64x64xf32>, vector<16xf32>
      affine.vector_store %0, %y[%t, %i] : memref<64x64xf32>, vector<16xf32>
    }
  }
  return
}
func.func private @transpose(%x: memref<64x64xf32>, %y: memref<64x64xf32>)
    attributes {kernel.kind = "transpose", kernel.flops = 0 : i64, kernel.bytes = 32768 : i64} {
  affine.parallel (%t) = (0) to (64) {
    affine.for %i = 0 to 64 {
      %0 = affine.load %x[%i, %t] : memref<64x64xf32>
      affine.store %0, %y[%t, %i] : memref<64x64xf32>
    }
  }
  return
}
func.func private @add(%x: memref<64x64xf32>, %y: memref<64x64xf32>)
    attributes {kernel.kind = "elementwise", kernel.flops = 4096 : i64, kernel.bytes = 49152 : i64} {
  affine.parallel (%t) = (0) to (64) {
    affine.for %i = 0 to 64 step 16 {
      %0 = affine.vector_load %x[%t, %i] : memref<64x64xf32>, vector<16xf32>
      %1 = affine.vector_load %y[%t, %i] : memref<64x64xf32>, vector<16xf32>
      %2 = arith.addf %0, %1 : vector<16xf32>
      affine.vector_store %2, %y[%t, %i] : memref<64x64xf32>, vector<16xf32>
    }
  }
  return
}
