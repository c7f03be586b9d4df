// RUN: stepwell-opt %s --target=x86_64-v3 --pass-pipeline='expand-arg-reductions' | filecheck %s
// RUN: stepwell-opt %s --target=cuda:sm_90a --pass-pipeline='expand-arg-reductions' | filecheck %s --check-prefix=GPU

// JAX's argmax.
// GPU-LABEL: func.func @largest
// GPU: stablehlo.reduce(%arg0 init: %{{.*}}), (%
// CHECK-LABEL: func.func @largest
// CHECK: %[[M:.*]] = stablehlo.reduce(%arg0 init: %{{.*}}) applies stablehlo.maximum across dimensions = [1]
// CHECK: %[[B:.*]] = stablehlo.broadcast_in_dim %[[M]], dims = [0]
// CHECK: %[[E:.*]] = stablehlo.compare EQ, %arg0, %[[B]]
// CHECK: %[[N:.*]] = stablehlo.compare NE, %arg0, %arg0
// CHECK: %[[H:.*]] = stablehlo.or %[[E]], %[[N]]
// CHECK: %[[I:.*]] = stablehlo.iota dim = 1 : tensor<4x512xi32>
// CHECK: %[[C:.*]] = stablehlo.select %[[H]], %[[I]], %{{.*}}
// CHECK: %[[P:.*]] = stablehlo.reduce(%[[C]] init: %{{.*}}) applies stablehlo.minimum across dimensions = [1]
// CHECK: %[[W:.*]] = stablehlo.convert %[[P]] : (tensor<4xi32>) -> tensor<4xi64>
// CHECK: return %[[W]]
func.func @largest(%x: tensor<4x512xf32>) -> tensor<4xi64> {
  %start = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %zero = stablehlo.constant dense<0> : tensor<i64>
  %places = stablehlo.iota dim = 1 : tensor<4x512xi64>
  %r:2 = stablehlo.reduce(%x init: %start), (%places init: %zero) across dimensions = [1]
      : (tensor<4x512xf32>, tensor<4x512xi64>, tensor<f32>, tensor<i64>) -> (tensor<4xf32>, tensor<4xi64>)
   reducer(%a: tensor<f32>, %b: tensor<f32>) (%i: tensor<i64>, %j: tensor<i64>) {
    %0 = stablehlo.compare GT, %a, %b, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %1 = stablehlo.compare NE, %a, %a, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %2 = stablehlo.or %0, %1 : tensor<i1>
    %3 = stablehlo.compare EQ, %a, %b, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %4 = stablehlo.compare LT, %i, %j, SIGNED : (tensor<i64>, tensor<i64>) -> tensor<i1>
    %5 = stablehlo.and %3, %4 : tensor<i1>
    %6 = stablehlo.or %2, %5 : tensor<i1>
    %7 = stablehlo.select %2, %a, %b : tensor<i1>, tensor<f32>
    %8 = stablehlo.select %6, %i, %j : tensor<i1>, tensor<i64>
    stablehlo.return %7, %8 : tensor<f32>, tensor<i64>
  }
  return %r#1 : tensor<4xi64>
}

// The smallest integer; the first of equals wins because it comes first.
// CHECK-LABEL: func.func @smallest
// CHECK: applies stablehlo.minimum
// CHECK-NOT: stablehlo.or
// CHECK: applies stablehlo.minimum
func.func @smallest(%x: tensor<512xi32>) -> (tensor<i32>, tensor<i32>) {
  %start = stablehlo.constant dense<2147483647> : tensor<i32>
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %places = stablehlo.iota dim = 0 : tensor<512xi32>
  %r:2 = stablehlo.reduce(%x init: %start), (%places init: %zero) across dimensions = [0]
      : (tensor<512xi32>, tensor<512xi32>, tensor<i32>, tensor<i32>) -> (tensor<i32>, tensor<i32>)
   reducer(%a: tensor<i32>, %b: tensor<i32>) (%i: tensor<i32>, %j: tensor<i32>) {
    %0 = stablehlo.compare LE, %a, %b, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %1 = stablehlo.select %0, %a, %b : tensor<i1>, tensor<i32>
    %2 = stablehlo.select %0, %i, %j : tensor<i1>, tensor<i32>
    stablehlo.return %1, %2 : tensor<i32>, tensor<i32>
  }
  return %r#0, %r#1 : tensor<i32>, tensor<i32>
}

// Rejected: the last of equals, NaN that loses, and a start that is no identity.
// CHECK-LABEL: func.func @rejected
// CHECK-COUNT-3: stablehlo.reduce({{.*}}), (
func.func @rejected(%x: tensor<512xi32>, %y: tensor<512xf32>, %s: tensor<i32>)
    -> (tensor<i32>, tensor<i32>, tensor<i32>) {
  %start = stablehlo.constant dense<2147483647> : tensor<i32>
  %high = stablehlo.constant dense<0x7F800000> : tensor<f32>
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %places = stablehlo.iota dim = 0 : tensor<512xi32>
  %r:2 = stablehlo.reduce(%x init: %start), (%places init: %zero) across dimensions = [0]
      : (tensor<512xi32>, tensor<512xi32>, tensor<i32>, tensor<i32>) -> (tensor<i32>, tensor<i32>)
   reducer(%a: tensor<i32>, %b: tensor<i32>) (%i: tensor<i32>, %j: tensor<i32>) {
    %0 = stablehlo.compare LT, %a, %b, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %1 = stablehlo.select %0, %a, %b : tensor<i1>, tensor<i32>
    %2 = stablehlo.select %0, %i, %j : tensor<i1>, tensor<i32>
    stablehlo.return %1, %2 : tensor<i32>, tensor<i32>
  }
  %t:2 = stablehlo.reduce(%y init: %high), (%places init: %zero) across dimensions = [0]
      : (tensor<512xf32>, tensor<512xi32>, tensor<f32>, tensor<i32>) -> (tensor<f32>, tensor<i32>)
   reducer(%a: tensor<f32>, %b: tensor<f32>) (%i: tensor<i32>, %j: tensor<i32>) {
    %0 = stablehlo.compare LE, %a, %b, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %1 = stablehlo.select %0, %a, %b : tensor<i1>, tensor<f32>
    %2 = stablehlo.select %0, %i, %j : tensor<i1>, tensor<i32>
    stablehlo.return %1, %2 : tensor<f32>, tensor<i32>
  }
  %u:2 = stablehlo.reduce(%x init: %s), (%places init: %zero) across dimensions = [0]
      : (tensor<512xi32>, tensor<512xi32>, tensor<i32>, tensor<i32>) -> (tensor<i32>, tensor<i32>)
   reducer(%a: tensor<i32>, %b: tensor<i32>) (%i: tensor<i32>, %j: tensor<i32>) {
    %0 = stablehlo.compare LE, %a, %b, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %1 = stablehlo.select %0, %a, %b : tensor<i1>, tensor<i32>
    %2 = stablehlo.select %0, %i, %j : tensor<i1>, tensor<i32>
    stablehlo.return %1, %2 : tensor<i32>, tensor<i32>
  }
  return %r#1, %t#1, %u#1 : tensor<i32>, tensor<i32>, tensor<i32>
}
