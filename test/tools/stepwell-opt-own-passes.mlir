// Own and upstream passes mix at any nesting, and print in the order in which they run.

// RUN: stepwell-opt %s --mlir-print-ir-before-all --mlir-print-ir-after-all \
// RUN:   --pass-pipeline='builtin.module(cse,func.func(fold-constants,canonicalize),simplify-algebra)' 2>&1 \
// RUN:   | filecheck %s

// CHECK: IR Dump Before CSE
// CHECK: IR Dump After CSE
// CHECK: IR Dump Before fold-constants
// CHECK: IR Dump After fold-constants
// CHECK: dense<5.000000e+00>
// CHECK: IR Dump Before Canonicalizer
// CHECK: IR Dump After simplify-algebra
// CHECK: return %arg0

// RUN: stepwell-opt --list-passes | filecheck %s --check-prefix=LIST
// LIST: choose-layout
// LIST: fold-constants {{.*}}Evaluate ops whose operands are all constants

// RUN: stepwell-opt %s --mlir-print-debuginfo --pass-pipeline='fold-constants' \
// RUN:   | filecheck %s --check-prefix=LOCATION
// The constant has the location of the op that it replaces.
// LOCATION: stablehlo.constant dense<5.000000e+00> : tensor<f32> loc(#[[AT:.*]])
// LOCATION: #[[AT]] = loc("{{.*}}":[[#]]:{{.*}})

func.func @f(%x: tensor<f32>) -> (tensor<f32>, tensor<f32>) {
  %two = stablehlo.constant dense<2.0> : tensor<f32>
  %three = stablehlo.constant dense<3.0> : tensor<f32>
  %five = stablehlo.add %two, %three : tensor<f32>
  %y = stablehlo.negate %x : tensor<f32>
  %z = stablehlo.negate %y : tensor<f32>
  return %z, %five : tensor<f32>, tensor<f32>
}
