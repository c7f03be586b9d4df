"""fold-constants computes what the reference interpreter computes."""

from __future__ import annotations

import numpy as np
import pytest
from interpreter import dense

RNG = np.random.default_rng(1)
FLOATS = np.concatenate([RNG.standard_normal(8), [0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 1e-3]])
INTEGERS = np.array([-9, -8, -7, -3, -2, -1, 0, 1, 2, 3, 5, 6, 7, 9, 12, 100])

FLOAT_UNARY = """abs cbrt ceil cosine exponential exponential_minus_one floor logistic negate
round_nearest_afz round_nearest_even sign sine tan tanh""".split()  # noqa: SIM905
POSITIVE_UNARY = ["log", "log_plus_one", "rsqrt", "sqrt"]
FLOAT_BINARY = ["add", "atan2", "divide", "maximum", "minimum", "multiply", "power", "subtract"]
INTEGER_BINARY = """add and divide maximum minimum multiply or remainder shift_left
shift_right_arithmetic shift_right_logical subtract xor""".split()  # noqa: SIM905


def unary(name: str, kind: str, values: np.ndarray) -> str:
    """A module that applies op `name` to constant `values`."""
    shape = f"tensor<{values.size}x{kind}>"
    return f"""func.func @main() -> {shape} {{
      %x = stablehlo.constant {dense(values)} : {shape}
      %y = stablehlo.{name} %x : {shape}
      return %y : {shape}
    }}"""


def binary(name: str, kind: str, lhs: np.ndarray, rhs: np.ndarray) -> str:
    """A module that applies op `name` to two constants."""
    shape = f"tensor<{lhs.size}x{kind}>"
    return f"""func.func @main() -> {shape} {{
      %x = stablehlo.constant {dense(lhs)} : {shape}
      %y = stablehlo.constant {dense(rhs)} : {shape}
      %z = stablehlo.{name} %x, %y : {shape}
      return %z : {shape}
    }}"""


@pytest.mark.parametrize("name", FLOAT_UNARY + POSITIVE_UNARY)
def test_float_unary(run_compared, name):
    values = np.abs(FLOATS) + 0.01 if name in POSITIVE_UNARY else FLOATS
    result = run_compared(unary(name, "f32", values.astype(np.float32)), "fold-constants")
    assert f"stablehlo.{name} " not in result.text


@pytest.mark.parametrize("name", FLOAT_BINARY)
def test_float_binary(run_compared, name):
    lhs = np.abs(FLOATS) + 0.1
    rhs = np.roll(FLOATS, 3) + 0.01
    text = binary(name, "f32", lhs.astype(np.float32), rhs.astype(np.float32))
    result = run_compared(text, "fold-constants")
    assert f"stablehlo.{name} " not in result.text


@pytest.mark.parametrize("name", INTEGER_BINARY)
@pytest.mark.parametrize("kind", ["i32", "i8"])
def test_integer_binary(run_compared, name, kind):
    other = np.abs(np.roll(INTEGERS, 5)) % 6 + 1
    result = run_compared(binary(name, kind, INTEGERS, other), "fold-constants", 0)
    assert f"stablehlo.{name} " not in result.text


MOVES = {
    "transpose": ("4x3x2", "stablehlo.transpose %x, dims = [2, 1, 0]"),
    "reshape": ("6x4", "stablehlo.reshape %x"),
    "slice": ("1x2x2", "stablehlo.slice %x [1:2, 0:3:2, 1:3]"),
    "reverse": ("2x3x4", "stablehlo.reverse %x, dims = [0, 2]"),
    "broadcast": ("2x2x3x4", "stablehlo.broadcast_in_dim %x, dims = [1, 2, 3]"),
}


@pytest.mark.parametrize("name", MOVES)
def test_moves(run_compared, name):
    shape, op = MOVES[name]
    values = RNG.standard_normal((2, 3, 4)).astype(np.float32)
    text = f"""func.func @main() -> tensor<{shape}xf32> {{
      %x = stablehlo.constant {dense(values)} : tensor<2x3x4xf32>
      %y = {op} : (tensor<2x3x4xf32>) -> tensor<{shape}xf32>
      return %y : tensor<{shape}xf32>
    }}"""
    run_compared(text, "fold-constants", 0)


PADS = [
    ((1, 2), (0, 1), (0, 2)),
    ((-1, 0), (2, -1), (0, 0)),
    ((-1, -2), (1, -1), (1, 2)),
    ((-4, 0), (0, -5), (2, 1)),
]


@pytest.mark.parametrize(("low", "high", "interior"), PADS)
def test_pad(run_compared, low, high, interior):
    values = RNG.standard_normal((3, 4)).astype(np.float32)
    sizes = [
        n + (n - 1) * i + a + b
        for n, a, b, i in zip(values.shape, low, high, interior, strict=True)
    ]
    result = f"tensor<{sizes[0]}x{sizes[1]}xf32>"
    text = f"""func.func @main() -> {result} {{
      %x = stablehlo.constant {dense(values)} : tensor<3x4xf32>
      %v = stablehlo.constant dense<7.0> : tensor<f32>
      %y = stablehlo.pad %x, %v, low = {list(low)}, high = {list(high)},
           interior = {list(interior)} : (tensor<3x4xf32>, tensor<f32>) -> {result}
      return %y : {result}
    }}"""
    assert "stablehlo.pad" not in run_compared(text, "fold-constants", 0).text


@pytest.mark.parametrize("name", ["add", "maximum", "minimum", "multiply"])
def test_reduce(run_compared, name):
    values = RNG.standard_normal((3, 4, 5)).astype(np.float32)
    text = f"""func.func @main() -> tensor<4xf32> {{
      %x = stablehlo.constant {dense(values)} : tensor<3x4x5xf32>
      %v = stablehlo.constant dense<0.25> : tensor<f32>
      %y = stablehlo.reduce(%x init: %v) applies stablehlo.{name} across dimensions = [0, 2]
           : (tensor<3x4x5xf32>, tensor<f32>) -> tensor<4xf32>
      return %y : tensor<4xf32>
    }}"""
    assert "stablehlo.reduce" not in run_compared(text, "fold-constants").text


def test_gather(run_compared):
    values = RNG.standard_normal((5, 6)).astype(np.float32)
    text = f"""func.func @main() -> tensor<2x3x2xf32> {{
      %x = stablehlo.constant {dense(values)} : tensor<5x6xf32>
      %i = stablehlo.constant dense<[[0, 4, 9], [2, 1, 3]]> : tensor<2x3xi32>
      %y = "stablehlo.gather"(%x, %i) {{dimension_numbers = #stablehlo.gather<offset_dims = [2],
           collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 2>,
           slice_sizes = array<i64: 1, 2>}}
           : (tensor<5x6xf32>, tensor<2x3xi32>) -> tensor<2x3x2xf32>
      return %y : tensor<2x3x2xf32>
    }}"""
    assert "stablehlo.gather" not in run_compared(text, "fold-constants", 0).text


def test_dot_general(run_compared):
    lhs, rhs = RNG.standard_normal((2, 3, 4)), RNG.standard_normal((5, 4, 2))
    text = f"""func.func @main() -> tensor<2x3x5xf32> {{
      %x = stablehlo.constant {dense(lhs)} : tensor<2x3x4xf32>
      %y = stablehlo.constant {dense(rhs)} : tensor<5x4x2xf32>
      %z = stablehlo.dot_general %x, %y, batching_dims = [0] x [2], contracting_dims = [2] x [1]
           : (tensor<2x3x4xf32>, tensor<5x4x2xf32>) -> tensor<2x3x5xf32>
      return %z : tensor<2x3x5xf32>
    }}"""
    assert "dot_general" not in run_compared(text, "fold-constants").text


@pytest.mark.parametrize(("source", "target"), [("f32", "i32"), ("i32", "f32"), ("i32", "i8")])
def test_convert(run_compared, source, target):
    values = np.array([-7, -1, 0, 1, 42]) + (0.75 if source == "f32" else 0)
    text = f"""func.func @main() -> tensor<5x{target}> {{
      %x = stablehlo.constant {dense(values)} : tensor<5x{source}>
      %y = stablehlo.convert %x : (tensor<5x{source}>) -> tensor<5x{target}>
      return %y : tensor<5x{target}>
    }}"""
    assert "stablehlo.convert" not in run_compared(text, "fold-constants", 0).text


@pytest.mark.parametrize("direction", ["EQ", "NE", "LT", "LE", "GT", "GE"])
def test_compare_and_select(run_compared, direction):
    text = f"""func.func @main() -> tensor<16xf32> {{
      %x = stablehlo.constant {dense(FLOATS)} : tensor<16xf32>
      %y = stablehlo.constant {dense(np.roll(FLOATS, 1))} : tensor<16xf32>
      %c = stablehlo.compare {direction}, %x, %y : (tensor<16xf32>, tensor<16xf32>) -> tensor<16xi1>
      %z = stablehlo.select %c, %x, %y : tensor<16xi1>, tensor<16xf32>
      return %z : tensor<16xf32>
    }}"""
    assert "stablehlo.select" not in run_compared(text, "fold-constants", 0).text
