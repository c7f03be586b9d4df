// RUN: stepwell-opt %s --pass-pipeline='legalize-control-flow' | filecheck %s

// CHECK-LABEL: func.func @counted
// CHECK: stablehlo.constant dense<1>
// CHECK: scf.while
// CHECK: scf.condition(%{{.*}}) %
// CHECK: scf.yield
// CHECK-NOT: stablehlo.while
func.func @counted(%n: tensor<i32>, %x: tensor<4xf32>) -> tensor<4xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %r:2 = stablehlo.while(%i = %zero, %y = %x) : tensor<i32>, tensor<4xf32>
    cond {
      %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    } do {
      %one = stablehlo.constant dense<1> : tensor<i32>
      %j = stablehlo.add %i, %one : tensor<i32>
      %z = stablehlo.add %y, %y : tensor<4xf32>
      stablehlo.return %j, %z : tensor<i32>, tensor<4xf32>
    }
  return %r#1 : tensor<4xf32>
}

// An index out of range means the last branch. One-shot bufferization lets writes into the results
// of scf.index_switch.
// CHECK-LABEL: func.func @three
// CHECK: scf.if
// CHECK: stablehlo.sine
// CHECK: else
// CHECK: scf.if
// CHECK: stablehlo.cosine
// CHECK: else
// CHECK: stablehlo.negate
// CHECK-NOT: scf.index_switch
func.func @three(%i: tensor<i32>, %x: tensor<4xf32>) -> tensor<4xf32> {
  %r = "stablehlo.case"(%i) ({
    %a = stablehlo.sine %x : tensor<4xf32>
    stablehlo.return %a : tensor<4xf32>
  }, {
    %a = stablehlo.cosine %x : tensor<4xf32>
    stablehlo.return %a : tensor<4xf32>
  }, {
    %a = stablehlo.negate %x : tensor<4xf32>
    stablehlo.return %a : tensor<4xf32>
  }) : (tensor<i32>) -> tensor<4xf32>
  return %r : tensor<4xf32>
}

// CHECK-LABEL: func.func @one
// CHECK-NEXT: %[[SINE:.*]] = stablehlo.sine
// CHECK-NEXT: return %[[SINE]]
func.func @one(%i: tensor<i32>, %x: tensor<4xf32>) -> tensor<4xf32> {
  %r = "stablehlo.case"(%i) ({
    %a = stablehlo.sine %x : tensor<4xf32>
    stablehlo.return %a : tensor<4xf32>
  }) : (tensor<i32>) -> tensor<4xf32>
  return %r : tensor<4xf32>
}

// CHECK-LABEL: func.func @barrier
// CHECK-NEXT: return %arg0
func.func @barrier(%x: tensor<4xf32>) -> tensor<4xf32> {
  %r = stablehlo.optimization_barrier %x : tensor<4xf32>
  return %r : tensor<4xf32>
}

// The tuple is an argument: there is nothing to take its element from.
// CHECK-LABEL: func.func @rejected
// CHECK: stablehlo.get_tuple_element
func.func @rejected(%t: tuple<tensor<4xf32>>) -> tensor<4xf32> {
  %r = stablehlo.get_tuple_element %t[0] : (tuple<tensor<4xf32>>) -> tensor<4xf32>
  return %r : tensor<4xf32>
}
