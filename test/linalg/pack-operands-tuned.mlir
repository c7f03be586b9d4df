// RUN: stepwell-opt %s --target=x86_64-v4 --threads=2 --tuning=%S/Inputs/tuned.json \
// RUN:   --pass-pipeline='builtin.module(legalize-to-linalg,hoist-constants,form-fusion-groups,pack-operands)' \
// RUN:   | filecheck %s
// RUN: not stepwell-opt %s --target=x86_64-v4 --threads=2 --tuning=%S/Inputs/impossible.json \
// RUN:   --pass-pipeline='builtin.module(legalize-to-linalg,hoist-constants,form-fusion-groups,pack-operands)' 2>&1 \
// RUN:   | filecheck %s --check-prefix=IMPOSSIBLE
// RUN: not stepwell-opt %s --target=x86_64-v4 --tuning=%S/Inputs/tuned.json 2>&1 | filecheck %s --check-prefix=THREADS
// RUN: not stepwell-opt %s --tuning=%S/Inputs/none.json 2>&1 | filecheck %s --check-prefix=NONE

// A tuning record says how the product runs, two panels to a task, whatever it is called. Rejected: a
// strategy that cannot be, a record for another number of threads, and no record.

// IMPOSSIBLE: stepwell-opt: error: {{.*}}impossible.json: error: strategy of a product, key {{[0-9a-f]+}}: panels is 9, of 4
// THREADS: stepwell-opt: error: {{.*}}tuned.json: error: the record was made for threads 2, and this is for 1
// NONE: stepwell-opt: error: {{.*}}none.json: error: the tuning record cannot be read

// CHECK-LABEL: func.func private @kernel_0
// CHECK-SAME: panels = 2 : i64
// CHECK-SAME: row_tiles = 3 : i64
// CHECK-SAME: vectors = 1 : i64
func.func @main(%x: tensor<40x32xf32>) -> tensor<40x64xf32> {
  %w = stablehlo.constant dense<2.0> : tensor<32x64xf32>
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<40x32xf32>, tensor<32x64xf32>) -> tensor<40x64xf32>
  return %0 : tensor<40x64xf32>
}
