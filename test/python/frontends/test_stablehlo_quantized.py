"""Quantized tensors in StableHLO, against their definition in numpy."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

import stepwell

HALVES = "!quant.uniform<i8:f32, 0.5:3>"
ROWS = "!quant.uniform<i8:f32:0, {0.5:3,0.25:0,1.0:-2,0.5:1}>"
COLUMNS = "!quant.uniform<i8:f32:1, {0.5:3,0.25:0,1.0:-2,0.5:1}>"
SCALES = np.array([0.5, 0.25, 1, 0.5], np.float32)
POINTS = np.array([3, 0, -2, 1], np.float32)

X = (np.random.default_rng(0).integers(-300, 300, (4, 3)) / 7).astype(np.float32)


def stored(x: np.ndarray, scale: object = 0.5, point: object = 3.0) -> np.ndarray:
    """The integers, as i8, that store numbers."""
    scale, point = (np.asarray(v, x.dtype) for v in (scale, point))
    return np.rint(np.clip(x / scale + point, -128, 127)).astype(np.int8)


def numbers(integers: np.ndarray, scale: object = 0.5, point: object = 3.0) -> np.ndarray:
    """What they stand for."""
    return (integers.astype(np.float32) - np.float32(point)) * np.float32(scale)


def run(body: str, shape: str, *arguments: np.ndarray, element: str = "f32") -> np.ndarray:
    """The numbers of `%y: tensor<shape x kind>`, which `body` makes of `%x: tensor<4x3xelement>`
    and its quantized form `%q` in halves."""
    text = f"""
      func.func @main(%x: tensor<4x3x{element}>) -> tensor<{shape}{element}> {{
        %q = stablehlo.uniform_quantize %x : (tensor<4x3x{element}>) -> tensor<4x3xQ>
        {body}
        %r = stablehlo.uniform_dequantize %y : (tensor<{shape}Q>) -> tensor<{shape}{element}>
        return %r : tensor<{shape}{element}>
      }}""".replace("Q", HALVES.replace("f32", element))
    return np.asarray(stepwell.compile(text, threads=1)(*arguments)[0])


@pytest.mark.parametrize(
    ("body", "shape", "expected"),
    [
        (
            "%y = stablehlo.reverse %q, dims = [1] : tensor<4x3xQ>",
            "4x3x",
            lambda q: q[:, ::-1],
        ),
        (
            """%i = stablehlo.constant dense<1> : tensor<i32>
            %u = stablehlo.slice %q [2:4, 0:1] : (tensor<4x3xQ>) -> tensor<2x1xQ>
            %y = stablehlo.dynamic_update_slice %q, %u, %i, %i
              : (tensor<4x3xQ>, tensor<2x1xQ>, tensor<i32>, tensor<i32>) -> tensor<4x3xQ>""",
            "4x3x",
            lambda q: np.concatenate(
                [q[:1], np.c_[q[1:3, :1], q[2:4, :1], q[1:3, 2:]], q[3:]], axis=0
            ),
        ),
        (
            """%y = "stablehlo.sort"(%q) ({
            ^bb0(%a: tensor<Q>, %b: tensor<Q>):
              %c = stablehlo.compare LT, %a, %b : (tensor<Q>, tensor<Q>) -> tensor<i1>
              stablehlo.return %c : tensor<i1>
            }) {dimension = 0 : i64} : (tensor<4x3xQ>) -> tensor<4x3xQ>""",
            "4x3x",
            lambda q: np.sort(q, 0),
        ),
        (
            """%c = stablehlo.constant() {value = dense<-128> : tensor<i8>} : () -> tensor<Q>
            %y = stablehlo.reduce(%q init: %c) applies stablehlo.maximum across dimensions = [1]
              : (tensor<4x3xQ>, tensor<Q>) -> tensor<4xQ>""",
            "4x",
            lambda q: q.max(1),
        ),
        (
            """%p = stablehlo.constant dense<false> : tensor<i1>
            %y = "stablehlo.if"(%p) ({
              stablehlo.return %q : tensor<4x3xQ>
            }, {
              %m = stablehlo.negate %q : tensor<4x3xQ>
              stablehlo.return %m : tensor<4x3xQ>
            }) : (tensor<i1>) -> tensor<4x3xQ>""",
            "4x3x",
            lambda q: stored(-numbers(q)),
        ),
        (
            """%n = stablehlo.constant dense<3> : tensor<i32>
            %one = stablehlo.constant dense<1> : tensor<i32>
            %zero = stablehlo.constant dense<0> : tensor<i32>
            %w:2 = stablehlo.while(%i = %zero, %a = %q) : tensor<i32>, tensor<4x3xQ>
            cond {
              %c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
              stablehlo.return %c : tensor<i1>
            } do {
              %j = stablehlo.add %i, %one : tensor<i32>
              %m = stablehlo.negate %a : tensor<4x3xQ>
              stablehlo.return %j, %m : tensor<i32>, tensor<4x3xQ>
            }
            %y = stablehlo.optimization_barrier %w#1 : tensor<4x3xQ>""",
            "4x3x",
            lambda q: stored(-numbers(stored(-numbers(stored(-numbers(q)))))),
        ),
    ],
    ids=["reverse", "update", "sort", "maximum", "if", "while"],
)
def test_ops_on_what_is_stored(body: str, shape: str, expected: Callable) -> None:
    result = run(body, shape, X / 4)
    np.testing.assert_array_equal(result, numbers(expected(stored(X / 4))))


@pytest.mark.parametrize(("element", "dtype"), [("f16", np.float16), ("bf16", ml_dtypes.bfloat16)])
def test_numbers_of_16_bits(element: str, dtype: type) -> None:
    x = X.astype(dtype)
    body = "%y = stablehlo.negate %q : tensor<4x3xQ>"
    result = run(body, "4x3x", x, element=element)
    once = ((stored(x).astype(dtype) - dtype(3)) * dtype(0.5)).astype(dtype)
    twice = ((stored(-once).astype(dtype) - dtype(3)) * dtype(0.5)).astype(dtype)
    np.testing.assert_array_equal(result.astype(np.float32), twice.astype(np.float32))


def test_scales_along_rows_and_their_transpose() -> None:
    text = f"""
      func.func @main(%x: tensor<4x3xf32>) -> (tensor<4x3xi8>, tensor<4x3xf32>, tensor<3x4xf32>) {{
        %q = stablehlo.uniform_quantize %x : (tensor<4x3xf32>) -> tensor<4x3x{ROWS}>
        %i = stablehlo.bitcast_convert %q : (tensor<4x3x{ROWS}>) -> tensor<4x3xi8>
        %y = stablehlo.uniform_dequantize %q : (tensor<4x3x{ROWS}>) -> tensor<4x3xf32>
        %t = stablehlo.transpose %q, dims = [1, 0] : (tensor<4x3x{ROWS}>) -> tensor<3x4x{COLUMNS}>
        %z = stablehlo.uniform_dequantize %t : (tensor<3x4x{COLUMNS}>) -> tensor<3x4xf32>
        return %i, %y, %z : tensor<4x3xi8>, tensor<4x3xf32>, tensor<3x4xf32>
      }}"""
    integers, there, turned = stepwell.compile(text, threads=1)(X)
    wanted = stored(X, SCALES[:, None], POINTS[:, None])
    np.testing.assert_array_equal(integers, wanted)
    np.testing.assert_array_equal(there, numbers(wanted, SCALES[:, None], POINTS[:, None]))
    np.testing.assert_array_equal(turned, np.asarray(there).T)


def test_convolution_of_channels_first_with_scales_by_channel() -> None:
    """Small integers times powers of two: exact in any order."""
    weights = "!quant.uniform<i8:f32:0, {0.5,0.25,1.0}>"
    sums = "!quant.uniform<i32:f32:1, {0.25,0.125,0.5}>"
    text = f"""
      func.func @main(%x: tensor<1x2x4x4xf32>, %w: tensor<3x2x3x3xi8>) -> tensor<1x3x4x4xf32> {{
        %q = stablehlo.uniform_quantize %x : (tensor<1x2x4x4xf32>) -> tensor<1x2x4x4x{HALVES}>
        %k = stablehlo.bitcast_convert %w : (tensor<3x2x3x3xi8>) -> tensor<3x2x3x3x{weights}>
        %s = stablehlo.convolution(%q, %k) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1],
          window = {{pad = [[1, 1], [1, 1]]}}
          {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}}
          : (tensor<1x2x4x4x{HALVES}>, tensor<3x2x3x3x{weights}>) -> tensor<1x3x4x4x{sums}>
        %y = stablehlo.uniform_dequantize %s : (tensor<1x3x4x4x{sums}>) -> tensor<1x3x4x4xf32>
        return %y : tensor<1x3x4x4xf32>
      }}"""
    generator = np.random.default_rng(0)
    x = generator.integers(-9, 9, (1, 2, 4, 4)).astype(np.float32)
    w = generator.integers(-5, 6, (3, 2, 3, 3)).astype(np.int8)
    (result,) = stepwell.compile(text, threads=1, options={"precision": "strict"})(x, w)
    padded = np.pad(x[0], ((0, 0), (1, 1), (1, 1)))
    places = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))
    scaled = w * np.array([0.5, 0.25, 1], np.float32)[:, None, None, None]
    np.testing.assert_array_equal(result[0], np.einsum("chwij,ocij->ohw", places, scaled))
