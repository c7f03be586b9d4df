// RUN: stepwell-opt %s --split-input-file \
// RUN:   --pass-pipeline='builtin.module(legalize-to-linalg,form-fusion-groups{max-depth=3})' \
// RUN:   | filecheck %s

// Three operations in a row are one group, as many as there may be.
// CHECK-LABEL: func.func @as_deep_as_may_be
// CHECK-COUNT-1: call @kernel_0
// CHECK-NOT: call
func.func @as_deep_as_may_be(%x: tensor<64xf32>) -> tensor<64xf32> {
  %0 = stablehlo.tanh %x : tensor<64xf32>
  %1 = stablehlo.exponential %0 : tensor<64xf32>
  %2 = stablehlo.sine %1 : tensor<64xf32>
  return %2 : tensor<64xf32>
}

// -----

// The fourth begins a group of its own.
// CHECK-LABEL: func.func @deeper
// CHECK: %[[A:.*]] = call @kernel_0(%arg0
// CHECK: %[[B:.*]] = call @kernel_1(%[[A]]
// CHECK-NOT: call
// CHECK: return %[[B]]
// CHECK: func.func private @kernel_0
// CHECK: math.sin
// CHECK: func.func private @kernel_1
// CHECK: math.cos
func.func @deeper(%x: tensor<64xf32>) -> tensor<64xf32> {
  %0 = stablehlo.tanh %x : tensor<64xf32>
  %1 = stablehlo.exponential %0 : tensor<64xf32>
  %2 = stablehlo.sine %1 : tensor<64xf32>
  %3 = stablehlo.cosine %2 : tensor<64xf32>
  return %3 : tensor<64xf32>
}

// -----

// Operations side by side do not count.
// CHECK-LABEL: func.func @wide
// CHECK-COUNT-1: call @kernel_0
// CHECK-NOT: call
func.func @wide(%x: tensor<64xf32>) -> tensor<64xf32> {
  %0 = stablehlo.tanh %x : tensor<64xf32>
  %1 = stablehlo.exponential %x : tensor<64xf32>
  %2 = stablehlo.sine %x : tensor<64xf32>
  %3 = stablehlo.cosine %x : tensor<64xf32>
  %4 = stablehlo.add %0, %1 : tensor<64xf32>
  %5 = stablehlo.add %2, %3 : tensor<64xf32>
  %6 = stablehlo.add %4, %5 : tensor<64xf32>
  return %6 : tensor<64xf32>
}

// -----

// A group is not computed by its reader where that makes a path too long: %2 follows on %1, and the
// group of %3 and %4 would.
// CHECK-LABEL: func.func @absorbed
// CHECK-COUNT-2: call @kernel_
// CHECK-NOT: call
func.func @absorbed(%x: tensor<64xf32>, %y: tensor<64xf32>) -> tensor<64xf32> {
  %0 = stablehlo.tanh %y : tensor<64xf32>
  %1 = stablehlo.sine %0 : tensor<64xf32>
  %2 = stablehlo.cosine %1 : tensor<64xf32>
  %3 = stablehlo.exponential %x : tensor<64xf32>
  %4 = stablehlo.add %2, %3 : tensor<64xf32>
  return %4 : tensor<64xf32>
}
