// RUN: stepwell-opt %s --target=cuda:sm_90a \
// RUN:   --pass-pipeline='builtin.module(narrow-integer-products)' | filecheck %s
// RUN: stepwell-opt %s --target=aarch64-neoverse-v2 \
// RUN:   --pass-pipeline='builtin.module(narrow-integer-products)' | filecheck %s --check-prefix=CPU
// RUN: stepwell-opt %s --target=x86_64-v4+vnni \
// RUN:   --pass-pipeline='builtin.module(narrow-integer-products)' | filecheck %s --check-prefix=WORD
// RUN: stepwell-opt %s --target=x86_64-v3 \
// RUN:   --pass-pipeline='builtin.module(narrow-integer-products)' | filecheck %s --check-prefix=SMALL

// CPU-NOT: stablehlo.convert {{.*}}ui8>$

// One operand is made unsigned; the columns of the other are summed where the model runs.
// WORD-LABEL: func.func @signed
// WORD: %[[X:.*]] = stablehlo.convert %{{.*}} : (tensor<8x64xi32>) -> tensor<8x64xui8>
// WORD: %[[SUMS:.*]] = stablehlo.reduce({{.*}}applies stablehlo.add across dimensions = [0] : (tensor<64x4xi32>
// WORD: %[[EACH:.*]] = stablehlo.broadcast_in_dim %[[SUMS]], dims = [1] : (tensor<4xi32>) -> tensor<8x4xi32>
// WORD: %[[OFFSET:.*]] = stablehlo.multiply %[[EACH]],
// WORD: %[[A:.*]] = stablehlo.convert %[[X]] : (tensor<8x64xui8>) -> tensor<8x64xi32>
// WORD: %[[P:.*]] = stablehlo.dot_general %[[A]], {{.*}} : (tensor<8x64xi32>, tensor<64x4xi32>) -> tensor<8x4xi32>
// WORD: stablehlo.add %[[P]], %[[OFFSET]]
// CHECK-LABEL: func.func @signed
// CHECK-NEXT: stablehlo.dot_general %arg0, %arg1, {{.*}} : (tensor<8x64xi8>, tensor<64x4xi8>) -> tensor<8x4xi32>
// CHECK-NEXT: return
func.func @signed(%x: tensor<8x64xi8>, %w: tensor<64x4xi8>) -> tensor<8x4xi32> {
  %a = stablehlo.convert %x : (tensor<8x64xi8>) -> tensor<8x64xi32>
  %b = stablehlo.convert %w : (tensor<64x4xi8>) -> tensor<64x4xi32>
  %z = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
       : (tensor<8x64xi32>, tensor<64x4xi32>) -> tensor<8x4xi32>
  return %z : tensor<8x4xi32>
}

// Bytes themselves are what tensor cores multiply; for words, one operand is made unsigned.
// CHECK-LABEL: func.func @bytes
// CHECK-NEXT: stablehlo.dot_general %arg0, %arg1, {{.*}} : (tensor<8x64xi8>, tensor<64x4xi8>) -> tensor<8x4xi32>
// CHECK-NEXT: return
// WORD-LABEL: func.func @bytes
// WORD: stablehlo.dot_general {{.*}} : (tensor<8x64xi32>, tensor<64x4xi32>) -> tensor<8x4xi32>
func.func @bytes(%x: tensor<8x64xi8>, %w: tensor<64x4xi8>) -> tensor<8x4xi32> {
  %z = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
       : (tensor<8x64xi8>, tensor<64x4xi8>) -> tensor<8x4xi32>
  return %z : tensor<8x4xi32>
}

// (x - 128) + 28, and the sums of the columns of w are 6 and 15.
// Words of four terms: minus 100 times the sums.
// WORD-LABEL: func.func @offset
// WORD-DAG: %[[OFFSET:.*]] = stablehlo.constant dense<[-600, -1500]> : tensor<2xi32>
// WORD-DAG: %[[X:.*]] = stablehlo.pad %arg0, {{.*}}high = [0, 1]{{.*}} -> tensor<8x4xui8>
// WORD-DAG: %[[A:.*]] = stablehlo.convert %[[X]] : (tensor<8x4xui8>) -> tensor<8x4xi32>
// WORD: %[[P:.*]] = stablehlo.dot_general %[[A]], {{.*}} : (tensor<8x4xi32>, tensor<4x2xi32>) -> tensor<8x2xi32>
// WORD: stablehlo.add %[[P]],
// SMALL-LABEL: func.func @offset
// SMALL: stablehlo.constant dense<{{.*}}1, 4{{.*}}> : tensor<3x2xi8>
// SMALL: stablehlo.dot_general {{.*}} : (tensor<8x4xi32>, tensor<4x2xi32>) -> tensor<8x2xi32>
// CHECK-LABEL: func.func @offset
// CHECK-DAG: %[[OFFSET:.*]] = stablehlo.constant dense<[168, 420]> : tensor<2xi32>
// CHECK-DAG: stablehlo.constant dense<{{.*}}1, 4{{.*}}> : tensor<3x2xi8>
// CHECK: %[[P:.*]] = stablehlo.dot_general {{.*}} : (tensor<8x3xi8>, tensor<3x2xi8>) -> tensor<8x2xi32>
// CHECK: stablehlo.add %[[P]],
func.func @offset(%x: tensor<8x3xui8>) -> tensor<8x2xi32> {
  %w = stablehlo.constant dense<[[1, 4], [2, 5], [3, 6]]> : tensor<3x2xi32>
  %zero = stablehlo.constant dense<100> : tensor<8x3xi32>
  %a = stablehlo.convert %x : (tensor<8x3xui8>) -> tensor<8x3xi32>
  %b = stablehlo.subtract %a, %zero : tensor<8x3xi32>
  %z = stablehlo.dot_general %b, %w, contracting_dims = [1] x [0]
       : (tensor<8x3xi32>, tensor<3x2xi32>) -> tensor<8x2xi32>
  return %z : tensor<8x2xi32>
}

// What pads the image stands for 0: 100 - 128.
// WORD-LABEL: func.func @padded
// WORD: %[[ZERO:.*]] = stablehlo.constant dense<100> : tensor<ui8>
// WORD: stablehlo.pad %arg0, %[[ZERO]], low = [0, 1, 0], high = [0, 2, 3]
// WORD: stablehlo.convolution{{.*}}pad = {{\[\[}}0, 0]]
// WORD-SAME: (tensor<1x11x4xi32>, tensor<3x4x1xi32>) -> tensor<1x9x1xi32>
// CHECK-LABEL: func.func @padded
// CHECK: %[[ZERO:.*]] = stablehlo.constant dense<-28> : tensor<i8>
// CHECK: stablehlo.pad %{{.*}}, %[[ZERO]], low = [0, 1, 0], high = [0, 2, 0]
// CHECK: stablehlo.convolution{{.*}}pad = {{\[\[}}0, 0]]
// CHECK-SAME: (tensor<1x11x1xi8>, tensor<3x1x1xi8>) -> tensor<1x9x1xi32>
func.func @padded(%x: tensor<1x8x1xui8>) -> tensor<1x9x1xi32> {
  %w = stablehlo.constant dense<2> : tensor<3x1x1xi32>
  %zero = stablehlo.constant dense<100> : tensor<1x8x1xi32>
  %a = stablehlo.convert %x : (tensor<1x8x1xui8>) -> tensor<1x8x1xi32>
  %b = stablehlo.subtract %a, %zero : tensor<1x8x1xi32>
  %z = stablehlo.convolution(%b, %w) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f],
       window = {pad = [[1, 2]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
       : (tensor<1x8x1xi32>, tensor<3x1x1xi32>) -> tensor<1x9x1xi32>
  return %z : tensor<1x9x1xi32>
}

// Two offsets: each times the sums of the other operand, and their product for each of 64 terms.
// CHECK-LABEL: func.func @two_offsets
// CHECK: stablehlo.reduce({{.*}}across dimensions = [0] : (tensor<64x2x4xi32>
// CHECK: stablehlo.broadcast_in_dim %{{.*}}, dims = [0, 2] : (tensor<2x4xi32>) -> tensor<2x8x4xi32>
// CHECK: stablehlo.reduce({{.*}}across dimensions = [2] : (tensor<2x8x64xi32>
// CHECK: stablehlo.dot_general {{.*}} : (tensor<2x8x64xi8>, tensor<64x2x4xi8>) -> tensor<2x8x4xi32>
// CHECK-COUNT-3: stablehlo.add %{{.*}} : tensor<2x8x4xi32>
// CHECK: return
func.func @two_offsets(%x: tensor<2x8x64xui8>, %w: tensor<64x2x4xui8>) -> tensor<2x8x4xi32> {
  %a = stablehlo.convert %x : (tensor<2x8x64xui8>) -> tensor<2x8x64xi32>
  %b = stablehlo.convert %w : (tensor<64x2x4xui8>) -> tensor<64x2x4xi32>
  %z = stablehlo.dot_general %a, %b, batching_dims = [0] x [1], contracting_dims = [2] x [0]
       : (tensor<2x8x64xi32>, tensor<64x2x4xi32>) -> tensor<2x8x4xi32>
  return %z : tensor<2x8x4xi32>
}

// Where two products are added in 16 bits, 64 is the largest of a constant; 65 is rejected.
// SMALL-LABEL: func.func @largest
// SMALL: %[[B:.*]] = stablehlo.subtract
// SMALL: %[[P:.*]] = stablehlo.dot_general
// SMALL: stablehlo.add %[[P]],
// SMALL: stablehlo.dot_general %[[B]],
func.func @largest(%x: tensor<8x4xui8>) -> (tensor<8x2xi32>, tensor<8x2xi32>) {
  %w = stablehlo.constant dense<[[64, 4], [2, 5], [-64, 3], [6, 0]]> : tensor<4x2xi32>
  %v = stablehlo.constant dense<[[65, 4], [2, 5], [-64, 3], [6, 0]]> : tensor<4x2xi32>
  %zero = stablehlo.constant dense<100> : tensor<8x4xi32>
  %a = stablehlo.convert %x : (tensor<8x4xui8>) -> tensor<8x4xi32>
  %b = stablehlo.subtract %a, %zero : tensor<8x4xi32>
  %0 = stablehlo.dot_general %b, %w, contracting_dims = [1] x [0]
       : (tensor<8x4xi32>, tensor<4x2xi32>) -> tensor<8x2xi32>
  %1 = stablehlo.dot_general %b, %v, contracting_dims = [1] x [0]
       : (tensor<8x4xi32>, tensor<4x2xi32>) -> tensor<8x2xi32>
  return %0, %1 : tensor<8x2xi32>, tensor<8x2xi32>
}

// Rejected: constants of 9 bits, 16 bits, a padded image of an offset beside what is no constant.
// CHECK-LABEL: func.func @others
// CHECK-COUNT-2: stablehlo.dot_general {{.*}} : (tensor<8x64xi32>, tensor<64x4xi32>) -> tensor<8x4xi32>
// CHECK: stablehlo.convolution{{.*}} : (tensor<1x8x1xi32>, tensor<3x1x1xi32>) -> tensor<1x9x1xi32>
func.func @others(%x: tensor<8x64xui8>, %u: tensor<64x4xi16>, %image: tensor<1x8x1xui8>,
                  %kernel: tensor<3x1x1xi8>)
    -> (tensor<8x4xi32>, tensor<8x4xi32>, tensor<1x9x1xi32>) {
  %wide = stablehlo.iota dim = 0 : tensor<64x4xi32>
  %a = stablehlo.convert %x : (tensor<8x64xui8>) -> tensor<8x64xi32>
  %d = stablehlo.convert %u : (tensor<64x4xi16>) -> tensor<64x4xi32>
  %0 = stablehlo.dot_general %a, %wide, contracting_dims = [1] x [0]
       : (tensor<8x64xi32>, tensor<64x4xi32>) -> tensor<8x4xi32>
  %1 = stablehlo.dot_general %a, %d, contracting_dims = [1] x [0]
       : (tensor<8x64xi32>, tensor<64x4xi32>) -> tensor<8x4xi32>
  %e = stablehlo.convert %image : (tensor<1x8x1xui8>) -> tensor<1x8x1xi32>
  %f = stablehlo.convert %kernel : (tensor<3x1x1xi8>) -> tensor<3x1x1xi32>
  %2 = stablehlo.convolution(%e, %f) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f],
       window = {pad = [[1, 2]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
       : (tensor<1x8x1xi32>, tensor<3x1x1xi32>) -> tensor<1x9x1xi32>
  return %0, %1, %2 : tensor<8x4xi32>, tensor<8x4xi32>, tensor<1x9x1xi32>
}
