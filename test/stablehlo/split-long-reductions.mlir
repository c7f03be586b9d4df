// RUN: stepwell-opt %s --target=cuda:sm_90a --pass-pipeline='split-long-reductions' | filecheck %s
// RUN: stepwell-opt %s --target=x86_64-v3 --pass-pipeline='split-long-reductions' | filecheck %s --check-prefix=CPU

// CHECK-LABEL: func.func @row
// CHECK: stablehlo.reshape %arg0 : (tensor<1048576xf32>) -> tensor<256x4096xf32>
// CHECK: stablehlo.constant dense<0xFF800000>
// CHECK: stablehlo.reduce({{.*}}) applies stablehlo.maximum across dimensions = [1]
// CHECK: stablehlo.reduce(%{{.*}} init: %arg1) applies stablehlo.maximum across dimensions = [0]
// CPU-LABEL: func.func @row
// CPU: stablehlo.reshape %arg0 : (tensor<1048576xf32>) -> tensor<16x65536xf32>
func.func @row(%x: tensor<1048576xf32>, %start: tensor<f32>) -> tensor<f32> {
  %r = stablehlo.reduce(%x init: %start) applies stablehlo.maximum across dimensions = [0]
      : (tensor<1048576xf32>, tensor<f32>) -> tensor<f32>
  return %r : tensor<f32>
}

// Clusters of blocks that share a row are enough.
// CHECK-LABEL: func.func @rows_of_clusters
// CHECK-NOT: stablehlo.reshape
// CHECK: return
func.func @rows_of_clusters(%x: tensor<20x131072xf32>, %start: tensor<f32>) -> tensor<20xf32> {
  %r = stablehlo.reduce(%x init: %start) applies stablehlo.add across dimensions = [1]
      : (tensor<20x131072xf32>, tensor<f32>) -> tensor<20xf32>
  return %r : tensor<20xf32>
}

// CHECK-LABEL: func.func @rows_of_blocks
// CHECK: stablehlo.reshape %arg0 : (tensor<20x131072xf64>) -> tensor<20x16x8192xf64>
func.func @rows_of_blocks(%x: tensor<20x131072xf64>, %start: tensor<f64>) -> tensor<20xf64> {
  %r = stablehlo.reduce(%x init: %start) applies stablehlo.add across dimensions = [1]
      : (tensor<20x131072xf64>, tensor<f64>) -> tensor<20xf64>
  return %r : tensor<20xf64>
}

// CHECK-LABEL: func.func @columns
// CHECK-SAME: tensor<8x1000x768xf32>
// CHECK: stablehlo.reshape %arg0 : (tensor<8x1000x768xf32>) -> tensor<10x800x768xf32>
// CHECK: across dimensions = [1]
// CHECK: across dimensions = [0]
func.func @columns(%x: tensor<8x1000x768xf32>, %start: tensor<f32>) -> tensor<768xf32> {
  %r = stablehlo.reduce(%x init: %start) applies stablehlo.add across dimensions = [0, 1]
      : (tensor<8x1000x768xf32>, tensor<f32>) -> tensor<768xf32>
  return %r : tensor<768xf32>
}

// CPU-LABEL: func.func @few_columns
// CPU: stablehlo.reshape %arg0 : (tensor<1x112x112x64xf32>) -> tensor<1x16x784x64xf32>
// CPU: across dimensions = [2]
// CPU: across dimensions = [1]
func.func @few_columns(%x: tensor<1x112x112x64xf32>, %start: tensor<f32>) -> tensor<1x64xf32> {
  %r = stablehlo.reduce(%x init: %start) applies stablehlo.add across dimensions = [1, 2]
      : (tensor<1x112x112x64xf32>, tensor<f32>) -> tensor<1x64xf32>
  return %r : tensor<1x64xf32>
}

// Threads of a CPU share 768 columns.
// CPU-LABEL: func.func @many_columns
// CPU-NOT: stablehlo.reshape
func.func @many_columns(%x: tensor<8x1000x768xf32>, %start: tensor<f32>) -> tensor<768xf32> {
  %r = stablehlo.reduce(%x init: %start) applies stablehlo.add across dimensions = [0, 1]
      : (tensor<8x1000x768xf32>, tensor<f32>) -> tensor<768xf32>
  return %r : tensor<768xf32>
}

// CHECK-LABEL: func.func @images
// CHECK: stablehlo.reduce(%arg0 {{.*}} across dimensions = [2, 3]
// CHECK: across dimensions = [0]
// CPU-LABEL: func.func @images
// CPU: %[[F:.*]] = stablehlo.reduce(%arg0 {{.*}} across dimensions = [0] {{.*}} -> tensor<8x5x5xf32>
// CPU: stablehlo.reduce(%[[F]] init: %arg1) {{.*}} across dimensions = [1, 2]
func.func @images(%x: tensor<4x8x5x5xf32>, %start: tensor<f32>) -> tensor<8xf32> {
  %r = stablehlo.reduce(%x init: %start) applies stablehlo.add across dimensions = [0, 2, 3]
      : (tensor<4x8x5x5xf32>, tensor<f32>) -> tensor<8xf32>
  return %r : tensor<8xf32>
}

// CPU-LABEL: func.func @long_rows
// CPU: %[[F:.*]] = stablehlo.reduce(%arg0 {{.*}} across dimensions = [2]
// CPU: stablehlo.reduce(%[[F]] init: %arg1) {{.*}} across dimensions = [0]
func.func @long_rows(%x: tensor<4x8x256xf32>, %start: tensor<f32>) -> tensor<8xf32> {
  %r = stablehlo.reduce(%x init: %start) applies stablehlo.add across dimensions = [0, 2]
      : (tensor<4x8x256xf32>, tensor<f32>) -> tensor<8xf32>
  return %r : tensor<8xf32>
}

// A CPU leaves a row that is read again, for a softmax for instance, to one kernel.
// CPU-LABEL: func.func @softmax
// CPU-NOT: stablehlo.reshape
// CPU: return
func.func @softmax(%x: tensor<131072xf32>, %start: tensor<f32>) -> tensor<131072xf32> {
  %m = stablehlo.reduce(%x init: %start) applies stablehlo.maximum across dimensions = [0]
      : (tensor<131072xf32>, tensor<f32>) -> tensor<f32>
  %b = stablehlo.broadcast_in_dim %m, dims = [] : (tensor<f32>) -> tensor<131072xf32>
  %r = stablehlo.subtract %x, %b : tensor<131072xf32>
  return %r : tensor<131072xf32>
}

// Rows enough for all blocks, a short one, and one whose length is prime; none of them on a CPU.
// CPU-LABEL: func.func @rejected
// CPU-NOT: stablehlo.reshape
// CPU-COUNT-3: stablehlo.reduce
// CPU-NOT: stablehlo.reduce
// CHECK-LABEL: func.func @rejected
// CHECK-NOT: stablehlo.reshape
// CHECK: return
func.func @rejected(%x: tensor<1024x65536xf32>, %y: tensor<2x4096xf32>, %z: tensor<65537xf32>,
                    %start: tensor<f32>) -> (tensor<1024xf32>, tensor<2xf32>, tensor<f32>) {
  %a = stablehlo.reduce(%x init: %start) applies stablehlo.add across dimensions = [1]
      : (tensor<1024x65536xf32>, tensor<f32>) -> tensor<1024xf32>
  %b = stablehlo.reduce(%y init: %start) applies stablehlo.add across dimensions = [1]
      : (tensor<2x4096xf32>, tensor<f32>) -> tensor<2xf32>
  %c = stablehlo.reduce(%z init: %start) applies stablehlo.add across dimensions = [0]
      : (tensor<65537xf32>, tensor<f32>) -> tensor<f32>
  return %a, %b, %c : tensor<1024xf32>, tensor<2xf32>, tensor<f32>
}
