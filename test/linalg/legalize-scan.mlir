// RUN: stepwell-opt %s --pass-pipeline='legalize-scan' | filecheck %s

// Sums of f32 are accumulated in f64, one for each column.
// CHECK-LABEL: func.func @down
// CHECK: scf.execute_region
// CHECK: bufferization.alloc_tensor() : tensor<4xf64>
// CHECK: scf.for
// CHECK: arith.extf
// CHECK: arith.addf {{.*}} : f64
// CHECK: arith.truncf
// CHECK-NOT: stablehlo.reduce_window
func.func @down(%x: tensor<100x4xf32>, %zero: tensor<f32>) -> tensor<100x4xf32> {
  %r = "stablehlo.reduce_window"(%x, %zero) <{window_dimensions = array<i64: 100, 1>,
      padding = dense<[[99, 0], [0, 0]]> : tensor<2x2xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }) : (tensor<100x4xf32>, tensor<f32>) -> tensor<100x4xf32>
  return %r : tensor<100x4xf32>
}

// CHECK-LABEL: func.func @backward
// CHECK: arith.subi
// CHECK: stablehlo.maximum
// CHECK-NOT: stablehlo.reduce_window
func.func @backward(%x: tensor<50xi32>, %least: tensor<i32>) -> tensor<50xi32> {
  %r = "stablehlo.reduce_window"(%x, %least) <{window_dimensions = array<i64: 50>,
      padding = dense<[[0, 49]]> : tensor<1x2xi64>}> ({
  ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    %s = stablehlo.maximum %a, %b : tensor<i32>
    stablehlo.return %s : tensor<i32>
  }) : (tensor<50xi32>, tensor<i32>) -> tensor<50xi32>
  return %r : tensor<50xi32>
}

// A sliding window forgets.
// CHECK-LABEL: func.func @rejected
// CHECK-NEXT: stablehlo.reduce_window
func.func @rejected(%x: tensor<100xf32>, %zero: tensor<f32>) -> tensor<61xf32> {
  %r = "stablehlo.reduce_window"(%x, %zero) <{window_dimensions = array<i64: 40>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }) : (tensor<100xf32>, tensor<f32>) -> tensor<61xf32>
  return %r : tensor<61xf32>
}
