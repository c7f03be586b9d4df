// RUN: stepwell-opt %s --split-input-file --verify-diagnostics --pass-pipeline='place-control-flow,legalize-library-calls' | filecheck %s
// RUN: stepwell-opt %s --target=cuda:sm_90a --split-input-file --verify-diagnostics --pass-pipeline='place-control-flow,legalize-library-calls' | filecheck %s --check-prefix=GPU

// The address is an argument of the host, the updated operand the destination; equal calls share a
// kernel, and a call that nothing reads goes.
// CHECK-LABEL: func.func @main
// CHECK-SAME: %[[A:.*]]: tensor<4x4xf32>, %[[F:.*]]: tensor<1xi8> {stepwell.function = "lapack.sgetrf"})
// CHECK: %[[P:.*]] = tensor.empty() : tensor<4xi32>
// CHECK: %[[I:.*]] = tensor.empty() : tensor<i32>
// CHECK: %[[R:.*]]:3 = call @library_call_0(%[[F]], %[[A]], %[[P]], %[[I]])
// CHECK: call @library_call_0(%[[F]], %[[R]]#0,
// CHECK-NOT: call
// CHECK: return
// CHECK: func.func private @library_call_0(tensor<1xi8>, tensor<4x4xf32>, tensor<4xi32>, tensor<i32>)
// CHECK-SAME: kernel.kind = "library-call"

// For a GPU, the host's runtime knows the address.
// GPU: func.func @main(%[[A:.*]]: tensor<4x4xf32>)
// GPU: call @library_call_0(%[[A]], %{{.*}}, %{{.*}}) : (tensor<4x4xf32>, tensor<4xi32>, tensor<i32>)
#lu = {function = "lapack.sgetrf", batch = 1 : i64, work = [], updated = array<i64: 0>, arguments = ["i32 4", "i32 4", "result 0", "i32 4", "result 1", "result 2"]}
func.func @main(%a: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %0:3 = stablehlo.custom_call @stepwell.library_call(%a) {kernel.library_call = #lu} : (tensor<4x4xf32>) -> (tensor<4x4xf32>, tensor<4xi32>, tensor<i32>)
  %1:3 = stablehlo.custom_call @stepwell.library_call(%0#0) {kernel.library_call = #lu} : (tensor<4x4xf32>) -> (tensor<4x4xf32>, tensor<4xi32>, tensor<i32>)
  %2:3 = stablehlo.custom_call @stepwell.library_call(%1#0) {kernel.library_call = #lu} : (tensor<4x4xf32>) -> (tensor<4x4xf32>, tensor<4xi32>, tensor<i32>)
  return %1#0 : tensor<4x4xf32>
}

// -----

// However little it does, a loop around a call is the host's.
// CHECK-LABEL: func.func @loop
// CHECK: stepwell.host
// CHECK: func.call @library_call_0
#root = {function = "lapack.spotrf", batch = 1 : i64, work = [], updated = array<i64: 0>, arguments = ["char L", "i32 2", "result 0", "i32 2", "result 1"]}
func.func @loop(%a: tensor<2x2xf32>, %c: tensor<i1>) -> tensor<2x2xf32> {
  %r = stablehlo.while(%x = %a) : tensor<2x2xf32>
    cond {
      stablehlo.return %c : tensor<i1>
    } do {
      %0:2 = stablehlo.custom_call @stepwell.library_call(%x) {kernel.library_call = #root} : (tensor<2x2xf32>) -> (tensor<2x2xf32>, tensor<i32>)
      stablehlo.return %0#0 : tensor<2x2xf32>
    }
  return %r : tensor<2x2xf32>
}

// -----

// Other custom calls stay.
// CHECK-LABEL: func.func @rejected
// CHECK: stablehlo.custom_call @somewhere
func.func @rejected(%a: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.custom_call @somewhere(%a) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

#one = {function = "blas.srotg", batch = 1 : i64, work = [], updated = array<i64>, arguments = ["operand 0", "result 0"]}
func.func @in_a_body(%a: tensor<4xf32>, %z: tensor<f32>) -> tensor<f32> {
  %r = "stablehlo.reduce"(%a, %z) ({
  ^bb0(%x: tensor<f32>, %y: tensor<f32>):
    // expected-error@+1 {{blas.srotg cannot be called inside a kernel}}
    %0 = stablehlo.custom_call @stepwell.library_call(%x) {kernel.library_call = #one} : (tensor<f32>) -> tensor<f32>
    stablehlo.return %0 : tensor<f32>
  }) {dimensions = array<i64: 0>} : (tensor<4xf32>, tensor<f32>) -> tensor<f32>
  return %r : tensor<f32>
}
