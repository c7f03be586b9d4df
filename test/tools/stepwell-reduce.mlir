// What a test command takes for interesting is kept, and nothing else: loops, branches, operations
// around it, results, arguments and sizes go.

// RUN: stepwell-reduce %s --test 'grep -q stablehlo.cosine' 2> %t.cosine.log | filecheck %s --check-prefix=COSINE
// RUN: filecheck %s --check-prefix=LOG --input-file %t.cosine.log
// RUN: stepwell-reduce %s --test 'grep -q stablehlo.while' | filecheck %s --check-prefix=WHILE
// RUN: stepwell-reduce %s --test 'grep -q stablehlo.reduce' | filecheck %s --check-prefix=REDUCE

// What is written is reduced already.
// RUN: stepwell-reduce %s -o %t.once.mlir --test 'grep -q stablehlo.while'
// RUN: stepwell-reduce %t.once.mlir -o %t.twice.mlir --test 'grep -q stablehlo.while'
// RUN: diff %t.once.mlir %t.twice.mlir

// RUN: not stepwell-reduce %s -o %t.none.mlir --test false 2>&1 | filecheck %s --check-prefix=NONE
// RUN: not ls %t.none.mlir
// RUN: not stepwell-reduce %s 2>&1 | filecheck %s --check-prefix=FINE
// RUN: not stepwell-reduce %s --test no-such-command 2>&1 | filecheck %s --check-prefix=COMMAND

// COSINE: func.func @main(%arg0: tensor<2xf32>) -> tensor<2xf32> {
// COSINE-NEXT: %0 = stablehlo.cosine %arg0
// COSINE-NEXT: return %0

// LOG: test: the command grep -q stablehlo.cosine succeeds
// LOG: 10 operations became 1,

// WHILE: stablehlo.while
// WHILE: cond {
// WHILE-NEXT: stablehlo.constant dense<false>
// WHILE-NEXT: stablehlo.return
// WHILE-NEXT: } do {
// WHILE-NEXT: stablehlo.return
// WHILE-NEXT: }
// WHILE-NEXT: return

// REDUCE: func.func @main(%arg0: tensor<2xf32>) -> tensor<f32> {
// REDUCE: stablehlo.reduce(%arg0
// REDUCE: return

// NONE: error: the test command does not succeed with {{.*}} as StableHLO; nothing to reduce
// FINE: stepwell-reduce.mlir does not fail; nothing to reduce
// COMMAND: error: the test command no-such-command cannot be run: no such file or directory

func.func private @layer(%x: tensor<8xf32>) -> tensor<8xf32> {
  %0 = stablehlo.cosine %x : tensor<8xf32>
  %1 = stablehlo.exponential %0 : tensor<8xf32>
  func.return %1 : tensor<8xf32>
}

func.func @main(%n: tensor<i32>, %x: tensor<8xf32>, %p: tensor<i1>) -> (tensor<f32>, tensor<i32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %ten = stablehlo.constant dense<10> : tensor<i32>
  %w:2 = stablehlo.while(%i = %n, %v = %x) : tensor<i32>, tensor<8xf32>
    cond {
      %c = stablehlo.compare LT, %i, %ten : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    } do {
      %j = stablehlo.add %i, %one : tensor<i32>
      %r = "stablehlo.if"(%p) ({
        %a = func.call @layer(%v) : (tensor<8xf32>) -> tensor<8xf32>
        %t = stablehlo.tanh %a : tensor<8xf32>
        stablehlo.return %t : tensor<8xf32>
      }, {
        %b = stablehlo.sine %v : tensor<8xf32>
        stablehlo.return %b : tensor<8xf32>
      }) : (tensor<i1>) -> tensor<8xf32>
      stablehlo.return %j, %r : tensor<i32>, tensor<8xf32>
    }
  %s = stablehlo.reduce(%w#1 init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<8xf32>, tensor<f32>) -> tensor<f32>
  func.return %s, %w#0 : tensor<f32>, tensor<i32>
}
