// RUN: stepwell-opt %s --pass-pipeline='scalarize' | filecheck %s

// CHECK-LABEL: func.func @nested
// CHECK: scf.for
// CHECK-NOT: linalg.generic
// CHECK: arith.addf %{{.*}}, %{{.*}} : f32
func.func @nested(%x: tensor<f32>, %n: index) -> tensor<f32> {
  %zero = arith.constant 0 : index
  %one = arith.constant 1 : index
  %r = scf.for %i = %zero to %n step %one iter_args(%y = %x) -> tensor<f32> {
    %e = tensor.empty() : tensor<f32>
    %s = linalg.generic {indexing_maps = [affine_map<() -> ()>, affine_map<() -> ()>],
        iterator_types = []} ins(%y : tensor<f32>) outs(%e : tensor<f32>) {
      ^bb0(%a: f32, %o: f32):
        %t = arith.addf %a, %a : f32
        linalg.yield %t : f32
    } -> tensor<f32>
    scf.yield %s : tensor<f32>
  }
  return %r : tensor<f32>
}

// At the top level it is a kernel like others.
// CHECK-LABEL: func.func @rejected
// CHECK: linalg.generic
func.func @rejected(%x: tensor<f32>) -> tensor<f32> {
  %e = tensor.empty() : tensor<f32>
  %s = linalg.generic {indexing_maps = [affine_map<() -> ()>, affine_map<() -> ()>],
      iterator_types = []} ins(%x : tensor<f32>) outs(%e : tensor<f32>) {
    ^bb0(%a: f32, %o: f32):
      %t = arith.addf %a, %a : f32
      linalg.yield %t : f32
  } -> tensor<f32>
  return %s : tensor<f32>
}

// Of two products in one sum, the first may be fused with it.
// CHECK-LABEL: func.func @reduction
// CHECK: %[[FIRST:.*]] = arith.mulf %{{.*}}, %{{.*}} fastmath<contract> : f32
// CHECK: %[[SECOND:.*]] = arith.mulf %{{.*}}, %{{.*}} : f32
// CHECK: arith.subf %[[FIRST]], %[[SECOND]] fastmath<contract> : f32
func.func @reduction(%x: tensor<4x8xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
  %s = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>],
      iterator_types = ["parallel", "reduction"]} ins(%x : tensor<4x8xf32>) outs(%y : tensor<4xf32>) {
    ^bb0(%a: f32, %o: f32):
      %t = arith.mulf %a, %a : f32
      %u = arith.mulf %o, %a : f32
      %v = arith.subf %t, %u : f32
      linalg.yield %v : f32
  } -> tensor<4xf32>
  return %s : tensor<4xf32>
}
