// RUN: stepwell-opt %s --target=x86_64-v4 \
// RUN:   --pass-pipeline='builtin.module(look-up-codes,canonicalize)' | filecheck %s
// RUN: stepwell-opt %s --target=x86_64-v3 \
// RUN:   --pass-pipeline='builtin.module(look-up-codes,canonicalize)' | filecheck %s --check-prefix=OFF

// OFF-NOT: llvm.call_intrinsic

// What is subtracted goes into the table.
// CHECK-LABEL: func.func @codes
// CHECK: %[[T:.*]] = arith.constant dense<[-8.000000e+00, -7.000000e+00, {{.*}}, 7.000000e+00]> : vector<16xf32>
// CHECK-NEXT: %[[F:.*]] = llvm.call_intrinsic "llvm.x86.avx512.permvar.sf.512"(%[[T]], %arg0)
// CHECK-NEXT: return %[[F]]
func.func @codes(%word: vector<16xi32>) -> vector<16xf32> {
  %mask = arith.constant dense<15> : vector<16xi32>
  %eight = arith.constant dense<8.0> : vector<16xf32>
  %a = arith.andi %word, %mask : vector<16xi32>
  %b = arith.sitofp %a : vector<16xi32> to vector<16xf32>
  %c = arith.subf %b, %eight : vector<16xf32>
  return %c : vector<16xf32>
}

// Rejected: eight lanes, of which the instruction would see 4 bits as well but which are no register
// of 512 bits; and numbers of 5 bits.
// CHECK-LABEL: func.func @half
// CHECK: arith.sitofp
func.func @half(%word: vector<8xi32>) -> vector<8xf32> {
  %mask = arith.constant dense<15> : vector<8xi32>
  %a = arith.andi %word, %mask : vector<8xi32>
  %b = arith.sitofp %a : vector<8xi32> to vector<8xf32>
  return %b : vector<8xf32>
}

// CHECK-LABEL: func.func @wide
// CHECK: arith.sitofp
func.func @wide(%word: vector<16xi32>) -> vector<16xf32> {
  %mask = arith.constant dense<31> : vector<16xi32>
  %a = arith.andi %word, %mask : vector<16xi32>
  %b = arith.sitofp %a : vector<16xi32> to vector<16xf32>
  return %b : vector<16xf32>
}
