// RUN: stepwell-opt %s --target=x86_64-v3 --pass-pipeline='builtin.module(decompose-for-linalg)' | filecheck %s
// RUN: stepwell-opt %s --target=cuda:sm_90a --pass-pipeline='builtin.module(decompose-for-linalg)' | filecheck %s --check-prefix=GPU

// CHECK-LABEL: func.func @booleans
// CHECK-NEXT: stablehlo.or %arg0, %arg1
func.func @booleans(%x: tensor<4xi1>, %y: tensor<4xi1>) -> tensor<4xi1> {
  %z = stablehlo.add %x, %y : tensor<4xi1>
  return %z : tensor<4xi1>
}

// exp(-|x|) does not overflow.
// CHECK-LABEL: func.func @logistic
// CHECK: %[[E:.*]] = stablehlo.exponential
// CHECK: %[[N:.*]] = stablehlo.select %{{.*}}, %[[E]],
// CHECK: %[[D:.*]] = stablehlo.add %[[E]],
// CHECK: stablehlo.divide %[[N]], %[[D]] : tensor<4xf32>
func.func @logistic(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = stablehlo.logistic %x : tensor<4xf32>
  return %y : tensor<4xf32>
}

// A window that is read backwards is a reversed kernel.
// CHECK-LABEL: func.func @backwards
// CHECK-NEXT: %[[W:.*]] = stablehlo.reverse %arg1, dims = [1]
// CHECK-NEXT: stablehlo.convolution(%arg0, %[[W]])
// CHECK-NOT: reverse
// CHECK: return
func.func @backwards(%x: tensor<1x4x4x3xf32>, %w: tensor<2x2x1x3xf32>) -> tensor<1x3x3x3xf32> {
  %y = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
       window = {reverse = [false, true]}
       {batch_group_count = 1 : i64, feature_group_count = 3 : i64}
       : (tensor<1x4x4x3xf32>, tensor<2x2x1x3xf32>) -> tensor<1x3x3x3xf32>
  return %y : tensor<1x3x3x3xf32>
}

// The components of indices come last, behind the batch dimension.
// CHECK-LABEL: func.func @indices
// CHECK-NEXT: %[[I:.*]] = stablehlo.transpose %arg1, dims = [1, 0] : (tensor<1x5xi64>) -> tensor<5x1xi64>
// CHECK-NEXT: "stablehlo.gather"(%arg0, %[[I]]) {{.*}}start_indices_batching_dims = [0], {{.*}}index_vector_dim = 1
func.func @indices(%x: tensor<3x5xf32>, %i: tensor<1x5xi64>) -> tensor<5x2xf32> {
  %y = "stablehlo.gather"(%x, %i) {dimension_numbers = #stablehlo.gather<offset_dims = [1],
       operand_batching_dims = [1], start_indices_batching_dims = [1], start_index_map = [0],
       index_vector_dim = 0>, slice_sizes = array<i64: 2, 1>}
       : (tensor<3x5xf32>, tensor<1x5xi64>) -> tensor<5x2xf32>
  return %y : tensor<5x2xf32>
}

// A transposed convolution whose windows do not overlap: a product, and pixels spread out.
// CHECK-LABEL: func.func @transposed
// CHECK: %[[P:.*]] = stablehlo.convolution(%arg0, %{{.*}}) {{.*}} : (tensor<1x4x4x3xf32>, tensor<1x1x3x8xf32>) -> tensor<1x4x4x8xf32>
// CHECK: %[[S:.*]] = stablehlo.reshape %[[P]] : (tensor<1x4x4x8xf32>) -> tensor<1x4x4x2x2x2xf32>
// CHECK: %[[T:.*]] = stablehlo.transpose %[[S]], dims = [0, 1, 3, 2, 4, 5]
// CHECK: stablehlo.reshape %[[T]] : (tensor<1x4x2x4x2x2xf32>) -> tensor<1x8x8x2xf32>
func.func @transposed(%x: tensor<1x4x4x3xf32>, %w: tensor<2x2x3x2xf32>) -> tensor<1x8x8x2xf32> {
  %y = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
       window = {pad = [[1, 1], [1, 1]], lhs_dilate = [2, 2]}
       {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
       : (tensor<1x4x4x3xf32>, tensor<2x2x3x2xf32>) -> tensor<1x8x8x2xf32>
  return %y : tensor<1x8x8x2xf32>
}

// A 4x4 kernel: every phase has 2x2 taps of its own, and its own padding.
// CHECK-LABEL: func.func @phases
// CHECK: %[[W:.*]] = stablehlo.slice %arg1 [0:4:2, 0:4:2, 0:3, 0:2]
// CHECK: stablehlo.convolution(%arg0, %[[W]]) {{.*}}window = {pad = {{\[\[}}1, 0], [1, 0]]}
// CHECK: stablehlo.convolution({{.*}}window = {pad = {{\[\[}}1, 0], [0, 1]]}
// CHECK: stablehlo.convolution({{.*}}window = {pad = {{\[\[}}0, 1], [1, 0]]}
// CHECK: stablehlo.convolution({{.*}}window = {pad = {{\[\[}}0, 1], [0, 1]]}
// On CPUs, the phases of a row are joined, and then the rows, each in its place.
// CHECK: stablehlo.concatenate {{.*}}, dim = 4 : (tensor<1x4x1x4x1x2xf32>, tensor<1x4x1x4x1x2xf32>)
// CHECK: stablehlo.concatenate {{.*}}, dim = 4
// CHECK: stablehlo.concatenate {{.*}}, dim = 2 : {{.*}} -> tensor<1x4x2x4x2x2xf32>
// CHECK: stablehlo.reshape {{.*}} -> tensor<1x8x8x2xf32>
// GPU-LABEL: func.func @phases
// GPU: stablehlo.concatenate {{.*}} -> tensor<1x4x4x8xf32>
// GPU: stablehlo.transpose
func.func @phases(%x: tensor<1x4x4x3xf32>, %w: tensor<4x4x3x2xf32>) -> tensor<1x8x8x2xf32> {
  %y = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
       window = {pad = [[2, 2], [2, 2]], lhs_dilate = [2, 2]}
       {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
       : (tensor<1x4x4x3xf32>, tensor<4x4x3x2xf32>) -> tensor<1x8x8x2xf32>
  return %y : tensor<1x8x8x2xf32>
}

// With strides as well, zeros are put between the elements.
// CHECK-LABEL: func.func @dilated
// CHECK: stablehlo.pad %arg0, %{{.*}}, low = [0, 1, 0], high = [0, 1, 0], interior = [0, 1, 0]
// CHECK-NOT: lhs_dilate
// CHECK: return
func.func @dilated(%x: tensor<1x4x3xf32>, %w: tensor<3x3x2xf32>) -> tensor<1x4x2xf32> {
  %y = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f],
       window = {stride = [2], pad = [[1, 1]], lhs_dilate = [2]}
       {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
       : (tensor<1x4x3xf32>, tensor<3x3x2xf32>) -> tensor<1x4x2xf32>
  return %y : tensor<1x4x2xf32>
}

// Groups of floats stay; two of four results fill a vector of eight, and the filters are zero where
// they would meet the other one's inputs. Tensor cores have room for all.
// CHECK-LABEL: func.func @joined
// CHECK: %[[D:.*]] = stablehlo.pad {{.*}} interior = [0, 0, 0, 2, 0] : (tensor<1x3x2x2x4xf32>
// CHECK-SAME: -> tensor<1x3x2x4x4xf32>
// CHECK: stablehlo.reshape %[[D]] : (tensor<1x3x2x4x4xf32>) -> tensor<1x3x2x2x2x4xf32>
// CHECK: stablehlo.convolution({{.*}} feature_group_count = 2 {{.*}} tensor<1x6x16xf32>)
// GPU-LABEL: func.func @joined
// GPU: stablehlo.convolution({{.*}} feature_group_count = 1
func.func @joined(%x: tensor<1x4x12xf32>, %w: tensor<1x3x16xf32>) -> tensor<1x4x16xf32> {
  %y = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f],
       window = {} {batch_group_count = 1 : i64, feature_group_count = 4 : i64}
       : (tensor<1x4x12xf32>, tensor<1x3x16xf32>) -> tensor<1x4x16xf32>
  return %y : tensor<1x4x16xf32>
}

// Rejected: unsigned integers, which become one convolution a group.
// CHECK-LABEL: func.func @grouped
// CHECK-COUNT-2: stablehlo.convolution({{.*}} feature_group_count = 1
// CHECK: stablehlo.concatenate {{.*}}, dim = 2
func.func @grouped(%x: tensor<1x4x6xui8>, %w: tensor<1x3x8xui8>) -> tensor<1x4x8xui8> {
  %y = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f],
       window = {} {batch_group_count = 1 : i64, feature_group_count = 2 : i64}
       : (tensor<1x4x6xui8>, tensor<1x3x8xui8>) -> tensor<1x4x8xui8>
  return %y : tensor<1x4x8xui8>
}

// CHECK-LABEL: func.func @dot
// CHECK-DAG: %[[X:.*]] = stablehlo.reshape %arg0 : (tensor<3x4x5xf32>) -> tensor<3x20xf32>
// CHECK-DAG: %[[Y:.*]] = stablehlo.reshape %arg1 : (tensor<4x5x6xf32>) -> tensor<20x6xf32>
// CHECK: stablehlo.dot_general %[[X]], %[[Y]], contracting_dims = [1] x [0]
func.func @dot(%x: tensor<3x4x5xf32>, %y: tensor<4x5x6xf32>) -> tensor<3x6xf32> {
  %z = stablehlo.dot_general %x, %y, contracting_dims = [1, 2] x [0, 1]
       : (tensor<3x4x5xf32>, tensor<4x5x6xf32>) -> tensor<3x6xf32>
  return %z : tensor<3x6xf32>
}

// Contracting dimensions are merged in the order of the larger operand, which is left as it is.
// CHECK-LABEL: func.func @order
// CHECK-DAG: %[[W:.*]] = stablehlo.reshape %arg1 : (tensor<4x5x60xf32>) -> tensor<20x60xf32>
// CHECK-DAG: %[[T:.*]] = stablehlo.transpose %arg0, dims = [1, 0, 2]
// CHECK-DAG: %[[X:.*]] = stablehlo.reshape %[[T]] : (tensor<3x4x5xf32>) -> tensor<3x20xf32>
// CHECK: stablehlo.dot_general %[[X]], %[[W]], contracting_dims = [1] x [0]
func.func @order(%x: tensor<4x3x5xf32>, %w: tensor<4x5x60xf32>) -> tensor<3x60xf32> {
  %z = stablehlo.dot_general %x, %w, contracting_dims = [2, 0] x [1, 0]
       : (tensor<4x3x5xf32>, tensor<4x5x60xf32>) -> tensor<3x60xf32>
  return %z : tensor<3x60xf32>
}

// Left alone: a depthwise convolution, and a product of one contracting dimension.
// CHECK-LABEL: func.func @rejected
// CHECK: stablehlo.convolution({{.*}} feature_group_count = 6
// CHECK: stablehlo.dot_general %arg0, %arg0, batching_dims = [0] x [0], contracting_dims = [2] x [2]
func.func @rejected(%x: tensor<1x4x6xf32>, %w: tensor<3x1x6xf32>)
    -> (tensor<1x2x6xf32>, tensor<1x4x4xf32>) {
  %y = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, f]x[0, i, o]->[b, 0, f],
       window = {} {batch_group_count = 1 : i64, feature_group_count = 6 : i64}
       : (tensor<1x4x6xf32>, tensor<3x1x6xf32>) -> tensor<1x2x6xf32>
  %z = stablehlo.dot_general %x, %x, batching_dims = [0] x [0], contracting_dims = [2] x [2]
       : (tensor<1x4x6xf32>, tensor<1x4x6xf32>) -> tensor<1x4x4xf32>
  return %y, %z : tensor<1x2x6xf32>, tensor<1x4x4xf32>
}

// -----

// Normal random numbers are made of two uniform ones each.
// CHECK-LABEL: func.func @normal
// CHECK: stablehlo.rng_bit_generator %{{.*}}, algorithm = THREE_FRY : {{.*}}tensor<2x5xui32>
// CHECK: stablehlo.log
// CHECK: stablehlo.cosine
func.func @normal(%mean: tensor<f32>, %deviation: tensor<f32>) -> tensor<5xf32> {
  %s = stablehlo.constant dense<5> : tensor<1xi64>
  %0 = stablehlo.rng %mean, %deviation, %s, distribution = NORMAL : (tensor<f32>, tensor<f32>, tensor<1xi64>) -> tensor<5xf32>
  return %0 : tensor<5xf32>
}

// -----

// Every bit of the exponent counts: upstream's expansion looks at six.
// CHECK-LABEL: func.func @power_of_bytes
// CHECK-NOT: stablehlo.power
// CHECK-COUNT-7: stablehlo.shift_right_logical
// CHECK-NOT: stablehlo.shift_right_logical
// CHECK: return
func.func @power_of_bytes(%x: tensor<4xui8>, %y: tensor<4xui8>) -> tensor<4xui8> {
  %r = stablehlo.power %x, %y : tensor<4xui8>
  return %r : tensor<4xui8>
}

// CHECK-LABEL: func.func @power_of_floats
// CHECK: stablehlo.power %arg0, %arg1 : tensor<4xf32>
func.func @power_of_floats(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
  %r = stablehlo.power %x, %y : tensor<4xf32>
  return %r : tensor<4xf32>
}

// One factor a channel, in every second place.
// CHECK-LABEL: func.func @scaled_channels
// CHECK: %[[X:.*]] = stablehlo.slice %arg0 [0:1, 0:8, 0:5:2, 0:5:2]
// CHECK: %[[W:.*]] = stablehlo.broadcast_in_dim %{{.*}}, dims = [1] : (tensor<8xf32>) -> tensor<1x8x3x3xf32>
// CHECK: %[[P:.*]] = stablehlo.multiply %[[X]], %[[W]]
// CHECK: stablehlo.transpose %[[P]], dims = [0, 2, 3, 1]
func.func @scaled_channels(%x: tensor<1x8x5x5xf32>, %w: tensor<8x1x1x1xf32>) -> tensor<1x3x3x8xf32> {
  %y = stablehlo.convolution(%x, %w) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, 0, 1, f],
       window = {stride = [2, 2]} {batch_group_count = 1 : i64, feature_group_count = 8 : i64}
       : (tensor<1x8x5x5xf32>, tensor<8x1x1x1xf32>) -> tensor<1x3x3x8xf32>
  return %y : tensor<1x3x3x8xf32>
}

// What is padded has elements that meet no factor: it stays.
// CHECK-LABEL: func.func @padded_channels
// CHECK: stablehlo.convolution
func.func @padded_channels(%x: tensor<1x8x5x5xf32>, %w: tensor<8x1x1x1xf32>) -> tensor<1x8x6x6xf32> {
  %y = stablehlo.convolution(%x, %w) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1],
       window = {pad = [[0, 1], [0, 1]]} {batch_group_count = 1 : i64, feature_group_count = 8 : i64}
       : (tensor<1x8x5x5xf32>, tensor<8x1x1x1xf32>) -> tensor<1x8x6x6xf32>
  return %y : tensor<1x8x6x6xf32>
}

// Without bits of a fraction there is no NaN.
// CHECK-LABEL: func.func @no_fraction
// CHECK: %[[N:.*]] = stablehlo.compare NE, %arg0, %arg0
// CHECK: %[[X:.*]] = stablehlo.select %[[N]], %{{.*}}, %arg0
// CHECK: stablehlo.reduce_precision %[[X]], format = e5m0
func.func @no_fraction(%x: tensor<4xf64>) -> tensor<4xf64> {
  %y = stablehlo.reduce_precision %x, format = e5m0 : tensor<4xf64>
  return %y : tensor<4xf64>
}

// CHECK-LABEL: func.func @some_fraction
// CHECK-NEXT: stablehlo.reduce_precision %arg0, format = e5m2
func.func @some_fraction(%x: tensor<4xf64>) -> tensor<4xf64> {
  %y = stablehlo.reduce_precision %x, format = e5m2 : tensor<4xf64>
  return %y : tensor<4xf64>
}

// CHECK-LABEL: func.func @integers
// CHECK-DAG: %[[W:.*]] = stablehlo.subtract
// CHECK-DAG: %[[B:.*]], %[[R:.*]] = stablehlo.rng_bit_generator %{{.*}}, algorithm = THREE_FRY
// CHECK: stablehlo.remainder %[[R]], %{{.*}} : tensor<8xui64>
// CHECK: stablehlo.add
func.func @integers(%low: tensor<i32>, %high: tensor<i32>) -> tensor<8xi32> {
  %s = stablehlo.constant dense<8> : tensor<1xi64>
  %y = stablehlo.rng %low, %high, %s, distribution = UNIFORM
    : (tensor<i32>, tensor<i32>, tensor<1xi64>) -> tensor<8xi32>
  return %y : tensor<8xi32>
}

// Floats are left to upstream.
// CHECK-LABEL: func.func @floats
// CHECK: stablehlo.rng
func.func @floats(%low: tensor<f32>, %high: tensor<f32>) -> tensor<8xf32> {
  %s = stablehlo.constant dense<8> : tensor<1xi64>
  %y = stablehlo.rng %low, %high, %s, distribution = UNIFORM
    : (tensor<f32>, tensor<f32>, tensor<1xi64>) -> tensor<8xf32>
  return %y : tensor<8xf32>
}

// CHECK-LABEL: func.func @one_operand
// CHECK: %[[S:.*]] = stablehlo.reduce(%arg0 init: %{{.*}}) applies stablehlo.add across dimensions = [1]
// CHECK: stablehlo.transpose %[[S]], dims = [1, 0] : (tensor<2x4xf32>) -> tensor<4x2xf32>
func.func @one_operand(%x: tensor<2x3x4xf32>) -> tensor<4x2xf32> {
  %y = "stablehlo.unary_einsum"(%x) {einsum_config = "ijk->ki"} : (tensor<2x3x4xf32>) -> tensor<4x2xf32>
  return %y : tensor<4x2xf32>
}

// CHECK-LABEL: func.func @diagonal
// CHECK-NEXT: stablehlo.unary_einsum
func.func @diagonal(%x: tensor<3x3xf32>) -> tensor<3xf32> {
  %y = "stablehlo.unary_einsum"(%x) {einsum_config = "ii->i"} : (tensor<3x3xf32>) -> tensor<3xf32>
  return %y : tensor<3xf32>
}

// Elements that are taken as often, one after the other, are repeated.
// CHECK-LABEL: func.func @repeated
// CHECK-NEXT: %[[B:.*]] = stablehlo.broadcast_in_dim %arg0, dims = [0, 1, 3] : (tensor<2x3x4xf32>) -> tensor<2x3x2x4xf32>
// CHECK-NEXT: %[[Y:.*]] = stablehlo.reshape %[[B]] : (tensor<2x3x2x4xf32>) -> tensor<2x6x4xf32>
// CHECK-NEXT: return %[[Y]]
func.func @repeated(%x: tensor<2x3x4xf32>) -> tensor<2x6x4xf32> {
  %i = stablehlo.constant dense<[0, 0, 1, 1, 2, 2]> : tensor<6xi64>
  %y = "stablehlo.gather"(%x, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [0, 2],
      collapsed_slice_dims = [1], start_index_map = [1], index_vector_dim = 1>,
      slice_sizes = array<i64: 2, 1, 4>}> : (tensor<2x3x4xf32>, tensor<6xi64>) -> tensor<2x6x4xf32>
  return %y : tensor<2x6x4xf32>
}

// Those in another order are not.
// CHECK-LABEL: func.func @taken
// CHECK: "stablehlo.gather"
func.func @taken(%x: tensor<2x3x4xf32>) -> tensor<2x6x4xf32> {
  %i = stablehlo.constant dense<[0, 0, 1, 2, 1, 2]> : tensor<6xi64>
  %y = "stablehlo.gather"(%x, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = [0, 2],
      collapsed_slice_dims = [1], start_index_map = [1], index_vector_dim = 1>,
      slice_sizes = array<i64: 2, 1, 4>}> : (tensor<2x3x4xf32>, tensor<6xi64>) -> tensor<2x6x4xf32>
  return %y : tensor<2x6x4xf32>
}

// Unsigned operands of a wider result have its type.
// CHECK-LABEL: func.func @unsigned
// CHECK: %[[A:.*]] = stablehlo.convert %arg0 : (tensor<9xui16>) -> tensor<9xi32>
// CHECK: %[[B:.*]] = stablehlo.convert %arg1 : (tensor<9xui16>) -> tensor<9xi32>
// CHECK: stablehlo.dot_general %[[A]], %[[B]]
func.func @unsigned(%a: tensor<9xui16>, %b: tensor<9xui16>) -> tensor<i32> {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [0] x [0] : (tensor<9xui16>, tensor<9xui16>) -> tensor<i32>
  return %0 : tensor<i32>
}

// So have those of depthwise convolutions.
// CHECK-LABEL: func.func @depthwise_bytes
// CHECK-COUNT-2: stablehlo.convert
// CHECK: return
func.func @depthwise_bytes(%x: tensor<1x6x6x3xi8>, %w: tensor<3x3x1x3xi8>) -> tensor<1x4x4x3xi32> {
  %y = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {}
       {batch_group_count = 1 : i64, feature_group_count = 3 : i64} : (tensor<1x6x6x3xi8>, tensor<3x3x1x3xi8>) -> tensor<1x4x4x3xi32>
  return %y : tensor<1x4x4x3xi32>
}

// Rejected: signed ones, and a result that is not wider, whose bits are the same.
// CHECK-LABEL: func.func @signed
// CHECK-NOT: stablehlo.convert
// CHECK: return
func.func @signed(%a: tensor<9xi16>, %b: tensor<9xi16>, %c: tensor<9xui32>, %d: tensor<9xui32>) -> (tensor<i32>, tensor<i32>) {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [0] x [0] : (tensor<9xi16>, tensor<9xi16>) -> tensor<i32>
  %1 = stablehlo.dot_general %c, %d, contracting_dims = [0] x [0] : (tensor<9xui32>, tensor<9xui32>) -> tensor<i32>
  return %0, %1 : tensor<i32>, tensor<i32>
}
