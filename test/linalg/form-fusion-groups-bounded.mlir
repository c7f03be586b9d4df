// RUN: stepwell-opt %s \
// RUN:   --pass-pipeline='builtin.module(legalize-to-linalg,form-fusion-groups{max-operations=1})' \
// RUN:   | filecheck %s
// RUN: not stepwell-opt %s --pass-pipeline='builtin.module(form-fusion-groups{size=1})' 2>&1 \
// RUN:   | filecheck %s --check-prefix=UNKNOWN

// UNKNOWN: error: pass form-fusion-groups has no option size (it has: {{.*}}max-operations

// With one operation a group, each becomes a kernel.
// CHECK-LABEL: func.func @main
// CHECK: %[[A:.*]] = call @kernel_0(%arg0
// CHECK: %[[B:.*]] = call @kernel_1(%[[A]]
// CHECK: return %[[B]]
func.func @main(%x: tensor<64xf32>) -> tensor<64xf32> {
  %0 = stablehlo.tanh %x : tensor<64xf32>
  %1 = stablehlo.exponential %0 : tensor<64xf32>
  return %1 : tensor<64xf32>
}
