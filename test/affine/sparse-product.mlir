// RUN: stepwell-opt %s --target=x86_64-v4 \
// RUN:   --pass-pipeline='builtin.module(keep-weights-sparse{least-elements=16},legalize-to-linalg,hoist-constants,form-fusion-groups,lower-groups-to-affine)' \
// RUN:   | filecheck %s

func.func @main(%x: tensor<16x40xf32>, %b: tensor<4x40xf32>) -> tensor<4x40xf32> {
  %w = stablehlo.constant dense<[[0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], [2.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 3.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], [0.0, 4.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]]> : tensor<4x16xf32>
  %y = stablehlo.dot_general %w, %x, contracting_dims = [1] x [0] : (tensor<4x16xf32>, tensor<16x40xf32>) -> tensor<4x40xf32>
  %z = stablehlo.add %y, %b : tensor<4x40xf32>
  return %z : tensor<4x40xf32>
}

// Two vectors and a half are a tile of 16, 16 and 8 columns of rows that begin at lines of the
// cache; the sum is in as many registers, from the row's start to the next one's, and what is added
// to it afterwards is added there.
// CHECK-LABEL: func.func private @kernel
// CHECK: affine.for
// CHECK: %[[S:.*]] = affine.load %[[STARTS:.*]][%[[N:.*]]] : memref<5xi32>
// CHECK: %[[BEGIN:.*]] = arith.index_castui %[[S]] : i32 to index
// CHECK: %[[E:.*]] = affine.load %[[STARTS]][%[[N]] + 1] : memref<5xi32>
// CHECK: %[[END:.*]] = arith.index_castui %[[E]] : i32 to index
// CHECK: scf.for %[[Z:.*]] = %{{.*}} to %{{.*}} step %{{.*}} iter_args({{.*}}) -> (vector<16xf32>, vector<16xf32>, vector<8xf32>
// CHECK: %[[V:.*]] = memref.load %{{.*}}[%[[Z]]] : memref<4xf32>
// CHECK: %[[P:.*]] = memref.load %{{.*}}[%[[Z]]] : memref<4xi16>
// CHECK: arith.index_castui %[[P]] : i16 to index
// CHECK: vector.load {{.*}} : memref<16x48xf32>, vector<16xf32>
// CHECK: vector.fma
// CHECK: arith.addf {{.*}} : vector<16xf32>
// CHECK: affine.vector_store {{.*}} : memref<4x40xf32>, vector<16xf32>
// CHECK: affine.vector_store {{.*}} : memref<4x40xf32>, vector<8xf32>
