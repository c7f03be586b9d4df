// Weights printed as resources are read back, so that a printed module can go on.

// RUN: stepwell-opt %s --pass-pipeline=fold-constants | stepwell-opt - --pass-pipeline=fold-constants \
// RUN:   | filecheck %s

// CHECK: stablehlo.constant dense<[1.000000e+00, 2.000000e+00]> : tensor<2xf32>
func.func @f(%x: tensor<f32>) -> tensor<2xf32> {
  %w = stablehlo.constant dense_resource<kernel> : tensor<2x2xf32>
  %s = stablehlo.slice %w [0:1, 0:2] : (tensor<2x2xf32>) -> tensor<1x2xf32>
  %y = stablehlo.reshape %s : (tensor<1x2xf32>) -> tensor<2xf32>
  return %y : tensor<2xf32>
}

{-#
  dialect_resources: {
    builtin: {
      kernel: "0x040000000000803F000000400000404000008040"
    }
  }
#-}
