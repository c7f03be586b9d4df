// RUN: stepwell-opt %s --split-input-file \
// RUN:   --pass-pipeline='builtin.module(legalize-to-linalg,form-fusion-groups)' | filecheck %s

// A contraction takes its whole epilogue: bias, residual and activation are one kernel with it.
// CHECK-LABEL: func.func @epilogue
// CHECK: %[[OUT:.*]] = tensor.empty() : tensor<8x32xf32>
// CHECK: %[[Y:.*]] = call @kernel_0(%arg0, %arg1, %arg2, %arg3, %[[OUT]])
// CHECK-NOT: call
// CHECK: return %[[Y]]
// CHECK: func.func private @kernel_0({{.*}}) -> tensor<8x32xf32> attributes {kernel.kind = "contraction"}
// CHECK: arith.mulf
// CHECK: arith.maximumf
// CHECK-NOT: func.func private
func.func @epilogue(%x: tensor<8x16xf32>, %w: tensor<16x32xf32>, %b: tensor<32xf32>, %r: tensor<8x32xf32>) -> tensor<8x32xf32> {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<8x16xf32>, tensor<16x32xf32>) -> tensor<8x32xf32>
  %1 = stablehlo.broadcast_in_dim %b, dims = [1] : (tensor<32xf32>) -> tensor<8x32xf32>
  %2 = stablehlo.add %0, %1 : tensor<8x32xf32>
  %3 = stablehlo.add %2, %r : tensor<8x32xf32>
  %zero = stablehlo.constant dense<0.0> : tensor<8x32xf32>
  %4 = stablehlo.maximum %3, %zero : tensor<8x32xf32>
  return %4 : tensor<8x32xf32>
}

// -----

// A softmax, two reductions and what stands between and after them, is one kernel.
// CHECK-LABEL: func.func @softmax
// CHECK-COUNT-1: call @kernel_0(%arg0, %{{.*}})
// CHECK: func.func private @kernel_0({{.*}}) -> tensor<4x64xf32> attributes {kernel.kind = "elementwise"}
// CHECK-NOT: func.func private
func.func @softmax(%x: tensor<4x64xf32>) -> tensor<4x64xf32> {
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.reduce(%x init: %low) applies stablehlo.maximum across dimensions = [1] : (tensor<4x64xf32>, tensor<f32>) -> tensor<4xf32>
  %1 = stablehlo.broadcast_in_dim %0, dims = [0] : (tensor<4xf32>) -> tensor<4x64xf32>
  %2 = stablehlo.subtract %x, %1 : tensor<4x64xf32>
  %3 = stablehlo.exponential %2 : tensor<4x64xf32>
  %4 = stablehlo.reduce(%3 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<4x64xf32>, tensor<f32>) -> tensor<4xf32>
  %5 = stablehlo.broadcast_in_dim %4, dims = [0] : (tensor<4xf32>) -> tensor<4x64xf32>
  %6 = stablehlo.divide %3, %5 : tensor<4x64xf32>
  return %6 : tensor<4x64xf32>
}

// -----

// A layer normalisation (mean, centred, variance, scaled) is one kernel too.
// CHECK-LABEL: func.func @layer_norm
// CHECK-COUNT-1: call @kernel_0
// CHECK: func.func private @kernel_0({{.*}}) -> tensor<4x64xf32> attributes {kernel.kind = "elementwise"}
// CHECK-NOT: func.func private
func.func @layer_norm(%x: tensor<4x64xf32>, %scale: tensor<64xf32>) -> tensor<4x64xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %n = stablehlo.constant dense<64.0> : tensor<4xf32>
  %0 = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<4x64xf32>, tensor<f32>) -> tensor<4xf32>
  %1 = stablehlo.divide %0, %n : tensor<4xf32>
  %2 = stablehlo.broadcast_in_dim %1, dims = [0] : (tensor<4xf32>) -> tensor<4x64xf32>
  %3 = stablehlo.subtract %x, %2 : tensor<4x64xf32>
  %4 = stablehlo.multiply %3, %3 : tensor<4x64xf32>
  %5 = stablehlo.reduce(%4 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<4x64xf32>, tensor<f32>) -> tensor<4xf32>
  %6 = stablehlo.divide %5, %n : tensor<4xf32>
  %7 = stablehlo.rsqrt %6 : tensor<4xf32>
  %8 = stablehlo.broadcast_in_dim %7, dims = [0] : (tensor<4xf32>) -> tensor<4x64xf32>
  %9 = stablehlo.multiply %3, %8 : tensor<4x64xf32>
  %10 = stablehlo.broadcast_in_dim %scale, dims = [1] : (tensor<64xf32>) -> tensor<4x64xf32>
  %11 = stablehlo.multiply %9, %10 : tensor<4x64xf32>
  return %11 : tensor<4x64xf32>
}

// -----

// A sum of two contractions joins the later one and reads the result of the earlier.
// CHECK-LABEL: func.func @two_producers
// CHECK: %[[A:.*]] = call @kernel_0(%arg0, %arg1, %{{.*}})
// CHECK: call @kernel_1(%arg0, %arg2, %[[A]], %{{.*}})
// CHECK: func.func private @kernel_0{{.*}}"contraction"
// CHECK: func.func private @kernel_1{{.*}}"contraction"
// CHECK-NOT: func.func private
func.func @two_producers(%x: tensor<8x16xf32>, %v: tensor<16x32xf32>, %w: tensor<16x32xf32>) -> tensor<8x32xf32> {
  %0 = stablehlo.dot_general %x, %v, contracting_dims = [1] x [0] : (tensor<8x16xf32>, tensor<16x32xf32>) -> tensor<8x32xf32>
  %1 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<8x16xf32>, tensor<16x32xf32>) -> tensor<8x32xf32>
  %2 = stablehlo.add %0, %1 : tensor<8x32xf32>
  return %2 : tensor<8x32xf32>
}

// -----

// A value with uses inside and outside its group is a second result of the kernel.
// CHECK-LABEL: func.func @used_outside
// CHECK: %[[R:.*]]:2 = call @kernel_0(%arg0, %arg1, %{{.*}}, %{{.*}})
// CHECK: return %[[R]]#0, %[[R]]#1
func.func @used_outside(%x: tensor<8x16xf32>, %w: tensor<16x32xf32>) -> (tensor<8x32xf32>, tensor<8x32xf32>) {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<8x16xf32>, tensor<16x32xf32>) -> tensor<8x32xf32>
  %1 = stablehlo.tanh %0 : tensor<8x32xf32>
  return %0, %1 : tensor<8x32xf32>, tensor<8x32xf32>
}

// -----

// The zero halo that a following convolution wants is written by the kernel before it.
// CHECK-LABEL: func.func @padded_output
// CHECK: call @kernel_0({{.*}}) : ({{.*}}) -> tensor<10x34xf32>
// CHECK: func.func private @kernel_0{{.*}} -> tensor<10x34xf32> attributes {kernel.kind = "contraction"}
// CHECK: tensor.pad
// CHECK-NOT: func.func private
func.func @padded_output(%x: tensor<8x16xf32>, %w: tensor<16x32xf32>) -> tensor<10x34xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<8x16xf32>, tensor<16x32xf32>) -> tensor<8x32xf32>
  %1 = stablehlo.pad %0, %zero, low = [1, 1], high = [1, 1], interior = [0, 0] : (tensor<8x32xf32>, tensor<f32>) -> tensor<10x34xf32>
  return %1 : tensor<10x34xf32>
}

// -----

// Rejected: the last sum may not join the first contraction, since the second stands between them.
// CHECK-LABEL: func.func @cycle
// CHECK: %[[A:.*]] = call @kernel_0(%arg0, %arg1, %{{.*}})
// CHECK: call @kernel_1(%[[A]], %arg1, %{{.*}})
// CHECK: func.func private @kernel_0
// CHECK-NOT: arith.subf
// CHECK: func.func private @kernel_1
// CHECK: arith.subf
func.func @cycle(%x: tensor<16x16xf32>, %w: tensor<16x16xf32>) -> tensor<16x16xf32> {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  %1 = stablehlo.dot_general %0, %w, contracting_dims = [1] x [0] : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  %2 = stablehlo.subtract %0, %1 : tensor<16x16xf32>
  return %2 : tensor<16x16xf32>
}

// -----

// Equal groups share one kernel.
// CHECK-LABEL: func.func @shared
// CHECK: %[[A:.*]] = call @kernel_0(%arg0, %arg1, %{{.*}})
// CHECK: call @kernel_0(%[[A]], %arg2, %{{.*}})
// CHECK: func.func private @kernel_0
// CHECK-NOT: func.func private
func.func @shared(%x: tensor<16x16xf32>, %v: tensor<16x16xf32>, %w: tensor<16x16xf32>) -> tensor<16x16xf32> {
  %0 = stablehlo.dot_general %x, %v, contracting_dims = [1] x [0] : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  %1 = stablehlo.dot_general %0, %w, contracting_dims = [1] x [0] : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  return %1 : tensor<16x16xf32>
}

// -----

// Rejected: a reduction over the columns that a contraction makes is a kernel of its own.
// CHECK-LABEL: func.func @reduced
// CHECK: %[[A:.*]] = call @kernel_0
// CHECK: call @kernel_1(%[[A]]
func.func @reduced(%x: tensor<8x16xf32>, %w: tensor<16x32xf32>) -> tensor<8xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<8x16xf32>, tensor<16x32xf32>) -> tensor<8x32xf32>
  %1 = stablehlo.reduce(%0 init: %zero) applies stablehlo.add across dimensions = [1] : (tensor<8x32xf32>, tensor<f32>) -> tensor<8xf32>
  return %1 : tensor<8xf32>
}

// -----

// A concatenation is written into the padded buffer that its consumer reads.
// CHECK-LABEL: func.func @padded
// CHECK: call @kernel_0(%arg0, %arg1
// CHECK-NOT: call
// CHECK: func.func private @kernel_0
// CHECK: tensor.concat
// CHECK: tensor.pad
func.func @padded(%x: tensor<4x16xf32>, %y: tensor<4x16xf32>) -> tensor<6x32xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.concatenate %x, %y, dim = 1 : (tensor<4x16xf32>, tensor<4x16xf32>) -> tensor<4x32xf32>
  %1 = stablehlo.pad %0, %zero, low = [1, 0], high = [1, 0], interior = [0, 0] : (tensor<4x32xf32>, tensor<f32>) -> tensor<6x32xf32>
  return %1 : tensor<6x32xf32>
}

// -----

// So is a transpose.
// CHECK-LABEL: func.func @padded_transpose
// CHECK: call @kernel_0
// CHECK-NOT: call
// CHECK: func.func private @kernel_0{{.*}}kernel.kind = "transpose"
// CHECK: tensor.pad
func.func @padded_transpose(%x: tensor<4x16xf32>) -> tensor<18x4xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %0 = stablehlo.transpose %x, dims = [1, 0] : (tensor<4x16xf32>) -> tensor<16x4xf32>
  %1 = stablehlo.pad %0, %zero, low = [1, 0], high = [1, 0], interior = [0, 0] : (tensor<16x4xf32>, tensor<f32>) -> tensor<18x4xf32>
  return %1 : tensor<18x4xf32>
}

// -----

// The body of a loop becomes calls too. Constants from outside are repeated in the kernels; what the
// loop starts from is written by one; the update gets the old table as its destination.
// CHECK-LABEL: func.func @loop
// CHECK: %[[START:.*]] = call @kernel_{{.}}(%{{[0-9]+}}) : (tensor<8x64xf32>) -> tensor<8x64xf32>
// CHECK: scf.while (%[[TABLE:.*]] = %[[START]])
// CHECK: %[[FLAG:.*]] = func.call @kernel_{{.}}(%[[TABLE]], %{{[0-9]+}}) : (tensor<8x64xf32>, tensor<i1>) -> tensor<i1>
// CHECK-NEXT: %[[C:.*]] = tensor.extract %[[FLAG]][] : tensor<i1>
// CHECK-NEXT: scf.condition(%[[C]]) %[[TABLE]]
// CHECK: ^bb0(%[[OLD:.*]]: tensor<8x64xf32>):
// CHECK: %[[ROW:.*]] = func.call @kernel_{{.}}(%[[OLD]], %arg0, %{{[0-9]+}})
// CHECK: %[[NEW:.*]] = func.call @kernel_{{.}}(%[[ROW]], %arg0, %[[OLD]])
// CHECK: scf.yield %[[NEW]]
// CHECK: kernel.kind = "update"
// CHECK: tensor.insert_slice
func.func @loop(%i: tensor<index>) -> tensor<8x64xf32> {
  %table = arith.constant dense<1.0> : tensor<8x64xf32>
  %limit = arith.constant 3.0 : f32
  %at = tensor.extract %i[] : tensor<index>
  %r = scf.while (%t = %table) : (tensor<8x64xf32>) -> tensor<8x64xf32> {
    %zero = arith.constant 0 : index
    %x = tensor.extract %t[%zero, %zero] : tensor<8x64xf32>
    %c = arith.cmpf olt, %x, %limit : f32
    scf.condition(%c) %t : tensor<8x64xf32>
  } do {
  ^bb0(%t: tensor<8x64xf32>):
    %row = tensor.extract_slice %t[%at, 0] [1, 64] [1, 1] : tensor<8x64xf32> to tensor<1x64xf32>
    %e = tensor.empty() : tensor<1x64xf32>
    %y = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]}
        ins(%row : tensor<1x64xf32>) outs(%e : tensor<1x64xf32>) {
      ^bb0(%in: f32, %out: f32):
        %s = arith.addf %in, %limit : f32
        linalg.yield %s : f32
    } -> tensor<1x64xf32>
    %u = tensor.insert_slice %y into %t[%at, 0] [1, 64] [1, 1] : tensor<1x64xf32> into tensor<8x64xf32>
    scf.yield %u : tensor<8x64xf32>
  }
  return %r : tensor<8x64xf32>
}

// -----

// Rejected: a loop that carries a scalar is none of the host's; it stays one operation of one kernel.
// CHECK-LABEL: func.func @scalar
// CHECK-NOT: scf
// CHECK: call @kernel_0
// CHECK: kernel.kind = "other"
// CHECK: scf.while
func.func @scalar(%x: tensor<64xf32>, %n: tensor<i32>) -> tensor<64xf32> {
  %r = scf.execute_region -> tensor<64xf32> no_inline {
    %one = arith.constant 1 : i32
    %limit = tensor.extract %n[] : tensor<i32>
    %s:2 = scf.while (%i = %one, %a = %x) : (i32, tensor<64xf32>) -> (i32, tensor<64xf32>) {
      %c = arith.cmpi slt, %i, %limit : i32
      scf.condition(%c) %i, %a : i32, tensor<64xf32>
    } do {
    ^bb0(%i: i32, %a: tensor<64xf32>):
      %j = arith.addi %i, %one : i32
      %at = arith.index_cast %i : i32 to index
      %f = arith.sitofp %i : i32 to f32
      %b = tensor.insert %f into %a[%at] : tensor<64xf32>
      scf.yield %j, %b : i32, tensor<64xf32>
    }
    scf.yield %s#1 : tensor<64xf32>
  }
  return %r : tensor<64xf32>
}

// -----

// The last subtraction may not join the group of the square: it reads the reversed sums as well, whose
// kernel the sum with the square has joined.

#one = affine_map<(d0) -> (d0)>

// CHECK-LABEL: func.func @joined_later
// CHECK: %[[C:.*]] = call {{.*}}(%arg1,
// CHECK: %[[A:.*]]:2 = call {{.*}}(%arg0, %[[C]],
// CHECK: call {{.*}}(%[[A]]#0, %[[C]],
func.func @joined_later(%x: tensor<4x16xf32>, %y: tensor<16xf32>) -> (tensor<16xf32>, tensor<16xf32>) {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<16xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<16xf32>) -> tensor<16xf32>
  %a = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d1, d0)>, affine_map<(d0, d1) -> (d0)>],
      iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<4x16xf32>) outs(%init : tensor<16xf32>) {
  ^bb0(%in: f32, %out: f32):
    %s = arith.addf %out, %in : f32
    linalg.yield %s : f32
  } -> tensor<16xf32>
  %b = linalg.generic {indexing_maps = [#one], iterator_types = ["parallel"]}
      outs(%empty : tensor<16xf32>) {
  ^bb0(%out: f32):
    %last = arith.constant 15 : index
    %i = linalg.index 0 : index
    %j = arith.subi %last, %i : index
    %s = tensor.extract %a[%j] : tensor<16xf32>
    linalg.yield %s : f32
  } -> tensor<16xf32>
  %c = linalg.generic {indexing_maps = [#one, #one], iterator_types = ["parallel"]}
      ins(%y : tensor<16xf32>) outs(%empty : tensor<16xf32>) {
  ^bb0(%in: f32, %out: f32):
    %s = arith.mulf %in, %in : f32
    linalg.yield %s : f32
  } -> tensor<16xf32>
  %d = linalg.generic {indexing_maps = [#one, #one, #one], iterator_types = ["parallel"]}
      ins(%a, %c : tensor<16xf32>, tensor<16xf32>) outs(%empty : tensor<16xf32>) {
  ^bb0(%in: f32, %in_0: f32, %out: f32):
    %s = arith.addf %in, %in_0 : f32
    linalg.yield %s : f32
  } -> tensor<16xf32>
  %e = linalg.generic {indexing_maps = [#one, #one, #one], iterator_types = ["parallel"]}
      ins(%b, %c : tensor<16xf32>, tensor<16xf32>) outs(%empty : tensor<16xf32>) {
  ^bb0(%in: f32, %in_0: f32, %out: f32):
    %s = arith.subf %in, %in_0 : f32
    linalg.yield %s : f32
  } -> tensor<16xf32>
  return %d, %e : tensor<16xf32>, tensor<16xf32>
}

// -----

// What a sum over all rows leaves out is filled there: the product is stored as it is.

// CHECK-LABEL: func.func @filled_where_it_is_summed
// CHECK: %[[P:.*]] = call @[[PRODUCT:.*]](%arg0, %arg1,
// CHECK: call @[[SUM:.*]](%arg2, %[[P]],
// CHECK: func.func private @[[PRODUCT]]
// CHECK-NOT: arith.select
// CHECK: func.func private @[[SUM]]
// CHECK: arith.select
func.func @filled_where_it_is_summed(%x: tensor<16x32xf32>, %w: tensor<32x64xf32>, %used: tensor<16xi1>) -> tensor<64xf32> {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<16x32xf32>, tensor<32x64xf32>) -> tensor<16x64xf32>
  %where = stablehlo.broadcast_in_dim %used, dims = [0] : (tensor<16xi1>) -> tensor<16x64xi1>
  %zeros = stablehlo.constant dense<0.0> : tensor<16x64xf32>
  %1 = stablehlo.select %where, %0, %zeros : tensor<16x64xi1>, tensor<16x64xf32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %2 = stablehlo.reduce(%1 init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<16x64xf32>, tensor<f32>) -> tensor<64xf32>
  return %2 : tensor<64xf32>
}

// -----

// Rejected: somebody else reads what was filled, too.

// CHECK-LABEL: func.func @filled_for_two
// CHECK: %[[P:.*]] = call @[[PRODUCT:.*]](%arg0, %arg1, %arg2,
// CHECK: func.func private @[[PRODUCT]]
// CHECK: arith.select
func.func @filled_for_two(%x: tensor<16x32xf32>, %w: tensor<32x64xf32>, %used: tensor<16xi1>) -> (tensor<64xf32>, tensor<16x64xf32>) {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<16x32xf32>, tensor<32x64xf32>) -> tensor<16x64xf32>
  %where = stablehlo.broadcast_in_dim %used, dims = [0] : (tensor<16xi1>) -> tensor<16x64xi1>
  %zeros = stablehlo.constant dense<0.0> : tensor<16x64xf32>
  %1 = stablehlo.select %where, %0, %zeros : tensor<16x64xi1>, tensor<16x64xf32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %2 = stablehlo.reduce(%1 init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<16x64xf32>, tensor<f32>) -> tensor<64xf32>
  return %2, %1 : tensor<64xf32>, tensor<16x64xf32>
}
