// RUN: stepwell-opt %s --target=x86_64-v4 \
// RUN:   --pass-pipeline='builtin.module(legalize-to-linalg,hoist-constants,form-fusion-groups,pack-operands,lower-groups-to-affine)' \
// RUN:   | filecheck %s

// A register holds half as many numbers of f64 as of f32, and a register tile as many registers: its
// panel half as many columns. Rejected: numbers of 16 bits, which are summed as longer ones, have
// vectors no longer than those of f32.

// CHECK-LABEL: func.func private @kernel_0(%arg0: memref<60x256xf64>
// CHECK-SAME: vectors = [[VECTORS:[0-9]+]] : i64
// CHECK: vector.fma {{.*}} : vector<8xf64>
// CHECK-NOT: vector<16xf64>
// CHECK-LABEL: func.func private @kernel_1(%arg0: memref<60x256xf32>
// CHECK-SAME: vectors = [[VECTORS]] : i64
// CHECK: vector.fma {{.*}} : vector<16xf32>
// CHECK-LABEL: func.func private @kernel_2(%arg0: memref<60x256xf16>
// CHECK: vector.fma {{.*}} : vector<16xf32>
func.func @main(%x: tensor<60x256xf64>, %y: tensor<256x256xf64>, %v: tensor<60x256xf32>, %w: tensor<256x256xf32>, %a: tensor<60x256xf16>, %b: tensor<256x256xf16>) -> (tensor<60x256xf64>, tensor<60x256xf32>, tensor<60x256xf32>) {
  %0 = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : (tensor<60x256xf64>, tensor<256x256xf64>) -> tensor<60x256xf64>
  %1 = stablehlo.dot_general %v, %w, contracting_dims = [1] x [0] : (tensor<60x256xf32>, tensor<256x256xf32>) -> tensor<60x256xf32>
  %2 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : (tensor<60x256xf16>, tensor<256x256xf16>) -> tensor<60x256xf32>
  return %0, %1, %2 : tensor<60x256xf64>, tensor<60x256xf32>, tensor<60x256xf32>
}
