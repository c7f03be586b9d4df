// RUN: stepwell-opt %s --split-input-file --verify-diagnostics \
// RUN:   --pass-pipeline='builtin.module(legalize-to-linalg)' | filecheck %s

// A contraction is one linalg.generic: two parallel loops, one reduction, multiply and add.
// CHECK-LABEL: func.func @contraction
// CHECK: linalg.generic {{.*}} iterator_types = ["parallel", "parallel", "reduction"]
// CHECK: arith.mulf
// CHECK: arith.addf
// CHECK-NOT: stablehlo
func.func @contraction(%x: tensor<8x16xf32>, %w: tensor<16x32xf32>) -> tensor<8x32xf32> {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
      : (tensor<8x16xf32>, tensor<16x32xf32>) -> tensor<8x32xf32>
  return %0 : tensor<8x32xf32>
}

// -----

// A grouped convolution is one linalg.generic, too: the groups are a parallel loop.
// CHECK-LABEL: func.func @groups
// CHECK-DAG: %[[X:.*]] = tensor.expand_shape %arg0 {{.*}} into tensor<1x9x2x8xf32>
// CHECK-DAG: %[[W:.*]] = tensor.expand_shape %arg1 {{.*}} into tensor<3x8x2x16xf32>
// CHECK: linalg.generic {{.*}} iterator_types = ["parallel", "parallel", "parallel", "parallel", "reduction", "reduction"]
// CHECK-SAME: ins(%[[X]], %[[W]]
// CHECK: tensor.collapse_shape {{.*}} : tensor<1x7x2x16xf32> into tensor<1x7x32xf32>
func.func @groups(%x: tensor<1x9x16xf32>, %w: tensor<3x8x32xf32>) -> tensor<1x7x32xf32> {
  %y = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f],
       window = {} {batch_group_count = 1 : i64, feature_group_count = 2 : i64}
       : (tensor<1x9x16xf32>, tensor<3x8x32xf32>) -> tensor<1x7x32xf32>
  return %y : tensor<1x7x32xf32>
}

// -----

// A concatenation stays one operation; upstream would make a body with branches of it.
// CHECK-LABEL: func.func @concatenation
// CHECK: tensor.concat dim(1) %arg0, %arg1
// CHECK-NOT: scf.if
func.func @concatenation(%x: tensor<2x3xf32>, %y: tensor<2x5xf32>) -> tensor<2x8xf32> {
  %0 = stablehlo.concatenate %x, %y, dim = 1 : (tensor<2x3xf32>, tensor<2x5xf32>) -> tensor<2x8xf32>
  return %0 : tensor<2x8xf32>
}

// -----

// CHECK-LABEL: func.func @error_function
// CHECK: linalg.generic
// CHECK: math.erf %{{.*}} : f32
func.func @error_function(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = chlo.erf %x : tensor<4xf32> -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// Named operations are generalised: what follows sees one form.
// CHECK-LABEL: func.func @named
// CHECK: linalg.generic
// CHECK-NOT: linalg.matmul
func.func @named(%x: tensor<2x3xf32>, %w: tensor<3x4xf32>, %out: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %0 = linalg.matmul ins(%x, %w : tensor<2x3xf32>, tensor<3x4xf32>) outs(%out : tensor<2x4xf32>) -> tensor<2x4xf32>
  return %0 : tensor<2x4xf32>
}

// -----

func.func @unknown(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error@+1 {{stablehlo.custom_call @somewhere has no lowering to linalg}}
  %0 = stablehlo.custom_call @somewhere(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
