// RUN: stepwell-opt %s --target=x86_64-v3 --split-input-file \
// RUN:   --pass-pipeline='builtin.module(legalize-to-linalg,form-fusion-groups,pack-operands)' | filecheck %s

// Weights that stay in L2, and rows that do not: a task is a row of tiles, so that results are
// written in order, and asks for the rows of the next one.
// CHECK: func.func private @kernel_0(
// CHECK-SAME: tensor<3136x256xf32>
// CHECK-SAME: ask_rows = true
// CHECK-SAME: panels = 4 : i64
// CHECK-SAME: row_tiles = 1 : i64
func.func @long_rows(%x: tensor<3136x256xf32>, %w: tensor<256x64xf32> {stepwell.parameter}) -> tensor<3136x64xf32> {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<3136x256xf32>, tensor<256x64xf32>) -> tensor<3136x64xf32>
  return %0 : tensor<3136x64xf32>
}

// -----

// Rejected: more is written than read, and the work on a row is enough to hide that it comes from
// further away.
// CHECK: func.func private @kernel_0(
// CHECK-SAME: tensor<3136x64xf32>
// CHECK-SAME: ask_rows = false
// CHECK-SAME: row_tiles = 1 : i64
func.func @short_rows(%x: tensor<3136x64xf32>, %w: tensor<64x256xf32> {stepwell.parameter}) -> tensor<3136x256xf32> {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<3136x64xf32>, tensor<64x256xf32>) -> tensor<3136x256xf32>
  return %0 : tensor<3136x256xf32>
}

// -----

// Rejected: rows and results that L2 holds anyway.
// CHECK: func.func private @kernel_0(
// CHECK-SAME: tensor<640x96xf32>
// CHECK-SAME: ask_rows = false
// CHECK-SAME: row_tiles = 2 : i64
func.func @few_rows(%x: tensor<640x96xf32>, %w: tensor<96x64xf32> {stepwell.parameter}) -> tensor<640x64xf32> {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<640x96xf32>, tensor<96x64xf32>) -> tensor<640x64xf32>
  return %0 : tensor<640x64xf32>
}
