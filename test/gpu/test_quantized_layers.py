"""Layers of floats between DequantizeLinear and QuantizeLinear, multiplied as bytes."""

from __future__ import annotations

import re

import numpy as np
import onnx
import pytest
from emulator import Emulator
from models import Compiled, compile_for_gpu, load_on_emulator
from onnx import TensorProto, helper, numpy_helper

import stepwell

U8, S8 = np.uint8, np.int8


class Layers:
    """A QDQ model that is built layer by layer."""

    def __init__(self, kind: type, zero: int) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, np.ndarray] = {
            "scale": np.float32(0.05), "zero": np.array(zero, kind),
        }  # fmt: skip
        self.random = np.random.default_rng(0)

    def node(self, operator: str, inputs: list[str], **attributes: object) -> str:
        name = f"{operator}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [name], **attributes))
        return name

    def constant(self, array: np.ndarray) -> str:
        name = f"constant_{len(self.constants)}"
        self.constants[name] = array
        return name

    def quantized(self, x: str) -> str:
        """`x`, rounded to 8 bits and back."""
        bytes = self.node("QuantizeLinear", [x, "scale", "zero"])
        return self.node("DequantizeLinear", [bytes, "scale", "zero"])

    def weights(self, shape: tuple[int, ...], axis: int | None) -> str:
        """Signed weights, with a scale for each index of `axis`."""
        count = 1 if axis is None else shape[axis]
        scales = np.linspace(0.001, 0.002, count, dtype=np.float32)
        numbers = self.random.integers(-128, 128, shape).astype(S8)
        operands = [
            self.constant(numbers),
            self.constant(scales if axis is not None else scales[0]),
        ]
        if axis is not None:
            operands.append(self.constant(np.zeros(count, S8)))
        return self.node("DequantizeLinear", operands, axis=axis or 0)

    def model(self, x: np.ndarray, result: str, kind: int = TensorProto.FLOAT) -> onnx.ModelProto:
        graph = helper.make_graph(
            [*self.nodes, helper.make_node("Identity", [result], ["y"])],
            "layers",
            [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)],
            [helper.make_tensor_value_info("y", kind, None)],
            [numpy_helper.from_array(np.asarray(a), name) for name, a in self.constants.items()],
        )
        opset = [helper.make_opsetid("", 19)]
        made = helper.make_model(graph, opset_imports=opset, ir_version=9)
        return onnx.shape_inference.infer_shapes(made)


def compile_and_compare(model: onnx.ModelProto, x: np.ndarray, emulator: Emulator) -> Compiled:
    """The products are sums of integers. Between layers a number may be rounded to the next byte
    where f32 had another sum, but hardly ever: 0.2 % of all, and by no more than one step."""
    compiled = compile_for_gpu(model, "cuda:sm_90a")
    (got,) = load_on_emulator(compiled, emulator)(x)
    (expected,) = stepwell.compile(model, options={"precision": "strict"})(x)
    if got.dtype == np.float32:
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)
    else:
        off = np.abs(got.astype(np.int32) - expected)
        assert off.max() <= 1
        assert (off > 0).mean() <= 0.002
    return compiled


def products(compiled: Compiled) -> list[str]:
    """The kernels that multiply bytes on tensor cores."""
    return [text for text in compiled.kernels.values() if ".s8" in text or "s32.s8" in text]


ZEROS = {"s8": (S8, 0), "s8, with a zero point": (S8, -5), "u8": (U8, 0), "u8, 114": (U8, 114)}


@pytest.mark.parametrize("name", ZEROS)
def test_residual_block(name: str, emulator: Emulator) -> None:
    """Two convolutions, activation and residual: two kernels that multiply, with all around them in
    their epilogues. The residual is read as bytes."""
    kind, zero = ZEROS[name]
    layers = Layers(kind, zero)
    x = np.random.default_rng(1).uniform(-3, 3, (1, 32, 6, 6)).astype(np.float32)
    stem = layers.node("Conv", [layers.quantized("x"), layers.weights((32, 32, 1, 1), 0)])
    first = layers.quantized(stem)
    bias = layers.constant(np.linspace(-1, 1, 32, dtype=np.float32))
    inner = layers.node("Conv", [first, layers.weights((32, 32, 3, 3), 0), bias], pads=[1] * 4)
    inner = layers.quantized(layers.node("Relu", [inner]))
    outer = layers.node("Conv", [inner, layers.weights((32, 32, 1, 1), None)])
    whole = layers.node("Relu", [layers.node("Add", [outer, first])])
    last = layers.node("Conv", [layers.quantized(whole), layers.weights((32, 32, 1, 1), 0)])
    bytes = layers.node("QuantizeLinear", [last, "scale", "zero"])
    out = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    compiled = compile_and_compare(layers.model(x, bytes, out), x, emulator)
    assert len(products(compiled)) == 4
    assert not any(re.search(r"store (<\d+ x )?float", text) for text in products(compiled))


@pytest.mark.parametrize("transposed", [False, True])
def test_linear_layers(transposed: bool, emulator: Emulator) -> None:
    """MatMul and Gemm, with scales of the columns of the weights."""
    layers = Layers(S8, 3)
    x = np.random.default_rng(1).uniform(-3, 3, (20, 96)).astype(np.float32)
    bias = layers.constant(np.linspace(-1, 1, 48, dtype=np.float32))
    if transposed:
        operands = [layers.quantized("x"), layers.weights((48, 96), 0), bias]
        result = layers.node("Gemm", operands, transB=1, alpha=0.5)
    else:
        product = layers.node("MatMul", [layers.quantized("x"), layers.weights((96, 48), 1)])
        result = layers.node("Add", [product, bias])
    assert len(products(compile_and_compare(layers.model(x, result), x, emulator))) == 1


def test_weights_that_are_quantised_in_the_model(emulator: Emulator) -> None:
    """Weights of floats with a QuantizeLinear of their own, as training tools write them."""
    layers = Layers(S8, 0)
    x = np.random.default_rng(1).uniform(-3, 3, (20, 64)).astype(np.float32)
    floats = layers.constant(layers.random.uniform(-6, 6, (64, 32)).astype(np.float32))
    result = layers.node("MatMul", [layers.quantized("x"), layers.quantized(floats)])
    assert len(products(compile_and_compare(layers.model(x, result), x, emulator))) == 1


def test_precision_strict_multiplies_floats() -> None:
    layers = Layers(S8, 0)
    x = np.zeros((20, 64), np.float32)
    result = layers.node("MatMul", [layers.quantized("x"), layers.weights((64, 32), 1)])
    compiled = compile_for_gpu(layers.model(x, result), "cuda:sm_90a", precision="strict")
    assert not products(compiled)
