// RUN: stepwell-opt %s --target=cuda:sm_90a --pass-pipeline='legalize-joint-reductions' | filecheck %s
// RUN: stepwell-opt %s --target=x86_64-v4 --pass-pipeline='legalize-joint-reductions' | filecheck %s --check-prefix=CPU

// 18 elements: two of nine, then one of both. The places are computed.
// CHECK-LABEL: func.func @largest
// CHECK-NOT: stablehlo.reduce
// CHECK: stablehlo.slice %arg0 [0:10:9]
// CHECK: stablehlo.slice %arg0 [8:18:9]
// CHECK: stablehlo.map
// CHECK: stablehlo.slice %{{.*}} [0:1:2]
// CHECK: stablehlo.slice %{{.*}} [1:2:2]
// CHECK-NOT: stablehlo.reduce
// CHECK: return
func.func @largest(%x: tensor<18xf32>, %start: tensor<f32>, %none: tensor<i32>)
    -> (tensor<f32>, tensor<i32>) {
  %numbers = stablehlo.iota dim = 0 : tensor<18xi32>
  %r:2 = stablehlo.reduce(%x init: %start), (%numbers init: %none) across dimensions = [0]
      : (tensor<18xf32>, tensor<18xi32>, tensor<f32>, tensor<i32>) -> (tensor<f32>, tensor<i32>)
      reducer(%a: tensor<f32>, %b: tensor<f32>) (%i: tensor<i32>, %j: tensor<i32>) {
    %c = stablehlo.compare GE, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %v = stablehlo.select %c, %a, %b : tensor<i1>, tensor<f32>
    %k = stablehlo.select %c, %i, %j : tensor<i1>, tensor<i32>
    stablehlo.return %v, %k : tensor<f32>, tensor<i32>
  }
  return %r#0, %r#1 : tensor<f32>, tensor<i32>
}

// A reduction of one operand has emitters.
// CHECK-LABEL: func.func @rejected
// CHECK: stablehlo.reduce
func.func @rejected(%x: tensor<18xf32>, %start: tensor<f32>) -> tensor<f32> {
  %r = stablehlo.reduce(%x init: %start) applies stablehlo.add across dimensions = [0]
      : (tensor<18xf32>, tensor<f32>) -> tensor<f32>
  return %r : tensor<f32>
}

// Across no dimensions, the initial value and an element are what is combined, on CPUs too.
// CHECK-LABEL: func.func @nothing
// CHECK-NOT: stablehlo.reduce
// CPU-LABEL: func.func @nothing
// CPU: %[[S:.*]] = stablehlo.broadcast_in_dim %arg2
// CPU: stablehlo.map"(%[[S]], %arg0)
// CPU: stablehlo.map"
// CPU-NOT: stablehlo.reduce
// CPU: return
func.func @nothing(%x: tensor<4xf32>, %y: tensor<4xi32>, %s: tensor<f32>, %t: tensor<i32>)
    -> (tensor<4xf32>, tensor<4xi32>) {
  %r:2 = stablehlo.reduce(%x init: %s), (%y init: %t) across dimensions = []
      : (tensor<4xf32>, tensor<4xi32>, tensor<f32>, tensor<i32>) -> (tensor<4xf32>, tensor<4xi32>)
      reducer(%a: tensor<f32>, %b: tensor<f32>) (%i: tensor<i32>, %j: tensor<i32>) {
    %m = stablehlo.subtract %a, %b : tensor<f32>
    %n = stablehlo.subtract %i, %j : tensor<i32>
    stablehlo.return %m, %n : tensor<f32>, tensor<i32>
  }
  return %r#0, %r#1 : tensor<4xf32>, tensor<4xi32>
}
