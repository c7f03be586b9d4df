// RUN: stepwell-opt %s --split-input-file --pass-pipeline='builtin.module(map-to-blocks-and-threads,lower-kernels-to-nvvm)' | filecheck %s
// RUN: not stepwell-opt %s --split-input-file --pass-pipeline='builtin.module(lower-kernels-to-nvvm)' 2>&1 | filecheck %s --check-prefix=UNMAPPED

// UNMAPPED: error: kernel_0: a kernel that is not mapped to blocks and threads

// A kernel becomes a gpu.module of bare, aligned pointers; calls become launches.

// CHECK: gpu.module @kernel_0
// CHECK: llvm.func @kernel_0(%{{.*}}: !llvm.ptr {llvm.align = 16 : i64, llvm.noalias}, %{{.*}}: !llvm.ptr {llvm.align = 16 : i64, llvm.noalias})
// CHECK-SAME: nvvm.kernel
// CHECK-SAME: nvvm.minctasm = 1 : i32
// CHECK-SAME: nvvm.reqntid = array<i32: 256>
// CHECK: llvm.load %{{.*}} : !llvm.ptr -> vector<4xf32>
// CHECK: func.func @main
// CHECK: gpu.launch_func @kernel_0::@kernel_0 blocks in (%c2, %c1, %c1) threads in (%c256, %c1, %c1) args(%arg0 : memref<2048xf32>, %arg1 : memref<2048xf32>) {kernel.names = ["copy"]}
module {
  func.func private @kernel_0(%x: memref<2048xf32>, %out: memref<2048xf32>) attributes {kernel.kind = "elementwise"} {
    affine.parallel (%block, %thread) = (0, 0) to (2, 256) {
      %0 = affine.vector_load %x[%block * 1024 + %thread * 4] : memref<2048xf32>, vector<4xf32>
      affine.vector_store %0, %out[%block * 1024 + %thread * 4] : memref<2048xf32>, vector<4xf32>
    }
    return
  }
  func.func @main(%x: memref<2048xf32>, %out: memref<2048xf32>) {
    call @kernel_0(%x, %out) {kernel.names = ["copy"]} : (memref<2048xf32>, memref<2048xf32>) -> ()
    return
  }
}

// -----

// What threads read after a barrier others have written: the buffer is not `noalias`, for which LLVM
// would keep what the thread itself wrote. Calls of library functions stay calls.
// CHECK: llvm.func @kernel_0(%{{.*}}: !llvm.ptr {llvm.align = 16 : i64}, %{{.*}}: !llvm.ptr {llvm.align = 16 : i64, llvm.noalias})
// CHECK: nvvm.barrier
// CHECK: func.func private @library_call_0(memref<64xf32>)
// CHECK: func.func @main
// CHECK: gpu.launch_func @kernel_0::@kernel_0
// CHECK: call @library_call_0(%arg0)
module {
  func.func private @kernel_0(%given: memref<64xf32>, %out: memref<64xf32>) attributes {kernel.kind = "other"} {
    affine.parallel (%block, %thread) = (0, 0) to (1, 64) {
      %zero = arith.constant 0.0 : f32
      affine.store %zero, %given[%thread] : memref<64xf32>
      gpu.barrier
      %0 = affine.load %given[63 - %thread] : memref<64xf32>
      affine.store %0, %out[%thread] : memref<64xf32>
    }
    return
  }
  func.func private @library_call_0(memref<64xf32>) attributes {kernel.library_call = {}, kernel.results = 1 : i64}
  func.func @main(%given: memref<64xf32>, %out: memref<64xf32>) {
    call @kernel_0(%given, %out) : (memref<64xf32>, memref<64xf32>) -> ()
    call @library_call_0(%given) : (memref<64xf32>) -> ()
    return
  }
}

// -----

// Loops with products of matrices stay loops, others are as LLVM and ptxas find best.
// CHECK: llvm.func @kernel_0
// CHECK: ^[[HEADER:bb[0-9]+]]({{.*}}!llvm.array<2 x vector<2xf32>>
// CHECK: nvvm.mma.sync
// CHECK: llvm.br ^[[HEADER]]({{.*}}) {loop_annotation = #[[ROLLED:[a-z_]+]]}
// CHECK-NOT: loop_annotation
// CHECK: gpu.launch_func
module {
  func.func private @kernel_0(%x: memref<64xf32>, %out: memref<64xf32>) attributes {kernel.kind = "contraction"} {
    affine.parallel (%block, %thread) = (0, 0) to (1, 32) {
      %zero = arith.constant dense<0.0> : vector<2x2xf32>
      %rows = arith.constant dense<1.0> : vector<4x2xf16>
      %columns = arith.constant dense<1.0> : vector<2x2xf16>
      %sums = affine.for %k = 0 to 9 iter_args(%sum = %zero) -> (vector<2x2xf32>) {
        %0 = nvgpu.mma.sync(%rows, %columns, %sum) {mmaShape = [16, 8, 16]} : (vector<4x2xf16>, vector<2x2xf16>, vector<2x2xf32>) -> vector<2x2xf32>
        affine.yield %0 : vector<2x2xf32>
      }
      %sum = vector.extract %sums[0, 0] : f32 from vector<2x2xf32>
      affine.for %i = 0 to 2 {
        affine.store %sum, %out[%thread * 2 + %i] : memref<64xf32>
      }
    }
    return
  }
  func.func @main(%x: memref<64xf32>, %out: memref<64xf32>) {
    call @kernel_0(%x, %out) : (memref<64xf32>, memref<64xf32>) -> ()
    return
  }
}
