// RUN: stepwell-opt %s --pass-pipeline='builtin.module(expand-dot-algorithms)' | filecheck %s

// CHECK-LABEL: func.func @bf16
// CHECK: %[[X:.*]] = stablehlo.convert %arg0 : (tensor<4x6xf32>) -> tensor<4x6xbf16>
// CHECK: %[[L:.*]] = stablehlo.convert %[[X]] : (tensor<4x6xbf16>) -> tensor<4x6xf32>
// CHECK: %[[Z:.*]] = stablehlo.dot_general %[[L]], %{{.*}}, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] :
// CHECK: stablehlo.convert %[[Z]] : (tensor<4x4xf32>) -> tensor<4x4xf64>
func.func @bf16(%x: tensor<4x6xf32>, %y: tensor<6x4xf32>) -> tensor<4x4xf64> {
  %z = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT],
       algorithm = <lhs_precision_type = bf16, rhs_precision_type = bf16, accumulation_type = f32,
         lhs_component_count = 1, rhs_component_count = 1, num_primitive_operations = 1,
         allow_imprecise_accumulation = false>
       : (tensor<4x6xf32>, tensor<6x4xf32>) -> tensor<4x4xf64>
  return %z : tensor<4x4xf64>
}

// CHECK-LABEL: func.func @tf32
// CHECK: %[[X:.*]] = stablehlo.reduce_precision %arg0, format = e8m10 : tensor<4x6xf32>
// CHECK: stablehlo.dot_general %[[X]],
func.func @tf32(%x: tensor<4x6xf32>, %y: tensor<6x4xf32>) -> tensor<4x4xf32> {
  %z = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT],
       algorithm = <lhs_precision_type = tf32, rhs_precision_type = tf32, accumulation_type = f32,
         lhs_component_count = 1, rhs_component_count = 1, num_primitive_operations = 1,
         allow_imprecise_accumulation = false>
       : (tensor<4x6xf32>, tensor<6x4xf32>) -> tensor<4x4xf32>
  return %z : tensor<4x4xf32>
}

// CHECK-LABEL: func.func @several_products
// CHECK-NEXT: stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] :
func.func @several_products(%x: tensor<4x6xf32>, %y: tensor<6x4xf32>) -> tensor<4x4xf32> {
  %z = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT],
       algorithm = <lhs_precision_type = bf16, rhs_precision_type = bf16, accumulation_type = f32,
         lhs_component_count = 1, rhs_component_count = 1, num_primitive_operations = 6,
         allow_imprecise_accumulation = false>
       : (tensor<4x6xf32>, tensor<6x4xf32>) -> tensor<4x4xf32>
  return %z : tensor<4x4xf32>
}

// To integers no algorithm applies.
// CHECK-LABEL: func.func @integers
// CHECK-NEXT: stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] :
func.func @integers(%x: tensor<4x6xi64>, %y: tensor<6x4xi64>) -> tensor<4x4xi64> {
  %z = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT],
       algorithm = <lhs_precision_type = tf32, rhs_precision_type = tf32, accumulation_type = f32,
         lhs_component_count = 1, rhs_component_count = 1, num_primitive_operations = 1,
         allow_imprecise_accumulation = false>
       : (tensor<4x6xi64>, tensor<6x4xi64>) -> tensor<4x4xi64>
  return %z : tensor<4x4xi64>
}

// CHECK-LABEL: func.func @rejected
// CHECK-NEXT: stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0] : (tensor<4x6xbf16>
func.func @rejected(%x: tensor<4x6xbf16>, %y: tensor<6x4xbf16>) -> tensor<4x4xf32> {
  %z = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0]
       : (tensor<4x6xbf16>, tensor<6x4xbf16>) -> tensor<4x4xf32>
  return %z : tensor<4x4xf32>
}
