// RUN: stepwell-opt %s --split-input-file --target=x86_64-v4 \
// RUN:   --pass-pipeline='builtin.module(place-control-flow{least-elements=1},legalize-control-flow,legalize-to-linalg,scalarize,hoist-constants,form-fusion-groups,lower-groups-to-affine,bufferize-host)' \
// RUN:   | filecheck %s

// Loops and branches of the host, with buffers. The table is written in place, in the buffer of the
// result; the slice is read at an index that the kernel loads once; the value that is still read
// after its successor was made is replaced at the end of the body.
// CHECK-LABEL: func.func @loop
// CHECK-SAME: %[[N:[a-z0-9]+]]: memref<i32>, %[[XS:[a-z0-9]+]]: memref<5x64xf32>, %[[W:[a-z0-9]+]]: memref<64x64xf32>, %[[X:[a-z0-9]+]]: memref<1x64xf32>, %[[H:[a-z0-9]+]]: memref<1x64xf32>, %[[YS:[a-z0-9]+]]: memref<5x1x64xf32>
// CHECK: call @kernel_{{.}}(%[[I:.*]]) {
// CHECK: call @kernel_{{.}}(%[[YS]])
// CHECK: memref.copy %[[X]], %[[H]] {stepwell.carried}
// CHECK: scf.while : () -> () {
// CHECK: func.call @kernel_{{.}}(%[[I]], %[[N]], %[[FLAG:.*]]) {
// CHECK-NEXT: %[[C:.*]] = memref.load %[[FLAG]][]
// CHECK-NEXT: scf.condition(%[[C]])
// CHECK: func.call @kernel_{{.}}(%[[H]], %[[W]], %[[XS]], %[[I]], %[[NEW:[a-z0-9_]+]]) {
// CHECK: func.call @kernel_{{.}}(%[[NEW]], %[[I]], %[[YS]]) {
// CHECK: memref.copy %{{.*}}, %[[I]] {stepwell.carried}
// CHECK: memref.copy %[[NEW]], %[[H]] {stepwell.carried}
// CHECK: kernel.kind = "contraction"
// CHECK: affine.vector_load %{{.*}}[symbol(%{{.*}}), 0] : memref<5x64xf32>, vector<16xf32>
// CHECK: kernel.kind = "update"
// CHECK: affine.vector_store %{{.*}}, %{{.*}}[symbol(%{{.*}}), 0, %{{.*}}] : memref<5x1x64xf32>, vector<16xf32>
func.func @loop(%n: tensor<i32>, %xs: tensor<5x64xf32>, %w: tensor<64x64xf32>, %h: tensor<1x64xf32>) -> (tensor<1x64xf32>, tensor<5x1x64xf32>) {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %table = stablehlo.constant dense<0.0> : tensor<5x1x64xf32>
  %r:3 = stablehlo.while(%i = %zero, %y = %h, %ys = %table) : tensor<i32>, tensor<1x64xf32>, tensor<5x1x64xf32>
    cond {
      %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    } do {
      %j = stablehlo.add %i, %one : tensor<i32>
      %x = stablehlo.dynamic_slice %xs, %i, %zero, sizes = [1, 64] : (tensor<5x64xf32>, tensor<i32>, tensor<i32>) -> tensor<1x64xf32>
      %p = stablehlo.dot_general %y, %w, contracting_dims = [1] x [0] : (tensor<1x64xf32>, tensor<64x64xf32>) -> tensor<1x64xf32>
      %z = stablehlo.add %p, %x : tensor<1x64xf32>
      %u = stablehlo.reshape %z : (tensor<1x64xf32>) -> tensor<1x1x64xf32>
      %zs = stablehlo.dynamic_update_slice %ys, %u, %i, %zero, %zero : (tensor<5x1x64xf32>, tensor<1x1x64xf32>, tensor<i32>, tensor<i32>, tensor<i32>) -> tensor<5x1x64xf32>
      stablehlo.return %j, %z, %zs : tensor<i32>, tensor<1x64xf32>, tensor<5x1x64xf32>
    }
  return %r#1, %r#2 : tensor<1x64xf32>, tensor<5x1x64xf32>
}

// -----

// Tensors that change places go through a buffer of their own.
// CHECK-LABEL: func.func @exchange
// CHECK-SAME: %[[N:[a-z0-9]+]]: memref<i32>, %[[X:[a-z0-9]+]]: memref<64xf32>, %[[Y:[a-z0-9]+]]: memref<64xf32>
// CHECK: memref.copy %[[X]], %[[A:[a-z0-9_]+]] {stepwell.carried}
// CHECK: memref.copy %[[Y]], %[[B:[a-z0-9_]+]] {stepwell.carried}
// CHECK: scf.while
// CHECK: } do {
// CHECK: %[[S:.*]] = memref.alloc() {{.*}}memref<64xf32>
// CHECK: func.call @kernel_{{.}}(%[[A]], %[[S]])
// CHECK: %[[T:.*]] = memref.alloc() {{.*}}memref<64xf32>
// CHECK-NEXT: memref.copy %[[B]], %[[T]]
// CHECK-NEXT: memref.copy %[[T]], %[[A]]
// CHECK-NEXT: memref.copy %[[S]], %[[B]]
func.func @exchange(%n: tensor<i32>, %x: tensor<64xf32>, %y: tensor<64xf32>) -> (tensor<64xf32>, tensor<64xf32>) {
  %r:2 = stablehlo.while(%a = %x, %b = %y) : tensor<64xf32>, tensor<64xf32>
    cond {
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %s = stablehlo.reduce(%a init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<64xf32>, tensor<f32>) -> tensor<f32>
      %c = stablehlo.compare LT, %s, %zero : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
    } do {
      %s = stablehlo.sine %a : tensor<64xf32>
      stablehlo.return %b, %s : tensor<64xf32>, tensor<64xf32>
    }
  return %r#0, %r#1 : tensor<64xf32>, tensor<64xf32>
}

// -----

// Each branch writes its results into the same buffers.
// CHECK-LABEL: func.func @branch
// CHECK-SAME: %[[C:[a-z0-9]+]]: memref<i1>, %[[X:[a-z0-9]+]]: memref<64xf32>, %[[R:[a-z0-9]+]]: memref<64xf32>
// CHECK: %[[FLAG:.*]] = memref.load
// CHECK: scf.if %[[FLAG]] {
// CHECK-NEXT: func.call @kernel_{{.}}(%[[X]], %[[R]])
// CHECK-NEXT: } else {
// CHECK-NEXT: memref.copy %[[X]], %[[R]] {stepwell.carried}
func.func @branch(%c: tensor<i1>, %x: tensor<64xf32>) -> tensor<64xf32> {
  %r = "stablehlo.if"(%c) ({
    %a = stablehlo.sine %x : tensor<64xf32>
    stablehlo.return %a : tensor<64xf32>
  }, {
    stablehlo.return %x : tensor<64xf32>
  }) : (tensor<i1>) -> tensor<64xf32>
  return %r : tensor<64xf32>
}
