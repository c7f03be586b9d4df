// RUN: stepwell-opt %s --target=cuda:sm_90a \
// RUN:   --pass-pipeline='builtin.module(narrow-quantized-products)' | filecheck %s
// RUN: stepwell-opt %s --target=aarch64-neoverse-v2 \
// RUN:   --pass-pipeline='builtin.module(narrow-quantized-products)' | filecheck %s --check-prefix=OFF
// RUN: stepwell-opt %s --target=cuda:sm_90a \
// RUN:   --pass-pipeline='builtin.module(narrow-quantized-products,fold-constants,narrow-integer-products)' \
// RUN:   | filecheck %s --check-prefix=BYTES

// OFF-NOT: stablehlo.dot_general{{.*}}xi32>) ->
// OFF-NOT: stablehlo.convolution{{.*}}xi32>) ->

// The scale of %x is known when it runs, those of the weights vary along what stays.
// CHECK-LABEL: func.func @columns
// CHECK: %[[X:.*]] = stablehlo.convert %arg0 : (tensor<8x2xi8>) -> tensor<8x2xi32>
// CHECK: %[[P:.*]] = stablehlo.dot_general %[[X]], %{{.*}} : (tensor<8x2xi32>, tensor<2x3xi32>) -> tensor<8x3xi32>
// CHECK: %[[F:.*]] = stablehlo.convert %[[P]] : (tensor<8x3xi32>) -> tensor<8x3xf32>
// CHECK: %[[S:.*]] = stablehlo.broadcast_in_dim %arg1, dims = [] : (tensor<f32>) -> tensor<8x3xf32>
// CHECK: %[[G:.*]] = stablehlo.multiply %[[F]], %[[S]]
// CHECK: %[[T:.*]] = stablehlo.broadcast_in_dim %{{.*}}, dims = [1] : (tensor<3xf32>) -> tensor<8x3xf32>
// CHECK: stablehlo.multiply %[[G]], %[[T]]
// BYTES-LABEL: func.func @columns
// BYTES: stablehlo.dot_general %arg0, %{{.*}} : (tensor<8x2xi8>, tensor<2x3xi8>) -> tensor<8x3xi32>
func.func @columns(%x: tensor<8x2xi8>, %s: tensor<f32>) -> tensor<8x3xf32> {
  %w = stablehlo.constant dense<[[1, 2], [3, 4], [5, 6]]> : tensor<3x2xi8>
  %t = stablehlo.constant dense<[0.5, 0.25, 0.125]> : tensor<3xf32>
  %a = stablehlo.convert %x : (tensor<8x2xi8>) -> tensor<8x2xf32>
  %sa = stablehlo.broadcast_in_dim %s, dims = [] : (tensor<f32>) -> tensor<8x2xf32>
  %b = stablehlo.multiply %a, %sa : tensor<8x2xf32>
  %c = stablehlo.convert %w : (tensor<3x2xi8>) -> tensor<3x2xf32>
  %sc = stablehlo.broadcast_in_dim %t, dims = [0] : (tensor<3xf32>) -> tensor<3x2xf32>
  %d = stablehlo.multiply %c, %sc : tensor<3x2xf32>
  %e = stablehlo.transpose %d, dims = [1, 0] : (tensor<3x2xf32>) -> tensor<2x3xf32>
  %z = stablehlo.dot_general %b, %e, contracting_dims = [1] x [0]
       : (tensor<8x2xf32>, tensor<2x3xf32>) -> tensor<8x3xf32>
  return %z : tensor<8x3xf32>
}

// A zero point of the image; what pads it is 0 among the integers.
// CHECK-LABEL: func.func @image
// CHECK: %[[D:.*]] = stablehlo.subtract %{{.*}}, %{{.*}} : tensor<1x8x1xi32>
// CHECK: stablehlo.convolution(%[[D]], %{{.*}}pad = {{\[\[}}1, 2]]
// CHECK-SAME: (tensor<1x8x1xi32>, tensor<3x1x2xi32>) -> tensor<1x9x2xi32>
// BYTES-LABEL: func.func @image
// BYTES: stablehlo.convolution{{.*}} (tensor<1x11x1xi8>, tensor<3x1x2xi8>) -> tensor<1x9x2xi32>
func.func @image(%x: tensor<1x8x1xui8>) -> tensor<1x9x2xf32> {
  %w = stablehlo.constant dense<2> : tensor<3x1x2xi8>
  %t = stablehlo.constant dense<0.5> : tensor<3x1x2xf32>
  %zero = stablehlo.constant dense<100> : tensor<1x8x1xui8>
  %s = stablehlo.constant dense<0.25> : tensor<1x8x1xf32>
  %a = stablehlo.convert %x : (tensor<1x8x1xui8>) -> tensor<1x8x1xf32>
  %o = stablehlo.convert %zero : (tensor<1x8x1xui8>) -> tensor<1x8x1xf32>
  %b = stablehlo.subtract %a, %o : tensor<1x8x1xf32>
  %c = stablehlo.multiply %b, %s : tensor<1x8x1xf32>
  %d = stablehlo.convert %w : (tensor<3x1x2xi8>) -> tensor<3x1x2xf32>
  %e = stablehlo.multiply %d, %t : tensor<3x1x2xf32>
  %z = stablehlo.convolution(%c, %e) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f],
       window = {pad = [[1, 2]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
       : (tensor<1x8x1xf32>, tensor<3x1x2xf32>) -> tensor<1x9x2xf32>
  return %z : tensor<1x9x2xf32>
}

// A zero point that a clamp keeps among the bytes, made when the model runs, and numbers that were
// converted, as PyTorch's quantisers write them.
// CHECK-LABEL: func.func @chosen
// CHECK: %[[Z:.*]] = stablehlo.convert %{{.*}} : (tensor<f32>) -> tensor<ui8>
// CHECK: %[[W:.*]] = stablehlo.convert %[[Z]] : (tensor<ui8>) -> tensor<i32>
// CHECK: %[[O:.*]] = stablehlo.broadcast_in_dim %[[W]], dims = [] : (tensor<i32>) -> tensor<8x2xi32>
// CHECK: %[[D:.*]] = stablehlo.subtract %{{.*}}, %[[O]] : tensor<8x2xi32>
// CHECK: stablehlo.dot_general %[[D]], %{{.*}} : (tensor<8x2xi32>, tensor<2x3xi32>) -> tensor<8x3xi32>
// BYTES-LABEL: func.func @chosen
// BYTES: stablehlo.dot_general %{{.*}} : (tensor<8x2xi8>, tensor<2x3xi8>) -> tensor<8x3xi32>
func.func @chosen(%x: tensor<8x2xui8>, %f: tensor<f32>) -> tensor<8x3xf32> {
  %w = stablehlo.constant dense<7> : tensor<2x3xi8>
  %none = stablehlo.constant dense<0> : tensor<3xi64>
  %half = stablehlo.constant dense<0.5> : tensor<1xf64>
  %low = stablehlo.constant dense<0> : tensor<1xi64>
  %high = stablehlo.constant dense<255.0> : tensor<f32>
  %0 = stablehlo.reshape %low : (tensor<1xi64>) -> tensor<i64>
  %1 = stablehlo.convert %0 : (tensor<i64>) -> tensor<f32>
  %2 = stablehlo.clamp %1, %f, %high : tensor<f32>
  %3 = stablehlo.convert %2 : (tensor<f32>) -> tensor<i64>
  %4 = stablehlo.convert %3 : (tensor<i64>) -> tensor<f32>
  %5 = stablehlo.broadcast_in_dim %4, dims = [] : (tensor<f32>) -> tensor<8x2xf32>
  %6 = stablehlo.convert %half : (tensor<1xf64>) -> tensor<1xf32>
  %7 = stablehlo.reshape %6 : (tensor<1xf32>) -> tensor<f32>
  %8 = stablehlo.broadcast_in_dim %7, dims = [] : (tensor<f32>) -> tensor<8x2xf32>
  %a = stablehlo.convert %x : (tensor<8x2xui8>) -> tensor<8x2xf32>
  %b = stablehlo.subtract %a, %5 : tensor<8x2xf32>
  %c = stablehlo.multiply %b, %8 : tensor<8x2xf32>
  %9 = stablehlo.convert %none : (tensor<3xi64>) -> tensor<3xf32>
  %10 = stablehlo.broadcast_in_dim %9, dims = [1] : (tensor<3xf32>) -> tensor<2x3xf32>
  %11 = stablehlo.broadcast_in_dim %7, dims = [] : (tensor<f32>) -> tensor<2x3xf32>
  %d = stablehlo.convert %w : (tensor<2x3xi8>) -> tensor<2x3xf32>
  %e = stablehlo.subtract %d, %10 : tensor<2x3xf32>
  %g = stablehlo.multiply %e, %11 : tensor<2x3xf32>
  %z = stablehlo.dot_general %c, %g, contracting_dims = [1] x [0]
       : (tensor<8x2xf32>, tensor<2x3xf32>) -> tensor<8x3xf32>
  return %z : tensor<8x3xf32>
}

// Rejected: zero points of a clamp to more than bytes, of none, and of one that rounds nothing.
// CHECK-LABEL: func.func @free
// CHECK-COUNT-3: stablehlo.dot_general {{.*}} : (tensor<8x2xf32>, tensor<2x3xf32>) -> tensor<8x3xf32>
func.func @free(%x: tensor<8x2xui8>, %f: tensor<f32>)
    -> (tensor<8x3xf32>, tensor<8x3xf32>, tensor<8x3xf32>) {
  %w = stablehlo.constant dense<7> : tensor<2x3xi8>
  %s = stablehlo.constant dense<0.5> : tensor<8x2xf32>
  %t = stablehlo.constant dense<0.25> : tensor<2x3xf32>
  %d = stablehlo.convert %w : (tensor<2x3xi8>) -> tensor<2x3xf32>
  %e = stablehlo.multiply %d, %t : tensor<2x3xf32>
  %a = stablehlo.convert %x : (tensor<8x2xui8>) -> tensor<8x2xf32>
  %low = stablehlo.constant dense<0.0> : tensor<f32>
  %high = stablehlo.constant dense<256.0> : tensor<f32>
  %byte = stablehlo.constant dense<255.0> : tensor<f32>
  %0 = stablehlo.clamp %low, %f, %high : tensor<f32>
  %1 = stablehlo.convert %0 : (tensor<f32>) -> tensor<i64>
  %2 = stablehlo.convert %1 : (tensor<i64>) -> tensor<f32>
  %3 = stablehlo.broadcast_in_dim %2, dims = [] : (tensor<f32>) -> tensor<8x2xf32>
  %4 = stablehlo.subtract %a, %3 : tensor<8x2xf32>
  %5 = stablehlo.multiply %4, %s : tensor<8x2xf32>
  %6 = stablehlo.dot_general %5, %e, contracting_dims = [1] x [0]
       : (tensor<8x2xf32>, tensor<2x3xf32>) -> tensor<8x3xf32>
  %7 = stablehlo.convert %f : (tensor<f32>) -> tensor<i64>
  %8 = stablehlo.convert %7 : (tensor<i64>) -> tensor<f32>
  %9 = stablehlo.broadcast_in_dim %8, dims = [] : (tensor<f32>) -> tensor<8x2xf32>
  %10 = stablehlo.subtract %a, %9 : tensor<8x2xf32>
  %11 = stablehlo.multiply %10, %s : tensor<8x2xf32>
  %12 = stablehlo.dot_general %11, %e, contracting_dims = [1] x [0]
       : (tensor<8x2xf32>, tensor<2x3xf32>) -> tensor<8x3xf32>
  %13 = stablehlo.clamp %low, %f, %byte : tensor<f32>
  %14 = stablehlo.broadcast_in_dim %13, dims = [] : (tensor<f32>) -> tensor<8x2xf32>
  %15 = stablehlo.subtract %a, %14 : tensor<8x2xf32>
  %16 = stablehlo.multiply %15, %s : tensor<8x2xf32>
  %17 = stablehlo.dot_general %16, %e, contracting_dims = [1] x [0]
       : (tensor<8x2xf32>, tensor<2x3xf32>) -> tensor<8x3xf32>
  return %6, %12, %17 : tensor<8x3xf32>, tensor<8x3xf32>, tensor<8x3xf32>
}

// Rejected: what pads an image whose zero point is found at run time is no known byte.
// CHECK-LABEL: func.func @padded
// CHECK: stablehlo.convolution{{.*}} (tensor<1x8x1xf32>, tensor<3x1x2xf32>) -> tensor<1x9x2xf32>
func.func @padded(%x: tensor<1x8x1xui8>, %f: tensor<f32>) -> tensor<1x9x2xf32> {
  %w = stablehlo.constant dense<2> : tensor<3x1x2xi8>
  %t = stablehlo.constant dense<0.5> : tensor<3x1x2xf32>
  %s = stablehlo.constant dense<0.25> : tensor<1x8x1xf32>
  %low = stablehlo.constant dense<0.0> : tensor<f32>
  %high = stablehlo.constant dense<255.0> : tensor<f32>
  %0 = stablehlo.clamp %low, %f, %high : tensor<f32>
  %1 = stablehlo.convert %0 : (tensor<f32>) -> tensor<i64>
  %2 = stablehlo.convert %1 : (tensor<i64>) -> tensor<f32>
  %o = stablehlo.broadcast_in_dim %2, dims = [] : (tensor<f32>) -> tensor<1x8x1xf32>
  %a = stablehlo.convert %x : (tensor<1x8x1xui8>) -> tensor<1x8x1xf32>
  %b = stablehlo.subtract %a, %o : tensor<1x8x1xf32>
  %c = stablehlo.multiply %b, %s : tensor<1x8x1xf32>
  %d = stablehlo.convert %w : (tensor<3x1x2xi8>) -> tensor<3x1x2xf32>
  %e = stablehlo.multiply %d, %t : tensor<3x1x2xf32>
  %z = stablehlo.convolution(%c, %e) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f],
       window = {pad = [[1, 2]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
       : (tensor<1x8x1xf32>, tensor<3x1x2xf32>) -> tensor<1x9x2xf32>
  return %z : tensor<1x9x2xf32>
}

// Rejected: scales along what is summed, no constant, a constant of 9 bits, sums of more than 31.
// CHECK-LABEL: func.func @others
// CHECK-COUNT-3: stablehlo.dot_general {{.*}} : (tensor<8x2xf32>, tensor<2x4xf32>) -> tensor<8x4xf32>
// CHECK: stablehlo.dot_general {{.*}} : (tensor<1x70000xf32>, tensor<70000x1xf32>) -> tensor<1x1xf32>
func.func @others(%x: tensor<8x2xui8>, %v: tensor<2x4xi8>, %long: tensor<1x70000xui8>)
    -> (tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x4xf32>, tensor<1x1xf32>) {
  %w = stablehlo.constant dense<[[0, 1, 2, 3], [4, 5, 6, 255]]> : tensor<2x4xui8>
  %three = stablehlo.constant dense<3.0> : tensor<2x4xf32>
  %s = stablehlo.constant dense<0.5> : tensor<8x2xf32>
  %t = stablehlo.constant dense<0.25> : tensor<2x4xf32>
  %rows = stablehlo.constant dense<[0.5, 0.25]> : tensor<2xf32>
  %u = stablehlo.broadcast_in_dim %rows, dims = [0] : (tensor<2xf32>) -> tensor<2x4xf32>
  %a = stablehlo.convert %x : (tensor<8x2xui8>) -> tensor<8x2xf32>
  %b = stablehlo.multiply %a, %s : tensor<8x2xf32>
  %seven = stablehlo.constant dense<7> : tensor<2x4xi8>
  %c = stablehlo.convert %seven : (tensor<2x4xi8>) -> tensor<2x4xf32>
  %d = stablehlo.multiply %c, %u : tensor<2x4xf32>
  %0 = stablehlo.dot_general %b, %d, contracting_dims = [1] x [0]
       : (tensor<8x2xf32>, tensor<2x4xf32>) -> tensor<8x4xf32>
  %e = stablehlo.convert %v : (tensor<2x4xi8>) -> tensor<2x4xf32>
  %f = stablehlo.multiply %e, %t : tensor<2x4xf32>
  %1 = stablehlo.dot_general %b, %f, contracting_dims = [1] x [0]
       : (tensor<8x2xf32>, tensor<2x4xf32>) -> tensor<8x4xf32>
  %g = stablehlo.convert %w : (tensor<2x4xui8>) -> tensor<2x4xf32>
  %h = stablehlo.subtract %g, %three : tensor<2x4xf32>
  %i = stablehlo.multiply %h, %t : tensor<2x4xf32>
  %2 = stablehlo.dot_general %b, %i, contracting_dims = [1] x [0]
       : (tensor<8x2xf32>, tensor<2x4xf32>) -> tensor<8x4xf32>
  %half = stablehlo.constant dense<0.5> : tensor<1x70000xf32>
  %j = stablehlo.convert %long : (tensor<1x70000xui8>) -> tensor<1x70000xf32>
  %k = stablehlo.multiply %j, %half : tensor<1x70000xf32>
  %ones = stablehlo.constant dense<1> : tensor<70000x1xi8>
  %l = stablehlo.convert %ones : (tensor<70000x1xi8>) -> tensor<70000x1xf32>
  %quarter = stablehlo.constant dense<0.25> : tensor<70000x1xf32>
  %m = stablehlo.multiply %l, %quarter : tensor<70000x1xf32>
  %3 = stablehlo.dot_general %k, %m, contracting_dims = [1] x [0]
       : (tensor<1x70000xf32>, tensor<70000x1xf32>) -> tensor<1x1xf32>
  return %0, %1, %2, %3 : tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x4xf32>, tensor<1x1xf32>
}
