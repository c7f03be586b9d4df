"""Constant weights, which are packed at compile time: ONNX models of one layer against numpy."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from programs import SINGLE, assert_close, normal, parameter

import stepwell


class Graph:
    """An ONNX graph under construction; every layer reads one input of its own."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.inputs: dict[str, np.ndarray] = {}
        self.outputs: list[str] = []

    def weight(self, *shape: int) -> str:
        name = f"w{len(self.weights)}"
        fan_in = shape[0] if len(shape) == 2 else max(int(np.prod(shape[1:])), 1)
        array = (normal(*shape, seed=len(self.weights)) / np.sqrt(fan_in)).astype(np.float32)
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def input(self, *shape: int) -> str:
        name = f"x{len(self.inputs)}"
        self.inputs[name] = normal(*shape, seed=7)
        return name

    def node(self, kind: str, *inputs: str, **attributes: object) -> str:
        name = f"n{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def output(self, name: str, label: str) -> None:
        self.nodes.append(helper.make_node("Identity", [name], [label]))
        self.outputs.append(label)

    def model(self, dtype: type = np.float32) -> onnx.ModelProto:
        """The model, its weights and signature in `dtype`."""
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        weights = [
            numpy_helper.from_array(numpy_helper.to_array(w).astype(dtype), w.name)
            for w in self.weights
        ]
        inputs = [helper.make_tensor_value_info(n, kind, a.shape) for n, a in self.inputs.items()]
        outputs = [helper.make_tensor_value_info(n, kind, None) for n in self.outputs]
        graph = helper.make_graph(self.nodes, "layers", inputs, outputs, weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])


def results(graph: Graph, **options: object) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """(label, what Stepwell computes, what onnx's reference computes in float64)."""
    exe = stepwell.compile(graph.model(), threads=1, options={"use_cache": False, **options})
    got = exe.run(graph.inputs)
    reference = ReferenceEvaluator(graph.model(np.float64))
    feed = {name: array.astype(np.float64) for name, array in graph.inputs.items()}
    for label, want in zip(graph.outputs, reference.run(None, feed), strict=True):
        yield label, got[label], want


def check(graph: Graph, **options: object) -> None:
    wrong = []
    for label, got, want in results(graph, **options):
        try:
            assert_close(got, want, SINGLE)
        except AssertionError as error:
            wrong.append(f"{label}: {error}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("opt_level", [0, 3])
def test_matmul(opt_level: int) -> None:
    graph = Graph()
    for m, k, n in itertools.product((1, 7, 33), (1, 17, 130), (1, 7, 33, 65, 200)):
        y = graph.node("MatMul", graph.input(m, k), graph.weight(k, n))
        if n % 2:
            y = graph.node("Relu", graph.node("Add", y, graph.weight(n)))
        graph.output(y, f"matmul-{m}x{k}x{n}")
    check(graph, opt_level=opt_level)


def test_gemm_and_layouts() -> None:
    graph = Graph()
    for transposed, bias in itertools.product((0, 1), (True, False)):
        shape = (33, 17) if transposed else (17, 33)
        rest = [graph.weight(33)] if bias else []
        y = graph.node("Gemm", graph.input(5, 17), graph.weight(*shape), *rest, transB=transposed)
        graph.output(y, f"gemm-transposed-{transposed}-bias-{bias}")
    y = graph.node("Gemm", graph.input(17, 5), graph.weight(17, 33), transA=1, alpha=0.5)
    graph.output(y, "gemm-transposed-input")
    y = graph.node("MatMul", graph.input(2, 3, 17), graph.weight(17, 33))
    graph.output(y, "matmul-rank-3")
    y = graph.node("MatMul", graph.input(3, 5, 17), graph.weight(3, 17, 33))
    graph.output(y, "matmul-batched-weight")
    y = graph.node("MatMul", graph.weight(5, 17), graph.input(17, 33))
    graph.output(y, "matmul-constant-lhs")
    y = graph.node("MatMul", graph.input(5, 17), graph.weight(17))
    graph.output(y, "matmul-vector")
    shared = graph.weight(17, 17)
    y = graph.node("MatMul", graph.node("MatMul", graph.input(5, 17), shared), shared)
    graph.output(y, "weight-used-twice")
    transposed = graph.node("Transpose", shared, perm=[1, 0])
    y = graph.node("MatMul", graph.input(6, 17), transposed)
    graph.output(y, "weight-transposed")
    check(graph)


def test_products_of_weights_alone() -> None:
    """They are worked out when the model is compiled, unless the result is larger than both."""
    graph = Graph()
    y = graph.node("MatMul", graph.weight(400, 300), graph.weight(300, 200))
    graph.output(graph.node("Add", graph.input(400, 200), y), "smaller")
    y = graph.node("MatMul", graph.weight(2000, 8), graph.weight(8, 2000))
    graph.output(graph.node("Add", graph.input(2000, 2000), y), "larger")
    text = str(stepwell.lower(graph.model(), target="x86_64-v3").step("linalg"))
    assert text.count('kernel.kind = "contraction"') == 1, "one product is left"
    check(graph)


def test_two_layers_around_a_normalization() -> None:
    """Linear layers whose weights are packed, not an attention."""
    graph = Graph()
    y = graph.node("MatMul", graph.input(16, 64), graph.weight(64, 48))
    y = graph.node("LayerNormalization", y, graph.weight(48))
    graph.output(graph.node("MatMul", y, graph.weight(48, 100)), "head")
    text = str(stepwell.lower(graph.model(), target="x86_64-v3").step("linalg"))
    assert text.count('kernel.kind = "contraction"') == 2
    check(graph)


def test_long_sums() -> None:
    """Weights that several blocks of rows would read again: chains of the sum are loops around the
    tiles of a block; with an epilogue, by a column that no panel divides, of a convolution too."""
    graph = Graph()
    y = graph.node("MatMul", graph.input(128, 3072), graph.weight(3072, 203))
    graph.output(graph.node("Tanh", graph.node("Add", y, graph.weight(203))), "matmul-tanh")
    image, filters = graph.input(1, 512, 22, 22), graph.weight(336, 512, 3, 3)
    y = graph.node("Conv", image, filters, pads=[1] * 4, strides=[3, 3])
    graph.output(graph.node("Relu", y), "conv-3x3-stride-3")
    model = graph.model()
    text = str(stepwell.lower(model, target="x86_64-v3").step("linalg"))
    assert text.count("apart = true") == 2, "no kernel is tested that sums chains apart"
    check(graph)


def test_panels_larger_than_a_cache() -> None:
    """Each tile of rows would read one from memory: their chains are summed apart, too."""
    graph = Graph()
    y = graph.node("MatMul", graph.input(45, 8704), graph.weight(8704, 112))
    graph.output(graph.node("Relu", y), "matmul-relu")
    text = str(stepwell.lower(graph.model(), target="x86_64-v4").step("linalg"))
    assert text.count("apart = true") == 1
    check(graph)


def test_chains_side_by_side() -> None:
    """One row: two chains of the sum at a time, of an even number of them where that can be, for
    weights that come from memory and where a few sums would wait for one another. For two rows
    there are no registers, and an odd number of terms stays one chain."""
    graph = Graph()
    for m, k in ((1, 768), (1, 3072), (2, 1280), (1, 1030), (1, 64), (1, 63)):
        y = graph.node("MatMul", graph.input(m, k), graph.weight(k, 523))
        graph.output(graph.node("Add", y, graph.weight(523)), f"{m}x{k}")
    text = str(stepwell.lower(graph.model(), target="x86_64-v3").step("linalg"))
    assert text.count("chains = 2") == 4, "no kernel is tested that has chains side by side"
    check(graph)


def test_windows_as_large_as_the_image() -> None:
    """One row again, whose sum is cut by the columns of the window: into chains side by side, or
    into pieces where the channels' sums are short."""
    graph = Graph()
    for batch, channels, side in ((2, 16, 2), (1, 512, 2), (1, 24, 3)):
        image, filters = (
            graph.input(batch, channels, side, side),
            graph.weight(16, channels, side, side),
        )
        graph.output(graph.node("Conv", image, filters), f"{batch}x{channels}x{side}")
    text = str(stepwell.lower(graph.model(), target="x86_64-v4").step("linalg"))
    assert text.count("chains = 2") == 2, "no kernel is tested that has chains side by side"
    check(graph)


def test_blocks_of_rows_that_meet_many_panels() -> None:
    """Weights that do not stay in L2. Many rows: each of 12 blocks meets half of the 32 panels, of
    which the last is ragged, so that there are tasks enough. Few rows, which stay in L2 themselves:
    all of them meet one panel, then the next."""
    graph = Graph()
    graph.output(graph.node("MatMul", graph.input(3001, 256), graph.weight(256, 500)), "many")
    graph.output(graph.node("MatMul", graph.input(196, 256), graph.weight(256, 500)), "few")
    text = str(stepwell.lower(graph.model(), target="x86_64-v3").step("linalg"))
    assert re.findall(r"panels = (\d+)", text) == ["16", "1"]
    check(graph)


@pytest.mark.parametrize("size", [parameter("weight-also-added", 17)])
def test_weight_of_the_epilogue_too(size: int) -> None:
    graph = Graph()
    shared = graph.weight(size, size)
    y = graph.node("Add", graph.node("MatMul", graph.input(size, size), shared), shared)
    graph.output(y, "weight-also-added")
    check(graph)


def convolutions(graph: Graph) -> None:
    for side, (c, n) in itertools.product((1, 3, 5), ((3, 17), (16, 40), (33, 64))):
        for stride in (1, 2):
            y = graph.node(
                "Conv", graph.input(1, c, 11, 13), graph.weight(n, c, side, side),
                graph.weight(n), pads=[side // 2] * 4, strides=[stride] * 2,
            )  # fmt: skip
            if stride == 1:
                y = graph.node("Relu", y)
            graph.output(y, f"conv-{side}x{side}-{c}to{n}-stride-{stride}")
    for groups, channels in ((2, 34), (17, 17), (40, 40), (4, 64)):
        y = graph.node(
            "Conv", graph.input(1, channels, 11, 13),
            graph.weight(channels, channels // groups, 3, 3), pads=[1] * 4, group=groups,
        )  # fmt: skip
        graph.output(graph.node("Relu", y), f"conv-{groups}-groups-of-{channels}")
    y = graph.node("Conv", graph.input(2, 3, 40), graph.weight(17, 3, 5), pads=[2, 2])
    graph.output(y, "conv-one-dimension")
    y = graph.node("Conv", graph.input(1, 3, 5, 6, 7), graph.weight(17, 3, 3, 3, 3))
    graph.output(y, "conv-three-dimensions")
    y = graph.node("Conv", graph.input(1, 8, 11, 13), graph.weight(17, 8, 3, 3), pads=[0, 1, 2, 0])
    graph.output(y, "conv-uneven-pads")


@pytest.mark.parametrize("opt_level", [0, 3])
def test_convolution(opt_level: int) -> None:
    graph = Graph()
    convolutions(graph)
    check(graph, opt_level=opt_level)


@pytest.mark.parametrize(
    "opt_level", [parameter("dilated-opt-level-0", 0), parameter("dilated-opt-level-3", 3)]
)
def test_dilated_convolution(opt_level: int) -> None:
    graph = Graph()
    y = graph.node("Conv", graph.input(1, 8, 11, 13), graph.weight(17, 8, 3, 3), dilations=[2, 2])
    graph.output(y, "conv-dilated")
    check(graph, opt_level=opt_level)


@pytest.mark.parametrize("target", [parameter("x86_64-v3")])
def test_narrower_target(target: str) -> None:
    graph = Graph()
    convolutions(graph)
    for m, k, n in itertools.product((1, 7), (130,), (7, 33, 65)):
        y = graph.node("MatMul", graph.input(m, k), graph.weight(k, n))
        graph.output(graph.node("Sigmoid", y), f"matmul-{m}x{k}x{n}")
    exe = stepwell.compile(graph.model(), target, threads=1, options={"use_cache": False})
    wide = stepwell.compile(graph.model(), threads=1, options={"use_cache": False})
    for name, got in exe.run(graph.inputs).items():
        assert_close(got, wide.run(graph.inputs)[name], SINGLE)


def test_transposed_convolution() -> None:
    graph = Graph()
    for stride, side, pads in ((1, 3, 0), (2, 2, 0), (2, 3, 1), (2, 4, 1), (3, 5, 2)):
        y = graph.node(
            "ConvTranspose", graph.input(1, 8, 5, 6), graph.weight(8, 17, side, side),
            strides=[stride] * 2, pads=[pads] * 4,
        )  # fmt: skip
        graph.output(graph.node("Relu", y), f"stride-{stride}-side-{side}")
    check(graph)


def test_networks() -> None:
    """Several layers in a row, where layouts propagate: residual, concatenated, pooled."""
    graph = Graph()
    x = graph.input(1, 3, 16, 16)
    first = graph.node("Conv", x, graph.weight(24, 3, 3, 3), graph.weight(24), pads=[1] * 4)
    first = graph.node("Relu", first)
    pooled = graph.node("MaxPool", first, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    left = graph.node("Conv", pooled, graph.weight(24, 24, 3, 3), pads=[1] * 4)
    added = graph.node("Relu", graph.node("Add", left, pooled))
    narrow = graph.node("Relu", graph.node("Conv", added, graph.weight(7, 24, 1, 1)))
    joined = graph.node("Concat", added, narrow, axis=1)
    graph.output(joined, "joined")
    mean = graph.node("GlobalAveragePool", joined)
    flat = graph.node("Flatten", mean)
    graph.output(graph.node("Gemm", flat, graph.weight(31, 10), graph.weight(10)), "classes")
    unpooled = graph.node("Flatten", joined)
    graph.output(graph.node("MatMul", unpooled, graph.weight(31 * 64, 5)), "flattened")
    check(graph)
