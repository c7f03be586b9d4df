// RUN: stepwell-opt %s --pass-pipeline='builtin.module(legalize-collectives)' --split-input-file --verify-diagnostics | filecheck %s

// A group of one keeps what it has.
// CHECK-LABEL: func.func @alone(%arg0: tensor<4xf32>) -> tensor<4xf32>
// CHECK-NEXT: return %arg0
func.func @alone(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "stablehlo.all_reduce"(%x) ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %s = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %s : tensor<f32>
  }) {replica_groups = dense<0> : tensor<1x1xi64>} : (tensor<4xf32>) -> tensor<4xf32>
  %1 = "stablehlo.all_gather"(%0) {all_gather_dim = 0 : i64, replica_groups = dense<0> : tensor<1x1xi64>} : (tensor<4xf32>) -> tensor<4xf32>
  %2 = "stablehlo.collective_permute"(%1) {source_target_pairs = dense<[[0, 0]]> : tensor<1x2xi64>} : (tensor<4xf32>) -> tensor<4xf32>
  %3 = stablehlo.custom_call @Sharding(%2) {mhlo.sharding = "{replicated}"} : (tensor<4xf32>) -> tensor<4xf32>
  %4 = "stablehlo.collective_reduce"(%3) ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %s = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %s : tensor<f32>
  }) {replica_groups = dense<0> : tensor<1x1xi64>} : (tensor<4xf32>) -> tensor<4xf32>
  return %4 : tensor<4xf32>
}

// -----

// Its number is 0, and what nobody sends is zeros.
// CHECK-LABEL: func.func @first
// CHECK-DAG: stablehlo.constant dense<0> : tensor<ui32>
// CHECK-DAG: stablehlo.constant dense<0.000000e+00> : tensor<4xf32>
func.func @first(%x: tensor<4xf32>) -> (tensor<ui32>, tensor<4xf32>) {
  %0 = stablehlo.partition_id : tensor<ui32>
  %1 = "stablehlo.collective_permute"(%x) {source_target_pairs = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<4xf32>) -> tensor<4xf32>
  return %0, %1 : tensor<ui32>, tensor<4xf32>
}

// -----

func.func @several(%x: tensor<4xf32>) -> tensor<8xf32> {
  // expected-error @+1 {{stablehlo.all_gather of several devices}}
  %0 = "stablehlo.all_gather"(%x) {all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>} : (tensor<4xf32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}

// -----

func.func @parts(%x: tensor<2x4xf32>) -> tensor<1x4xf32> {
  // expected-error @+1 {{SPMDFullToShardShape makes tensor<1x4xf32> of tensor<2x4xf32>}}
  %0 = stablehlo.custom_call @SPMDFullToShardShape(%x) {mhlo.sharding = "{manual}"} : (tensor<2x4xf32>) -> tensor<1x4xf32>
  return %0 : tensor<1x4xf32>
}
