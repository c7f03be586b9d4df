"""Quantised layers of ONNX: products of numbers of 8 bits on tensor cores, exact beside
onnxruntime, whatever their zero points are."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from emulator import Emulator
from models import Compiled, compile_for_gpu, load_on_emulator
from onnx import TensorProto, helper, numpy_helper

from stepwell.kernels.gpu import mma_tile

U8, S8 = np.uint8, np.int8


def numbers(shape: tuple[int, ...], dtype: type, seed: int = 0) -> np.ndarray:
    info = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(info.min, info.max + 1, shape).astype(dtype)


def weights_of_7_bits(shape: tuple[int, ...]) -> np.ndarray:
    """What onnxruntime multiplies exactly on every CPU: sums of two products have 16 bits there."""
    return numbers(shape, S8, 1) // 2


def model(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, np.ndarray],
    weights: dict[str, np.ndarray | np.generic],
    out: int,
) -> bytes:
    """A model of `nodes` whose last result, of ONNX's type `out`, is `y`."""
    arguments = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
        )
        for name, array in inputs.items()
    ]
    constants = [numpy_helper.from_array(np.asarray(a), name) for name, a in weights.items()]
    result = helper.make_tensor_value_info("y", out, None)
    graph = helper.make_graph(nodes, "g", arguments, [result], constants)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    return onnx.shape_inference.infer_shapes(made).SerializeToString()


def check(
    source: bytes,
    inputs: dict[str, np.ndarray],
    emulator: Emulator,
    expected: np.ndarray | None = None,
) -> Compiled:
    """As expected, by default by onnxruntime, and by matrix instructions for bytes."""
    if expected is None:
        expected = onnxruntime.InferenceSession(source).run(None, inputs)[0]
    compiled = compile_for_gpu(onnx.load_from_string(source), "cuda:sm_90a")
    assert any(".s8" in text or "s32.s8" in text for text in compiled.kernels.values())
    executable = load_on_emulator(compiled, emulator)
    for backwards in (False, True):
        emulator.configure(backwards=backwards)
        (got,) = executable(*inputs.values())
        if expected.dtype == np.float32:
            # Integers times a scale, that may be rounded once more.
            np.testing.assert_allclose(got, expected, rtol=3e-7)
        else:
            np.testing.assert_array_equal(got, expected)
    return compiled


PRODUCTS = {
    "u8 by s8": (U8, S8, U8(100), S8(0)),
    "u8 by s8, symmetric": (U8, S8, U8(128), S8(0)),
    "s8 by s8": (S8, S8, S8(0), S8(0)),
    "s8 by s8, zero at the end": (S8, S8, S8(-128), S8(0)),
    "u8 by u8": (U8, U8, U8(3), U8(128)),
}
"""Types of both operands, and their zero points."""


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("warpgroups", [False, True], ids=["mma", "wgmma"])
def test_matmul_integer(
    name: str, warpgroups: bool, emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    if warpgroups:
        monkeypatch.setattr(mma_tile, "cycles", lambda *_: float("inf"))
    left, right, zero, weight_zero = PRODUCTS[name]
    inputs = {"x": numbers((2, 33, 144), left)}
    w = numbers((144, 56), right, 1)
    weights = {"w": w, "z": zero, "wz": weight_zero}
    nodes = [helper.make_node("MatMulInteger", ["x", "w", "z", "wz"], ["y"])]
    exact = (inputs["x"].astype(np.int32) - zero) @ (w.astype(np.int32) - weight_zero)
    compiled = check(model(nodes, inputs, weights, TensorProto.INT32), inputs, emulator, exact)
    assert any("wgmma" in text for text in compiled.kernels.values()) == warpgroups


def test_both_are_arguments(emulator: Emulator) -> None:
    inputs = {"x": numbers((40, 64), S8), "w": numbers((64, 32), S8, 1)}
    nodes = [helper.make_node("MatMulInteger", ["x", "w"], ["y"])]
    check(model(nodes, inputs, {}, TensorProto.INT32), inputs, emulator)


@pytest.mark.parametrize("padding", [0, 1])
@pytest.mark.parametrize("zero", [0, 114, 128, 255])
def test_convolution(zero: int, padding: int, emulator: Emulator) -> None:
    """What pads the image stands for 0, whatever number that is."""
    inputs = {"x": numbers((2, 32, 9, 9), U8)}
    weights = {
        "w": weights_of_7_bits((40, 32, 3, 3)), "z": U8(zero), "s": np.float32(0.02),
        "wz": np.zeros(40, S8), "ws": np.linspace(0.001, 0.002, 40, dtype=np.float32),
        "yz": U8(7), "ys": np.float32(0.5), "b": np.arange(-20, 20, dtype=np.int32),
    }  # fmt: skip
    names = ["x", "s", "z", "w", "ws", "wz", "ys", "yz", "b"]
    node = helper.make_node("QLinearConv", names, ["y"], pads=[padding] * 4, strides=[2, 1])
    check(model([node], inputs, weights, TensorProto.UINT8), inputs, emulator)


def test_scales_of_the_run(emulator: Emulator) -> None:
    """Dynamic quantisation: the zero point is found at run time, and the whole of its part in the
    product is an epilogue."""
    inputs = {"x": np.random.default_rng(0).standard_normal((40, 96)).astype(np.float32) + 0.3}
    weights = {"w": weights_of_7_bits((96, 48)), "wz": S8(0), "ws": np.float32(0.01)}
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        helper.make_node("MatMulInteger", ["q", "w", "z", "wz"], ["i"]),
        helper.make_node("Cast", ["i"], ["f"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["s", "ws"], ["ss"]),
        helper.make_node("Mul", ["f", "ss"], ["y"]),
    ]
    compiled = check(model(nodes, inputs, weights, TensorProto.FLOAT), inputs, emulator)
    (product,) = (t for t in compiled.kernels.values() if "mma" in t)
    assert "sitofp" in product
    assert "fmul" in product


def test_weights_of_more_bits(emulator: Emulator) -> None:
    """Differences that 8 bits do not hold are multiplied as they were."""
    w = numbers((64, 32), U8, 1)
    zeros = np.where(np.arange(32) % 2, U8(0), U8(255)).astype(U8)
    w[0], w[1] = 255, 0
    inputs = {"x": numbers((40, 64), U8)}
    source = model(
        [helper.make_node("MatMulInteger", ["x", "w", "z", "wz"], ["y"])],
        inputs, {"w": w, "z": U8(9), "wz": zeros}, TensorProto.INT32,
    )  # fmt: skip
    compiled = compile_for_gpu(onnx.load_from_string(source), "cuda:sm_90a")
    assert not any("mma" in text for text in compiled.kernels.values())
    (got,) = load_on_emulator(compiled, emulator)(*inputs.values())
    x = inputs["x"].astype(np.int64) - 9
    np.testing.assert_array_equal(got, x @ (w.astype(np.int64) - zeros))
