// RUN: stepwell-opt %s --target=cuda:sm_90a --pass-pipeline='builtin.module(choose-layout)' | filecheck %s
// RUN: stepwell-opt %s --target=x86_64-v3 --pass-pipeline='builtin.module(choose-layout)' \
// RUN:   | filecheck %s --check-prefix=CPU

// CPU-LABEL: func.func @keys
// CPU: stablehlo.transpose
// CPU: stablehlo.dot_general

// CHECK-LABEL: func.func @keys
// CHECK-NEXT: %[[S:.*]] = stablehlo.dot_general %arg0, %arg1, batching_dims = [0, 1] x [0, 2], contracting_dims = [3] x [3]
// CHECK-NEXT: return %[[S]]
func.func @keys(%q: tensor<2x3x8x16xf32>, %k: tensor<2x9x3x16xf32>) -> tensor<2x3x8x9xf32> {
  %t = stablehlo.transpose %k, dims = [0, 2, 3, 1] : (tensor<2x9x3x16xf32>) -> tensor<2x3x16x9xf32>
  %s = stablehlo.dot_general %q, %t, batching_dims = [0, 1] x [0, 1], contracting_dims = [3] x [2]
       : (tensor<2x3x8x16xf32>, tensor<2x3x16x9xf32>) -> tensor<2x3x8x9xf32>
  return %s : tensor<2x3x8x9xf32>
}

// CHECK-LABEL: func.func @narrow_rows
// CHECK-NEXT: stablehlo.dot_general %arg0, %arg1, contracting_dims = [0] x [0]
func.func @narrow_rows(%x: tensor<9x5xbf16>, %y: tensor<9x4xbf16>) -> tensor<5x4xf32> {
  %t = stablehlo.transpose %x, dims = [1, 0] : (tensor<9x5xbf16>) -> tensor<5x9xbf16>
  %z = stablehlo.dot_general %t, %y, contracting_dims = [1] x [0]
       : (tensor<5x9xbf16>, tensor<9x4xbf16>) -> tensor<5x4xf32>
  return %z : tensor<5x4xf32>
}

// Rows of 32 bits that would lie side by side; rows that would change their order; a transpose that
// leaves the last dimension; a constant, which is transposed for good.
// CHECK-LABEL: func.func @rejected
// CHECK-COUNT-4: stablehlo.transpose
// CHECK: return
func.func @rejected(%x: tensor<9x5xf32>, %y: tensor<9x4xf32>, %r: tensor<7x6x9xf32>,
                    %l: tensor<6x2x9xf32>)
    -> (tensor<5x4xf32>, tensor<6x7x4xf32>, tensor<2x6x4xf32>, tensor<5x3xf32>) {
  %a = stablehlo.transpose %x, dims = [1, 0] : (tensor<9x5xf32>) -> tensor<5x9xf32>
  %0 = stablehlo.dot_general %a, %y, contracting_dims = [1] x [0]
       : (tensor<5x9xf32>, tensor<9x4xf32>) -> tensor<5x4xf32>
  %b = stablehlo.transpose %r, dims = [2, 1, 0] : (tensor<7x6x9xf32>) -> tensor<9x6x7xf32>
  %1 = stablehlo.dot_general %b, %y, contracting_dims = [0] x [0]
       : (tensor<9x6x7xf32>, tensor<9x4xf32>) -> tensor<6x7x4xf32>
  %c = stablehlo.transpose %l, dims = [1, 0, 2] : (tensor<6x2x9xf32>) -> tensor<2x6x9xf32>
  %2 = stablehlo.dot_general %c, %y, contracting_dims = [2] x [0]
       : (tensor<2x6x9xf32>, tensor<9x4xf32>) -> tensor<2x6x4xf32>
  %w = stablehlo.constant dense<1.5> : tensor<3x9xf32>
  %d = stablehlo.transpose %w, dims = [1, 0] : (tensor<3x9xf32>) -> tensor<9x3xf32>
  %3 = stablehlo.dot_general %a, %d, contracting_dims = [1] x [0]
       : (tensor<5x9xf32>, tensor<9x3xf32>) -> tensor<5x3xf32>
  return %0, %1, %2, %3 : tensor<5x4xf32>, tensor<6x7x4xf32>, tensor<2x6x4xf32>, tensor<5x3xf32>
}
