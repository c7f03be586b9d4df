// RUN: stepwell-opt %s --target=x86_64-v4 --split-input-file \
// RUN:   --pass-pipeline='builtin.module(legalize-to-linalg,form-fusion-groups,pack-operands)' | filecheck %s

// Weights come from memory at every call. Where reading them takes a good part of the time of the
// few rows' multiply-adds, all rows of a task meet a panel while the next one is asked for.
// CHECK: func.func private @kernel_0(
// CHECK-SAME: tensor<49x256xf32>
// CHECK-SAME: ask_panels = true
// CHECK-SAME: panels = 1 : i64
func.func @few_rows(%x: tensor<49x256xf32>, %w: tensor<256x512xf32> {stepwell.parameter}) -> tensor<49x512xf32> {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<49x256xf32>, tensor<256x512xf32>) -> tensor<49x512xf32>
  return %0 : tensor<49x512xf32>
}

// -----

// Rejected: with so many rows the weights' reading is little, and a block of rows meets all panels.
// CHECK: func.func private @kernel_0(
// CHECK-SAME: tensor<784x256xf32>
// CHECK-SAME: ask_panels = false
// CHECK-SAME: panels = {{[2-9]}}
func.func @many_rows(%x: tensor<784x256xf32>, %w: tensor<256x512xf32> {stepwell.parameter}) -> tensor<784x512xf32> {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<784x256xf32>, tensor<256x512xf32>) -> tensor<784x512xf32>
  return %0 : tensor<784x512xf32>
}
