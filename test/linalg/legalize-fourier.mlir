// RUN: stepwell-opt %s --target=x86_64-v4 --pass-pipeline='legalize-fourier' | filecheck %s

// Vectors of 16 neighbours; 12 elements are a pass of one butterfly, from the source to the result.
// CHECK-LABEL: func.func @columns
// CHECK: stablehlo.constant
// CHECK: scf.execute_region
// CHECK: stablehlo.reshape %arg0 : (tensor<2x12x40x2xf32>) -> tensor<2x12x80xf32>
// CHECK: bufferization.alloc_tensor() : tensor<2x12x80xf32>
// CHECK-NOT: bufferization.alloc_tensor
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

// 40 = 8 * 5 elements in two passes, the first of which writes to scratch.
// CHECK-LABEL: func.func @two_passes
// CHECK: bufferization.alloc_tensor() : tensor<2x40x80xf32>
// CHECK-COUNT-2: bufferization.alloc_tensor() : tensor<40x16xf32>
// CHECK-NOT: bufferization.alloc_tensor
func.func @two_passes(%x: tensor<2x40x40x2xf32>) -> tensor<2x40x40x2xf32> {
  %r = stablehlo.custom_call @stepwell.fourier(%x) {inverse = false}
      : (tensor<2x40x40x2xf32>) -> tensor<2x40x40x2xf32>
  return %r : tensor<2x40x40x2xf32>
}

// Lanes of neighbours along O, with squares of a vector by as many rows transposed.
// CHECK-LABEL: func.func @rows
// CHECK-COUNT-4: bufferization.alloc_tensor() : tensor<60x16xf32>
// CHECK: vector.transfer_read {{.*}} : tensor<40x120xf32>, vector<32xf32>
func.func @rows(%x: tensor<40x60x1x2xf32>) -> tensor<40x60x1x2xf32> {
  %r = stablehlo.custom_call @stepwell.fourier(%x) {inverse = false}
      : (tensor<40x60x1x2xf32>) -> tensor<40x60x1x2xf32>
  return %r : tensor<40x60x1x2xf32>
}

// A transform of 1024 = 32 * 32 elements has lanes of its own, in a batch too; 32 = 8 * 4.
// CHECK-LABEL: func.func @split
// CHECK: bufferization.alloc_tensor() : tensor<20x2048xf32>
// CHECK-COUNT-2: bufferization.alloc_tensor() : tensor<1024xf32>
// CHECK-COUNT-4: bufferization.alloc_tensor() : tensor<32x16xf32>
// CHECK-NOT: stablehlo.custom_call
func.func @split(%x: tensor<20x1024x1x2xf32>) -> tensor<20x1024x1x2xf32> {
  %r = stablehlo.custom_call @stepwell.fourier(%x) {inverse = true}
      : (tensor<20x1024x1x2xf32>) -> tensor<20x1024x1x2xf32>
  return %r : tensor<20x1024x1x2xf32>
}

// Those of more than is in a near cache are read to lines and written from them.
// CHECK-LABEL: func.func @streamed
// CHECK-COUNT-4: bufferization.alloc_tensor() : tensor<1024xf32>
func.func @streamed(%x: tensor<800x1024x1x2xf32>) -> tensor<800x1024x1x2xf32> {
  %r = stablehlo.custom_call @stepwell.fourier(%x) {inverse = true}
      : (tensor<800x1024x1x2xf32>) -> tensor<800x1024x1x2xf32>
  return %r : tensor<800x1024x1x2xf32>
}

// A real signal of 512 elements is a complex one of 256 = 16 * 16, of which a line becomes 257
// numbers of the spectrum; and back.
// CHECK-LABEL: func.func @half_spectrum
// CHECK: bufferization.alloc_tensor() : tensor<20x514xf32>
// CHECK-COUNT-2: bufferization.alloc_tensor() : tensor<256xf32>
// CHECK-COUNT-2: bufferization.alloc_tensor() : tensor<257xf32>
// CHECK: bufferization.alloc_tensor() : tensor<20x512xf32>
func.func @half_spectrum(%x: tensor<20x512x1x1xf32>) -> tensor<20x512x1x1xf32> {
  %y = stablehlo.custom_call @stepwell.fourier(%x) {inverse = false}
      : (tensor<20x512x1x1xf32>) -> tensor<20x257x1x2xf32>
  %r = stablehlo.custom_call @stepwell.fourier(%y) {inverse = true}
      : (tensor<20x257x1x2xf32>) -> tensor<20x512x1x1xf32>
  return %r : tensor<20x512x1x1xf32>
}

// CHECK-LABEL: func.func @rejected
// CHECK-NEXT: stablehlo.custom_call @other
func.func @rejected(%x: tensor<1x8x1x2xf32>) -> tensor<1x8x1x2xf32> {
  %r = stablehlo.custom_call @other(%x) : (tensor<1x8x1x2xf32>) -> tensor<1x8x1x2xf32>
  return %r : tensor<1x8x1x2xf32>
}
