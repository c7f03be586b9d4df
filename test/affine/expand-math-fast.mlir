// RUN: stepwell-opt %s --target=cuda:sm_80 --pass-pipeline='builtin.module(expand-math)' | filecheck %s

// CHECK-LABEL: func.func @fast
// CHECK-SAME: kernel.fast_math
// CHECK: llvm.call_intrinsic "llvm.nvvm.ex2.approx.ftz"(%{{.*}}) : (f32) -> f32
// CHECK: llvm.call_intrinsic "llvm.nvvm.ex2.approx.ftz"(%{{.*}}) : (f32) -> f32
// CHECK: vector.from_elements {{.*}} : vector<2xf32>
// CHECK: arith.extf %{{.*}} : f16 to f32
// CHECK: tanh.approx.f32
// CHECK: arith.truncf %{{.*}} : f32 to f16
// CHECK-NOT: approx
// CHECK: return
func.func @fast(%x: vector<2xf32>, %y: f16, %z: f64) -> (vector<2xf32>, f16, f64)
    attributes {kernel.fast_math} {
  %0 = math.exp %x : vector<2xf32>
  %1 = math.tanh %y : f16
  %2 = math.tanh %z : f64
  return %0, %1, %2 : vector<2xf32>, f16, f64
}

// CHECK-LABEL: func.func @exact
// CHECK-NOT: approx
// CHECK: return
func.func @exact(%x: f32) -> f32 {
  %0 = math.tanh %x : f32
  return %0 : f32
}
