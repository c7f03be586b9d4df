// RUN: stepwell-opt %s --target=x86_64-v3 --split-input-file \
// RUN:   --pass-pipeline='builtin.module(legalize-to-linalg,form-fusion-groups,pack-operands,lower-groups-to-affine)' | filecheck %s

// A line of one of the rows of the next task in each iteration over k: 5 rows of 1280 numbers lie
// further on, row after row, the other line of each with every second panel. Rows are found from
// the tile's first one, without quotients.
// CHECK: func.func private @kernel_0(
// CHECK: affine.prefetch {{.*}} * 1280 + %{{[a-z0-9]+}} + (%{{[a-z0-9]+}} mod 2) * 16 + ((%{{[a-z0-9]+}} floordiv 4) mod 8) * 256 + 1280], read
func.func @long_rows(%x: tensor<3136x256xf32>, %w: tensor<256x64xf32> {stepwell.parameter}) -> tensor<3136x64xf32> {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<3136x256xf32>, tensor<256x64xf32>) -> tensor<3136x64xf32>
  return %0 : tensor<3136x64xf32>
}

// -----

// Rejected: rows of an image that is read from further in, of which none follows all others at the
// same distance, are walked one by one, and not asked for.
// CHECK: func.func private @kernel_0(
// CHECK-NOT: affine.prefetch {{.*}}, read
// CHECK: return
func.func @part_of_an_image(%x: tensor<1x58x58x256xf32>, %w: tensor<1x1x256x64xf32> {stepwell.parameter}) -> tensor<1x56x56x64xf32> {
  %part = stablehlo.slice %x [0:1, 1:57, 1:57, 0:256] : (tensor<1x58x58x256xf32>) -> tensor<1x56x56x256xf32>
  %0 = stablehlo.convolution(%part, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} : (tensor<1x56x56x256xf32>, tensor<1x1x256x64xf32>) -> tensor<1x56x56x64xf32>
  return %0 : tensor<1x56x56x64xf32>
}
