// RUN: stepwell-opt %s --target=x86_64-v4 --split-input-file \
// RUN:   --pass-pipeline='builtin.module(fold-constants,legalize-to-linalg,hoist-constants,form-fusion-groups,pack-operands)' | filecheck %s

// Vectors lie along the 64 terms: 16 at a time of each of three columns.
// CHECK-DAG: #[[W:.*]] = affine_map<(d0, d1, d2) -> (d1 floordiv 3, d2 floordiv 16, (d1 mod 3) * 16 + d2 mod 16)>
// CHECK-LABEL: func.func @few
// CHECK-SAME: tensor<1x4x48xf32> {stepwell.weight
// CHECK: terms = 16 : i64
// CHECK: #[[W]]
func.func @few(%x: tensor<500x64xf32>) -> tensor<500x3xf32> {
  %r = stablehlo.constant dense<[[1.0, 2.0, 3.0]]> : tensor<1x3xf32>
  %v = stablehlo.constant dense<0.5> : tensor<f32>
  %w = stablehlo.pad %r, %v, low = [0, 0], high = [63, 0], interior = [0, 0] : (tensor<1x3xf32>, tensor<f32>) -> tensor<64x3xf32>
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<500x64xf32>, tensor<64x3xf32>) -> tensor<500x3xf32>
  return %0 : tensor<500x3xf32>
}

// -----

// Rejected: 60 terms are no whole vectors, not even of eight.
// CHECK-LABEL: func.func @uneven
// CHECK: terms = 1 : i64
func.func @uneven(%x: tensor<500x60xf32>) -> tensor<500x3xf32> {
  %r = stablehlo.constant dense<[[1.0, 2.0, 3.0]]> : tensor<1x3xf32>
  %v = stablehlo.constant dense<0.5> : tensor<f32>
  %w = stablehlo.pad %r, %v, low = [0, 0], high = [59, 0], interior = [0, 0] : (tensor<1x3xf32>, tensor<f32>) -> tensor<60x3xf32>
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<500x60xf32>, tensor<60x3xf32>) -> tensor<500x3xf32>
  return %0 : tensor<500x3xf32>
}

// -----

// Rejected: terms of a row lie 500 apart.
// CHECK-LABEL: func.func @apart
// CHECK: terms = 1 : i64
func.func @apart(%x: tensor<64x500xf32>) -> tensor<500x3xf32> {
  %r = stablehlo.constant dense<[[1.0, 2.0, 3.0]]> : tensor<1x3xf32>
  %v = stablehlo.constant dense<0.5> : tensor<f32>
  %w = stablehlo.pad %r, %v, low = [0, 0], high = [63, 0], interior = [0, 0] : (tensor<1x3xf32>, tensor<f32>) -> tensor<64x3xf32>
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [0] x [0] : (tensor<64x500xf32>, tensor<64x3xf32>) -> tensor<500x3xf32>
  return %0 : tensor<500x3xf32>
}

// -----

// Rejected: columns fill a vector.
// CHECK-LABEL: func.func @many
// CHECK: terms = 1 : i64
func.func @many(%x: tensor<500x64xf32>) -> tensor<500x16xf32> {
  %r = stablehlo.constant dense<[[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0, 16.0]]> : tensor<1x16xf32>
  %v = stablehlo.constant dense<0.5> : tensor<f32>
  %w = stablehlo.pad %r, %v, low = [0, 0], high = [63, 0], interior = [0, 0] : (tensor<1x16xf32>, tensor<f32>) -> tensor<64x16xf32>
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<500x64xf32>, tensor<64x16xf32>) -> tensor<500x16xf32>
  return %0 : tensor<500x16xf32>
}
