// RUN: stepwell-opt %s --target=cuda:sm_90a --pass-pipeline='legalize-sort' | filecheck %s

// The rank of each of 100 elements is how many of 100 come before it.
// CHECK-LABEL: func.func @counted
// CHECK: "stablehlo.map"
// CHECK: stablehlo.reduce({{.*}} across dimensions = [2] : (tensor<4x100x100xi32>
// CHECK: stablehlo.reduce({{.*}} across dimensions = [2] : (tensor<4x100x100xi32>
// CHECK: "stablehlo.gather"
// CHECK-NOT: scf.for
func.func @counted(%x: tensor<4x100xf32>) -> tensor<4x100xf32> {
  %r = "stablehlo.sort"(%x) ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %c = stablehlo.compare LT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }) {dimension = 1 : i64, is_stable = true} : (tensor<4x100xf32>) -> tensor<4x100xf32>
  return %r : tensor<4x100xf32>
}

// 3000 elements take 78 stages of a network of 4096.
// CHECK-LABEL: func.func @network
// CHECK-COUNT-78: "stablehlo.map"
// CHECK-NOT: "stablehlo.map"
// CHECK-NOT: scf.for
func.func @network(%x: tensor<3000xf32>) -> tensor<3000xf32> {
  %r = "stablehlo.sort"(%x) ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %c = stablehlo.compare LT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }) {dimension = 0 : i64, is_stable = true} : (tensor<3000xf32>) -> tensor<3000xf32>
  return %r : tensor<3000xf32>
}

// In a loop of a kernel there is no grid: the row is merged there.
// CHECK-LABEL: func.func @rejected
// CHECK: scf.for
// CHECK-NOT: "stablehlo.map"
func.func @rejected(%x: tensor<8xf32>, %go: i1) -> tensor<8xf32> {
  %y = scf.execute_region -> tensor<8xf32> {
    %r = "stablehlo.sort"(%x) ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %c = stablehlo.compare LT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    }) {dimension = 0 : i64} : (tensor<8xf32>) -> tensor<8xf32>
    scf.yield %r : tensor<8xf32>
  }
  return %y : tensor<8xf32>
}
