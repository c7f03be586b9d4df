// RUN: stepwell-opt %s --pass-pipeline='legalize-sort' | filecheck %s

// Seven passes over runs of 1 to 64 elements.
// CHECK-LABEL: func.func @rows
// CHECK: scf.execute_region
// CHECK: scf.for {{.*}} %c4
// CHECK: arith.constant 7 : index
// CHECK: arith.shli
// CHECK: stablehlo.compare LT
// CHECK: arith.select
// CHECK: tensor.insert
// CHECK: bufferization.materialize_in_destination
// CHECK-NOT: stablehlo.sort
func.func @rows(%x: tensor<4x100xf32>) -> tensor<4x100xf32> {
  %r = "stablehlo.sort"(%x) ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %c = stablehlo.compare LT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }) {dimension = 1 : i64, is_stable = true} : (tensor<4x100xf32>) -> tensor<4x100xf32>
  return %r : tensor<4x100xf32>
}

// The first three of a hundred: one pass that compares with the third.
// CHECK-LABEL: func.func @first_few
// CHECK: scf.for
// CHECK: stablehlo.compare LT
// CHECK: scf.if
// CHECK: scf.for
// CHECK-NOT: arith.shli
// CHECK: stablehlo.slice
func.func @first_few(%x: tensor<4x100xf32>) -> tensor<4x3xf32> {
  %r = "stablehlo.sort"(%x) ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %c = stablehlo.compare LT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  }) {dimension = 1 : i64} : (tensor<4x100xf32>) -> tensor<4x100xf32>
  %s = stablehlo.slice %r [0:4, 0:3] : (tensor<4x100xf32>) -> tensor<4x3xf32>
  return %s : tensor<4x3xf32>
}

// Four passes over bytes. Floats have the sign or all bits inverted, and what goes down all of them.
// CHECK-LABEL: func.func @by_bytes
// CHECK: arith.constant 4 : index
// CHECK: stablehlo.abs
// CHECK: stablehlo.bitcast_convert {{.*}} -> tensor<i32>
// CHECK: arith.shrsi
// CHECK: arith.ori
// CHECK: arith.xori
// CHECK: arith.xori
// CHECK: arith.shrui
// CHECK: scf.if
// CHECK: bufferization.materialize_in_destination
// CHECK-NOT: stablehlo.compare
func.func @by_bytes(%x: tensor<64xi32>, %y: tensor<64xf32>) -> tensor<64xi32> {
  %r:2 = "stablehlo.sort"(%x, %y) ({
  ^bb0(%a: tensor<i32>, %b: tensor<i32>, %c: tensor<f32>, %d: tensor<f32>):
    %p = stablehlo.abs %c : tensor<f32>
    %q = stablehlo.abs %d : tensor<f32>
    %l = stablehlo.compare GT, %p, %q, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %l : tensor<i1>
  }) {dimension = 0 : i64} : (tensor<64xi32>, tensor<64xf32>) -> (tensor<64xi32>, tensor<64xf32>)
  return %r#0 : tensor<64xi32>
}

// Both sides of the comparison are not the same function.
// CHECK-LABEL: func.func @merged
// CHECK: stablehlo.compare LT
func.func @merged(%x: tensor<64xi32>) -> tensor<64xi32> {
  %r = "stablehlo.sort"(%x) ({
  ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    %p = stablehlo.abs %a : tensor<i32>
    %l = stablehlo.compare LT, %p, %b : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %l : tensor<i1>
  }) {dimension = 0 : i64} : (tensor<64xi32>) -> tensor<64xi32>
  return %r : tensor<64xi32>
}

// In the total order, with positions alone beside: a kernel that selects. Its results have the few.
// CHECK-LABEL: func.func @selected
// CHECK: %[[ROWS:.*]] = stablehlo.reshape %arg0 : (tensor<4x1000xf32>) -> tensor<4x1000x1xf32>
// CHECK: %[[FOUND:.*]]:2 = call @kernel_selection_0(%[[ROWS]],
// CHECK: stablehlo.reshape %[[FOUND]]#0 : (tensor<4x3x1xf32>) -> tensor<4x3xf32>
// CHECK: stablehlo.reshape %[[FOUND]]#1 : (tensor<4x3x1xi32>) -> tensor<4x3xi32>
// CHECK-NOT: scf.for
func.func @selected(%x: tensor<4x1000xf32>) -> (tensor<4x3xf32>, tensor<4x3xi32>) {
  %i = stablehlo.iota dim = 1 : tensor<4x1000xi32>
  %r:2 = "stablehlo.sort"(%x, %i) ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>, %c: tensor<i32>, %d: tensor<i32>):
    %l = stablehlo.compare GT, %a, %b, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %l : tensor<i1>
  }) {dimension = 1 : i64} : (tensor<4x1000xf32>, tensor<4x1000xi32>) -> (tensor<4x1000xf32>, tensor<4x1000xi32>)
  %v = stablehlo.slice %r#0 [0:4, 0:3] : (tensor<4x1000xf32>) -> tensor<4x3xf32>
  %p = stablehlo.slice %r#1 [0:4, 0:3] : (tensor<4x1000xi32>) -> tensor<4x3xi32>
  return %v, %p : tensor<4x3xf32>, tensor<4x3xi32>
}

// Rows side by side stay so where the few fit registers, and are turned where they do not.
// CHECK-LABEL: func.func @columns
// CHECK: stablehlo.reshape %arg0 : (tensor<100x64xi32>) -> tensor<1x100x64xi32>
// CHECK-NOT: stablehlo.transpose
// CHECK: call @kernel_selection_1
// CHECK: stablehlo.transpose {{.*}} -> tensor<1x64x100xi32>
// CHECK: call @kernel_selection_2
// CHECK: stablehlo.transpose {{.*}} -> tensor<1x40x64xi32>
func.func @columns(%x: tensor<100x64xi32>) -> (tensor<4x64xi32>, tensor<40x64xi32>) {
  %r = "stablehlo.sort"(%x) ({
  ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    %l = stablehlo.compare LT, %a, %b : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %l : tensor<i1>
  }) {dimension = 0 : i64} : (tensor<100x64xi32>) -> tensor<100x64xi32>
  %v = stablehlo.slice %r [0:4, 0:64] : (tensor<100x64xi32>) -> tensor<4x64xi32>
  %s = "stablehlo.sort"(%x) ({
  ^bb0(%a: tensor<i32>, %b: tensor<i32>):
    %l = stablehlo.compare LT, %a, %b : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %l : tensor<i1>
  }) {dimension = 0 : i64} : (tensor<100x64xi32>) -> tensor<100x64xi32>
  %w = stablehlo.slice %s [0:40, 0:64] : (tensor<100x64xi32>) -> tensor<40x64xi32>
  return %v, %w : tensor<4x64xi32>, tensor<40x64xi32>
}

// What is sorted beside is no position.
// CHECK-LABEL: func.func @not_selected
// CHECK-NOT: call
// CHECK: scf.for
// CHECK: return
func.func @not_selected(%x: tensor<4x1000xf32>, %y: tensor<4x1000xi32>) -> tensor<4x3xi32> {
  %r:2 = "stablehlo.sort"(%x, %y) ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>, %c: tensor<i32>, %d: tensor<i32>):
    %l = stablehlo.compare GT, %a, %b, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
    stablehlo.return %l : tensor<i1>
  }) {dimension = 1 : i64} : (tensor<4x1000xf32>, tensor<4x1000xi32>) -> (tensor<4x1000xf32>, tensor<4x1000xi32>)
  %p = stablehlo.slice %r#1 [0:4, 0:3] : (tensor<4x1000xi32>) -> tensor<4x3xi32>
  return %p : tensor<4x3xi32>
}

// Where booleans are true: one pass writes each position where the next true one goes.
// CHECK-LABEL: func.func @positions
// CHECK: %[[DONE:.*]]:2 = scf.for %[[I:.*]] = {{.*}} iter_args(%[[COUNT:.*]] = {{.*}}, %[[R:.*]] =
// CHECK: tensor.insert {{.*}} into %[[R]][%[[COUNT]]]
// CHECK: %[[M:.*]] = tensor.extract %arg0[%[[I]]]
// CHECK: arith.index_castui %[[M]] : i1 to index
// CHECK: scf.for {{.*}} = %[[DONE]]#0 to
// CHECK: arith.constant 300 : i64
// CHECK-NOT: arith.shrui
// CHECK: return
func.func @positions(%m: tensor<300xi1>) -> tensor<300xi64> {
  %i = stablehlo.iota dim = 0 : tensor<300xi64>
  %n = stablehlo.constant dense<300> : tensor<300xi64>
  %k = stablehlo.select %m, %i, %n : tensor<300xi1>, tensor<300xi64>
  %r = "stablehlo.sort"(%k) ({
  ^bb0(%a: tensor<i64>, %b: tensor<i64>):
    %l = stablehlo.compare LT, %a, %b : (tensor<i64>, tensor<i64>) -> tensor<i1>
    stablehlo.return %l : tensor<i1>
  }) {dimension = 0 : i64} : (tensor<300xi64>) -> tensor<300xi64>
  return %r : tensor<300xi64>
}

// What stands for the others would come first.
// CHECK-LABEL: func.func @no_positions
// CHECK: arith.shrui
func.func @no_positions(%m: tensor<300xi1>) -> tensor<300xi64> {
  %i = stablehlo.iota dim = 0 : tensor<300xi64>
  %n = stablehlo.constant dense<-1> : tensor<300xi64>
  %k = stablehlo.select %m, %i, %n : tensor<300xi1>, tensor<300xi64>
  %r = "stablehlo.sort"(%k) ({
  ^bb0(%a: tensor<i64>, %b: tensor<i64>):
    %l = stablehlo.compare LT, %a, %b : (tensor<i64>, tensor<i64>) -> tensor<i1>
    stablehlo.return %l : tensor<i1>
  }) {dimension = 0 : i64} : (tensor<300xi64>) -> tensor<300xi64>
  return %r : tensor<300xi64>
}

// CHECK-LABEL: func.func @rejected
// CHECK-NEXT: stablehlo.reverse
func.func @rejected(%x: tensor<4xf32>) -> tensor<4xf32> {
  %r = stablehlo.reverse %x, dims = [0] : tensor<4xf32>
  return %r : tensor<4xf32>
}
