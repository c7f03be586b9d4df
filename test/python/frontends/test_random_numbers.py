"""Random graphs whose shapes depend on numbers that a call gives, and on others computed of these:
code for any of them is right, or there is none. Against onnxruntime."""

from __future__ import annotations

import random

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import stepwell

CALLS = 5


class Graph:
    """A vector of 20 elements that is cut, padded, repeated and lengthened by numbers."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.inputs = ["a", "b", "c"][: self.random.randint(2, 3)]
        numbers = list(self.inputs)
        for _ in range(self.random.randint(1, 3)):
            numbers.append(self.number(numbers))
        self.x = "x"
        for _ in range(self.random.randint(1, 3)):
            self.x = self.moved(self.random.choice(numbers), self.random.choice(numbers))
        self.y = self.add("Exp", self.x)

    def add(self, operator: str, *inputs: str, **attributes: object) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [name], **attributes))
        return name

    def constant(self, *numbers: int) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.array(numbers, np.int64), name))
        return name

    def number(self, numbers: list[str]) -> str:
        """Another number, computed of `numbers`."""
        one, other = self.random.choice(numbers), self.random.choice(numbers)
        kind = self.random.choice(["Add", "Add", "Min", "Sub", "Mul", "Div", "Less", "Neg"])
        if kind in ("Mul", "Div"):
            return self.add(kind, one, self.constant(2))
        if kind == "Less":  # what is left of one number after another
            return self.add("Max", self.add("Sub", one, other), self.constant(0))
        return self.add(kind, one) if kind == "Neg" else self.add(kind, one, other)

    def moved(self, one: str, other: str) -> str:
        """The vector, changed by two numbers."""
        kind = self.random.choice(["Slice", "Slice", "Slice", "Pad", "Tile", "Zeros", "Range"])
        if kind == "Slice":
            step = self.constant(self.random.choice([1, 1, 2]))
            return self.add("Slice", self.x, one, other, self.constant(0), step)
        count = self.add("Abs", one)
        if kind == "Pad":
            return self.add("Pad", self.x, self.add("Concat", count, count, axis=0))
        if kind == "Tile":
            return self.add("Tile", self.x, count)
        more = self.add("ConstantOfShape", count)
        if kind == "Range":
            ends = [self.add("Squeeze", n) for n in (self.constant(0), count, self.constant(1))]
            more = self.add("Cast", self.add("Range", *ends), to=TensorProto.FLOAT)
        return self.add("Concat", self.x, more, axis=0)

    def model(self) -> onnx.ModelProto:
        value = helper.make_tensor_value_info
        inputs = [
            value("x", TensorProto.FLOAT, [20]),
            *(value(n, TensorProto.INT64, [1]) for n in self.inputs),
        ]
        outputs = [value(self.y, TensorProto.FLOAT, None)]
        graph = helper.make_graph(self.nodes, "g", inputs, outputs, self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.mark.parametrize("seed", range(8))
def test_numbers(seed: int) -> None:
    graph = Graph(seed)
    model = graph.model()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    reference = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    exe = stepwell.compile(model, threads=1, options={"progress": False})
    x = np.random.default_rng(seed).standard_normal(20).astype(np.float32)
    for _ in range(CALLS):
        numbers = {name: np.array([graph.random.randint(0, 9)]) for name in graph.inputs}
        (want,) = reference.run(None, {"x": x, **numbers})
        (got,) = exe(x, *numbers.values())
        np.testing.assert_allclose(got, want, rtol=1e-5)
