"""Every element type of ONNX through the whole compiler: conversions, data movement, signatures.

Conversions are exact or correctly rounded, so results are compared bit by bit, NaN with NaN.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import stepwell
from stepwell import dtypes

SMALL_FLOATS = sorted(name for name in dtypes.SMALL if name.startswith("f"))

NAMES = [
    "FLOAT", "FLOAT16", "BFLOAT16", "DOUBLE", "BOOL", "INT8", "INT16", "INT32",
    "INT64", "UINT8", "UINT16", "UINT32", "UINT64", "INT4", "UINT4", "INT2",
    "UINT2", "FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ", "FLOAT8E8M0",
    "FLOAT4E2M1",
]  # fmt: skip
CODES = {name: getattr(TensorProto, name) for name in NAMES}


def _compile(model: object) -> stepwell.Executable:
    return stepwell.compile(model, threads=1, options={"progress": False})


def _model(nodes: list[onnx.NodeProto], inputs: dict, outputs: dict) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "types",
        [helper.make_tensor_value_info(n, c, s) for n, (c, s) in inputs.items()],
        [helper.make_tensor_value_info(n, c, s) for n, (c, s) in outputs.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)])


def _assert_same(result: np.ndarray, wanted: np.ndarray) -> None:
    assert result.dtype == wanted.dtype
    assert result.shape == wanted.shape
    if dtypes.is_float(wanted.dtype):
        nan = np.isnan(wanted.astype(np.float64))
        np.testing.assert_array_equal(np.isnan(result.astype(np.float64)), nan)
        result, wanted = np.where(nan, 0, result), np.where(nan, 0, wanted)
    assert result.tobytes() == wanted.tobytes()


def _numbers() -> np.ndarray:
    """Every exponent with mantissas at, below and above the ties of up to seven bits."""
    high = np.arange(1 << 16, dtype=np.uint32) << 16
    return np.concatenate([high, high | 1, high | 0x7FFF, high | 0x8000]).view(np.float32)


@pytest.mark.parametrize("name", SMALL_FLOATS)
def test_conversions_of_small_floats(name: str) -> None:
    kind = dtypes.to_numpy_by_name(name)
    numbers = _numbers()
    if name == "f8E8M0FNU":  # below its least number ml_dtypes rounds subnormal f32 up, not nearest
        numbers = numbers[~(np.abs(numbers) < 2.0**-126)]
    codes = np.arange(1 << dtypes.bits(kind), dtype=np.uint8).view(kind)
    n, m = numbers.size, codes.size
    executable = _compile(f"""
func.func @main(%a: tensor<{n}xf32>, %d: tensor<{n}xf64>, %b: tensor<{m}x{name}>)
    -> (tensor<{n}x{name}>, tensor<{n}x{name}>, tensor<{m}xf32>, tensor<{m}xf16>) {{
  %0 = stablehlo.convert %a : (tensor<{n}xf32>) -> tensor<{n}x{name}>
  %1 = stablehlo.convert %d : (tensor<{n}xf64>) -> tensor<{n}x{name}>
  %2 = stablehlo.convert %b : (tensor<{m}x{name}>) -> tensor<{m}xf32>
  %3 = stablehlo.convert %b : (tensor<{m}x{name}>) -> tensor<{m}xf16>
  return %0, %1, %2, %3
      : tensor<{n}x{name}>, tensor<{n}x{name}>, tensor<{m}xf32>, tensor<{m}xf16>
}}""")
    with np.errstate(all="ignore"):
        results = executable(numbers, numbers.astype(np.float64), codes)
        rounded = numbers.astype(kind)
        wanted = (rounded, rounded, codes.astype(np.float32), codes.astype(np.float16))
    for result, value in zip(results, wanted, strict=True):
        _assert_same(result, value)


def test_f64_is_rounded_once() -> None:
    """1.0625 is a tie of f8E4M3FN; what lies above it by less than f32 sees is rounded up."""
    executable = _compile("""
func.func @main(%a: tensor<2xf64>) -> tensor<2xf8E4M3FN> {
  %0 = stablehlo.convert %a : (tensor<2xf64>) -> tensor<2xf8E4M3FN>
  return %0 : tensor<2xf8E4M3FN>
}""")
    (result,) = executable(np.array([1.0625, 1.0625 * (1 + 2.0**-40)]))
    np.testing.assert_array_equal(result.astype(np.float32), [1.0, 1.125])


@pytest.mark.parametrize("name", ["i4", "ui4", "i2", "ui2"])
def test_arithmetic_of_small_integers(name: str) -> None:
    """All pairs, modulo the width; i8 arithmetic of numpy with the high bits cut is the same."""
    kind = dtypes.to_numpy_by_name(name)
    values = np.arange(1 << dtypes.bits(kind), dtype=np.uint8).view(kind)
    a, b = (grid.reshape(-1) for grid in np.meshgrid(values, values))
    n, ops = a.size, ["add", "subtract", "multiply", "maximum", "and", "shift_right_logical"]
    kinds = ", ".join([f"tensor<{n}x{name}>"] * len(ops))
    lines = "\n".join(f"%{op} = stablehlo.{op} %a, %b : tensor<{n}x{name}>" for op in ops)
    results = _compile(f"""
func.func @main(%a: tensor<{n}x{name}>, %b: tensor<{n}x{name}>) -> ({kinds}) {{
  {lines}
  return {", ".join("%" + op for op in ops)} : {kinds}
}}""")(a, b)
    x, y = a.astype(np.int32), b.astype(np.int32)
    mask = (1 << dtypes.bits(kind)) - 1
    shifted = np.where((y & mask) < dtypes.bits(kind), (x & mask) >> np.minimum(y & mask, 8), 0)
    wanted = (x + y, x - y, x * y, np.maximum(x, y), x & y, shifted)
    for result, value in zip(results, wanted, strict=True):
        _assert_same(result, (value & mask).astype(np.uint8).view(kind))


@pytest.mark.parametrize("source", NAMES)
def test_cast_to_every_type(source: str) -> None:
    """Numbers that most types hold; the others are rounded or saturated as ONNX says."""
    wide = np.array([0, 1, 2, 3, 1, 0, 1.5, 0.75, 6, 1])
    array = wide.astype(helper.tensor_dtype_to_np_dtype(CODES[source]))
    shape = list(array.shape)
    nodes = [helper.make_node("Cast", ["x"], [name], to=code) for name, code in CODES.items()]
    outputs = {name: (code, shape) for name, code in CODES.items()}
    model = _model(nodes, {"x": (CODES[source], shape)}, outputs)
    results = _compile(model).run({"x": array})
    for name, code in CODES.items():
        target = helper.tensor_dtype_to_np_dtype(code)
        if dtypes.is_integer(np.dtype(target)) and dtypes.is_float(array.dtype):
            fits = array.astype(np.float64) <= dtypes.limits(np.dtype(target))[1]
        else:
            fits = np.full(array.shape, True)
        # float8e8m0 has no zero: ONNX saturates it to the least power of two.
        if name == "FLOAT8E8M0" and array.dtype != target:
            wanted = onnx.numpy_helper.to_float8e8m0(array.astype(np.float32))
        else:
            wanted = array.astype(np.float32).astype(target)
        _assert_same(results[name][fits], wanted[fits])


@pytest.mark.parametrize("kind", NAMES)
def test_data_movement(kind: str) -> None:
    rng = np.random.default_rng(0)
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(CODES[kind]))
    array = rng.integers(0, 2, (3, 4)).astype(np.float32).astype(dtype)
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"]),
        helper.make_node("Concat", ["t", "t"], ["c"], axis=1),
        helper.make_node("Identity", ["c"], ["i"]),
        helper.make_node("Flatten", ["i"], ["y"], axis=0),
    ]
    model = _model(nodes, {"x": (CODES[kind], [3, 4])}, {"y": (CODES[kind], [1, 24])})
    executable = _compile(model)
    assert executable.inputs[0].dtype == dtype.name
    (result,) = executable(array)
    _assert_same(result, np.concatenate([array.T, array.T], 1).reshape(1, 24))


@pytest.mark.parametrize(
    ("kind", "blocked", "values"),
    [
        (name, blocked, values)
        for name in ("INT4", "UINT4", "INT2", "UINT2", "INT8", "UINT8", "INT16", "UINT16")
        for blocked, values in ((False, (4,)), (True, (3, 2)))
    ]
    + [("FLOAT8E4M3FN", True, (3, 2)), ("FLOAT8E5M2FNUZ", False, (4,)), ("FLOAT4E2M1", False, ())],
)
def test_quantization_there_and_back(kind: str, blocked: bool, values: tuple[int, ...]) -> None:
    """Bit-exact against onnx's evaluator; the second block of an axis of three is half empty."""
    rng = np.random.default_rng(1)
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(CODES[kind]))
    shape = [3, 4] if not blocked else [3, 3]
    x = (rng.standard_normal(shape) * 4).astype(np.float32)
    scale = rng.uniform(0.1, 1, values).astype(np.float32)
    zero = np.zeros(values, np.float32).astype(dtype)
    if dtypes.is_integer(dtype):
        zero = rng.integers(0, 2, values).astype(dtype)
    attributes = {"axis": 1} | ({"block_size": 2} if blocked else {})
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"], **attributes),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["y"], **attributes),
    ]
    model = _model(
        nodes,
        {
            "x": (CODES["FLOAT"], shape),
            "scale": (CODES["FLOAT"], list(values)),
            "zero": (CODES[kind], list(values)),
        },
        {"q": (CODES[kind], shape), "y": (CODES["FLOAT"], shape)},
    )
    feed = {"x": x, "scale": scale, "zero": zero}
    wanted = ReferenceEvaluator(model).run(None, feed)
    results = _compile(model).run(feed)
    _assert_same(results["q"], wanted[0])
    np.testing.assert_array_equal(results["y"], wanted[1])


def test_packed_initializers() -> None:
    """Four-bit weights lie packed in the file and one a byte in memory."""
    weights = np.array([[-8, 7, 3], [1, -1, 0]], ml_dtypes.int4)
    model = _model(
        [
            helper.make_node("DequantizeLinear", ["w", "s"], ["d"]),
            helper.make_node("MatMul", ["x", "d"], ["y"]),
        ],
        {"x": (CODES["FLOAT"], [2, 2])},
        {"y": (CODES["FLOAT"], [2, 3])},
    )
    packed = np.array([0x78, 0x13, 0x0F], np.uint8)
    model.graph.initializer.append(
        helper.make_tensor("w", TensorProto.INT4, [2, 3], packed.tobytes(), raw=True)
    )
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.float32(0.5), "s"))
    x = np.array([[1, 2], [3, 4]], np.float32)
    (result,) = _compile(model)(x)
    np.testing.assert_array_equal(result, x @ (weights.astype(np.float32) * 0.5))
