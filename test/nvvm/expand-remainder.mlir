// RUN: stepwell-opt %s --pass-pipeline='builtin.module(expand-remainder)' | filecheck %s

// y is doubled up to x, then halved back and taken away wherever it fits.

// CHECK: func.func @scalar
// CHECK-NOT: arith.remf
// CHECK: scf.while
// CHECK: arith.addf %[[T:.*]], %[[T]] : f32
// CHECK: scf.while
// CHECK: arith.subf
// CHECK: math.copysign
func.func @scalar(%x: f32, %y: f32) -> f32 {
  %0 = arith.remf %x, %y : f32
  return %0 : f32
}

// Lane by lane, f16 by way of f32.

// CHECK: func.func @lanes
// CHECK-COUNT-4: scf.while
// CHECK-NOT: scf.while
// CHECK: vector.from_elements %{{.*}}, %{{.*}} : vector<2xf16>
func.func @lanes(%x: vector<2xf16>, %y: vector<2xf16>) -> vector<2xf16> {
  %0 = arith.remf %x, %y : vector<2xf16>
  return %0 : vector<2xf16>
}

// Remainders of integers stay.

// CHECK: func.func @integers
// CHECK: arith.remsi
func.func @integers(%x: i32, %y: i32) -> i32 {
  %0 = arith.remsi %x, %y : i32
  return %0 : i32
}
