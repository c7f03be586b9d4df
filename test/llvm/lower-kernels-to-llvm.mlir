// RUN: stepwell-opt %s --split-input-file --verify-diagnostics \
// RUN:   --pass-pipeline='builtin.module(split-tasks,lower-kernels-to-llvm)' | filecheck %s

// Memrefs become bare pointers that alias nothing else; vectors stay whole; the host is left alone.
// CHECK: func.func @host(%{{.*}}: memref<64xf32>)
// CHECK: llvm.func @kernel_0
// CHECK-SAME: (%arg0: !llvm.ptr {llvm.noalias}, %arg1: !llvm.ptr {llvm.noalias}, %arg2: i64, %arg3: i64)
// CHECK-SAME: kernel.tasks = 4 : i64
// CHECK: llvm.cond_br
// CHECK: llvm.load %{{.*}} : !llvm.ptr -> vector<16xf32>
// CHECK: llvm.fadd %{{.*}} : vector<16xf32>
// CHECK: llvm.store %{{.*}} : vector<16xf32>, !llvm.ptr
func.func private @kernel_0(%x: memref<64xf32>, %y: memref<64xf32>) attributes {kernel.kind = "elementwise"} {
  affine.parallel (%t) = (0) to (4) {
    %0 = affine.vector_load %x[%t * 16] : memref<64xf32>, vector<16xf32>
    %1 = arith.addf %0, %0 : vector<16xf32>
    affine.vector_store %1, %y[%t * 16] : memref<64xf32>, vector<16xf32>
  }
  return
}
func.func @host(%x: memref<64xf32>) {
  return
}

// -----

// bf16 is stored as integers.
// CHECK: llvm.func @short
// CHECK: %[[B:.*]] = llvm.bitcast %{{.*}} : vector<16xbf16> to vector<16xi16>
// CHECK: llvm.store %[[B]], %{{.*}} : vector<16xi16>, !llvm.ptr
func.func private @short(%x: memref<64xbf16>, %y: memref<64xbf16>) attributes {kernel.kind = "elementwise"} {
  affine.parallel (%t) = (0) to (4) {
    %0 = affine.vector_load %x[%t * 16] : memref<64xbf16>, vector<16xbf16>
    affine.vector_store %0, %y[%t * 16] : memref<64xbf16>, vector<16xbf16>
  }
  return
}

// -----

// And taken apart as integers.
// CHECK: llvm.func @apart
// CHECK: llvm.shufflevector %{{.*}}, %{{.*}} [4, 5, 6, 7] : vector<8xi16>
// CHECK: llvm.extractelement %{{.*}} : vector<8xi16>
// CHECK: llvm.insertelement %{{.*}} : vector<4xi16>
func.func private @apart(%x: memref<8xbf16>, %y: memref<4xbf16>, %z: memref<4xbf16>) attributes {kernel.kind = "elementwise"} {
  affine.parallel (%t) = (0) to (1) {
    %0 = affine.vector_load %x[0] : memref<8xbf16>, vector<8xbf16>
    %1 = vector.extract_strided_slice %0 {offsets = [4], sizes = [4], strides = [1]} : vector<8xbf16> to vector<4xbf16>
    affine.vector_store %1, %y[0] : memref<4xbf16>, vector<4xbf16>
    %2 = vector.extract %0[2] : bf16 from vector<8xbf16>
    %3 = vector.broadcast %2 : bf16 to vector<4xbf16>
    affine.vector_store %3, %z[0] : memref<4xbf16>, vector<4xbf16>
  }
  return
}

// -----

// Rejected: what is left over is named here; translating it would end the process.
func.func private @left(%x: memref<64xf32>) attributes {kernel.kind = "elementwise"} {
  %zero = arith.constant 0.0 : f32
  // expected-error@+1 {{has no lowering to LLVM}}
  linalg.fill ins(%zero : f32) outs(%x : memref<64xf32>)
  return
}
