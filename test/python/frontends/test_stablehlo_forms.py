"""Forms of StableHLO beside plain static tensors: shape operands, quantized types, annotations."""

from __future__ import annotations

import numpy as np

import stepwell

X = np.arange(6, dtype=np.int64).reshape(2, 3)


def run(body: str, kind: str, result: str, *arguments: np.ndarray) -> np.ndarray:
    """The result of `@main(%x: kind) -> result` with this body."""
    text = f"func.func @main(%x: {kind}) -> {result} {{\n{body}\n}}"
    return stepwell.compile(text, threads=1)(*arguments)[0]


def test_dynamic_pad_of_constants() -> None:
    body = """
      %z = stablehlo.constant dense<0> : tensor<i64>
      %l = stablehlo.constant dense<[0, 1]> : tensor<2xi64>
      %h = stablehlo.constant dense<[2, 1]> : tensor<2xi64>
      %i = stablehlo.constant dense<[0, 0]> : tensor<2xi64>
      %0 = stablehlo.dynamic_pad %x, %z, %l, %h, %i : (tensor<2x3xi64>, tensor<i64>,
        tensor<2xi64>, tensor<2xi64>, tensor<2xi64>) -> tensor<4x5xi64>
      return %0 : tensor<4x5xi64>"""
    result = run(body, "tensor<2x3xi64>", "tensor<4x5xi64>", X)
    np.testing.assert_array_equal(result, np.pad(X, ((0, 2), (1, 1))))


def test_dynamic_reshape_of_constants() -> None:
    body = """
      %s = stablehlo.constant dense<[3, 2]> : tensor<2xi64>
      %0 = stablehlo.dynamic_reshape %x, %s : (tensor<2x3xi64>, tensor<2xi64>) -> tensor<3x2xi64>
      return %0 : tensor<3x2xi64>"""
    result = run(body, "tensor<2x3xi64>", "tensor<3x2xi64>", X)
    np.testing.assert_array_equal(result, X.reshape(3, 2))


def test_quantized_sum() -> None:
    kind = "tensor<4x!quant.uniform<i8:f32, 0.5:3>>"
    body = f"""
      %0 = stablehlo.uniform_quantize %x : (tensor<4xf32>) -> {kind}
      %1 = stablehlo.add %0, %0 : ({kind}, {kind}) -> {kind}
      %2 = stablehlo.uniform_dequantize %1 : ({kind}) -> tensor<4xf32>
      return %2 : tensor<4xf32>"""
    x = np.array([1, 2.3, -4.6, 100], np.float32)
    result = run(body, "tensor<4xf32>", "tensor<4xf32>", x)
    np.testing.assert_array_equal(result, np.array([2, 5, -9, 62], np.float32))


def test_annotations_of_shardy() -> None:
    text = """module {
      sdy.mesh @mesh = <["x"=1]>
      func.func @main(%x: tensor<3xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}]>})
          -> tensor<3xf32> {
        %0 = stablehlo.negate %x {sdy.sharding = #sdy.sharding_per_value<[<@mesh, [{}]>]>} : tensor<3xf32>
        %1 = sdy.sharding_constraint %0 <@mesh, [{}]> : tensor<3xf32>
        return %1 : tensor<3xf32>
      }
    }"""  # noqa: E501
    x = np.arange(3, dtype=np.float32)
    np.testing.assert_array_equal(stepwell.compile(text, threads=1)(x)[0], -x)


def test_maximum_of_complex_numbers_is_lexicographic() -> None:
    kind = "tensor<4xcomplex<f32>>"
    body = f"""
      %0 = stablehlo.reverse %x, dims = [0] : {kind}
      %1 = stablehlo.maximum %x, %0 : {kind}
      return %1 : {kind}"""
    x = np.array([1 + 2j, 3, 3 + 1j, 1 + 3j], np.complex64)
    want = np.array([1 + 3j, 3 + 1j, 3 + 1j, 1 + 3j], np.complex64)
    np.testing.assert_array_equal(run(body, kind, kind, x), want)


def test_normal_numbers_have_mean_and_deviation() -> None:
    body = """
      %d = stablehlo.constant dense<2.0> : tensor<f32>
      %s = stablehlo.constant dense<[100, 100]> : tensor<2xi64>
      %0 = stablehlo.rng %x, %d, %s, distribution = NORMAL
        : (tensor<f32>, tensor<f32>, tensor<2xi64>) -> tensor<100x100xf32>
      return %0 : tensor<100x100xf32>"""
    numbers = run(body, "tensor<f32>", "tensor<100x100xf32>", np.array(3, np.float32))
    assert abs(numbers.mean() - 3) < 0.1  # five standard errors
    assert abs(numbers.std() - 2) < 0.1
    share = np.mean(np.abs(numbers - 3) < 2)
    assert abs(share - 0.683) < 0.025
