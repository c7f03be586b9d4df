// RUN: stepwell-opt %s --target=x86_64-v3 \
// RUN:   --pass-pipeline='builtin.module(pair-integer-products)' | filecheck %s
// RUN: stepwell-opt %s --target=x86_64-v4+vnni \
// RUN:   --pass-pipeline='builtin.module(pair-integer-products)' | filecheck %s --check-prefix=OFF

// OFF-NOT: stablehlo.dot_general{{.*}}xi16>
// OFF-NOT: stablehlo.convolution{{.*}}xi16>

// A byte less a zero point has nine bits; the weights are a constant of 16.
// CHECK-LABEL: func.func @offset
// CHECK-DAG: %[[W:.*]] = stablehlo.constant dense<{{\[\[}}100, 4], [200, 5]]> : tensor<2x2xi16>
// CHECK-DAG: %[[B:.*]] = stablehlo.subtract
// CHECK-DAG: %[[X:.*]] = stablehlo.convert %[[B]] : (tensor<8x2xi32>) -> tensor<8x2xi16>
// CHECK: stablehlo.dot_general %[[X]], %[[W]], {{.*}} : (tensor<8x2xi16>, tensor<2x2xi16>) -> tensor<8x2xi32>
func.func @offset(%x: tensor<8x2xui8>) -> tensor<8x2xi32> {
  %w = stablehlo.constant dense<[[100, 4], [200, 5]]> : tensor<2x2xi32>
  %zero = stablehlo.constant dense<100> : tensor<8x2xi32>
  %a = stablehlo.convert %x : (tensor<8x2xui8>) -> tensor<8x2xi32>
  %b = stablehlo.subtract %a, %zero : tensor<8x2xi32>
  %z = stablehlo.dot_general %b, %w, contracting_dims = [1] x [0]
       : (tensor<8x2xi32>, tensor<2x2xi32>) -> tensor<8x2xi32>
  return %z : tensor<8x2xi32>
}

// A zero point that is known when the model runs is a byte, too; a word has two terms.
// CHECK-LABEL: func.func @odd
// CHECK: %[[X:.*]] = stablehlo.convert {{.*}} -> tensor<8x3xi16>
// CHECK: stablehlo.pad %[[X]], {{.*}}high = [0, 1]{{.*}} -> tensor<8x4xi16>
// CHECK: %[[W:.*]] = stablehlo.convert {{.*}} -> tensor<3x5xi16>
// CHECK: stablehlo.pad %[[W]], {{.*}}high = [1, 0]{{.*}} -> tensor<4x5xi16>
// CHECK: stablehlo.dot_general {{.*}} : (tensor<8x4xi16>, tensor<4x5xi16>) -> tensor<8x5xi32>
func.func @odd(%x: tensor<8x3xui8>, %w: tensor<3x5xi8>, %zero: tensor<ui8>) -> tensor<8x5xi32> {
  %a = stablehlo.convert %x : (tensor<8x3xui8>) -> tensor<8x3xi32>
  %point = stablehlo.convert %zero : (tensor<ui8>) -> tensor<i32>
  %points = stablehlo.broadcast_in_dim %point, dims = [] : (tensor<i32>) -> tensor<8x3xi32>
  %b = stablehlo.subtract %a, %points : tensor<8x3xi32>
  %c = stablehlo.convert %w : (tensor<3x5xi8>) -> tensor<3x5xi32>
  %z = stablehlo.dot_general %b, %c, contracting_dims = [1] x [0]
       : (tensor<8x3xi32>, tensor<3x5xi32>) -> tensor<8x5xi32>
  return %z : tensor<8x5xi32>
}

// What pads the image is 0 still.
// CHECK-LABEL: func.func @padded
// CHECK: stablehlo.convolution{{.*}}pad = {{\[\[}}1, 2]]
// CHECK-SAME: (tensor<1x8x2xi16>, tensor<3x2x1xi16>) -> tensor<1x9x1xi32>
func.func @padded(%x: tensor<1x8x2xi8>) -> tensor<1x9x1xi32> {
  %w = stablehlo.constant dense<65> : tensor<3x2x1xi32>
  %a = stablehlo.convert %x : (tensor<1x8x2xi8>) -> tensor<1x8x2xi32>
  %z = stablehlo.convolution(%a, %w) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f],
       window = {pad = [[1, 2]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
       : (tensor<1x8x2xi32>, tensor<3x2x1xi32>) -> tensor<1x9x1xi32>
  return %z : tensor<1x9x1xi32>
}

// Rejected: 17 bits, what is not known to have 16, groups, and what narrow-integer-products made:
// bytes by a constant of small ones.
// CHECK-LABEL: func.func @others
// CHECK-COUNT-2: stablehlo.dot_general {{.*}} : (tensor<8x2xi32>, tensor<2x2xi32>) -> tensor<8x2xi32>
// CHECK: stablehlo.convolution{{.*}} : (tensor<1x8x2xi32>, tensor<3x1x2xi32>) -> tensor<1x6x2xi32>
// CHECK: stablehlo.dot_general {{.*}} : (tensor<8x4xi32>, tensor<4x2xi32>) -> tensor<8x2xi32>
func.func @others(%x: tensor<8x2xi8>, %u: tensor<8x2xi32>, %image: tensor<1x8x2xi8>,
                  %filters: tensor<3x1x2xi8>, %bytes: tensor<8x4xui8>)
    -> (tensor<8x2xi32>, tensor<8x2xi32>, tensor<1x6x2xi32>, tensor<8x2xi32>) {
  %large = stablehlo.constant dense<[[1, 2], [3, 32768]]> : tensor<2x2xi32>
  %w = stablehlo.constant dense<[[1, 2], [3, 4]]> : tensor<2x2xi32>
  %a = stablehlo.convert %x : (tensor<8x2xi8>) -> tensor<8x2xi32>
  %0 = stablehlo.dot_general %a, %large, contracting_dims = [1] x [0]
       : (tensor<8x2xi32>, tensor<2x2xi32>) -> tensor<8x2xi32>
  %1 = stablehlo.dot_general %u, %w, contracting_dims = [1] x [0]
       : (tensor<8x2xi32>, tensor<2x2xi32>) -> tensor<8x2xi32>
  %b = stablehlo.convert %image : (tensor<1x8x2xi8>) -> tensor<1x8x2xi32>
  %c = stablehlo.convert %filters : (tensor<3x1x2xi8>) -> tensor<3x1x2xi32>
  %2 = stablehlo.convolution(%b, %c) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f],
       window = {} {batch_group_count = 1 : i64, feature_group_count = 2 : i64}
       : (tensor<1x8x2xi32>, tensor<3x1x2xi32>) -> tensor<1x6x2xi32>
  %small = stablehlo.constant dense<[[64, 2], [3, 4], [5, 6], [7, -64]]> : tensor<4x2xi32>
  %d = stablehlo.convert %bytes : (tensor<8x4xui8>) -> tensor<8x4xi32>
  %3 = stablehlo.dot_general %d, %small, contracting_dims = [1] x [0]
       : (tensor<8x4xi32>, tensor<4x2xi32>) -> tensor<8x2xi32>
  return %0, %1, %2, %3 : tensor<8x2xi32>, tensor<8x2xi32>, tensor<1x6x2xi32>, tensor<8x2xi32>
}
