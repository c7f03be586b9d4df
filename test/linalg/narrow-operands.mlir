// RUN: stepwell-opt %s --target=x86_64-v4+vnni --pass-pipeline='builtin.module(narrow-operands)' \
// RUN:   | filecheck %s
// RUN: stepwell-opt %s --target=x86_64-v4 --pass-pipeline='builtin.module(narrow-operands)' \
// RUN:   | filecheck %s --check-prefix=NONE

// RUN: stepwell-opt %s --target=x86_64-v3 --pass-pipeline='builtin.module(narrow-operands)' \
// RUN:   | filecheck %s --check-prefix=SMALL

// NONE-NOT: ins(%{{.*}} : tensor<8x4xi8>, tensor<4x2xi8>)

#identity = affine_map<(d0, d1) -> (d0, d1)>
#turned = affine_map<(d0, d1) -> (d1, d0)>
#lhs = affine_map<(d0, d1, d2) -> (d0, d2)>
#rhs = affine_map<(d0, d1, d2) -> (d2, d1)>
#out = affine_map<(d0, d1, d2) -> (d0, d1)>

// CHECK-LABEL: func.func @bytes
// CHECK: %[[W:.*]] = arith.constant dense<{{.*}}-128, 5{{.*}}> : tensor<4x2xi8>
// CHECK: linalg.generic {{.*}} ins(%arg0, %[[W]] : tensor<8x4xi8>, tensor<4x2xi8>)
// CHECK-NEXT: ^bb0(%[[A:.*]]: i8, %[[B:.*]]: i8, %{{.*}}: i32):
// CHECK-DAG: arith.extui %[[A]] : i8 to i32
// CHECK-DAG: arith.extsi %[[B]] : i8 to i32
// CHECK: arith.muli
func.func @bytes(%x: tensor<8x4xi8>, %init: tensor<8x2xi32>) -> tensor<8x2xi32> {
  %w = arith.constant dense<[[-128, 5], [127, 1], [2, 3], [4, 6]]> : tensor<4x2xi32>
  %empty = tensor.empty() : tensor<8x4xi32>
  %a = linalg.generic {indexing_maps = [#identity, #identity], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<8x4xi8>) outs(%empty : tensor<8x4xi32>) {
  ^bb0(%in: i8, %o: i32):
    %0 = arith.extui %in : i8 to i32
    linalg.yield %0 : i32
  } -> tensor<8x4xi32>
  %z = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]} ins(%a, %w : tensor<8x4xi32>, tensor<4x2xi32>) outs(%init : tensor<8x2xi32>) {
  ^bb0(%l: i32, %r: i32, %o: i32):
    %0 = arith.muli %l, %r : i32
    %1 = arith.addi %o, %0 : i32
    linalg.yield %1 : i32
  } -> tensor<8x2xi32>
  return %z : tensor<8x2xi32>
}

// Where two products are added in 16 bits, a constant of small numbers is narrowed, and marked.
// SMALL-LABEL: func.func @small
// SMALL: linalg.generic {{.*}} ins(%arg0, %{{.*}} : tensor<8x4xi8>, tensor<4x3xi8>) {{.*}} attrs = {kernel.small_bytes}
// SMALL: linalg.generic {{.*}} ins(%{{.*}}, %{{.*}} : tensor<8x4xi32>, tensor<4x3xi32>)
// CHECK-LABEL: func.func @small
// CHECK-NOT: kernel.small_bytes
func.func @small(%x: tensor<8x4xi8>, %init: tensor<8x3xi32>) -> (tensor<8x3xi32>, tensor<8x3xi32>) {
  %w = arith.constant dense<[[-64, 5, 1], [64, 1, 2], [2, 3, 4], [4, 6, 7]]> : tensor<4x3xi32>
  %v = arith.constant dense<[[-65, 5, 1], [64, 1, 2], [2, 3, 4], [4, 6, 7]]> : tensor<4x3xi32>
  %empty = tensor.empty() : tensor<8x4xi32>
  %a = linalg.generic {indexing_maps = [#identity, #identity], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<8x4xi8>) outs(%empty : tensor<8x4xi32>) {
  ^bb0(%in: i8, %o: i32):
    %0 = arith.extui %in : i8 to i32
    linalg.yield %0 : i32
  } -> tensor<8x4xi32>
  %y = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]} ins(%a, %w : tensor<8x4xi32>, tensor<4x3xi32>) outs(%init : tensor<8x3xi32>) {
  ^bb0(%l: i32, %r: i32, %o: i32):
    %0 = arith.muli %l, %r : i32
    %1 = arith.addi %o, %0 : i32
    linalg.yield %1 : i32
  } -> tensor<8x3xi32>
  %z = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]} ins(%a, %v : tensor<8x4xi32>, tensor<4x3xi32>) outs(%init : tensor<8x3xi32>) {
  ^bb0(%l: i32, %r: i32, %o: i32):
    %0 = arith.muli %l, %r : i32
    %1 = arith.addi %o, %0 : i32
    linalg.yield %1 : i32
  } -> tensor<8x3xi32>
  return %y, %z : tensor<8x3xi32>, tensor<8x3xi32>
}

// What is transposed behind the extension is transposed as bytes.
// CHECK-LABEL: func.func @transposed
// CHECK: %[[T:.*]] = linalg.generic {{.*}} ins(%arg0 : tensor<4x8xi8>) outs(%{{.*}} : tensor<8x4xi8>)
// CHECK: linalg.generic {{.*}} ins(%[[T]], %{{.*}} : tensor<8x4xi8>, tensor<4x2xi8>)
func.func @transposed(%x: tensor<4x8xi8>, %init: tensor<8x2xi32>) -> tensor<8x2xi32> {
  %w = arith.constant dense<[[-128, 5], [127, 1], [2, 3], [4, 6]]> : tensor<4x2xi32>
  %empty = tensor.empty() : tensor<4x8xi32>
  %a = linalg.generic {indexing_maps = [#identity, #identity], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<4x8xi8>) outs(%empty : tensor<4x8xi32>) {
  ^bb0(%in: i8, %o: i32):
    %0 = arith.extui %in : i8 to i32
    linalg.yield %0 : i32
  } -> tensor<4x8xi32>
  %turned = tensor.empty() : tensor<8x4xi32>
  %b = linalg.generic {indexing_maps = [#turned, #identity], iterator_types = ["parallel", "parallel"]} ins(%a : tensor<4x8xi32>) outs(%turned : tensor<8x4xi32>) {
  ^bb0(%in: i32, %o: i32):
    linalg.yield %in : i32
  } -> tensor<8x4xi32>
  %z = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]} ins(%b, %w : tensor<8x4xi32>, tensor<4x2xi32>) outs(%init : tensor<8x2xi32>) {
  ^bb0(%l: i32, %r: i32, %o: i32):
    %0 = arith.muli %l, %r : i32
    %1 = arith.addi %o, %0 : i32
    linalg.yield %1 : i32
  } -> tensor<8x2xi32>
  return %z : tensor<8x2xi32>
}

// Rejected: both signed; a constant of nine bits.
// CHECK-LABEL: func.func @others
// CHECK-COUNT-2: ins(%{{.*}} : tensor<8x4xi32>, tensor<4x2xi32>)
func.func @others(%x: tensor<8x4xi8>, %init: tensor<8x2xi32>) -> (tensor<8x2xi32>, tensor<8x2xi32>) {
  %w = arith.constant dense<[[-128, 5], [127, 1], [2, 3], [4, 6]]> : tensor<4x2xi32>
  %v = arith.constant dense<[[-128, 5], [128, 1], [2, 3], [4, 6]]> : tensor<4x2xi32>
  %empty = tensor.empty() : tensor<8x4xi32>
  %a = linalg.generic {indexing_maps = [#identity, #identity], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<8x4xi8>) outs(%empty : tensor<8x4xi32>) {
  ^bb0(%in: i8, %o: i32):
    %0 = arith.extsi %in : i8 to i32
    linalg.yield %0 : i32
  } -> tensor<8x4xi32>
  %b = linalg.generic {indexing_maps = [#identity, #identity], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<8x4xi8>) outs(%empty : tensor<8x4xi32>) {
  ^bb0(%in: i8, %o: i32):
    %0 = arith.extui %in : i8 to i32
    linalg.yield %0 : i32
  } -> tensor<8x4xi32>
  %y = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]} ins(%a, %w : tensor<8x4xi32>, tensor<4x2xi32>) outs(%init : tensor<8x2xi32>) {
  ^bb0(%l: i32, %r: i32, %o: i32):
    %0 = arith.muli %l, %r : i32
    %1 = arith.addi %o, %0 : i32
    linalg.yield %1 : i32
  } -> tensor<8x2xi32>
  %z = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]} ins(%b, %v : tensor<8x4xi32>, tensor<4x2xi32>) outs(%init : tensor<8x2xi32>) {
  ^bb0(%l: i32, %r: i32, %o: i32):
    %0 = arith.muli %l, %r : i32
    %1 = arith.addi %o, %0 : i32
    linalg.yield %1 : i32
  } -> tensor<8x2xi32>
  return %y, %z : tensor<8x2xi32>, tensor<8x2xi32>
}
