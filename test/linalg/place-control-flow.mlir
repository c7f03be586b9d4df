// RUN: stepwell-opt %s --pass-pipeline='place-control-flow' | filecheck %s

// A body with enough work is the host's; so is what stands in it and has enough of its own.
// CHECK-LABEL: func.func @large
// CHECK: attributes {stepwell.host}
// CHECK: stablehlo.dot_general
// CHECK: "stablehlo.case"
// CHECK: stablehlo.sine
// CHECK: {stepwell.host} : (tensor<i32>) -> tensor<64x64xf32>
func.func @large(%n: tensor<i32>, %x: tensor<64x64xf32>) -> tensor<64x64xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %r:2 = stablehlo.while(%i = %zero, %y = %x) : tensor<i32>, tensor<64x64xf32>
    cond {
      %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    } do {
      %j = stablehlo.add %i, %one : tensor<i32>
      %p = stablehlo.dot_general %y, %x, contracting_dims = [1] x [0] : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
      %z = "stablehlo.case"(%i) ({
        %a = stablehlo.sine %p : tensor<64x64xf32>
        stablehlo.return %a : tensor<64x64xf32>
      }, {
        stablehlo.return %p : tensor<64x64xf32>
      }) : (tensor<i32>) -> tensor<64x64xf32>
      stablehlo.return %j, %z : tensor<i32>, tensor<64x64xf32>
    }
  return %r#1 : tensor<64x64xf32>
}

// Few elements, though of a large table: one scalar kernel.
// CHECK-LABEL: func.func @small
// CHECK-NOT: stepwell.host
func.func @small(%n: tensor<i32>, %x: tensor<4096xf32>) -> tensor<4096xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %r:2 = stablehlo.while(%i = %zero, %y = %x) : tensor<i32>, tensor<4096xf32>
    cond {
      %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    } do {
      %j = stablehlo.add %i, %one : tensor<i32>
      %a = stablehlo.dynamic_slice %y, %i, sizes = [1] : (tensor<4096xf32>, tensor<i32>) -> tensor<1xf32>
      %b = stablehlo.add %a, %a : tensor<1xf32>
      %z = stablehlo.dynamic_update_slice %y, %b, %j : (tensor<4096xf32>, tensor<1xf32>, tensor<i32>) -> tensor<4096xf32>
      stablehlo.return %j, %z : tensor<i32>, tensor<4096xf32>
    }
  return %r#1 : tensor<4096xf32>
}

// Rejected: the host has no buffers of complex numbers.
// CHECK-LABEL: func.func @rejected
// CHECK-NOT: stepwell.host
func.func @rejected(%c: tensor<i1>, %x: tensor<64x64xcomplex<f32>>) -> tensor<64x64xcomplex<f32>> {
  %r = "stablehlo.if"(%c) ({
    %a = stablehlo.add %x, %x : tensor<64x64xcomplex<f32>>
    stablehlo.return %a : tensor<64x64xcomplex<f32>>
  }, {
    stablehlo.return %x : tensor<64x64xcomplex<f32>>
  }) : (tensor<i1>) -> tensor<64x64xcomplex<f32>>
  return %r : tensor<64x64xcomplex<f32>>
}
