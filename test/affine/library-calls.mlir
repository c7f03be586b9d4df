// RUN: stepwell-opt %s --split-input-file --pass-pipeline='form-fusion-groups,lower-groups-to-affine' | filecheck %s

// Each task takes every second matrix, and has working memory of its own; constants lie on the stack.
// CHECK-LABEL: func.func @main
// CHECK: %[[A:.*]] = memref.alloc() : memref<3x5xf32>
// CHECK: memref.copy %{{.*}}, %[[A]]
// CHECK: %[[W:.*]] = memref.alloc() : memref<3x8xf32>
// CHECK: call @library_call_0(%{{.*}}, %[[A]], %[[W]])
// CHECK: func.func private @library_call_0(%[[F:.*]]: memref<1xi8>, %[[X:.*]]: memref<3x5xf32>, %[[W:.*]]: memref<3x8xf32>)
// CHECK: llvm.alloca %{{.*}} x i8
// CHECK: llvm.mlir.constant(85 : i8)
// CHECK: memref.extract_aligned_pointer_as_index %[[X]]
// CHECK: llvm.getelementptr %{{.*}}[1] : (!llvm.ptr) -> !llvm.ptr, f32
// CHECK: affine.parallel (%[[TASK:.*]]) = (0) to (3)
// CHECK: scf.for %[[I:.*]] = %[[TASK]] to
// CHECK: arith.index_cast %[[I]]
// CHECK: arith.index_cast %[[TASK]]
// CHECK: llvm.call %{{.*}}({{.*}}) : !llvm.ptr, (!llvm.ptr, !llvm.ptr, !llvm.ptr, !llvm.ptr) -> ()
func.func @main(%a: tensor<3x5xf32>, %f: tensor<1xi8> {stepwell.function = "lapack.x"}) -> tensor<3x5xf32> {
  %r = call @library_call_0(%f, %a) : (tensor<1xi8>, tensor<3x5xf32>) -> tensor<3x5xf32>
  return %r : tensor<3x5xf32>
}
func.func private @library_call_0(tensor<1xi8>, tensor<3x5xf32>) -> tensor<3x5xf32> attributes {kernel.kind = "library-call", kernel.library_call = {function = "lapack.x", batch = 3 : i64, work = [tensor<8xf32>], updated = array<i64: 0>, arguments = ["char U", "result 0 + 1", "work 0", "null"]}}

// -----

// A kernel writes what a call takes from a view, and no group reaches across a call.
// CHECK-LABEL: func.func @main
// CHECK: call @kernel_{{.}}
// CHECK: call @library_call_0
// CHECK: call @kernel_{{.}}
// CHECK: return
#map = affine_map<(d0) -> (d0)>
func.func @main(%a: tensor<8xf32>, %f: tensor<1xi8> {stepwell.function = "lapack.x"}) -> tensor<4xf32> {
  %part = tensor.extract_slice %a[2] [4] [1] : tensor<8xf32> to tensor<4xf32>
  %e = tensor.empty() : tensor<4xf32>
  %x = call @library_call_0(%part, %f, %e) : (tensor<4xf32>, tensor<1xi8>, tensor<4xf32>) -> tensor<4xf32>
  %r = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel"]} ins(%x : tensor<4xf32>) outs(%e : tensor<4xf32>) {
  ^bb0(%in: f32, %out: f32):
    %2 = arith.addf %in, %in : f32
    linalg.yield %2 : f32
  } -> tensor<4xf32>
  return %r : tensor<4xf32>
}
func.func private @library_call_0(tensor<4xf32>, tensor<1xi8>, tensor<4xf32>) -> tensor<4xf32> attributes {kernel.kind = "library-call", kernel.library_call = {function = "lapack.x", batch = 1 : i64, work = [], updated = array<i64>, arguments = ["operand 0", "result 0"]}}
