// RUN: stepwell-opt %s --split-input-file --verify-diagnostics \
// RUN:   --pass-pipeline='builtin.module(split-tasks,lower-kernels-to-llvm,lower-host-to-llvm)' | filecheck %s

// The entry hands each kernel to the context's parallel_for; buffers are constant distances from the
// inputs, the outputs and the arena.
// CHECK-LABEL: llvm.func @stepwell_main
// CHECK-SAME: stepwell.arena_bytes = 256 : i64
// CHECK: llvm.mlir.constant(4 : i64)
// CHECK: llvm.mlir.addressof @kernel_0_task
// CHECK: llvm.call %{{.*}}(
// CHECK-LABEL: llvm.func @kernel_0_task
// CHECK-SAME: (%{{.*}}: !llvm.ptr, %[[BEGIN:.*]]: i64, %[[END:.*]]: i64)
// CHECK: llvm.call @kernel_0(%{{.*}}, %{{.*}}, %[[BEGIN]], %[[END]])
func.func @main(%x: memref<64xf32>, %y: memref<64xf32>, %arena: memref<256xi8>) attributes {
    stepwell.arena_bytes = 256 : i64,
    stepwell.inputs = [{name = "x", dtype = "float32", shape = array<i64: 64>}],
    stepwell.outputs = [{name = "y", dtype = "float32", shape = array<i64: 64>}]} {
  %zero = arith.constant 0 : index
  %a = memref.view %arena[%zero][] : memref<256xi8> to memref<64xf32>
  call @kernel_0(%x, %a) {kernel.names = ["Relu_1"]} : (memref<64xf32>, memref<64xf32>) -> ()
  call @kernel_0(%a, %y) {kernel.names = ["Relu_2"]} : (memref<64xf32>, memref<64xf32>) -> ()
  return
}
func.func private @kernel_0(%x: memref<64xf32>, %y: memref<64xf32>) attributes {kernel.kind = "elementwise", kernel.results = 1 : i64} {
  affine.parallel (%t) = (0) to (4) {
    %0 = affine.vector_load %x[%t * 16] : memref<64xf32>, vector<16xf32>
    affine.vector_store %0, %y[%t * 16] : memref<64xf32>, vector<16xf32>
  }
  return
}

// -----

// Rejected: the entry is made of one host function.
// expected-error@+1 {{expected one host function, found 2}}
func.func @main(%x: memref<64xf32>) {
  return
}
func.func @second(%x: memref<64xf32>) {
  return
}

// -----

// Loops and branches are blocks of the entry, on bytes that kernels have written.
// CHECK-LABEL: llvm.func @stepwell_main
// CHECK: ^[[BEFORE:bb[0-9]+]]:
// CHECK: llvm.call @test_task
// CHECK-NEXT: %[[BYTE:.*]] = llvm.load %{{.*}} : !llvm.ptr -> i8
// CHECK: %[[GOES_ON:.*]] = llvm.icmp "ne" %[[BYTE]]
// CHECK-NEXT: llvm.cond_br %[[GOES_ON]], ^[[BODY:bb[0-9]+]], ^[[END:bb[0-9]+]]
// CHECK-NEXT: ^[[BODY]]:
// CHECK: llvm.cond_br %{{.*}}, ^[[THEN:bb[0-9]+]], ^[[ELSE:bb[0-9]+]]
// CHECK-NEXT: ^[[THEN]]:
// CHECK: llvm.call @relu_task
// CHECK: ^[[ELSE]]:
// CHECK: "llvm.intr.memcpy"
// CHECK-SAME: i64
// CHECK: llvm.br ^[[BEFORE]]
// CHECK: ^[[END]]:
func.func @main(%x: memref<8xf32>, %y: memref<8xf32>, %arena: memref<64xi8>) attributes {
    stepwell.arena_bytes = 64 : i64,
    stepwell.inputs = [{name = "x", dtype = "float32", shape = array<i64: 8>}],
    stepwell.outputs = [{name = "y", dtype = "float32", shape = array<i64: 8>}]} {
  %zero = arith.constant 0 : index
  %c = memref.view %arena[%zero][] : memref<64xi8> to memref<i1>
  scf.while : () -> () {
    func.call @test(%y, %c) {kernel.names = []} : (memref<8xf32>, memref<i1>) -> ()
    %b = memref.load %c[] : memref<i1>
    scf.condition(%b)
  } do {
    %b = memref.load %c[] : memref<i1>
    scf.if %b {
      func.call @relu(%x, %y) {kernel.names = []} : (memref<8xf32>, memref<8xf32>) -> ()
    } else {
      memref.copy %x, %y {stepwell.carried} : memref<8xf32> to memref<8xf32>
    }
    scf.yield
  }
  return
}
func.func private @test(%x: memref<8xf32>, %c: memref<i1>) attributes {kernel.kind = "elementwise", kernel.results = 1 : i64} {
  return
}
func.func private @relu(%x: memref<8xf32>, %y: memref<8xf32>) attributes {kernel.kind = "elementwise", kernel.results = 1 : i64} {
  return
}

// -----

// A loop whose buffers do not fit L1, a few times L2 at the most, turns: every other time, its kernels'
// tasks run from the last to the first.
// CHECK-LABEL: llvm.func @stepwell_main
// CHECK: llvm.br ^[[BEFORE:bb[0-9]+]](%{{.*}} : i64)
// CHECK: ^[[BEFORE]](%[[TURN:.*]]: i64):
// CHECK: %[[TASKS:.*]] = llvm.mlir.constant(4 : i64)
// CHECK: %[[COUNT:.*]] = llvm.mul %[[TASKS]], %[[TURN]]
// CHECK: llvm.call %{{.*}}(%{{.*}}, %{{.*}}, %{{.*}}, %[[COUNT]])
// CHECK: %[[NEXT:.*]] = llvm.sub %{{.*}}, %[[TURN]]
// CHECK: llvm.br ^[[BEFORE]](%[[NEXT]] : i64)
func.func @main(%x: memref<65536xf32>, %y: memref<65536xf32>, %arena: memref<64xi8>) attributes {
    stepwell.arena_bytes = 64 : i64,
    stepwell.inputs = [{name = "x", dtype = "float32", shape = array<i64: 65536>}],
    stepwell.outputs = [{name = "y", dtype = "float32", shape = array<i64: 65536>}]} {
  %zero = arith.constant 0 : index
  %c = memref.view %arena[%zero][] : memref<64xi8> to memref<i1>
  scf.while : () -> () {
    func.call @test(%c) {kernel.names = []} : (memref<i1>) -> ()
    %b = memref.load %c[] : memref<i1>
    scf.condition(%b)
  } do {
    func.call @kernel(%x, %y) {kernel.names = []} : (memref<65536xf32>, memref<65536xf32>) -> ()
    scf.yield
  }
  return
}
func.func private @test(%c: memref<i1>) attributes {kernel.kind = "elementwise", kernel.results = 1 : i64} {
  return
}
func.func private @kernel(%x: memref<65536xf32>, %y: memref<65536xf32>) attributes {kernel.kind = "elementwise", kernel.results = 1 : i64} {
  affine.parallel (%t) = (0) to (4) {
    %0 = affine.vector_load %x[%t * 16] : memref<65536xf32>, vector<16xf32>
    affine.vector_store %0, %y[%t * 16] : memref<65536xf32>, vector<16xf32>
  }
  return
}

// -----

// A loop in parts is a task function whose tasks are the parts; each has its own piece of the arena,
// and sets the counter in it. Where calls are traced, it is a loop like others.
// CHECK-LABEL: llvm.func @stepwell_main
// CHECK: llvm.cond_br %{{.*}}, ^[[TURNS:bb[0-9]+]], ^[[PARTS:bb[0-9]+]]
// CHECK: ^[[TURNS]]:
// CHECK: llvm.call @test_task
// CHECK: ^[[PARTS]]:
// CHECK: llvm.mlir.addressof @stepwell_main_part_0
// CHECK: llvm.mlir.constant(2 : i64)
// CHECK-LABEL: llvm.func internal @stepwell_main_part_0
// CHECK: %[[SIZE:.*]] = llvm.mlir.constant(64 : i64)
// CHECK: ^[[PART:bb[0-9]+]](%[[NUMBER:.*]]: i64):
// CHECK: %[[MOVED:.*]] = llvm.mul %[[NUMBER]], %[[SIZE]]
// CHECK: %[[OWN:.*]] = llvm.getelementptr %{{.*}}[%[[MOVED]]]
// CHECK: %[[ZERO:.*]] = llvm.mlir.constant(0 : i64) : i64
// CHECK: %[[COUNTER:.*]] = llvm.getelementptr %[[OWN]][%[[ZERO]]]
// CHECK: llvm.store %{{.*}}, %[[COUNTER]] : i32
// CHECK: llvm.call @update_task
func.func @main(%x: memref<8xf32>, %y: memref<8xf32>, %arena: memref<128xi8>) attributes {
    stepwell.arena_bytes = 128 : i64,
    stepwell.inputs = [{name = "x", dtype = "float32", shape = array<i64: 8>}],
    stepwell.outputs = [{name = "y", dtype = "float32", shape = array<i64: 8>}]} {
  %zero = arith.constant 0 : index
  %four = arith.constant 4 : index
  %i = memref.view %arena[%zero][] : memref<128xi8> to memref<i32>
  %c = memref.view %arena[%four][] : memref<128xi8> to memref<i1>
  scf.while : () -> () {
    func.call @test(%i, %c) {kernel.names = []} : (memref<i32>, memref<i1>) -> ()
    %b = memref.load %c[] : memref<i1>
    scf.condition(%b)
  } do {
    func.call @update(%x, %i, %y) {kernel.names = []} : (memref<8xf32>, memref<i32>, memref<8xf32>) -> ()
    scf.yield
  } attributes {stepwell.parts = array<i64: 2, 4, 1>, stepwell.private = array<i64: 0, 64>}
  return
}
func.func private @test(%i: memref<i32>, %c: memref<i1>) attributes {kernel.kind = "elementwise", kernel.results = 1 : i64} {
  return
}
func.func private @update(%x: memref<8xf32>, %i: memref<i32>, %y: memref<8xf32>) attributes {kernel.kind = "update", kernel.results = 1 : i64} {
  return
}

// -----

// Rejected: memory that parts would share.
// expected-error@+1 {{a loop in parts does not say which memory each part has}}
func.func @main(%x: memref<8xf32>, %y: memref<8xf32>, %i: memref<i32>, %c: memref<i1>) attributes {
    stepwell.inputs = [{name = "x", dtype = "float32", shape = array<i64: 8>}],
    stepwell.outputs = [{name = "y", dtype = "float32", shape = array<i64: 8>}]} {
  scf.while : () -> () {
    func.call @test(%i, %c) {kernel.names = []} : (memref<i32>, memref<i1>) -> ()
    %b = memref.load %c[] : memref<i1>
    scf.condition(%b)
  } do {
    scf.yield
  } attributes {stepwell.parts = array<i64: 2, 4, 1>}
  return
}
func.func private @test(%i: memref<i32>, %c: memref<i1>) attributes {kernel.kind = "elementwise", kernel.results = 1 : i64} {
  return
}

// -----

// Rejected: a condition is what a kernel wrote, not computed in the host.
// expected-error@+1 {{a condition of the host program was not read from a buffer}}
func.func @main(%x: memref<8xf32>, %y: memref<8xf32>) attributes {
    stepwell.inputs = [{name = "x", dtype = "float32", shape = array<i64: 8>}],
    stepwell.outputs = [{name = "y", dtype = "float32", shape = array<i64: 8>}]} {
  %c = arith.constant true
  scf.if %c {
    memref.copy %x, %y : memref<8xf32> to memref<8xf32>
  }
  return
}

// -----

// A chain is a task function of its own, of two bands, behind what the kernels' first tasks do apart;
// behind its first band it goes on where the one in front has ended. Traced calls run one by one.
// CHECK-LABEL: llvm.func @stepwell_main
// CHECK: llvm.cond_br %{{.*}}, ^[[TURNS:bb[0-9]+]], ^[[CHAIN:bb[0-9]+]]
// CHECK: ^[[TURNS]]:
// CHECK: llvm.mlir.addressof @kernel_0_task
// CHECK: llvm.mlir.addressof @kernel_1_task
// CHECK: ^[[CHAIN]]:
// CHECK: %[[BANDS:.*]] = llvm.mlir.constant(2 : i64)
// CHECK: llvm.call @kernel_0_task(%{{.*}}, %[[ZERO:.*]], %[[ZERO]])
// CHECK: llvm.call @kernel_1_task(%{{.*}}, %[[ZERO]], %[[ZERO]])
// CHECK: llvm.mlir.addressof @stepwell_main_chain_0
// CHECK: llvm.call %{{.*}}(%{{.*}}, %{{.*}}, %{{.*}}, %[[BANDS]])
// CHECK: llvm.mlir.global internal constant @stepwell_main_chain_0_needs(dense<[0, 3, 0, 2, 2, 4, 2, 4]>
// CHECK-LABEL: llvm.func internal @stepwell_main_chain_0
// CHECK-SAME: (%{{.*}}: !llvm.ptr, %[[BEGIN:.*]]: i64, %{{.*}}: i64)
// CHECK: %[[FIRST:.*]] = llvm.icmp "eq" %{{.*}}, %[[BEGIN]]
// CHECK: llvm.select %[[FIRST]], %{{.*}}, %{{.*}}
// CHECK: llvm.call @kernel_0_task
// CHECK: llvm.call @kernel_1_task
func.func @main(%x: memref<64xf32>, %y: memref<64xf32>, %arena: memref<256xi8>) attributes {
    stepwell.arena_bytes = 256 : i64,
    stepwell.inputs = [{name = "x", dtype = "float32", shape = array<i64: 64>}],
    stepwell.outputs = [{name = "y", dtype = "float32", shape = array<i64: 64>}]} {
  %zero = arith.constant 0 : index
  %a = memref.view %arena[%zero][] : memref<256xi8> to memref<64xf32>
  call @kernel_0(%x, %a) {stepwell.chain = array<i64: 7, 1, 0, 3, 2, 4>} : (memref<64xf32>, memref<64xf32>) -> ()
  call @kernel_1(%a, %y) {stepwell.chain = array<i64: 7, 1, 0, 2, 2, 4>} : (memref<64xf32>, memref<64xf32>) -> ()
  return
}
func.func private @kernel_0(%x: memref<64xf32>, %y: memref<64xf32>) attributes {kernel.kind = "elementwise"} {
  affine.parallel (%t) = (0) to (4) {
    %0 = affine.vector_load %x[%t * 16] : memref<64xf32>, vector<16xf32>
    affine.vector_store %0, %y[%t * 16] : memref<64xf32>, vector<16xf32>
  }
  return
}
func.func private @kernel_1(%x: memref<64xf32>, %y: memref<64xf32>) attributes {kernel.kind = "elementwise"} {
  affine.parallel (%t) = (0) to (4) {
    %0 = affine.vector_load %x[%t * 16] : memref<64xf32>, vector<16xf32>
    affine.vector_store %0, %y[%t * 16] : memref<64xf32>, vector<16xf32>
  }
  return
}

// -----

// Rejected: what was changed by hand, the tasks of a kernel or the numbers of bands.
// expected-error@+1 {{stepwell.chain of kernel_0 is about other tasks than its 4}}
func.func @main(%x: memref<64xf32>, %y: memref<64xf32>) attributes {
    stepwell.inputs = [{name = "x", dtype = "float32", shape = array<i64: 64>}],
    stepwell.outputs = [{name = "y", dtype = "float32", shape = array<i64: 64>}]} {
  call @kernel_0(%x, %y) {stepwell.chain = array<i64: 0, 1, 0, 2, 2, 3>} : (memref<64xf32>, memref<64xf32>) -> ()
  return
}
func.func private @kernel_0(%x: memref<64xf32>, %y: memref<64xf32>) attributes {kernel.kind = "elementwise"} {
  affine.parallel (%t) = (0) to (4) {
    %0 = affine.vector_load %x[%t * 16] : memref<64xf32>, vector<16xf32>
    affine.vector_store %0, %y[%t * 16] : memref<64xf32>, vector<16xf32>
  }
  return
}
