"""Quantised layers as ONNX writes them around float operators (QDQ), and products whose inputs are
quantised when they are known: beside onnxruntime, and with which instructions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import stepwell

WITH = "x86_64-v4+vnni"
SCALE = 0.04


class Layers:
    """A graph of one float input under construction, and its constants."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.random = np.random.default_rng(0)
        self.x = self.random.normal(size=shape).astype(np.float32)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def constant(self, array: np.ndarray) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def node(self, kind: str, *inputs: str, outputs: int = 1, **attributes: object) -> str:
        names = [f"n{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs), names, **attributes))
        return names[0]

    def quantized(self, x: str, kind: type, zero: int) -> str:
        """There and back."""
        numbers = self.constant(np.array(SCALE, np.float32)), self.constant(np.array(zero, kind))
        return self.node("DequantizeLinear", self.node("QuantizeLinear", x, *numbers), *numbers)

    def weight(self, shape: tuple[int, ...], axis: int | None) -> str:
        """Signed bytes of one scale, or of one for each place along `axis`."""
        bytes = self.random.integers(-127, 128, shape).astype(np.int8)
        count = () if axis is None else (shape[axis],)
        scale = self.random.uniform(0.001, 0.003, count).astype(np.float32)
        inputs = self.constant(bytes), self.constant(scale), self.constant(np.zeros(count, np.int8))
        return self.node("DequantizeLinear", *inputs, axis=1 if axis is None else axis)

    def bias(self, count: int) -> str:
        return self.constant(self.random.normal(size=count).astype(np.float32))

    def model(self, result: str) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.nodes,
            "layers",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, self.x.shape)],
            [helper.make_tensor_value_info(result, TensorProto.FLOAT, None)],
            self.weights,
        )
        opset = helper.make_opsetid("", 19)
        return helper.make_model(graph, opset_imports=[opset], ir_version=9)


Layer = Callable[[Layers, str], str]
"""What writes its nodes behind a value, and names the result."""


def both(layers: Layers, model: onnx.ModelProto) -> tuple[np.ndarray, np.ndarray]:
    """Stepwell's result, and onnxruntime's, which does what the nodes say one by one."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    (expected,) = session.run(None, {"x": layers.x})
    (got,) = stepwell.compile(model, threads=1)(layers.x)
    return got, np.asarray(expected)


def multiplies_bytes(model: onnx.ModelProto, precision: str = "default") -> bool:
    lowered = stepwell.lower(model, target=WITH, options={"precision": precision})
    return "vpdpbusd" in str(lowered.step("affine"))


def convolution(layers: Layers, x: str, channels: int, outputs: int, side: int) -> str:
    w = layers.weight((outputs, channels, side, side), axis=0)
    return layers.node("Conv", x, w, layers.bias(outputs), pads=[side // 2] * 4)


def conv(layers: Layers, x: str) -> str:
    return layers.node("Relu", convolution(layers, x, 12, 20, 3))


def residual(layers: Layers, x: str) -> str:
    inner = layers.quantized(convolution(layers, x, 12, 12, 1), np.uint8, 120)
    outer = layers.quantized(convolution(layers, inner, 12, 12, 3), np.uint8, 128)
    return layers.node("Add", outer, x)


def depthwise(layers: Layers, x: str) -> str:
    """Filters of one channel each; the layer before multiplies bytes."""
    inner = layers.quantized(convolution(layers, x, 12, 12, 1), np.uint8, 100)
    w = layers.weight((12, 1, 3, 3), axis=0)
    return layers.node("Conv", inner, w, layers.bias(12), pads=[1] * 4, group=12)


def matmul(layers: Layers, x: str) -> str:
    return layers.node("Add", layers.node("MatMul", x, layers.weight((9, 40), 1)), layers.bias(40))


def gemm(layers: Layers, x: str) -> str:
    rows = layers.node("Flatten", x)
    return layers.node("Gemm", rows, layers.weight((33, 972), 0), layers.bias(33), transB=1)


def between_conversions(layers: Layers, layer: Layer, kind: type, zero: int) -> onnx.ModelProto:
    """A layer of bytes of that kind and zero point, whose result becomes unsigned bytes."""
    result = layer(layers, layers.quantized("x", kind, zero))
    return layers.model(layers.quantized(result, np.uint8, 128))


LAYERS = [conv, residual, depthwise, matmul, gemm]


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize(("kind", "zero"), [(np.uint8, 117), (np.uint8, 0), (np.int8, -9)])
def test_between_conversions(layer: Layer, kind: type, zero: int) -> None:
    """Sums of integers are exact and those of f32 are not, so that a number may be rounded to the
    byte beside; in two layers, to the one beside that."""
    layers = Layers((2, 12, 9, 9))
    got, expected = both(layers, between_conversions(layers, layer, kind, zero))
    steps = np.abs(np.rint((got - expected) / SCALE))
    assert steps.max() <= 2
    assert (steps > 0).mean() < 0.005
    assert expected.std() > 2 * SCALE


@pytest.mark.parametrize("layer", LAYERS)
def test_instructions(layer: Layer) -> None:
    """For a target that has them, but for the arithmetic that the model says, to the letter."""
    model = between_conversions(Layers((2, 12, 9, 9)), layer, np.uint8, 117)
    assert multiplies_bytes(model)
    assert not multiplies_bytes(model, "strict")


def test_dynamic_quantization() -> None:
    """Scale and zero point of the input are computed with it; the sums of both are exact. Those of
    onnxruntime are not without VNNI, where its instruction adds pairs of products to 16 bits."""
    layers = Layers((2, 9, 70))
    x = layers.node("DynamicQuantizeLinear", "x", outputs=3)
    scale, zero = x.replace("_0", "_1"), x.replace("_0", "_2")
    w = layers.random.integers(-127, 128, (70, 40)).astype(np.int8)
    inputs = x, layers.constant(w), zero, layers.constant(np.array(3, np.int8))
    sums = layers.node("Cast", layers.node("MatMulInteger", *inputs), to=TensorProto.FLOAT)
    factor = layers.node("Mul", scale, layers.constant(np.array(0.002, np.float32)))
    scaled = layers.node("Mul", sums, factor)
    model = layers.model(layers.node("Add", scaled, layers.bias(40)))
    (got,) = stepwell.compile(model, threads=1)(layers.x)
    (expected,) = ReferenceEvaluator(model).run(None, {"x": layers.x})
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)  # scales and bias are of f32
    assert multiplies_bytes(model)
    assert multiplies_bytes(model, "strict")
