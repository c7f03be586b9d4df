// RUN: stepwell-opt %s --pass-pipeline='legalize-scan' | filecheck %s

// Sums of f32 are accumulated in f64, one for each column.
// CHECK-LABEL: func.func @down
// CHECK: stablehlo.reshape %{{.*}} : (tensor<100x4xf32>) -> tensor<1x100x4xf32>
// CHECK: linalg.generic {{.*}} iterator_types = ["parallel", "reduction", "parallel"]
// CHECK-SAME: outs({{.*}} : tensor<1x100x4xf32>, tensor<1x4xf64>) attrs = {kernel.scan = "forward"}
// CHECK: arith.extf
// CHECK: arith.addf {{.*}} : f64
// CHECK: arith.truncf
// CHECK: linalg.yield {{.*}} : f32, f64
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
// CHECK: linalg.generic {{.*}} attrs = {kernel.scan = "backward"}
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

// An operation that vectors have none of: loops over scalars.
// CHECK-LABEL: func.func @of_scalars
// CHECK: scf.execute_region
// CHECK: bufferization.alloc_tensor() : tensor<i32>
// CHECK: scf.for
// CHECK: stablehlo.power
// CHECK-NOT: stablehlo.reduce_window
func.func @of_scalars(%x: tensor<50xi32>, %one: tensor<i32>) -> tensor<50xi32> {
  %r = "stablehlo.reduce_window"(%x, %one) <{window_dimensions = array<i64: 50>,
      padding = dense<[[49, 0]]> : tensor<1x2xi64>}> ({
  ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    %s = stablehlo.power %a, %b : tensor<i32>
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
