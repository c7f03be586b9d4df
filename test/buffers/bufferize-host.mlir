// RUN: stepwell-opt %s --split-input-file --verify-diagnostics \
// RUN:   --pass-pipeline='builtin.module(bufferize-host)' | filecheck %s

// Results become arguments after the inputs; the last kernel writes there, nothing is copied.
// CHECK-LABEL: func.func @chain
// CHECK-SAME: (%arg0: memref<8xf32>, %arg1: memref<8xf32>) {
// CHECK: %[[MIDDLE:.*]] = memref.alloc() {{.*}}: memref<8xf32>
// CHECK: call @kernel_0(%arg0, %[[MIDDLE]])
// CHECK: call @kernel_0(%[[MIDDLE]], %arg1)
// CHECK-NOT: memref.copy
// CHECK: return{{$}}
func.func @chain(%x: tensor<8xf32>) -> tensor<8xf32> {
  %0 = bufferization.to_buffer %x read_only : tensor<8xf32> to memref<8xf32>
  %a = memref.alloc() : memref<8xf32>
  call @kernel_0(%0, %a) : (memref<8xf32>, memref<8xf32>) -> ()
  %1 = bufferization.to_tensor %a restrict writable : memref<8xf32> to tensor<8xf32>
  %2 = bufferization.to_buffer %1 read_only : tensor<8xf32> to memref<8xf32>
  %b = memref.alloc() : memref<8xf32>
  call @kernel_0(%2, %b) : (memref<8xf32>, memref<8xf32>) -> ()
  %3 = bufferization.to_tensor %b restrict writable : memref<8xf32> to tensor<8xf32>
  return %3 : tensor<8xf32>
}
func.func private @kernel_0(%x: memref<8xf32>, %y: memref<8xf32>) attributes {kernel.kind = "elementwise"} {
  return
}

// -----

// A reshaped result is its kernel's destination with another shape, not a copy.
// CHECK-LABEL: func.func @reshaped
// CHECK-SAME: (%arg0: memref<8xf32>, %arg1: memref<2x4xf32>) {
// CHECK: %[[FLAT:.*]] = memref.reinterpret_cast %arg1 {{.*}} to memref<8xf32>
// CHECK: call @kernel_0(%arg0, %[[FLAT]])
func.func @reshaped(%x: tensor<8xf32>) -> tensor<2x4xf32> {
  %0 = bufferization.to_buffer %x read_only : tensor<8xf32> to memref<8xf32>
  %a = memref.alloc() : memref<8xf32>
  call @kernel_0(%0, %a) : (memref<8xf32>, memref<8xf32>) -> ()
  %1 = bufferization.to_tensor %a restrict writable : memref<8xf32> to tensor<8xf32>
  %2 = tensor.expand_shape %1 [[0, 1]] output_shape [2, 4] : tensor<8xf32> into tensor<2x4xf32>
  return %2 : tensor<2x4xf32>
}
func.func private @kernel_0(%x: memref<8xf32>, %y: memref<8xf32>) attributes {kernel.kind = "elementwise"} {
  return
}

// -----

// Rejected: an input that is returned would need a copy, which the groups should have made a kernel.
// expected-error@+1 {{a result is not a buffer of its own}}
func.func @returned(%x: tensor<8xf32>) -> tensor<8xf32> {
  return %x : tensor<8xf32>
}
