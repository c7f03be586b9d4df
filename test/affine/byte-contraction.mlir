// RUN: stepwell-opt %s --target=x86_64-v4+vnni \
// RUN:   --pass-pipeline='builtin.module(form-fusion-groups,pack-operands,lower-groups-to-affine)' | filecheck %s
// RUN: stepwell-opt %s --target=x86_64-v4 \
// RUN:   --pass-pipeline='builtin.module(form-fusion-groups,pack-operands,lower-groups-to-affine)' \
// RUN:   | filecheck %s --check-prefix=WIDE

#lhs = affine_map<(d0, d1, d2) -> (d0, d2)>
#rhs = affine_map<(d0, d1, d2) -> (d2, d1)>
#out = affine_map<(d0, d1, d2) -> (d0, d1)>

// A panel that is no weight is brought into words of four terms; a word of the lhs meets each.
// CHECK: func.func private @kernel_0
// CHECK-SAME: kernel.flops = 16384
// CHECK-SAME: terms = 4
// CHECK: memref.alloca() {alignment = 64 : i64} : memref<16x64xi8>
// CHECK: %[[EVEN:.*]] = vector.interleave
// CHECK: %[[ODD:.*]] = vector.interleave
// CHECK: vector.interleave %[[EVEN]], %[[ODD]] : vector<32xi8> -> vector<64xi8>
// CHECK: %[[WORD:.*]] = affine.vector_load %arg0[{{.*}}] : memref<8x64xi8>, vector<4xi8>
// CHECK: %[[ONE:.*]] = vector.bitcast %[[WORD]] : vector<4xi8> to vector<1xi32>
// CHECK: vector.broadcast %[[ONE]] : vector<1xi32> to vector<16xi32>
// CHECK: llvm.call_intrinsic "llvm.x86.avx512.vpdpbusd.512"

// Without the instruction, the operands are extended.
// WIDE: func.func private @kernel_0
// WIDE-NOT: vpdpbusd
// WIDE: arith.extui
func.func @main(%x: tensor<8x64xi8>, %w: tensor<64x16xi8>) -> tensor<8x16xi32> {
  %zero = arith.constant 0 : i32
  %empty = tensor.empty() : tensor<8x16xi32>
  %fill = linalg.fill ins(%zero : i32) outs(%empty : tensor<8x16xi32>) -> tensor<8x16xi32>
  %z = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %w : tensor<8x64xi8>, tensor<64x16xi8>) outs(%fill : tensor<8x16xi32>) {
  ^bb0(%l: i8, %r: i8, %o: i32):
    %a = arith.extui %l : i8 to i32
    %b = arith.extsi %r : i8 to i32
    %0 = arith.muli %a, %b : i32
    %1 = arith.addi %o, %0 : i32
    linalg.yield %1 : i32
  } -> tensor<8x16xi32>
  return %z : tensor<8x16xi32>
}

// Rejected: terms that fill no word.
// CHECK: func.func private @kernel_1
// CHECK-NOT: vpdpbusd
// CHECK: return
func.func @odd(%x: tensor<8x63xi8>, %w: tensor<63x16xi8>) -> tensor<8x16xi32> {
  %zero = arith.constant 0 : i32
  %empty = tensor.empty() : tensor<8x16xi32>
  %fill = linalg.fill ins(%zero : i32) outs(%empty : tensor<8x16xi32>) -> tensor<8x16xi32>
  %z = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %w : tensor<8x63xi8>, tensor<63x16xi8>) outs(%fill : tensor<8x16xi32>) {
  ^bb0(%l: i8, %r: i8, %o: i32):
    %a = arith.extui %l : i8 to i32
    %b = arith.extsi %r : i8 to i32
    %0 = arith.muli %a, %b : i32
    %1 = arith.addi %o, %0 : i32
    linalg.yield %1 : i32
  } -> tensor<8x16xi32>
  return %z : tensor<8x16xi32>
}

// Small bytes: pairs of products in 16 bits, then pairs of these.
// WIDE: func.func private @kernel_2
// WIDE-SAME: terms = 4
// WIDE: %[[PAIRS:.*]] = llvm.call_intrinsic "llvm.x86.avx512.pmaddubs.w.512"({{.*}}) : (vector<64xi8>, vector<64xi8>) -> vector<32xi16>
// WIDE: %[[SUMS:.*]] = llvm.call_intrinsic "llvm.x86.avx512.pmaddw.d.512"(%[[PAIRS]], %{{.*}}) : (vector<32xi16>, vector<32xi16>) -> vector<16xi32>
// WIDE: arith.addi %{{.*}}, %[[SUMS]] : vector<16xi32>
func.func @small(%x: tensor<8x64xi8>, %w: tensor<64x16xi8>) -> tensor<8x16xi32> {
  %zero = arith.constant 0 : i32
  %empty = tensor.empty() : tensor<8x16xi32>
  %fill = linalg.fill ins(%zero : i32) outs(%empty : tensor<8x16xi32>) -> tensor<8x16xi32>
  %z = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]} ins(%x, %w : tensor<8x64xi8>, tensor<64x16xi8>) outs(%fill : tensor<8x16xi32>) attrs = {kernel.small_bytes} {
  ^bb0(%l: i8, %r: i8, %o: i32):
    %a = arith.extui %l : i8 to i32
    %b = arith.extsi %r : i8 to i32
    %0 = arith.muli %a, %b : i32
    %1 = arith.addi %o, %0 : i32
    linalg.yield %1 : i32
  } -> tensor<8x16xi32>
  return %z : tensor<8x16xi32>
}
