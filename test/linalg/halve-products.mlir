// RUN: stepwell-opt %s --target=x86_64-v4 --pass-pipeline='builtin.module(legalize-to-linalg,halve-products)' | filecheck %s
// RUN: stepwell-opt %s --target=x86_64-v4 --pass-pipeline='builtin.module(legalize-to-linalg,halve-products{products=8})' | filecheck %s --check-prefix=NEVER
// RUN: stepwell-opt %s --target=x86_64-v4 --precision=strict --pass-pipeline='builtin.module(legalize-to-linalg,halve-products)' | filecheck %s --check-prefix=NEVER
// RUN: stepwell-opt %s --target=x86_64-v4 --pass-pipeline='builtin.module(legalize-to-linalg,halve-products{products=7})' | filecheck %s --check-prefix=ALWAYS

// NEVER-NOT: kernel.strassen

// CHECK-LABEL: func.func @chosen
// CHECK: kernel.strassen
func.func @chosen(%x: tensor<128x768xf32>, %w: tensor<768x3072xf32> {stepwell.weight = "w"}) -> tensor<128x3072xf32> {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<128x768xf32>, tensor<768x3072xf32>) -> tensor<128x3072xf32>
  return %0 : tensor<128x3072xf32>
}

// Weights that are arguments of a model count as well, and rows in two dimensions.
// CHECK-LABEL: func.func @parameter
// CHECK: kernel.strassen
func.func @parameter(%x: tensor<2x64x768xf32>, %w: tensor<768x3072xf32> {stepwell.parameter = "w"}) -> tensor<2x64x3072xf32> {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [2] x [0] : (tensor<2x64x768xf32>, tensor<768x3072xf32>) -> tensor<2x64x3072xf32>
  return %0 : tensor<2x64x3072xf32>
}

// Rejected by the cost model: so few rows that summing the weights takes longer than multiplying.
// CHECK-LABEL: func.func @few_rows
// CHECK-NOT: kernel.strassen
// ALWAYS-LABEL: func.func @few_rows
// ALWAYS: kernel.strassen
func.func @few_rows(%x: tensor<8x768xf32>, %w: tensor<768x3072xf32> {stepwell.weight = "w"}) -> tensor<8x3072xf32> {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<8x768xf32>, tensor<768x3072xf32>) -> tensor<8x3072xf32>
  return %0 : tensor<8x3072xf32>
}

// Rejected whatever is asked for: no halves of whole vectors, no weight, another type, a batch.
// CHECK-LABEL: func.func @odd
// ALWAYS-LABEL: func.func @odd
// ALWAYS-NOT: kernel.strassen
func.func @odd(%x: tensor<128x760xf32>, %w: tensor<760x3072xf32> {stepwell.weight = "w"}) -> tensor<128x3072xf32> {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<128x760xf32>, tensor<760x3072xf32>) -> tensor<128x3072xf32>
  return %0 : tensor<128x3072xf32>
}

func.func @no_weight(%x: tensor<128x768xf32>, %w: tensor<768x3072xf32>) -> tensor<128x3072xf32> {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<128x768xf32>, tensor<768x3072xf32>) -> tensor<128x3072xf32>
  return %0 : tensor<128x3072xf32>
}

func.func @double(%x: tensor<128x768xf64>, %w: tensor<768x3072xf64> {stepwell.weight = "w"}) -> tensor<128x3072xf64> {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<128x768xf64>, tensor<768x3072xf64>) -> tensor<128x3072xf64>
  return %0 : tensor<128x3072xf64>
}

func.func @batch(%x: tensor<4x128x768xf32>, %w: tensor<4x768x3072xf32> {stepwell.weight = "w"}) -> tensor<4x128x3072xf32> {
  %0 = stablehlo.dot_general %x, %w, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<4x128x768xf32>, tensor<4x768x3072xf32>) -> tensor<4x128x3072xf32>
  return %0 : tensor<4x128x3072xf32>
}
