// RUN: stepwell-opt %s --target=x86_64-v4 --pass-pipeline='legalize-fourier' | filecheck %s

// Vectors of 16 neighbours; 12 = 4 * 3 elements in two passes from one pair of buffers to the other.
// CHECK-LABEL: func.func @columns
// CHECK: stablehlo.constant
// CHECK: scf.execute_region
// CHECK: stablehlo.reshape %arg0 : (tensor<2x12x40x2xf32>) -> tensor<2x12x80xf32>
// CHECK-COUNT-4: bufferization.alloc_tensor() : tensor<12x16xf32>
// CHECK: arith.minsi
// CHECK: vector.transfer_read {{.*}} : tensor<2x12x80xf32>, vector<32xf32>
// CHECK: vector.shuffle
// CHECK: math.fma
// CHECK: vector.transfer_write
// CHECK-NOT: stablehlo.custom_call
func.func @columns(%x: tensor<2x12x40x2xf32>) -> tensor<2x12x40x2xf32> {
  %r = stablehlo.custom_call @stepwell.fourier(%x) {inverse = false}
      : (tensor<2x12x40x2xf32>) -> tensor<2x12x40x2xf32>
  return %r : tensor<2x12x40x2xf32>
}

// A single transform of 1024 = 32 * 32 elements has lanes of its own.
// CHECK-LABEL: func.func @split
// CHECK: stablehlo.reshape %arg0 : (tensor<1x1024x1x2xf32>) -> tensor<1x32x64xf32>
// CHECK: bufferization.alloc_tensor() : tensor<32x32xf32>
// CHECK-NOT: stablehlo.custom_call
func.func @split(%x: tensor<1x1024x1x2xf32>) -> tensor<1x1024x1x2xf32> {
  %r = stablehlo.custom_call @stepwell.fourier(%x) {inverse = true}
      : (tensor<1x1024x1x2xf32>) -> tensor<1x1024x1x2xf32>
  return %r : tensor<1x1024x1x2xf32>
}

// CHECK-LABEL: func.func @rejected
// CHECK-NEXT: stablehlo.custom_call @other
func.func @rejected(%x: tensor<1x8x1x2xf32>) -> tensor<1x8x1x2xf32> {
  %r = stablehlo.custom_call @other(%x) : (tensor<1x8x1x2xf32>) -> tensor<1x8x1x2xf32>
  return %r : tensor<1x8x1x2xf32>
}
