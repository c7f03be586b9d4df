// RUN: stepwell-opt %s --pass-pipeline='group-ragged-products' | filecheck %s

// 512 rows, 8 groups: 24 tiles of 32 rows at most.
// CHECK-LABEL: func.func @grouped
// CHECK: stablehlo.dot_general {{.*}} batching_dims = [0] x [0]
// CHECK-SAME: (tensor<24x32x16xf32>, tensor<24x16x24xf32>) -> tensor<24x32x24xf32>
// CHECK-NOT: tensor<8x512x16xf32>
// CHECK: return
func.func @grouped(%x: tensor<512x16xf32>, %w: tensor<8x16x24xf32>, %sizes: tensor<8xi32>)
    -> tensor<512x24xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %nothing = stablehlo.constant dense<0.0> : tensor<8x512x16xf32>
  %ends = "stablehlo.reduce_window"(%sizes, %zero) <{window_dimensions = array<i64: 8>,
      padding = dense<[[7, 0]]> : tensor<1x2xi64>}> ({
  ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    %s = stablehlo.add %a, %b : tensor<i32>
    stablehlo.return %s : tensor<i32>
  }) : (tensor<8xi32>, tensor<i32>) -> tensor<8xi32>
  %first = stablehlo.constant dense<0> : tensor<1xi32>
  %before = stablehlo.slice %ends [0:7] : (tensor<8xi32>) -> tensor<7xi32>
  %starts = stablehlo.concatenate %first, %before, dim = 0
      : (tensor<1xi32>, tensor<7xi32>) -> tensor<8xi32>
  %row = stablehlo.iota dim = 1 : tensor<8x512x16xi32>
  %low = stablehlo.broadcast_in_dim %starts, dims = [0] : (tensor<8xi32>) -> tensor<8x512x16xi32>
  %high = stablehlo.broadcast_in_dim %ends, dims = [0] : (tensor<8xi32>) -> tensor<8x512x16xi32>
  %0 = stablehlo.compare LE, %low, %row
      : (tensor<8x512x16xi32>, tensor<8x512x16xi32>) -> tensor<8x512x16xi1>
  %1 = stablehlo.compare LT, %row, %high
      : (tensor<8x512x16xi32>, tensor<8x512x16xi32>) -> tensor<8x512x16xi1>
  %mask = stablehlo.and %0, %1 : tensor<8x512x16xi1>
  %rows = stablehlo.broadcast_in_dim %x, dims = [1, 2]
      : (tensor<512x16xf32>) -> tensor<8x512x16xf32>
  %2 = stablehlo.select %mask, %rows, %nothing : tensor<8x512x16xi1>, tensor<8x512x16xf32>
  %3 = stablehlo.dot_general %2, %w, contracting_dims = [2, 0] x [1, 0]
      : (tensor<8x512x16xf32>, tensor<8x16x24xf32>) -> tensor<512x24xf32>
  return %3 : tensor<512x24xf32>
}

// Bounds that are no cumulative sums: groups might overlap.
// CHECK-LABEL: func.func @rejected
// CHECK: stablehlo.dot_general {{.*}} contracting_dims = [2, 0] x [1, 0]
// CHECK-NOT: batching_dims
func.func @rejected(%x: tensor<512x16xf32>, %w: tensor<8x16x24xf32>, %starts: tensor<8xi32>,
                    %ends: tensor<8xi32>) -> tensor<512x24xf32> {
  %nothing = stablehlo.constant dense<0.0> : tensor<8x512x16xf32>
  %row = stablehlo.iota dim = 1 : tensor<8x512x16xi32>
  %low = stablehlo.broadcast_in_dim %starts, dims = [0] : (tensor<8xi32>) -> tensor<8x512x16xi32>
  %high = stablehlo.broadcast_in_dim %ends, dims = [0] : (tensor<8xi32>) -> tensor<8x512x16xi32>
  %0 = stablehlo.compare LE, %low, %row
      : (tensor<8x512x16xi32>, tensor<8x512x16xi32>) -> tensor<8x512x16xi1>
  %1 = stablehlo.compare LT, %row, %high
      : (tensor<8x512x16xi32>, tensor<8x512x16xi32>) -> tensor<8x512x16xi1>
  %mask = stablehlo.and %0, %1 : tensor<8x512x16xi1>
  %rows = stablehlo.broadcast_in_dim %x, dims = [1, 2]
      : (tensor<512x16xf32>) -> tensor<8x512x16xf32>
  %2 = stablehlo.select %mask, %rows, %nothing : tensor<8x512x16xi1>, tensor<8x512x16xf32>
  %3 = stablehlo.dot_general %2, %w, contracting_dims = [2, 0] x [1, 0]
      : (tensor<8x512x16xf32>, tensor<8x16x24xf32>) -> tensor<512x24xf32>
  return %3 : tensor<512x24xf32>
}
