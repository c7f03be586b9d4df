// RUN: stepwell-opt %s --split-input-file --verify-diagnostics --pass-pipeline='builtin.module(map-to-blocks-and-threads)' | filecheck %s

// The grid's extents become attributes, its numbers special registers; shared memory is a global.

// CHECK: memref.global "private" @kernel_0_shared_0 : memref<8xf32, 3> = uninitialized {alignment = 16 : i64}
// CHECK: func.func private @kernel_0
// CHECK-SAME: kernel.blocks = 12 : i64
// CHECK-SAME: kernel.threads = 256 : i64
// CHECK-NOT: affine.parallel
// CHECK: nvvm.read.ptx.sreg.ctaid.x : i32
// CHECK: nvvm.read.ptx.sreg.tid.x : i32
// CHECK: nvvm.shfl.sync
// CHECK-SAME: bfly
// CHECK: nvvm.barrier
func.func private @kernel_0(%x: memref<3072xf32>) attributes {kernel.kind = "elementwise"} {
  %c16 = arith.constant 16 : i32
  %c32 = arith.constant 32 : i32
  %shared = memref.alloca() {alignment = 16 : i64} : memref<8xf32, #gpu.address_space<workgroup>>
  affine.parallel (%block, %thread) = (0, 0) to (12, 256) {
    %0 = affine.load %x[%block * 256 + %thread] : memref<3072xf32>
    %1, %valid = gpu.shuffle xor %0, %c16, %c32 : f32
    affine.store %1, %shared[%thread floordiv 32] : memref<8xf32, #gpu.address_space<workgroup>>
    gpu.barrier
  }
  return
}

// -----

// What a launch gives: shared memory without a size, tensor maps after the buffers.

// CHECK: llvm.mlir.global external @kernel_3_shared_by_launch() {addr_space = 3 : i32, alignment = 1024 : i64} : !llvm.array<0 x i8>
// CHECK: func.func private @kernel_3(%{{.*}}: memref<64xf32>, %{{.*}}: !llvm.ptr, %[[MAP:.*]]: !llvm.ptr)
// CHECK: llvm.mlir.addressof @kernel_3_shared_by_launch : !llvm.ptr<3>
// CHECK: nvvm.prefetch tensormap, %[[MAP]]
func.func private @kernel_3(%x: memref<64xf32>) attributes {kernel.kind = "contraction", kernel.shared_bytes = 2048 : i64} {
  affine.parallel (%block, %thread) = (0, 0) to (1, 32) {
    %shared = builtin.unrealized_conversion_cast to !llvm.ptr<3> {kernel.dynamic_shared}
    %map = builtin.unrealized_conversion_cast to !llvm.ptr {kernel.tensor_map = 1 : i64}
    %c1 = arith.constant 1 : i32
    nvvm.mbarrier.init %shared, %c1 : !llvm.ptr<3>, i32
    nvvm.prefetch tensormap, %map : !llvm.ptr
  }
  return
}

// -----

// More than a kernel may declare: parts of what its launch asks for, behind what it uses there itself.

// CHECK: llvm.mlir.global external @kernel_5_shared_by_launch()
// CHECK-NOT: memref.global
// CHECK: func.func private @kernel_5
// CHECK: %[[BEGIN:.*]] = llvm.mlir.addressof @kernel_5_shared_by_launch : !llvm.ptr<3>
// CHECK: %[[FIRST:.*]] = arith.constant 1024 : i32
// CHECK: llvm.getelementptr %[[BEGIN]][%[[FIRST]]]
// CHECK: builtin.unrealized_conversion_cast %{{.*}} : !llvm.struct<{{.*}}> to memref<16384xf32, 3>
// CHECK: arith.constant 66560 : i32
// CHECK: builtin.unrealized_conversion_cast %{{.*}} : !llvm.struct<{{.*}}> to memref<4x8xf16, 3>
func.func private @kernel_5(%x: memref<64xf32>) attributes {kernel.kind = "contraction", kernel.shared_bytes = 66624 : i64} {
  %0 = memref.alloca() {alignment = 16 : i64} : memref<16384xf32, #gpu.address_space<workgroup>>
  %1 = memref.alloca() {alignment = 16 : i64} : memref<4x8xf16, #gpu.address_space<workgroup>>
  affine.parallel (%block, %thread) = (0, 0) to (1, 32) {
    %2 = affine.load %x[%thread] : memref<64xf32>
    affine.store %2, %0[%thread] : memref<16384xf32, #gpu.address_space<workgroup>>
    %3 = arith.truncf %2 : f32 to f16
    affine.store %3, %1[0, %thread mod 8] : memref<4x8xf16, #gpu.address_space<workgroup>>
  }
  return
}

// -----

// expected-error@below {{kernel_6: 65536 bytes of shared memory, of which a kernel may declare 49152, and its launch asks for 1024}}
func.func private @kernel_6(%x: memref<64xf32>) attributes {kernel.kind = "contraction", kernel.shared_bytes = 1024 : i64} {
  %0 = memref.alloca() {alignment = 16 : i64} : memref<16384xf32, #gpu.address_space<workgroup>>
  affine.parallel (%block, %thread) = (0, 0) to (1, 32) {
    %1 = affine.load %x[%thread] : memref<64xf32>
    affine.store %1, %0[%thread] : memref<16384xf32, #gpu.address_space<workgroup>>
  }
  return
}

// -----

// A kernel without a grid is one thread.

// CHECK: func.func private @kernel_1
// CHECK-SAME: kernel.blocks = 1 : i64
// CHECK-SAME: kernel.threads = 1 : i64
func.func private @kernel_1(%x: memref<1xf32>) attributes {kernel.kind = "scalar"} {
  return
}

// -----

// expected-error@below {{kernel_2: 2 blocks of 2048 threads; a block has up to 1024 threads and a grid up to 2147483647 blocks}}
func.func private @kernel_2(%x: memref<4096xf32>) attributes {kernel.kind = "elementwise"} {
  affine.parallel (%block, %thread) = (0, 0) to (2, 2048) {
  }
  return
}
