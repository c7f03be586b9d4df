// RUN: stepwell-opt %s --target=x86_64-v3 \
// RUN:   --pass-pipeline='builtin.module(form-fusion-groups,pack-operands,lower-groups-to-affine)' | filecheck %s

#lhs = affine_map<(d0, d1, d2) -> (d0, d2)>
#rhs = affine_map<(d0, d1, d2) -> (d2, d1)>
#out = affine_map<(d0, d1, d2) -> (d0, d1)>

// Integers of 16 bits: words of two terms, one step an iteration.
// CHECK: func.func private @kernel_0
// CHECK-SAME: terms = 2
// CHECK: vector.interleave
// CHECK: %[[WORD:.*]] = affine.vector_load %arg0[{{.*}}] : memref<8x64xi16>, vector<2xi16>
// CHECK: %[[ONE:.*]] = vector.bitcast %[[WORD]] : vector<2xi16> to vector<1xi32>
// CHECK: vector.broadcast %[[ONE]] : vector<1xi32> to vector<8xi32>
// CHECK: %[[SUMS:.*]] = llvm.call_intrinsic "llvm.x86.avx2.pmadd.wd"({{.*}}) : (vector<16xi16>, vector<16xi16>) -> vector<8xi32>
// CHECK: arith.addi %{{.*}}, %[[SUMS]] : vector<8xi32>
func.func @main(%x: tensor<8x64xi16>, %w: tensor<64x16xi16>) -> tensor<8x16xi32> {
  %zero = arith.constant 0 : i32
  %empty = tensor.empty() : tensor<8x16xi32>
  %fill = linalg.fill ins(%zero : i32) outs(%empty : tensor<8x16xi32>) -> tensor<8x16xi32>
  %z = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %w : tensor<8x64xi16>, tensor<64x16xi16>) outs(%fill : tensor<8x16xi32>) {
  ^bb0(%l: i16, %r: i16, %o: i32):
    %a = arith.extsi %l : i16 to i32
    %b = arith.extsi %r : i16 to i32
    %0 = arith.muli %a, %b : i32
    %1 = arith.addi %o, %0 : i32
    linalg.yield %1 : i32
  } -> tensor<8x16xi32>
  return %z : tensor<8x16xi32>
}

// Rejected: an odd number of terms, and unsigned integers.
// CHECK: func.func private @kernel_1
// CHECK-NOT: pmadd
// CHECK: func.func private @kernel_2
// CHECK-NOT: pmadd
func.func @odd(%x: tensor<8x63xi16>, %w: tensor<63x16xi16>) -> tensor<8x16xi32> {
  %zero = arith.constant 0 : i32
  %empty = tensor.empty() : tensor<8x16xi32>
  %fill = linalg.fill ins(%zero : i32) outs(%empty : tensor<8x16xi32>) -> tensor<8x16xi32>
  %z = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %w : tensor<8x63xi16>, tensor<63x16xi16>) outs(%fill : tensor<8x16xi32>) {
  ^bb0(%l: i16, %r: i16, %o: i32):
    %a = arith.extsi %l : i16 to i32
    %b = arith.extsi %r : i16 to i32
    %0 = arith.muli %a, %b : i32
    %1 = arith.addi %o, %0 : i32
    linalg.yield %1 : i32
  } -> tensor<8x16xi32>
  return %z : tensor<8x16xi32>
}
func.func @unsigned(%x: tensor<8x64xi16>, %w: tensor<64x16xi16>) -> tensor<8x16xi32> {
  %zero = arith.constant 0 : i32
  %empty = tensor.empty() : tensor<8x16xi32>
  %fill = linalg.fill ins(%zero : i32) outs(%empty : tensor<8x16xi32>) -> tensor<8x16xi32>
  %z = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %w : tensor<8x64xi16>, tensor<64x16xi16>) outs(%fill : tensor<8x16xi32>) {
  ^bb0(%l: i16, %r: i16, %o: i32):
    %a = arith.extui %l : i16 to i32
    %b = arith.extsi %r : i16 to i32
    %0 = arith.muli %a, %b : i32
    %1 = arith.addi %o, %0 : i32
    linalg.yield %1 : i32
  } -> tensor<8x16xi32>
  return %z : tensor<8x16xi32>
}
