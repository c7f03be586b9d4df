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
