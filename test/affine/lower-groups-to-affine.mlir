// RUN: stepwell-opt %s --split-input-file --target=x86_64-v4 \
// RUN:   --pass-pipeline='builtin.module(legalize-to-linalg,form-fusion-groups,pack-operands,lower-groups-to-affine)' \
// RUN:   | filecheck %s

// Contraction: a register tile of 8 rows by 2 vectors is carried through the reduction loop, two steps
// to an iteration; bias and activation work on the accumulators, and each is stored once. So small a
// kernel is one task.
// CHECK-LABEL: func.func @contraction
// CHECK: call @kernel_0({{.*}}) {{.*}} : (memref<8x16xf32>, memref<16x32xf32>, memref<32xf32>, memref<8x32xf32>) -> ()
// CHECK: func.func private @kernel_0
// CHECK: affine.parallel (%{{.*}}) = (0) to (1)
// CHECK: %[[ACC:.*]]:16 = affine.for %{{.*}} = 0 to 16 step 2 iter_args
// CHECK: affine.vector_load %arg1[%{{.*}}, 0] : memref<16x32xf32>, vector<16xf32>
// CHECK-COUNT-32: vector.fma
// CHECK-NOT: vector.fma
// CHECK: affine.vector_load %arg2[0]
// CHECK: arith.addf %[[ACC]]#0
// CHECK: arith.select
// CHECK-COUNT-16: affine.vector_store
// CHECK-NOT: affine.vector_store
func.func @contraction(%x: tensor<8x16xf32>, %w: tensor<16x32xf32>, %b: tensor<32xf32>) -> tensor<8x32xf32> {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<8x16xf32>, tensor<16x32xf32>) -> tensor<8x32xf32>
  %1 = stablehlo.broadcast_in_dim %b, dims = [1] : (tensor<32xf32>) -> tensor<8x32xf32>
  %2 = stablehlo.add %0, %1 : tensor<8x32xf32>
  %zero = stablehlo.constant dense<0.0> : tensor<8x32xf32>
  %3 = stablehlo.maximum %2, %zero : tensor<8x32xf32>
  return %3 : tensor<8x32xf32>
}

// -----

// Depthwise convolution: channels in the lanes, the window unrolled, four rows of four outputs a tile;
// what their windows share is loaded once.
// CHECK-LABEL: func.func @depthwise
// CHECK: func.func private @kernel_0{{.*}}kernel.kind = "outer-reduction"
// CHECK: affine.parallel (%[[ROWS:.*]]) = (0) to (8)
// CHECK: affine.for %{{.*}} = 0 to 32 step 16
// CHECK: affine.vector_load %arg0[0, %[[ROWS]] * 4, 0,{{.*}} : memref<1x34x6x32xf32>, vector<16xf32>
// CHECK: affine.vector_load %arg1[0, 0, 0,{{.*}} : memref<3x3x1x32xf32>, vector<16xf32>
// CHECK: affine.vector_load %arg0[0, %[[ROWS]] * 4 + 2, 3,
// CHECK-NOT: affine.vector_load %arg0[0, %[[ROWS]] * 4 + 2, 3,
// CHECK: affine.vector_load %arg0[0, %[[ROWS]] * 4 + 5, 5,
// CHECK: affine.vector_store %{{.*}}, %arg2[0, %[[ROWS]] * 4, 0,
// CHECK: affine.vector_store %{{.*}}, %arg2[0, %[[ROWS]] * 4 + 3, 3,
func.func @depthwise(%x: tensor<1x34x6x32xf32>, %w: tensor<3x3x1x32xf32>) -> tensor<1x32x4x32xf32> {
  %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {}
      {batch_group_count = 1 : i64, feature_group_count = 32 : i64}
      : (tensor<1x34x6x32xf32>, tensor<3x3x1x32xf32>) -> tensor<1x32x4x32xf32>
  return %0 : tensor<1x32x4x32xf32>
}

// -----

// Pooling: the same, with maximum.
// CHECK-LABEL: func.func @pooling
// CHECK: func.func private @kernel_0{{.*}}kernel.kind = "outer-reduction"
// CHECK: affine.vector_load %arg0[0, 1, 3, 0]
// CHECK: arith.maximumf %{{.*}} : vector<16xf32>
func.func @pooling(%x: tensor<1x4x4x16xf32>) -> tensor<1x2x2x16xf32> {
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %0 = "stablehlo.reduce_window"(%x, %low) ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %m = stablehlo.maximum %a, %b : tensor<f32>
      stablehlo.return %m : tensor<f32>
    }) {window_dimensions = array<i64: 1, 2, 2, 1>, window_strides = array<i64: 1, 2, 2, 1>}
      : (tensor<1x4x4x16xf32>, tensor<f32>) -> tensor<1x2x2x16xf32>
  return %0 : tensor<1x2x2x16xf32>
}

// -----

// Windows that move by one: 8 outputs have 12 columns in common, of which each is combined once, row
// by row. Then the maximum of two columns, and of four, serves all windows that hold them.
// CHECK-LABEL: func.func @neighbours
// CHECK: %[[COLUMNS:.*]]:12 = affine.for %[[ROW:.*]] = 1 to 5 iter_args
// CHECK-COUNT-12: affine.vector_load %arg0[0, %[[ROW]]
// CHECK: affine.yield
// CHECK: %[[TWO:.*]] = arith.maximumf %[[COLUMNS]]#0, %[[COLUMNS]]#1
// CHECK-COUNT-35: arith.maximumf
// CHECK-NOT: arith.maximumf
// CHECK: return
func.func @neighbours(%x: tensor<1x5x12x16xf32>) -> tensor<1x1x8x16xf32> {
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %0 = "stablehlo.reduce_window"(%x, %low) ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %m = stablehlo.maximum %a, %b : tensor<f32>
      stablehlo.return %m : tensor<f32>
    }) {window_dimensions = array<i64: 1, 5, 5, 1>, window_strides = array<i64: 1, 1, 1, 1>}
      : (tensor<1x5x12x16xf32>, tensor<f32>) -> tensor<1x1x8x16xf32>
  return %0 : tensor<1x1x8x16xf32>
}

// -----

// Rows: one task a row; exponentials are kept in a row of scratch, and the division is one a row.
// CHECK-LABEL: func.func @rows
// CHECK: func.func private @kernel_0
// CHECK: %[[KEPT:.*]] = memref.alloca() {alignment = 64 : i64} : memref<64xf32>
// CHECK: affine.parallel (%{{.*}}) = (0) to (40)
// CHECK: math.exp %{{.*}} : vector<16xf32>
// CHECK: affine.vector_store %{{.*}}, %[[KEPT]][%{{.*}}]
// CHECK: vector.extract_strided_slice %{{.*}} {offsets = [8], sizes = [8], strides = [1]}
// CHECK: affine.vector_load %[[KEPT]]
// CHECK: arith.divf %{{.*}}, %{{.*}} : f32
// CHECK: arith.mulf
func.func @rows(%x: tensor<40x64xf32>) -> tensor<40x64xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.exponential %x : tensor<40x64xf32>
  %1 = stablehlo.reduce(%0 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<40x64xf32>, tensor<f32>) -> tensor<40xf32>
  %2 = stablehlo.broadcast_in_dim %1, dims = [0] : (tensor<40xf32>) -> tensor<40x64xf32>
  %3 = stablehlo.divide %0, %2 : tensor<40x64xf32>
  return %3 : tensor<40x64xf32>
}

// -----

// Elementwise: shapes that agree are one flat range of elements, with a narrower tail.
// CHECK-LABEL: func.func @elementwise
// CHECK: memref.collapse_shape %arg0 {{\[\[}}0, 1, 2]] : memref<3x5x7xf32> into memref<105xf32>
// CHECK: affine.vector_load %{{.*}} : memref<105xf32>, vector<16xf32>
// CHECK: math.tanh %{{.*}} : vector<16xf32>
// CHECK: math.tanh %{{.*}} : f32
func.func @elementwise(%x: tensor<3x5x7xf32>, %y: tensor<3x5x7xf32>) -> tensor<3x5x7xf32> {
  %0 = stablehlo.add %x, %y : tensor<3x5x7xf32>
  %1 = stablehlo.tanh %0 : tensor<3x5x7xf32>
  return %1 : tensor<3x5x7xf32>
}

// -----

// Concatenation: each operand is copied to its place.
// CHECK-LABEL: func.func @concatenation
// CHECK: func.func private @kernel_0{{.*}}kernel.kind = "concatenate"
// CHECK: affine.vector_load %arg0
// CHECK: affine.vector_load %arg1[%{{.*}}, %[[I:.*]]] : memref<2x32xf32>, vector<16xf32>
// CHECK: affine.vector_store %{{.*}}, %arg2[%{{.*}}, %[[I]] + 16] : memref<2x48xf32>, vector<16xf32>
func.func @concatenation(%x: tensor<2x16xf32>, %y: tensor<2x32xf32>) -> tensor<2x48xf32> {
  %0 = stablehlo.concatenate %x, %y, dim = 1 : (tensor<2x16xf32>, tensor<2x32xf32>) -> tensor<2x48xf32>
  return %0 : tensor<2x48xf32>
}

// -----

// Rejected by every emitter (two results at once): scalar loops, and the kernel says so. They work in
// the results' own memory: no other is asked for.
// CHECK-LABEL: func.func @scalar
// CHECK: func.func private @kernel_0(%arg0: memref<4x8xf32>, %arg1: memref<4xf32>, %arg2: memref<4xf32>, %arg3: memref<4xf32>, %arg4: memref<4xf32>)
// CHECK-SAME: kernel.kind = "scalar"
// CHECK: scf.for
// CHECK-NOT: vector
#x = affine_map<(d0, d1) -> (d0, d1)>
#r = affine_map<(d0, d1) -> (d0)>
func.func @scalar(%x: tensor<4x8xf32>, %a: tensor<4xf32>, %b: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %0:2 = linalg.generic {indexing_maps = [#x, #r, #r], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<4x8xf32>) outs(%a, %b : tensor<4xf32>, tensor<4xf32>) {
    ^bb0(%in: f32, %low: f32, %high: f32):
      %1 = arith.minimumf %in, %low : f32
      %2 = arith.maximumf %in, %high : f32
      linalg.yield %1, %2 : f32, f32
  } -> (tensor<4xf32>, tensor<4xf32>)
  return %0#0, %0#1 : tensor<4xf32>, tensor<4xf32>
}

// -----

// An epilogue with a tanh: the tile goes through scratch, and is finished a row at a time.
// CHECK-LABEL: func.func @costly_epilogue
// CHECK: func.func private @kernel_0
// CHECK: %[[TILE:.*]] = memref.alloca() {alignment = 64 : i64, kernel.rewritten} : memref<{{[0-9]+}}x64xf32>
// CHECK: vector.fma
// CHECK: affine.vector_store %{{.*}}, %[[TILE]][0, 0]
// CHECK: affine.for %[[ROW:.*]] = 0 to
// CHECK: affine.vector_load %[[TILE]][%[[ROW]], 0]
// CHECK: math.tanh %{{.*}} : vector<16xf32>
func.func @costly_epilogue(%x: tensor<12x32xf32>, %w: tensor<32x64xf32>) -> tensor<12x64xf32> {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<12x32xf32>, tensor<32x64xf32>) -> tensor<12x64xf32>
  %1 = stablehlo.tanh %0 : tensor<12x64xf32>
  return %1 : tensor<12x64xf32>
}

// -----

// Attention: a task's scores go to scratch, the rows turn them into weights in their place, and the
// second product reads them there.
// CHECK-LABEL: func.func @attention
// CHECK: func.func private @kernel_0{{.*}}kernel.kind = "attention"
// CHECK: %[[SCORES:.*]] = memref.alloca() {alignment = 64 : i64} : memref<128xf32>
// CHECK: affine.parallel
// CHECK-COUNT-8: vector.fma
// CHECK: affine.vector_store %{{.*}}, %[[SCORES]]
// CHECK: math.exp
// CHECK: affine.vector_store %{{.*}}, %[[SCORES]]
// CHECK: affine.load %[[SCORES]]
// CHECK: vector.fma
// CHECK: affine.vector_store %{{.*}}, %arg3
func.func @attention(%q: tensor<8x8x4xf32>, %k: tensor<8x4x16xf32>, %v: tensor<8x16x16xf32>) -> tensor<8x8x16xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %s = stablehlo.dot_general %q, %k, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<8x8x4xf32>, tensor<8x4x16xf32>) -> tensor<8x8x16xf32>
  %3 = stablehlo.exponential %s : tensor<8x8x16xf32>
  %4 = stablehlo.reduce(%3 init: %zero) applies stablehlo.add across dimensions = [2] : (tensor<8x8x16xf32>, tensor<f32>) -> tensor<8x8xf32>
  %5 = stablehlo.broadcast_in_dim %4, dims = [0, 1] : (tensor<8x8xf32>) -> tensor<8x8x16xf32>
  %w = stablehlo.divide %3, %5 : tensor<8x8x16xf32>
  %o = stablehlo.dot_general %w, %v, batching_dims = [0] x [0], contracting_dims = [2] x [1] : (tensor<8x8x16xf32>, tensor<8x16x16xf32>) -> tensor<8x8x16xf32>
  return %o : tensor<8x8x16xf32>
}

// -----

// A transpose to three channels: vectors of each are interleaved, into the buffer with its halo.
// CHECK-LABEL: func.func @channels_last
// CHECK: func.func private @kernel_0{{.*}}kernel.kind = "transpose"
// CHECK: affine.for %[[ROW:.*]] = 0 to 8
// CHECK: affine.for %[[COLUMN:.*]] = 0 to min {{.*}} step 16
// CHECK-COUNT-3: affine.vector_load %arg0{{.*}} : memref<1x3x8x32xf32>, vector<16xf32>
// CHECK-COUNT-6: vector.shuffle
// CHECK: affine.vector_store %{{.*}}[%[[ROW]] * 102 + %[[COLUMN]] * 3 + 105] : memref<1020xf32>, vector<16xf32>
func.func @channels_last(%x: tensor<1x3x8x32xf32>) -> tensor<1x10x34x3xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.transpose %x, dims = [0, 2, 3, 1] : (tensor<1x3x8x32xf32>) -> tensor<1x8x32x3xf32>
  %1 = stablehlo.pad %0, %zero, low = [0, 1, 1, 0], high = [0, 1, 1, 0], interior = [0, 0, 0, 0] : (tensor<1x8x32x3xf32>, tensor<f32>) -> tensor<1x10x34x3xf32>
  return %1 : tensor<1x10x34x3xf32>
}

// -----

// Rows of 14: tiles of 8 by 8, the last of which writes two elements once more.
// CHECK-LABEL: func.func @short_rows
// CHECK: func.func private @kernel_0{{.*}}kernel.kind = "transpose"
// CHECK: affine.if
// CHECK: affine.vector_load %arg0{{.*}} : memref<20x14xf32>, vector<8xf32>
// CHECK-COUNT-24: vector.shuffle
// CHECK: affine.vector_store %{{.*}}, %arg1[6, %{{.*}}] : memref<14x20xf32>, vector<8xf32>
// CHECK: affine.vector_store %{{.*}}, %arg1[6, 12] : memref<14x20xf32>, vector<8xf32>
func.func @short_rows(%x: tensor<20x14xf32>) -> tensor<14x20xf32> {
  %0 = stablehlo.transpose %x, dims = [1, 0] : (tensor<20x14xf32>) -> tensor<14x20xf32>
  return %0 : tensor<14x20xf32>
}

// -----

// Numbers of 16 bits in tiles of 16 by 16 as well; those of 8 bits, whose vectors have instructions
// for it, are put by turns; of those of 64 bits a register has eight.
// CHECK-LABEL: func.func @narrow_and_wide
// CHECK-LABEL: func.func private @kernel_0(%arg0: memref<32x48xf16>
// CHECK-COUNT-64: vector.shuffle {{.*}} : vector<16xf16>, vector<16xf16>
// CHECK-LABEL: func.func private @kernel_1(%arg0: memref<32x48xi8>
// CHECK: vector.shuffle {{.*}} [0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23] : vector<16xi8>
// CHECK-LABEL: func.func private @kernel_2(%arg0: memref<32x48xf64>
// CHECK-COUNT-24: vector.shuffle {{.*}} : vector<8xf64>, vector<8xf64>
// CHECK-LABEL: func.func private @kernel_3(%arg0: memref<32x48xi1>
// CHECK-NOT: vector.shuffle
func.func @narrow_and_wide(%x: tensor<32x48xf16>, %y: tensor<32x48xui8>, %z: tensor<32x48xf64>, %b: tensor<32x48xi1>) -> (tensor<48x32xf16>, tensor<48x32xui8>, tensor<48x32xf64>, tensor<48x32xi1>) {
  %0 = stablehlo.transpose %x, dims = [1, 0] : (tensor<32x48xf16>) -> tensor<48x32xf16>
  %1 = stablehlo.transpose %y, dims = [1, 0] : (tensor<32x48xui8>) -> tensor<48x32xui8>
  %2 = stablehlo.transpose %z, dims = [1, 0] : (tensor<32x48xf64>) -> tensor<48x32xf64>
  %3 = stablehlo.transpose %b, dims = [1, 0] : (tensor<32x48xi1>) -> tensor<48x32xi1>
  return %0, %1, %2, %3 : tensor<48x32xf16>, tensor<48x32xui8>, tensor<48x32xf64>, tensor<48x32xi1>
}

// -----

// Channels that are padded themselves do not lie side by side: an element at a time.
// CHECK-LABEL: func.func @padded_channels
// CHECK: func.func private @kernel_0{{.*}}kernel.kind = "transpose"
// CHECK-NOT: vector.shuffle
func.func @padded_channels(%x: tensor<1x3x8x32xf32>) -> tensor<1x8x32x4xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.transpose %x, dims = [0, 2, 3, 1] : (tensor<1x3x8x32xf32>) -> tensor<1x8x32x3xf32>
  %1 = stablehlo.pad %0, %zero, low = [0, 0, 0, 0], high = [0, 0, 0, 1], interior = [0, 0, 0, 0] : (tensor<1x8x32x3xf32>, tensor<f32>) -> tensor<1x8x32x4xf32>
  return %1 : tensor<1x8x32x4xf32>
}
