// RUN: stepwell-opt %s --target=x86_64-v3 --pass-pipeline='builtin.module(expand-math)' | filecheck %s
// RUN: stepwell-opt %s --target=x86_64-v4 --pass-pipeline='builtin.module(expand-math)' \
// RUN:   | filecheck %s --check-prefix=AVX512

// AVX512-LABEL: func.func @vector
// AVX512: llvm.call_intrinsic "llvm.x86.avx512.mask.scalef.ps.512"
// AVX512-NEXT: return
// CHECK-LABEL: func.func @vector
// CHECK-NOT: math.exp
// CHECK: math.fma %{{.*}} : vector<16xf32>
// CHECK: arith.shli %{{.*}} : vector<16xi32>
// CHECK: arith.bitcast %{{.*}} : vector<16xi32> to vector<16xf32>
// CHECK: arith.mulf %{{.*}} : vector<16xf32>
// CHECK-NEXT: return
func.func @vector(%x: vector<16xf32>) -> vector<16xf32> {
  %0 = math.exp %x : vector<16xf32>
  return %0 : vector<16xf32>
}

// Halves are computed in single precision and rounded once.
// CHECK-LABEL: func.func @half
// CHECK: arith.extf %arg0 : f16 to f32
// CHECK-NOT: math.erf
// CHECK: %[[Y:.*]] = arith.truncf %{{.*}} : f32 to f16
// CHECK: return %[[Y]]
func.func @half(%x: f16) -> f16 {
  %0 = math.erf %x : f16
  return %0 : f16
}

// CHECK-LABEL: func.func @all
// CHECK-NOT: math.{{log|log1p|expm1|tanh|sin|cos|rsqrt|powf}} %
// CHECK: return
func.func @all(%x: f32, %y: f32) -> (f32, f32, f32, f32, f32, f32, f32, f32) {
  %0 = math.log %x : f32
  %1 = math.log1p %x : f32
  %2 = math.expm1 %x : f32
  %3 = math.tanh %x : f32
  %4 = math.sin %x : f32
  %5 = math.cos %x : f32
  %6 = math.rsqrt %x : f32
  %7 = math.powf %x, %y : f32
  return %0, %1, %2, %3, %4, %5, %6, %7 : f32, f32, f32, f32, f32, f32, f32, f32
}

// Functions of f32 do not go through f64, where they have expansions of their own.
// CHECK-LABEL: func.func @single
// CHECK-NOT: f64
// CHECK: return
func.func @single(%x: vector<16xf32>, %y: vector<16xf32>) -> (vector<16xf32>, vector<16xf32>, vector<16xf32>) {
  %0 = math.log1p %x : vector<16xf32>
  %1 = math.expm1 %x : vector<16xf32>
  %2 = math.atan2 %y, %x : vector<16xf32>
  return %0, %1, %2 : vector<16xf32>, vector<16xf32>, vector<16xf32>
}

// Remainders are exact where the quotients are small; else the vector stays a call.
// CHECK-LABEL: func.func @remainder
// CHECK: %[[Q:.*]] = math.trunc %{{.*}} : vector<16xf32>
// CHECK: %[[ANY:.*]] = vector.reduction <or>, %{{.*}} : vector<16xi1> into i1
// CHECK: scf.if %[[ANY]] -> (vector<16xf32>) {
// CHECK-NEXT: arith.remf %arg0, %arg1 : vector<16xf32>
// CHECK: } else {
// CHECK: math.fma
// CHECK: math.copysign
func.func @remainder(%x: vector<16xf32>, %y: vector<16xf32>) -> vector<16xf32> {
  %0 = arith.remf %x, %y : vector<16xf32>
  return %0 : vector<16xf32>
}

// What an integer cannot hold gives its bounds, NaN 0; below, bounds that f32 holds are taken there.
// CHECK-LABEL: func.func @to_integers
// CHECK: %[[ABOVE_LOW:.*]] = arith.select %{{.*}}, %arg0, %{{.*}} : vector<8xi1>, vector<8xf32>
// CHECK: arith.fptosi %[[ABOVE_LOW]] : vector<8xf32> to vector<8xi32>
// CHECK: arith.cmpf oge, %arg0
// CHECK: arith.cmpf uno, %arg0, %arg0
// CHECK: arith.cmpf ogt, %arg0
// CHECK: arith.cmpf olt
// CHECK: arith.fptosi %{{.*}} : vector<8xf32> to vector<8xi32>
// CHECK-NEXT: arith.trunci %{{.*}} : vector<8xi32> to vector<8xi8>
// CHECK-NEXT: return
func.func @to_integers(%x: vector<8xf32>) -> (vector<8xi32>, vector<8xi8>) {
  %0 = arith.fptosi %x : vector<8xf32> to vector<8xi32>
  %1 = arith.fptoui %x : vector<8xf32> to vector<8xi8>
  return %0, %1 : vector<8xi32>, vector<8xi8>
}

// Rejected: what the machine has instructions for stays.
// CHECK-LABEL: func.func @kept
// CHECK: math.sqrt %arg0 : f32
// CHECK: math.floor
func.func @kept(%x: f32) -> f32 {
  %0 = math.sqrt %x : f32
  %1 = math.floor %0 : f32
  return %1 : f32
}

// A choice between bf16 is one between their bits.
// CHECK-LABEL: func.func @choice
// CHECK: arith.select %{{.*}}, %{{.*}}, %{{.*}} : vector<4xi1>, vector<4xi16>
// CHECK-NOT: vector<4xi1>, vector<4xbf16>
func.func @choice(%c: vector<4xi1>, %a: vector<4xbf16>, %b: vector<4xbf16>) -> vector<4xbf16> {
  %0 = arith.select %c, %a, %b : vector<4xi1>, vector<4xbf16>
  return %0 : vector<4xbf16>
}

// bf16 is extended by its bits, to f64 by way of f32.
// CHECK-LABEL: func.func @extended
// CHECK: %[[S:.*]] = arith.bitcast %{{.*}} : vector<4xi32> to vector<4xf32>
// CHECK: arith.extf %[[S]] : vector<4xf32> to vector<4xf64>
func.func @extended(%a: vector<4xbf16>) -> vector<4xf64> {
  %0 = arith.extf %a : vector<4xbf16> to vector<4xf64>
  return %0 : vector<4xf64>
}

// A sign is set by bits.
// CHECK-LABEL: func.func @angle
// CHECK-NOT: math.copysign
// CHECK: arith.ori %{{.*}}, %{{.*}} : i64
func.func @angle(%y: f64, %x: f64) -> f64 {
  %0 = math.atan2 %y, %x : f64
  return %0 : f64
}

// Vectors of integers are divided as floats; by a constant they are multiplied, and i64 has no such
// float.
// CHECK-LABEL: func.func @divided
// CHECK-SAME: %[[X:.*]]: vector<8xi32>, %[[Y:.*]]: vector<8xi32>
// CHECK-DAG: %[[A:.*]] = arith.sitofp %[[X]] : vector<8xi32> to vector<8xf64>
// CHECK-DAG: %[[B:.*]] = arith.sitofp %[[Y]] : vector<8xi32> to vector<8xf64>
// CHECK: %[[Q:.*]] = arith.divf %[[A]], %[[B]] : vector<8xf64>
// CHECK: arith.fptosi %[[Q]] : vector<8xf64> to vector<8xi32>
func.func @divided(%x: vector<8xi32>, %y: vector<8xi32>) -> vector<8xi32> {
  %0 = arith.divsi %x, %y : vector<8xi32>
  return %0 : vector<8xi32>
}

// CHECK-LABEL: func.func @rest_of_bytes
// CHECK: arith.divf %{{.*}} : vector<16xf32>
// CHECK: %[[N:.*]] = arith.fptoui
// CHECK: %[[M:.*]] = arith.muli %[[N]], %{{.*}} : vector<16xi8>
// CHECK: arith.subi %{{.*}}, %[[M]] : vector<16xi8>
func.func @rest_of_bytes(%x: vector<16xi8>, %y: vector<16xi8>) -> vector<16xi8> {
  %0 = arith.remui %x, %y : vector<16xi8>
  return %0 : vector<16xi8>
}

// CHECK-LABEL: func.func @left_as_they_are
// CHECK: arith.divsi %{{.*}} : vector<8xi32>
// CHECK: arith.divsi %{{.*}} : vector<8xi64>
// CHECK: arith.divsi %{{.*}} : i32
func.func @left_as_they_are(%x: vector<8xi32>, %y: vector<8xi64>, %z: i32)
    -> (vector<8xi32>, vector<8xi64>, i32) {
  %seven = arith.constant dense<7> : vector<8xi32>
  %0 = arith.divsi %x, %seven : vector<8xi32>
  %1 = arith.divsi %y, %y : vector<8xi64>
  %2 = arith.divsi %z, %z : i32
  return %0, %1, %2 : vector<8xi32>, vector<8xi64>, i32
}

// The greater of two bf16 is one of them: the bits of its f32 are cut. Sums are rounded.
// CHECK-LABEL: func.func @greater
// CHECK: arith.maximumf %{{.*}} : vector<4xf32>
// CHECK-NOT: arith.addi
// CHECK: arith.trunci
func.func @greater(%a: vector<4xbf16>, %b: vector<4xbf16>) -> vector<4xbf16> {
  %0 = arith.maximumf %a, %b : vector<4xbf16>
  return %0 : vector<4xbf16>
}

// CHECK-LABEL: func.func @rounded_sum
// CHECK: arith.addf %{{.*}} : vector<4xf32>
// CHECK: arith.addi
// CHECK: arith.trunci
func.func @rounded_sum(%a: vector<4xbf16>, %b: vector<4xbf16>) -> vector<4xbf16> {
  %0 = arith.addf %a, %b : vector<4xbf16>
  return %0 : vector<4xbf16>
}
