// RUN: stepwell-opt %s --split-input-file --verify-diagnostics \
// RUN:   --pass-pipeline='builtin.module(plan-arena)' | filecheck %s
// RUN: stepwell-opt %s --split-input-file --verify-diagnostics \
// RUN:   --pass-pipeline='builtin.module(plan-arena{alignment=256})' | filecheck %s --check-prefix=WIDE

// The first and the third buffer never live at once and share offset 0; the second lies behind them,
// at the next multiple of the alignment.
// CHECK-LABEL: func.func @chain
// CHECK-SAME: %[[ARENA:[a-z0-9]+]]: memref<128xi8>) attributes {stepwell.arena_bytes = 128 : i64}
// CHECK: %[[FIRST:.*]] = arith.constant 0 : index
// CHECK: %[[A:.*]] = memref.view %[[ARENA]][%[[FIRST]]][] : memref<128xi8> to memref<10xf32>
// CHECK: %[[SECOND:.*]] = arith.constant 64 : index
// CHECK: %[[B:.*]] = memref.view %[[ARENA]][%[[SECOND]]][]
// CHECK: %[[THIRD:.*]] = arith.constant 0 : index
// CHECK: %[[C:.*]] = memref.view %[[ARENA]][%[[THIRD]]][]
// CHECK: call @kernel(%arg0, %[[A]])
// CHECK: call @kernel(%[[A]], %[[B]])
// CHECK: call @kernel(%[[B]], %[[C]])
// CHECK-NOT: memref.alloc
// CHECK-NOT: memref.dealloc
// WIDE-LABEL: func.func @chain
// WIDE-SAME: stepwell.arena_bytes = 512 : i64
func.func @chain(%x: memref<10xf32>, %y: memref<10xf32>) {
  %a = memref.alloc() : memref<10xf32>
  %b = memref.alloc() : memref<10xf32>
  %c = memref.alloc() : memref<10xf32>
  call @kernel(%x, %a) : (memref<10xf32>, memref<10xf32>) -> ()
  call @kernel(%a, %b) : (memref<10xf32>, memref<10xf32>) -> ()
  call @kernel(%b, %c) : (memref<10xf32>, memref<10xf32>) -> ()
  call @kernel(%c, %y) : (memref<10xf32>, memref<10xf32>) -> ()
  memref.dealloc %c : memref<10xf32>
  return
}
func.func private @kernel(memref<10xf32>, memref<10xf32>)

// -----

// Kernels of a chain take turns: what one of them uses lives until the last one ends.
// CHECK-LABEL: func.func @turns
// CHECK-SAME: stepwell.arena_bytes = 192 : i64
func.func @turns(%x: memref<10xf32>, %y: memref<10xf32>) {
  %a = memref.alloc() : memref<10xf32>
  %b = memref.alloc() : memref<10xf32>
  %c = memref.alloc() : memref<10xf32>
  call @kernel(%x, %a) {stepwell.chain = array<i64: 0, 1, 0, 1>} : (memref<10xf32>, memref<10xf32>) -> ()
  call @kernel(%a, %b) {stepwell.chain = array<i64: 0, 1, 0, 1>} : (memref<10xf32>, memref<10xf32>) -> ()
  call @kernel(%b, %c) {stepwell.chain = array<i64: 0, 1, 0, 1>} : (memref<10xf32>, memref<10xf32>) -> ()
  call @kernel(%c, %y) : (memref<10xf32>, memref<10xf32>) -> ()
  return
}
func.func private @kernel(memref<10xf32>, memref<10xf32>)

// -----

// A view keeps the buffer behind it alive: no sharing here.
// CHECK-LABEL: func.func @views
// CHECK-SAME: stepwell.arena_bytes = 128 : i64
func.func @views(%x: memref<16xf32>) {
  %a = memref.alloc() : memref<4x4xf32>
  %flat = memref.collapse_shape %a [[0, 1]] : memref<4x4xf32> into memref<16xf32>
  %b = memref.alloc() : memref<16xf32>
  call @kernel(%x, %flat) : (memref<16xf32>, memref<16xf32>) -> ()
  call @kernel(%x, %b) : (memref<16xf32>, memref<16xf32>) -> ()
  call @kernel(%flat, %b) : (memref<16xf32>, memref<16xf32>) -> ()
  return
}
func.func private @kernel(memref<16xf32>, memref<16xf32>)

// -----

// A buffer that a loop reads and is made outside of it lives throughout; those that its body alone
// uses share memory, in every iteration the same.
// CHECK-LABEL: func.func @loop
// CHECK-SAME: %[[ARENA:[a-z0-9]+]]: memref<192xi8>) attributes {stepwell.arena_bytes = 192 : i64}
// CHECK: arith.constant 128 : index
// CHECK-NEXT: %[[FLAG:.*]] = memref.view
// CHECK: %[[FIRST:.*]] = arith.constant 0 : index
// CHECK-NEXT: %[[CARRIED:.*]] = memref.view %[[ARENA]][%[[FIRST]]][]
// CHECK: %[[SECOND:.*]] = arith.constant 64 : index
// CHECK-NEXT: %[[A:.*]] = memref.view %[[ARENA]][%[[SECOND]]][]
// CHECK: call @kernel(%[[CARRIED]], %[[A]])
// CHECK: %[[THIRD:.*]] = arith.constant 64 : index
// CHECK-NEXT: %[[B:.*]] = memref.view %[[ARENA]][%[[THIRD]]][]
// CHECK: call @kernel(%{{.*}}, %[[B]])
func.func @loop(%x: memref<16xf32>) {
  %c = memref.alloc() : memref<i1>
  %carried = memref.alloc() : memref<16xf32>
  memref.copy %x, %carried : memref<16xf32> to memref<16xf32>
  scf.while : () -> () {
    func.call @test(%x, %c) : (memref<16xf32>, memref<i1>) -> ()
    %f = memref.load %c[] : memref<i1>
    scf.condition(%f)
  } do {
    %a = memref.alloc() : memref<16xf32>
    func.call @kernel(%carried, %a) : (memref<16xf32>, memref<16xf32>) -> ()
    func.call @kernel(%a, %x) : (memref<16xf32>, memref<16xf32>) -> ()
    %b = memref.alloc() : memref<16xf32>
    func.call @kernel(%x, %b) : (memref<16xf32>, memref<16xf32>) -> ()
    memref.copy %b, %x : memref<16xf32> to memref<16xf32>
    scf.yield
  }
  return
}
func.func private @kernel(memref<16xf32>, memref<16xf32>)
func.func private @test(memref<16xf32>, memref<i1>)

// -----

// Of a loop in parts, the body's buffers and the counter are a piece of memory that each part has.
// CHECK-LABEL: func.func @parts
// CHECK-SAME: %[[ARENA:.*]]: memref<256xi8>
// CHECK: arith.constant 64 : index
// CHECK-NEXT: memref.view {{.*}} to memref<i32>
// CHECK: arith.constant 0 : index
// CHECK-NEXT: memref.view {{.*}} to memref<i1>
// CHECK: arith.constant 0 : index
// CHECK-NEXT: memref.view {{.*}} to memref<16xf32>
// CHECK: stepwell.parts = array<i64: 2, 4, 1>, stepwell.private = array<i64: 0, 128>
func.func @parts(%x: memref<16xf32>) {
  %i = memref.alloc() : memref<i32>
  call @zero(%i) : (memref<i32>) -> ()
  scf.while : () -> () {
    %c = memref.alloc() : memref<i1>
    func.call @test(%i, %c) : (memref<i32>, memref<i1>) -> ()
    %f = memref.load %c[] : memref<i1>
    scf.condition(%f)
  } do {
    %a = memref.alloc() : memref<16xf32>
    func.call @kernel(%x, %a) : (memref<16xf32>, memref<16xf32>) -> ()
    func.call @update(%a, %i, %x) : (memref<16xf32>, memref<i32>, memref<16xf32>) -> ()
    scf.yield
  } attributes {stepwell.parts = array<i64: 2, 4, 1>}
  return
}
func.func private @zero(memref<i32>)
func.func private @test(memref<i32>, memref<i1>)
func.func private @kernel(memref<16xf32>, memref<16xf32>)
func.func private @update(memref<16xf32>, memref<i32>, memref<16xf32>)

// -----

// Rejected: a loop in parts whose condition looks at more than a counter.
// expected-error@+1 {{the condition of a loop in parts is one kernel that reads the counter}}
func.func @no_counter(%c: memref<i1>) {
  scf.while : () -> () {
    %f = memref.load %c[] : memref<i1>
    scf.condition(%f)
  } do {
    scf.yield
  } attributes {stepwell.parts = array<i64: 2, 4, 1>}
  return
}

// -----

// What is to be zeros lies at the start, for all kernels the same; others lie behind it.
// CHECK-LABEL: func.func @zeroed
// CHECK-SAME: %[[ARENA:[a-z0-9]+]]: memref<192xi8>) attributes {stepwell.arena_bytes = 192 : i64, stepwell.zeroed_bytes = 80 : i64}
// CHECK: %[[START:.*]] = arith.constant 0 : index
// CHECK: %[[F:.*]] = memref.view %[[ARENA]][%[[START]]][] : memref<192xi8> to memref<8xi32>
// CHECK: %[[BEHIND:.*]] = arith.constant 128 : index
// CHECK: %[[A:.*]] = memref.view %[[ARENA]][%[[BEHIND]]][] : memref<192xi8> to memref<16xf32>
// CHECK: %[[AGAIN:.*]] = arith.constant 0 : index
// CHECK: %[[G:.*]] = memref.view %[[ARENA]][%[[AGAIN]]][] : memref<192xi8> to memref<20xi32>
// CHECK: call @one(%arg0, %[[F]])
// CHECK: call @other(%[[A]], %[[G]])
func.func @zeroed(%x: memref<16xf32>) {
  %f = memref.alloc() {stepwell.zeroed} : memref<8xi32>
  %a = memref.alloc() : memref<16xf32>
  %g = memref.alloc() {stepwell.zeroed} : memref<20xi32>
  call @one(%x, %f) : (memref<16xf32>, memref<8xi32>) -> ()
  call @other(%a, %g) : (memref<16xf32>, memref<20xi32>) -> ()
  return
}
func.func private @one(memref<16xf32>, memref<8xi32>)
func.func private @other(memref<16xf32>, memref<20xi32>)

// -----

// Rejected: a size that is known only at run time has no place in a plan.
func.func @open(%n: index) {
  // expected-error@+1 {{a buffer's size is known only at run time}}
  %a = memref.alloc(%n) : memref<?xf32>
  call @kernel(%a) : (memref<?xf32>) -> ()
  return
}
func.func private @kernel(memref<?xf32>)
