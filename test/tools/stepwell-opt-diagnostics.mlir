// RUN: stepwell-opt %s --split-input-file --verify-diagnostics

func.func @undeclared(%x: tensor<2xf32>) -> tensor<2xf32> {
  // expected-error@+1 {{use of undeclared SSA value name}}
  %0 = stablehlo.add %x, %y : tensor<2xf32>
  return %0 : tensor<2xf32>
}

// -----

func.func @verifier(%x: tensor<2xf32>) -> tensor<3xf32> {
  %0 = "stablehlo.add"(%x, %x) : (tensor<2xf32>, tensor<2xf32>) -> tensor<3xf32>
  // expected-error@-1 {{requires the same shape}}
  return %0 : tensor<3xf32>
}

// -----

func.func @below(%x: tensor<2xf32>) -> tensor<2xf32> {
  // expected-error@below {{unregistered dialect}}
  %0 = "nothing.known"(%x) : (tensor<2xf32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}
