"""Images of one channel, whose dimension is dropped on the way: kernels, not scalar loops."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import stepwell

WINDOW = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}


def model(operator: str, *shapes: tuple[int, ...], **attributes: object) -> onnx.ModelProto:
    names = ["x", "grid"][: len(shapes)]
    node = helper.make_node(operator, names, ["y"], **attributes)
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in zip(names, shapes, strict=True)
    ]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "one channel", inputs, [output])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


@pytest.mark.parametrize(
    ("operator", "attributes", "grid"),
    [
        ("MaxPool", {**WINDOW, "strides": [1, 1]}, None),
        ("MaxPool", {**WINDOW, "strides": [2, 2]}, None),
        ("MaxPool", {"kernel_shape": [2, 2], "strides": [5, 5]}, None),
        ("AveragePool", {**WINDOW, "strides": [3, 3], "count_include_pad": 1}, None),
        ("AveragePool", {**WINDOW, "strides": [2, 2], "ceil_mode": 1}, None),
        ("GridSample", {"mode": "linear"}, (1, 9, 11, 2)),
    ],
)
@pytest.mark.parametrize("channels", [1, 3])
def test_kernels(operator: str, attributes: dict, grid: tuple | None, channels: int) -> None:
    shapes = [(1, channels, 37, 41), *([grid] if grid else [])]
    made = model(operator, *shapes, **attributes)
    lowered = stepwell.lower(made)
    generator = np.random.default_rng(0)
    inputs = [generator.uniform(-1, 1, shape).astype(np.float32) for shape in shapes]
    (got,) = lowered.compile()(*inputs)
    names = [value.name for value in made.graph.input]
    (want,) = ReferenceEvaluator(made).run(None, dict(zip(names, inputs, strict=True)))
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=2e-5)  # a grid's places are in f32
    assert lowered.step("affine").remarks == []
