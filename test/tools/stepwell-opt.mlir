// Upstream passes run at any nesting, modules are split, and the result reads back equal.
// RUN: stepwell-opt %s --split-input-file --verify-roundtrip \
// RUN:   --pass-pipeline='builtin.module(func.func(cse, canonicalize))' | filecheck %s

// CHECK-LABEL: func.func @twice
// CHECK-NEXT: %[[SUM:.*]] = stablehlo.add %arg0, %arg0
// CHECK-NEXT: stablehlo.multiply %[[SUM]], %[[SUM]]
func.func @twice(%x: tensor<2xf32>) -> tensor<2xf32> {
  %a = stablehlo.add %x, %x : tensor<2xf32>
  %b = stablehlo.add %x, %x : tensor<2xf32>
  %c = stablehlo.multiply %a, %b : tensor<2xf32>
  return %c : tensor<2xf32>
}

// -----

// CHECK: // -----
// CHECK-LABEL: func.func @second
func.func @second() {
  return
}
