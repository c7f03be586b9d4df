// RUN: stepwell-opt %s --target=cuda:sm_90a --split-input-file --pass-pipeline='builtin.module(legalize-to-linalg,form-fusion-groups,lower-groups-to-affine)' | filecheck %s

// Elementwise: 16 bytes a thread, neighbouring threads side by side.

// CHECK: func.func private @kernel_0
// CHECK: affine.parallel (%[[B:.*]], %[[T:.*]]) = (0, 0) to (8, 256) {
// CHECK: affine.for %[[I:.*]] = #map(%[[B]], %[[T]]) to 2048 step 2048 {
// CHECK: affine.vector_load %{{.*}}[%[[I]] * 4] : memref<8192xf32>, vector<4xf32>
// CHECK: math.exp %{{.*}} : vector<4xf32>
func.func @main(%x: tensor<128x64xf32>) -> tensor<128x64xf32> {
  %0 = stablehlo.exponential %x : tensor<128x64xf32>
  return %0 : tensor<128x64xf32>
}

// -----

// A row belongs to a warp that holds it in registers. The last of 8 vectors is beyond the row for some
// threads, which read another one in its place.

// CHECK-NOT: gpu.address_space<workgroup>
// CHECK: affine.parallel (%[[B:.*]], %[[T:.*]]) = (0, 0) to (8, 32) {
// CHECK: %[[I:.*]] = affine.apply #[[LAST:.*]](%[[T]])
// CHECK-COUNT-7: affine.vector_load %{{.*}}[%[[B]], %[[T]] * 4{{.*}}] : memref<8x1000xf32>, vector<4xf32>
// CHECK: affine.vector_load %{{.*}}[%[[B]], %[[I]] * 4] : memref<8x1000xf32>, vector<4xf32>
// CHECK: %[[SUM:.*]] = arith.addf
// CHECK: %[[INSIDE:.*]] = arith.cmpi ult
// CHECK: arith.select %[[INSIDE]], %[[SUM]]
// CHECK-COUNT-5: gpu.shuffle xor
// CHECK-NOT: gpu.barrier
func.func @main(%x: tensor<8x1000xf32>) -> tensor<8xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<8x1000xf32>, tensor<f32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}

// -----

// A longer row belongs to a block: shuffles in its warps, then shared memory.

// CHECK: memref.alloca() {alignment = 16 : i64} : memref<4xf32, #gpu.address_space<workgroup>>
// CHECK: affine.parallel (%{{.*}}, %{{.*}}) = (0, 0) to (8, 128) {
// CHECK-COUNT-8: affine.vector_load
// CHECK-COUNT-5: gpu.shuffle xor
// CHECK: gpu.barrier
func.func @main(%x: tensor<8x4096xf32>) -> tensor<8xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<8x4096xf32>, tensor<f32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}

// -----

// A row of several blocks, which write their warps' sums to each other's shared memory.

// CHECK: @kernel_0{{.*}}kernel.cluster = 4
// CHECK: affine.parallel (%{{.*}}, %{{.*}}) = (0, 0) to (32, 256) {
// CHECK: nvvm.mbarrier.init
// CHECK: nvvm.mbarrier.arrive.expect_tx
// CHECK: nvvm.cluster.arrive.relaxed
// CHECK-COUNT-8: affine.vector_load
// CHECK-COUNT-5: gpu.shuffle xor
// CHECK: nvvm.cluster.wait
// CHECK: st.async.weak.shared::cluster
// CHECK: mbarrier.try_wait
// CHECK-COUNT-5: gpu.shuffle xor
func.func @main(%x: tensor<8x32768xf32>) -> tensor<8xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<8x32768xf32>, tensor<f32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}

// -----

// A product: tiles of both operands in shared memory, a barrier after each, 4x4 outputs a thread.

// CHECK-DAG: memref.alloca() {alignment = 16 : i64} : memref<16x66xf64, #gpu.address_space<workgroup>>
// CHECK: affine.parallel (%{{.*}}, %{{.*}}) = (0, 0) to (4, 256) {
// CHECK: affine.for %{{.*}} = 0 to 4 iter_args
// CHECK: gpu.barrier
// CHECK: gpu.barrier
// CHECK: affine.yield
func.func @main(%x: tensor<128x64xf64>, %w: tensor<64x128xf64>) -> tensor<128x128xf64> {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<128x64xf64>, tensor<64x128xf64>) -> tensor<128x128xf64>
  return %0 : tensor<128x128xf64>
}

// -----

// A product of f32 on tensor cores: parts of both operands, small products of them, which count where
// they are finite, then large ones, and an addition of f32.

// CHECK: nvgpu.ldmatrix
// CHECK: arith.andi %{{.*}} : vector<4x1xi32>
// CHECK: arith.subf %{{.*}} : vector<4x1xf32>
// CHECK-COUNT-16: nvgpu.mma.sync({{.*}}) {mmaShape = [16, 8, 8], tf32Enabled} : (vector<4x1xf32>, vector<2x1xf32>, vector<2x2xf32>) -> vector<2x2xf32>
// CHECK: math.absf
// CHECK: arith.select
// CHECK-COUNT-8: nvgpu.mma.sync
// CHECK: arith.addf %{{.*}} : vector<2x2xf32>
func.func @main(%x: tensor<128x64xf32>, %w: tensor<128x64xf32>) -> tensor<128x128xf32> {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [1] : (tensor<128x64xf32>, tensor<128x64xf32>) -> tensor<128x128xf32>
  return %0 : tensor<128x128xf32>
}

// -----

// A product of f16 on tensor cores: the ring of steps that cp.async fills, a wait and a barrier for
// each, fragments by ldmatrix, sums in f32.

// CHECK: affine.parallel (%{{.*}}, %{{.*}}) = (0, 0) to (16, 32) {
// CHECK: nvgpu.device_async_copy %{{.*}}, 8 {bypassL1} : memref<32768xf16> to memref<12288xf16, #gpu.address_space<workgroup>>
// CHECK: nvvm.cp.async.commit.group
// CHECK: affine.for %{{.*}} = 0 to 4 iter_args
// CHECK: nvvm.cp.async.wait.group 4
// CHECK: gpu.barrier
// CHECK: nvgpu.ldmatrix %{{.*}} {numTiles = 4 : i32, transpose = false}
// CHECK: nvgpu.ldmatrix %{{.*}} {numTiles = 4 : i32, transpose = true}
// CHECK: nvgpu.mma.sync({{.*}}) {mmaShape = [16, 8, 16]} : (vector<4x2xf16>, vector<2x2xf16>, vector<2x2xf32>) -> vector<2x2xf32>
// CHECK: affine.yield
func.func @main(%x: tensor<128x256xf16>, %w: tensor<256x128xf16>) -> tensor<128x128xf32> {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<128x256xf16>, tensor<256x128xf16>) -> tensor<128x128xf32>
  return %0 : tensor<128x128xf32>
}

// -----

// Where the second one is a weight, its copies begin before the kernel waits for the one before it.

// CHECK: func.func private @kernel_0(
// CHECK: %[[X:.*]] = memref.collapse_shape %arg0
// CHECK: %[[W:.*]] = memref.collapse_shape %arg1
// CHECK: nvgpu.device_async_copy %[[W]]
// CHECK-NOT: nvvm.cp.async.commit.group
// CHECK: griddepcontrol.wait
// CHECK: nvgpu.device_async_copy %[[X]]
// CHECK: nvvm.cp.async.commit.group
func.func @main(%x: tensor<128x256xf16>, %w: tensor<256x128xf16> {stepwell.weight = "w"}) -> tensor<128x128xf32> {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<128x256xf16>, tensor<256x128xf16>) -> tensor<128x128xf32>
  return %0 : tensor<128x128xf32>
}

// -----

// What no emitter takes: the threads of one block share its parallel loops.

// CHECK: kernel.kind = "scalar"
// CHECK: affine.parallel (%{{.*}}, %[[T:.*]]) = (0, 0) to (1, 256) {
// CHECK: gpu.barrier
// CHECK: scf.for %{{.*}} = %[[T]] to %{{.*}} step
// CHECK: gpu.barrier
func.func @main(%x: tensor<4x9xi32>) -> tensor<4xi32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %0 = stablehlo.reduce(%x init: %zero) across dimensions = [1] : (tensor<4x9xi32>, tensor<i32>) -> tensor<4xi32>
    reducer(%a: tensor<i32>, %b: tensor<i32>) {
      %1 = stablehlo.add %a, %b : tensor<i32>
      %2 = stablehlo.add %1, %b : tensor<i32>
      stablehlo.return %2 : tensor<i32>
    }
  return %0 : tensor<4xi32>
}
