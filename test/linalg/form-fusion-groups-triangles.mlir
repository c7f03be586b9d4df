// RUN: stepwell-opt %s --split-input-file --target=cuda:sm_90a \
// RUN:   --pass-pipeline='builtin.module(legalize-to-linalg,form-fusion-groups)' | filecheck %s
// RUN: stepwell-opt %s --split-input-file --target=x86_64-v4 \
// RUN:   --pass-pipeline='builtin.module(legalize-to-linalg,form-fusion-groups)' \
// RUN:   | filecheck %s --check-prefix=CPU

// A mask that is true up to a diagonal is no kernel of its own, but a comparison of indices in the
// one that reads it: for each of its readers, through a broadcast.
// CPU-NOT: kernel.triangle
// CHECK-LABEL: func.func @mask
// CHECK-COUNT-1: call @
// CHECK-NOT: call @
// CHECK: return
// CHECK: kernel.triangle = array<f64: 1.000000e+00, 1.000000e+00, 0.000000e+00>
// CHECK: linalg.index 0
// CHECK: linalg.index 1
// CHECK: arith.cmpi sle
func.func @mask(%x: tensor<3x8x16xf32>, %low: tensor<3x8x16xf32>) -> tensor<3x8x16xf32> {
  %c = stablehlo.constant dense<1> : tensor<8x16xi32>
  %0 = stablehlo.iota dim = 0 : tensor<8x16xi32>
  %1 = stablehlo.iota dim = 1 : tensor<8x16xi32>
  %2 = stablehlo.add %0, %c : tensor<8x16xi32>
  %3 = stablehlo.compare GE, %2, %1 : (tensor<8x16xi32>, tensor<8x16xi32>) -> tensor<8x16xi1>
  %4 = stablehlo.broadcast_in_dim %3, dims = [1, 2] : (tensor<8x16xi1>) -> tensor<3x8x16xi1>
  %5 = stablehlo.select %4, %x, %low : tensor<3x8x16xi1>, tensor<3x8x16xf32>
  return %5 : tensor<3x8x16xf32>
}

// -----

// So are two numbers, one of them beyond the diagonal.
// CHECK-LABEL: func.func @numbers
// CHECK: kernel.triangle = array<f64: 0.000000e+00, 0.000000e+00, -1.000000e+04>
// CHECK: arith.cmpi sle
// CHECK: arith.select
func.func @numbers(%x: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<8x8xf32>
  %low = stablehlo.constant dense<-1.0e4> : tensor<8x8xf32>
  %0 = stablehlo.iota dim = 0 : tensor<8x8xi32>
  %1 = stablehlo.iota dim = 1 : tensor<8x8xi32>
  %2 = stablehlo.compare LT, %0, %1 : (tensor<8x8xi32>, tensor<8x8xi32>) -> tensor<8x8xi1>
  %3 = stablehlo.select %2, %low, %zero : tensor<8x8xi1>, tensor<8x8xf32>
  %4 = stablehlo.add %x, %3 : tensor<8x8xf32>
  return %4 : tensor<8x8xf32>
}

// -----

// What is not the same up to the diagonal, and what is not known, stays as it is.
// CHECK-LABEL: func.func @others
// CHECK-NOT: kernel.triangle
func.func @others(%x: tensor<8x8xf32>, %n: tensor<8x8xi32>) -> tensor<8x8xf32> {
  %0 = stablehlo.iota dim = 0 : tensor<8x8xi32>
  %1 = stablehlo.iota dim = 1 : tensor<8x8xi32>
  %2 = stablehlo.subtract %0, %1 : tensor<8x8xi32>
  %3 = stablehlo.convert %2 : (tensor<8x8xi32>) -> tensor<8x8xf32>
  %4 = stablehlo.add %x, %3 : tensor<8x8xf32>
  %5 = stablehlo.compare GE, %n, %1 : (tensor<8x8xi32>, tensor<8x8xi32>) -> tensor<8x8xi1>
  %6 = stablehlo.select %5, %4, %x : tensor<8x8xi1>, tensor<8x8xf32>
  return %6 : tensor<8x8xf32>
}
