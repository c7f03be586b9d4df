// RUN: stepwell-opt %s --target=x86_64-v4 --pass-pipeline='builtin.module(form-fusion-groups,lower-groups-to-affine)' | filecheck %s

#whole = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#rest = affine_map<(d0, d1, d2) -> (d0, d2)>

// What is computed before and of the results is part of the kernel; totals stay in registers.
// CHECK-LABEL: func.func private @kernel_0
// CHECK-SAME: kernel.kind = "scan"
// CHECK: affine.parallel
// CHECK: affine.for {{.*}} = 0 to 100 iter_args({{.*}}) -> (vector<16xi32>, vector<16xi32>, vector<8xi32>)
// CHECK: affine.vector_load
// CHECK: arith.muli
// CHECK: arith.addi
// CHECK: arith.subi
// CHECK: affine.vector_store
// CHECK: affine.yield
func.func @columns(%x: tensor<2x100x40xi32>, %t: tensor<2x40xi32>) -> tensor<2x100x40xi32> {
  %e = tensor.empty() : tensor<2x100x40xi32>
  %y = linalg.generic {indexing_maps = [#whole, #whole], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%x : tensor<2x100x40xi32>) outs(%e : tensor<2x100x40xi32>) {
  ^bb0(%in: i32, %out: i32):
    %p = arith.muli %in, %in : i32
    linalg.yield %p : i32
  } -> tensor<2x100x40xi32>
  %r:2 = linalg.generic {indexing_maps = [#whole, #whole, #rest], iterator_types = ["parallel", "reduction", "parallel"]}
      ins(%y : tensor<2x100x40xi32>) outs(%e, %t : tensor<2x100x40xi32>, tensor<2x40xi32>) attrs = {kernel.scan = "forward"} {
  ^bb0(%in: i32, %out: i32, %total: i32):
    %s = arith.addi %total, %in : i32
    linalg.yield %s, %s : i32, i32
  } -> (tensor<2x100x40xi32>, tensor<2x40xi32>)
  %z = linalg.generic {indexing_maps = [#whole, #whole], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%r#0 : tensor<2x100x40xi32>) outs(%e : tensor<2x100x40xi32>) {
  ^bb0(%in: i32, %out: i32):
    %one = arith.constant 1 : i32
    %d = arith.subi %in, %one : i32
    linalg.yield %d : i32
  } -> tensor<2x100x40xi32>
  return %z : tensor<2x100x40xi32>
}

// Rows are turned, sixteen at a time, from the last columns on.
// CHECK-LABEL: func.func private @kernel_1
// CHECK: affine.for {{.*}} = 0 to 96 step 16 iter_args({{.*}}) -> (vector<16xi32>)
// CHECK-COUNT-16: affine.vector_load {{.*}} - %{{.*}} + {{.*}}]
// CHECK-COUNT-64: vector.shuffle
// CHECK-COUNT-16: arith.addi
// CHECK-COUNT-64: vector.shuffle
// CHECK: affine.vector_store
// CHECK: affine.yield
func.func @rows(%x: tensor<32x100x1xi32>, %t: tensor<32x1xi32>) -> tensor<32x100x1xi32> {
  %e = tensor.empty() : tensor<32x100x1xi32>
  %r:2 = linalg.generic {indexing_maps = [#whole, #whole, #rest], iterator_types = ["parallel", "reduction", "parallel"]}
      ins(%x : tensor<32x100x1xi32>) outs(%e, %t : tensor<32x100x1xi32>, tensor<32x1xi32>) attrs = {kernel.scan = "backward"} {
  ^bb0(%in: i32, %out: i32, %total: i32):
    %s = arith.addi %total, %in : i32
    linalg.yield %s, %s : i32, i32
  } -> (tensor<32x100x1xi32>, tensor<32x1xi32>)
  return %r#0 : tensor<32x100x1xi32>
}

// The totals of many columns lie in L1.
// CHECK-LABEL: func.func private @kernel_2
// CHECK: %[[TOTALS:.*]] = memref.alloca() {alignment = 64 : i64} : memref<200xi32>
// CHECK: affine.parallel (%{{.*}}) = (0) to (1)
// CHECK: affine.for {{.*}} = 0 to 100 {
// CHECK: affine.for {{.*}} = 0 to 192 step 64 {
// CHECK: affine.vector_load %[[TOTALS]]
// CHECK: affine.vector_load
// CHECK: arith.addi
// CHECK: affine.vector_store
// CHECK: affine.vector_store {{.*}}, %[[TOTALS]]
func.func @wide(%x: tensor<1x100x200xi32>, %t: tensor<1x200xi32>) -> tensor<1x100x200xi32> {
  %e = tensor.empty() : tensor<1x100x200xi32>
  %r:2 = linalg.generic {indexing_maps = [#whole, #whole, #rest], iterator_types = ["parallel", "reduction", "parallel"]}
      ins(%x : tensor<1x100x200xi32>) outs(%e, %t : tensor<1x100x200xi32>, tensor<1x200xi32>) attrs = {kernel.scan = "forward"} {
  ^bb0(%in: i32, %out: i32, %total: i32):
    %s = arith.addi %total, %in : i32
    linalg.yield %s, %s : i32, i32
  } -> (tensor<1x100x200xi32>, tensor<1x200xi32>)
  return %r#0 : tensor<1x100x200xi32>
}

// What reads another operand beside the results is no part of it: turned, it would not lie side by side.
// CHECK-LABEL: func.func private @kernel_3
// CHECK-SAME: kernel.kind = "scan"
// CHECK-NOT: arith.muli
// CHECK-LABEL: func.func private @kernel_4
// CHECK-SAME: kernel.kind = "elementwise"
func.func @rejected(%x: tensor<1x100x64xi32>, %t: tensor<1x64xi32>) -> tensor<1x100x64xi32> {
  %e = tensor.empty() : tensor<1x100x64xi32>
  %r:2 = linalg.generic {indexing_maps = [#whole, #whole, #rest], iterator_types = ["parallel", "reduction", "parallel"]}
      ins(%x : tensor<1x100x64xi32>) outs(%e, %t : tensor<1x100x64xi32>, tensor<1x64xi32>) attrs = {kernel.scan = "forward"} {
  ^bb0(%in: i32, %out: i32, %total: i32):
    %s = arith.addi %total, %in : i32
    linalg.yield %s, %s : i32, i32
  } -> (tensor<1x100x64xi32>, tensor<1x64xi32>)
  %y = linalg.generic {indexing_maps = [#whole, #whole, #whole], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%r#0, %x : tensor<1x100x64xi32>, tensor<1x100x64xi32>) outs(%e : tensor<1x100x64xi32>) {
  ^bb0(%in: i32, %other: i32, %out: i32):
    %p = arith.muli %in, %other : i32
    linalg.yield %p : i32
  } -> tensor<1x100x64xi32>
  return %y : tensor<1x100x64xi32>
}
