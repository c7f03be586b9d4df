// RUN: stepwell-opt %s --split-input-file --verify-diagnostics \
// RUN:   --pass-pipeline='builtin.module(split-tasks,lower-kernels-to-llvm,lower-host-to-llvm)' | filecheck %s

// The entry hands each kernel to the context's parallel_for; buffers are constant distances from the
// inputs, the outputs and the arena.
// CHECK-LABEL: llvm.func @stepwell_main
// CHECK-SAME: stepwell.arena_bytes = 256 : i64
// CHECK: llvm.mlir.constant(4 : i64)
// CHECK: llvm.mlir.addressof @kernel_0_task
// CHECK: llvm.call %{{.*}}(
// CHECK-LABEL: llvm.func @kernel_0_task
// CHECK-SAME: (%{{.*}}: !llvm.ptr, %[[BEGIN:.*]]: i64, %[[END:.*]]: i64)
// CHECK: llvm.call @kernel_0(%{{.*}}, %{{.*}}, %[[BEGIN]], %[[END]])
func.func @main(%x: memref<64xf32>, %y: memref<64xf32>, %arena: memref<256xi8>) attributes {
    stepwell.arena_bytes = 256 : i64,
    stepwell.inputs = [{name = "x", dtype = "float32", shape = array<i64: 64>}],
    stepwell.outputs = [{name = "y", dtype = "float32", shape = array<i64: 64>}]} {
  %zero = arith.constant 0 : index
  %a = memref.view %arena[%zero][] : memref<256xi8> to memref<64xf32>
  call @kernel_0(%x, %a) {kernel.names = ["Relu_1"]} : (memref<64xf32>, memref<64xf32>) -> ()
  call @kernel_0(%a, %y) {kernel.names = ["Relu_2"]} : (memref<64xf32>, memref<64xf32>) -> ()
  return
}
func.func private @kernel_0(%x: memref<64xf32>, %y: memref<64xf32>) attributes {kernel.kind = "elementwise", kernel.results = 1 : i64} {
  affine.parallel (%t) = (0) to (4) {
    %0 = affine.vector_load %x[%t * 16] : memref<64xf32>, vector<16xf32>
    affine.vector_store %0, %y[%t * 16] : memref<64xf32>, vector<16xf32>
  }
  return
}

// -----

// Rejected: the entry is made of one host function.
// expected-error@+1 {{expected one host function, found 2}}
func.func @main(%x: memref<64xf32>) {
  return
}
func.func @second(%x: memref<64xf32>) {
  return
}
