// RUN: stepwell-opt %s --target=cuda:sm_90a --pass-pipeline='legalize-scan' | filecheck %s

// Blocks of 32, then the blocks' sums, of which there are 4; all in f64.
// CHECK-LABEL: func.func @down
// CHECK: stablehlo.convert %arg0 : (tensor<100x4xf32>) -> tensor<100x4xf64>
// CHECK: stablehlo.pad {{.*}} high = [28, 0]
// CHECK: "stablehlo.reduce_window"{{.*}}window_dimensions = array<i64: 1, 32, 1>
// CHECK: stablehlo.slice {{.*}} [0:4, 31:32, 0:4]
// CHECK: "stablehlo.reduce_window"{{.*}}window_dimensions = array<i64: 4, 1>
// CHECK: stablehlo.pad {{.*}} low = [1, 0], high = [-1, 0]
// CHECK: stablehlo.add {{.*}} : tensor<4x32x4xf64>
// CHECK-NOT: scf.for
func.func @down(%x: tensor<100x4xf32>) -> tensor<100x4xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %r = "stablehlo.reduce_window"(%x, %zero) <{window_dimensions = array<i64: 100, 1>,
      padding = dense<[[99, 0], [0, 0]]> : tensor<2x2xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }) : (tensor<100x4xf32>, tensor<f32>) -> tensor<100x4xf32>
  return %r : tensor<100x4xf32>
}

// What the sums begin with is not known: it is added to the sums, and not to every block.
// CHECK-LABEL: func.func @unknown_start
// CHECK: "stablehlo.reduce_window"{{.*}}window_dimensions = array<i64: 1, 32>
// CHECK: stablehlo.convert %arg1
// CHECK: stablehlo.add {{.*}} : tensor<100xf64>
// CHECK-NOT: scf.for
func.func @unknown_start(%x: tensor<100xf32>, %start: tensor<f32>) -> tensor<100xf32> {
  %r = "stablehlo.reduce_window"(%x, %start) <{window_dimensions = array<i64: 100>,
      padding = dense<[[99, 0]]> : tensor<1x2xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }) : (tensor<100xf32>, tensor<f32>) -> tensor<100xf32>
  return %r : tensor<100xf32>
}

// A body of two operations, from the end: turned round, five steps within blocks, two over them.
// CHECK-LABEL: func.func @body
// CHECK: stablehlo.reverse
// CHECK: stablehlo.reshape {{.*}} -> tensor<4x32xf32>
// CHECK-COUNT-5: stablehlo.concatenate {{.*}} -> tensor<4x32xf32>
// CHECK-COUNT-2: stablehlo.concatenate {{.*}} -> tensor<3xf32>
// CHECK: stablehlo.concatenate {{.*}} -> tensor<4x32xf32>
// CHECK: stablehlo.reverse
// CHECK-NOT: scf.for
func.func @body(%x: tensor<100xf32>) -> tensor<100xf32> {
  %one = stablehlo.constant dense<1.0> : tensor<f32>
  %r = "stablehlo.reduce_window"(%x, %one) <{window_dimensions = array<i64: 100>,
      padding = dense<[[0, 99]]> : tensor<1x2xi64>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %m = stablehlo.multiply %a, %b : tensor<f32>
    %s = stablehlo.negate %m : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }) : (tensor<100xf32>, tensor<f32>) -> tensor<100xf32>
  return %r : tensor<100xf32>
}

// Windows of 99 of 100 elements do not go from the first element on.
// CHECK-LABEL: func.func @rejected
// CHECK: "stablehlo.reduce_window"{{.*}}window_dimensions = array<i64: 99>
// CHECK-NOT: stablehlo.reshape
func.func @rejected(%x: tensor<100xf32>) -> tensor<2xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %r = "stablehlo.reduce_window"(%x, %zero) <{window_dimensions = array<i64: 99>}> ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }) : (tensor<100xf32>, tensor<f32>) -> tensor<2xf32>
  return %r : tensor<2xf32>
}
