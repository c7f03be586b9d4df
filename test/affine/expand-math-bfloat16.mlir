// RUN: stepwell-opt %s --target=cuda:sm_80 --pass-pipeline='builtin.module(expand-math)' | filecheck %s

// GPUs round f32 to bf16 by an instruction; f64 becomes f32 first, rounded to odd.
// CHECK-LABEL: func.func @rounded
// CHECK-NEXT: arith.truncf %{{.*}} : vector<2xf32> to vector<2xbf16>
// CHECK-NOT: arith.trunci
// CHECK: arith.truncf %{{.*}} : f32 to bf16
// CHECK-NEXT: return
func.func @rounded(%x: vector<2xf32>, %y: f64) -> (vector<2xbf16>, bf16) {
  %0 = arith.truncf %x : vector<2xf32> to vector<2xbf16>
  %1 = arith.truncf %y : f64 to bf16
  return %0, %1 : vector<2xbf16>, bf16
}
