// RUN: stepwell-opt %s --pass-pipeline='vectorize{vector-size=16}' | filecheck %s
// RUN: stepwell-opt %s --pass-pipeline='builtin.module(tile{tile-sizes=8,32 target-op=linalg.exp},vectorize,one-shot-bufferize{bufferize-function-boundaries=true function-boundary-type-conversion=identity-layout-map},func.func(convert-linalg-to-loops,convert-vector-to-scf),lower-affine,convert-scf-to-cf,expand-strided-metadata,lower-affine,convert-vector-to-llvm,convert-math-to-llvm,finalize-memref-to-llvm,convert-func-to-llvm{use-bare-ptr-memref-call-conv=true},convert-arith-to-llvm,convert-cf-to-llvm,convert-index-to-llvm,convert-ub-to-llvm,reconcile-unrealized-casts)' | filecheck %s --check-prefix=LLVM
// RUN: not stepwell-opt %s --pass-pipeline='vectorize{vector-size=0}' 2>&1 | filecheck %s --check-prefix=ERROR

// ERROR: error: vectorize: vector-size is not positive

// LLVM: llvm.func @even
// LLVM: llvm.intr.exp({{.*}}) : (vector<16xf32>)
// LLVM-NOT: unrealized_conversion_cast

// CHECK-LABEL: func.func @even
// CHECK: scf.for {{.*}} step %c16
// CHECK: vector.transfer_read %arg0{{.*}} vector<16xf32>
// CHECK-NEXT: math.exp {{.*}} : vector<16xf32>
// CHECK-NEXT: vector.transfer_write
func.func @even(%x: tensor<4x64xf32>, %y: tensor<4x64xf32>) -> tensor<4x64xf32> {
  %r = linalg.exp ins(%x : tensor<4x64xf32>) outs(%y : tensor<4x64xf32>) -> tensor<4x64xf32>
  return %r : tensor<4x64xf32>
}

// The last vector is masked.
// CHECK-LABEL: func.func @uneven
// CHECK: vector.create_mask %{{.*}} : vector<16xi1>
// CHECK: vector.transfer_read
func.func @uneven(%x: tensor<61xf32>, %y: tensor<61xf32>) -> tensor<61xf32> {
  %r = linalg.exp ins(%x : tensor<61xf32>) outs(%y : tensor<61xf32>) -> tensor<61xf32>
  return %r : tensor<61xf32>
}

// A sum along the vector is one reduction a vector.
// CHECK-LABEL: func.func @row_sum
// CHECK: vector.reduction <add>
func.func @row_sum(%x: tensor<4x64xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
  %r = linalg.reduce ins(%x : tensor<4x64xf32>) outs(%y : tensor<4xf32>) dimensions = [1]
    (%a: f32, %b: f32) { %s = arith.addf %a, %b : f32  linalg.yield %s : f32 }
  return %r : tensor<4xf32>
}

// A window moves over %x: its index is a sum of loops.
// CHECK-LABEL: func.func @rejected
// CHECK: linalg.generic
func.func @rejected(%x: tensor<18xf32>, %w: tensor<3xf32>, %y: tensor<16xf32>) -> tensor<16xf32> {
  %r = linalg.conv_1d ins(%x, %w : tensor<18xf32>, tensor<3xf32>) outs(%y : tensor<16xf32>) -> tensor<16xf32>
  return %r : tensor<16xf32>
}
