"""Convolution networks of ONNX, in NCHW, run in channels-last; only their ends are transposed.

Each network is compared with onnxruntime, and its kernels of kind transpose are counted.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import stepwell

TOLERANCE = 2e-5
"""Of the largest result: sums of at most 432 products, one of another, Winograd's among them."""

Scales = list[float]


class Network:
    """A graph that grows node by node; each method returns the name of a new tensor."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(0)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.inputs: dict[str, np.ndarray] = {}

    def input(self, *shape: int) -> str:
        name = f"x{len(self.inputs)}"
        self.inputs[name] = self.random.standard_normal(shape, np.float32)
        return name

    def weight(self, array: np.ndarray) -> str:
        self.weights.append(numpy_helper.from_array(array, f"w{len(self.weights)}"))
        return self.weights[-1].name

    def add(self, operator: str, *operands: str, **attributes: int | str | list[int]) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, operands, [name], **attributes))
        return name

    def conv(self, x: str, inputs: int, outputs: int, side: int = 3, dilation: int = 1) -> str:
        shape = (outputs, inputs, side, side)
        weights = self.random.standard_normal(shape, np.float32) / np.sqrt(inputs * side * side)
        bias = self.weight(self.random.standard_normal(outputs, np.float32))
        pads = [side // 2 * dilation] * 4
        return self.add(
            "Conv", x, self.weight(weights.astype(np.float32)), bias,
            pads=pads, dilations=[dilation] * 2,
        )  # fmt: skip

    def layer(self, x: str, inputs: int, outputs: int, side: int = 3, dilation: int = 1) -> str:
        return self.add("Relu", self.conv(x, inputs, outputs, side, dilation))

    def activated(self, x: str, channels: int) -> str:
        scale, bias, mean = self.random.standard_normal((3, channels), np.float32)
        variance = self.random.random(channels, np.float32) + 0.5
        numbers = [self.weight(array) for array in (scale, bias, mean, variance)]
        return self.add("Relu", self.add("BatchNormalization", x, *numbers))

    def upsampled(self, x: str, scales: Scales, **attributes: str) -> str:
        numbers = self.weight(np.array([1, 1, *scales], np.float32))
        return self.add("Resize", x, "", numbers, **attributes)

    def resized(self, x: str, sizes: list[int], **attributes: str) -> str:
        return self.add("Resize", x, "", "", self.weight(np.array(sizes)), **attributes)

    def model(self, output: str) -> onnx.ModelProto:
        inputs = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, array.shape)
            for name, array in self.inputs.items()
        ]
        outputs = [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)]
        graph = helper.make_graph(self.nodes, "g", inputs, outputs, self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def doubled(g: Network) -> str:
    x = g.layer(g.input(2, 8, 6, 5), 8, 16)
    return g.layer(g.upsampled(x, [2, 2]), 16, 8)


def tripled_rows(g: Network) -> str:
    x = g.layer(g.input(1, 8, 6, 5), 8, 16)
    return g.layer(g.upsampled(x, [3, 1]), 16, 8)


def doubled_by_sizes(g: Network) -> str:
    x = g.layer(g.input(1, 8, 6, 5), 8, 16)
    rounding = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return g.layer(g.resized(x, [1, 16, 12, 10], **rounding), 16, 8)


def fractional(g: Network) -> str:
    x = g.layer(g.input(1, 8, 6, 5), 8, 16)
    return g.layer(g.resized(x, [1, 16, 9, 8]), 16, 8)


def pyramid(g: Network) -> str:
    x = g.layer(g.input(1, 8, 8, 8), 8, 16)
    y = g.layer(g.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]), 16, 16)
    z = g.add("Add", g.upsampled(y, [2, 2]), g.conv(x, 16, 16, side=1))
    return g.layer(z, 16, 8)


def skip(g: Network) -> str:
    x = g.layer(g.input(1, 8, 8, 8), 8, 16)
    y = g.layer(g.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]), 16, 24)
    return g.layer(g.add("Concat", x, g.upsampled(y, [2, 2]), axis=1), 40, 8)


def activated_first(g: Network) -> str:
    x = g.input(1, 16, 7, 6)
    for _ in range(2):
        x = g.add("Add", x, g.conv(g.activated(x, 16), 16, 16))
    return g.activated(x, 16)


def dense_from_input(g: Network) -> str:
    x, channels = g.input(1, 16, 7, 6), 16
    for _ in range(2):
        y = g.conv(g.activated(x, channels), channels, 8)
        x, channels = g.add("Concat", x, y, axis=1), channels + 8
    return g.layer(x, channels, 8, side=1)


def pooled_pyramid(g: Network) -> str:
    x = g.layer(g.input(1, 8, 9, 9), 8, 16, side=1)
    parts = [g.layer(x, 16, 8, side=1), *(g.layer(x, 16, 8, dilation=d) for d in (2, 3))]
    pooled = g.layer(g.add("GlobalAveragePool", x), 16, 8, side=1)
    parts.append(g.resized(pooled, [1, 8, 9, 9], mode="linear"))
    return g.layer(g.add("Concat", *parts, axis=1), 32, 8, side=1)


NETWORKS = (
    doubled, tripled_rows, doubled_by_sizes, fractional, pyramid, skip,
    activated_first, dense_from_input, pooled_pyramid,
)  # fmt: skip


@pytest.mark.parametrize("network", NETWORKS)
def test_only_ends_are_transposed(network: Callable[[Network], str]) -> None:
    g = Network()
    model = g.model(network(g))
    kinds = [kernel.kind for kernel in stepwell.explain(model, target="x86_64-v4").kernels]
    assert kinds.count("transpose") == len(g.inputs) + 1, kinds
    # Its optimizer turns some asymmetric Resize into others.
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    (expected,) = session.run(None, g.inputs)
    found = stepwell.compile(model).run(g.inputs)[session.get_outputs()[0].name]
    np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE * np.abs(expected).max())
