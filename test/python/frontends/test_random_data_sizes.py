"""Random ONNX models whose sizes depend on data: a few calls against onnx's reference, and against
code for each size by itself. STEPWELL_TEST_SEEDS=A-B tries other seeds than the default ones.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import stepwell
from stepwell.specializing import SpecializingExecutable

FIRST, LAST = map(int, os.environ.get("STEPWELL_TEST_SEEDS", "0-5").split("-"))

OPTIONS = {"progress": False, "use_cache": False}


class Graph:
    """A model of the elements of `x` that are found. Vectors of one length are together."""

    def __init__(self, seed: int) -> None:
        self.chosen = random.Random(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.results: list[str] = []
        line = self.op("Reshape", "x", [-1])
        self.groups = [[self.found(line, [line])[0]]]
        for _ in range(self.chosen.randint(3, 8)):
            group = self.chosen.choice(self.groups)
            self.chosen.choice(STEPS)(self, self.chosen.choice(group), group)
        self.results += [group[-1] for group in self.groups]

    def op(self, kind: str, *inputs: object, outputs: int = 1, **attributes: object) -> str:
        """The first output of a node; inputs that are no names are constants."""
        names = [x if isinstance(x, str) else self.constant(x) for x in inputs]
        name = f"n{len(self.nodes)}"
        out = [name, *(f"{name}.{i}" for i in range(1, outputs))]
        self.nodes.append(helper.make_node(kind, names, out, **attributes))
        return name

    def constant(self, value: object) -> str:
        name = f"c{len(self.constants)}"
        array = np.asarray(value)
        array = array.astype(np.float32) if array.dtype == np.float64 else array
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def found(self, by: str, vectors: list[str]) -> list[str]:
        """The elements of `vectors` where those of `by` are large or small."""
        kind = self.chosen.choice(["Greater", "Less"])
        mask = self.op(kind, by, self.chosen.choice([-0.5, 0.0, 0.3]))
        if self.chosen.random() < 0.5:
            return [self.op("Compress", vector, mask, axis=0) for vector in vectors]
        places = self.op("Reshape", self.op("NonZero", mask), [-1])
        return [self.op("Gather", vector, places, axis=0) for vector in vectors]

    def model(self) -> onnx.ModelProto:
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [6, 10])
        outputs = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
            for name in dict.fromkeys(self.results)
        ]
        graph = helper.make_graph(self.nodes, "g", [x], outputs, self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def elementwise(g: Graph, x: str, group: list[str]) -> None:
    group.append(g.op(g.chosen.choice(["Tanh", "Neg", "Abs", "Sigmoid"]), x))
    group.append(g.op("Mul", group[-1], g.chosen.choice(group)))


def normalized(g: Graph, x: str, group: list[str]) -> None:
    group.append(g.op("Softmax", x, axis=0))
    g.results.append(g.op("ReduceSum", g.op("Mul", x, group[-1]), keepdims=0))


def running(g: Graph, x: str, group: list[str]) -> None:
    group.append(g.op("CumSum", x, 0, reverse=g.chosen.randint(0, 1)))


def in_order(g: Graph, x: str, group: list[str]) -> None:
    value = g.op("TopK", x, g.op("Shape", x), outputs=2, largest=g.chosen.randint(0, 1))
    group += [value, g.op("Gather", g.chosen.choice(group), f"{value}.1", axis=0)]


def best(g: Graph, x: str, group: list[str]) -> None:
    count = g.op("Min", g.op("Shape", x), [g.chosen.choice([2, 5, 8])])
    g.groups.append([g.op("TopK", x, count, outputs=2)])


def some(g: Graph, x: str, group: list[str]) -> None:
    g.groups.append(g.found(x, [x, g.chosen.choice(group)]))


def joined(g: Graph, x: str, group: list[str]) -> None:
    g.groups.append([g.op("Concat", x, g.chosen.choice(g.chosen.choice(g.groups)), axis=0)])


def halves(g: Graph, x: str, group: list[str]) -> None:
    both = g.op("Reshape", g.op("Concat", x, g.op("Neg", x), axis=0), [2, -1])
    g.results.append(g.op("ReduceMax", g.op("Abs", both), [0], keepdims=0))


def part(g: Graph, x: str, group: list[str]) -> None:
    g.groups.append([g.op("Slice", x, [g.chosen.choice([0, 1])], [g.chosen.choice([3, 6, -1])])])


def turned(g: Graph, x: str, group: list[str]) -> None:
    group.append(g.op("Slice", x, [-1], [-(2**31)], [0], [-1]))


def framed(g: Graph, x: str, group: list[str]) -> None:
    g.groups.append([g.op("Pad", x, [g.chosen.randint(0, 2), 1], 0.5)])


def layer(g: Graph, x: str, group: list[str]) -> None:
    weights = np.linspace(-1, 1, 12).astype(np.float32)
    hidden = g.op("Tanh", g.op("MatMul", g.op("Unsqueeze", x, [1]), weights.reshape(1, 12)))
    g.results.append(g.op("MatMul", hidden, weights.reshape(12, 1)))


def counted(g: Graph, x: str, group: list[str]) -> None:
    cell = g.op("Cast", g.op("Mul", g.op("Sigmoid", x), 7.9), to=TensorProto.INT64)
    cells = np.zeros(8, np.float32)
    g.results.append(g.op("ScatterElements", cells, cell, x, axis=0, reduction="add"))


STEPS: list[Callable[[Graph, str, list[str]], None]] = [
    *(elementwise, normalized, running, in_order, best, some, joined),
    *(halves, part, turned, framed, layer, counted),
]


@pytest.mark.parametrize("seed", range(FIRST, LAST + 1))
def test_any_size_of_what_is_found(seed: int) -> None:
    model = Graph(seed).model()
    reference = ReferenceEvaluator(model)
    exe = stepwell.compile(model, threads=1, options=OPTIONS)
    alone = stepwell.compile(model, threads=1, options={**OPTIONS, "any_size": False})
    assert isinstance(exe, SpecializingExecutable)
    numbers = np.random.default_rng(seed)
    for _ in range(4):
        x = numbers.standard_normal((6, 10)).astype(np.float32)
        wanted = reference.run(None, {"x": x})
        for found, expected in zip(exe(x), wanted, strict=True):
            assert found.shape == np.asarray(expected).shape
            np.testing.assert_allclose(found, expected, 1e-4, 1e-5)
    for found, expected in zip(exe(x), alone(x), strict=True):
        np.testing.assert_allclose(found, expected, 1e-5, 1e-6)
    assert exe.codes_for_any_size
