"""Models with open dimensions, with seeded weights: rows of an operator, an encoder, and networks
of the benchmark on images of any height and width."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks.models import catalog

WIDTH = 1024

Shapes = dict[str, tuple[int | str, ...]]
"""Of inputs by name, open dimensions by name."""


@dataclass(frozen=True)
class Case:
    """A model, its shapes, how large its dimensions may be, and the sizes to measure."""

    name: str
    model: onnx.ModelProto
    shapes: Shapes
    capacities: dict[str, int]
    sizes: tuple[dict[str, int], ...]

    def shapes_at(self, sizes: dict[str, int]) -> dict[str, tuple[int, ...]]:
        """The shapes of the inputs at these sizes."""
        return {
            name: tuple(_at(size, sizes) for size in shape) for name, shape in self.shapes.items()
        }

    def text(self, sizes: dict[str, int]) -> str:
        """The open dimensions of the first input, as `3x70`."""
        first = next(iter(self.shapes.values()))
        return "x".join(str(_at(size, sizes)) for size in first if isinstance(size, str))


def _at(size: int | str, sizes: dict[str, int]) -> int:
    """A size, or what a name or a multiple of it is."""
    if isinstance(size, int):
        return size
    factor, _, name = size.rpartition("*")
    return int(factor or 1) * sizes[name]


ROWS = tuple({"n": n} for n in (32, 128, 200, 384, 512))
SENTENCES = tuple({"b": b, "n": n} for b, n in ((1, 32), (1, 128), (3, 70), (8, 40), (8, 128)))
IMAGES = tuple({"h": h, "w": w} for h, w in ((64, 64), (160, 160), (225, 231), (224, 224)))
BLOCKS = tuple({"h": h // 16, "w": w // 16} for h, w in ((64, 64), (160, 160), (224, 256)))


def cases() -> Iterator[Case]:
    """All that is measured; networks are made if they are missing."""
    for name in OPERATORS:
        yield Case(name, *operator(name), {"n": 512}, ROWS)
    yield Case("encoder", *encoder(1), {"n": 512}, ROWS)
    yield Case("encoder, any batch", *encoder("b"), {"b": 8, "n": 128}, SENTENCES)
    for name, step, sizes in (
        ("resnet50_b1", 1, IMAGES),
        ("mobilenetv2_b1", 1, IMAGES),
        ("unet_256_b1", 16, BLOCKS),
    ):
        yield Case(name, *network(name, step), {"h": 256 // step, "w": 256 // step}, sizes)


OPERATORS = {
    "elementwise": [("Gelu", ["x"], "g"), ("Mul", ["g", "scale"], "y")],
    "softmax": [("Softmax", ["x"], "y")],
    "sum of rows": [("ReduceSum", ["x", "first"], "y")],
    "matmul": [("MatMul", ["x", "w"], "p"), ("Add", ["p", "scale"], "y")],
}


def operator(name: str) -> tuple[onnx.ModelProto, Shapes]:
    """One of `OPERATORS` on a matrix of n rows, and the shapes of its inputs."""
    random = np.random.default_rng(0)
    constants = {
        "scale": random.standard_normal(WIDTH).astype(np.float32),
        "first": np.array([0]),
        "w": (random.standard_normal((WIDTH, WIDTH)) / 32).astype(np.float32),
    }
    nodes = [helper.make_node(op, inputs, [out]) for op, inputs, out in OPERATORS[name]]
    used = {value for node in nodes for value in node.input}
    graph = helper.make_graph(
        nodes,
        "operator",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", WIDTH])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(a, key) for key, a in constants.items() if key in used],
    )
    return _model(graph), {"x": ("n", WIDTH)}


def network(name: str, step: int) -> tuple[onnx.ModelProto, Shapes]:
    """A network of the benchmark on one image, whose height and width are multiples of `step`."""
    catalog.ensure_made([name])
    model = onnx.load(catalog.files(name).path)
    (image,), (result,) = model.graph.input, model.graph.output
    del model.graph.value_info[:]
    for axis, size in ((2, "height"), (3, "width")):
        image.type.tensor_type.shape.dim[axis].dim_param = size
    for number, dimension in enumerate(result.type.tensor_type.shape.dim[2:]):
        dimension.dim_param = f"out{number}"
    spatial = ("h", "w") if step == 1 else (f"{step}*h", f"{step}*w")
    return model, {image.name: (1, 3, *spatial)}


def encoder(
    batch: int | str, layers: int = 6, width: int = 384, heads: int = 12
) -> tuple[onnx.ModelProto, Shapes]:
    """A transformer encoder of the size of MiniLM on sentences of n words, with a mask."""
    build = _Builder()
    ids = "ids"
    length = build("Gather", build("Shape", ids), build.ints([1]))
    table = build.weight(512, width)
    places = build("Slice", table, build.ints([0]), length, build.ints([0]))
    x = build.norm(build("Add", build("Gather", build.weight(1000, width), ids), places), width)
    seen = build("Cast", build("Unsqueeze", "mask", build.ints([1, 2])), to=TensorProto.FLOAT)
    hidden = build("Sub", build.number(1.0), seen)
    bias = build("Mul", hidden, build.number(-1e9))
    split, joined = build.ints([0, 0, heads, width // heads]), build.ints([0, 0, width])
    for _ in range(layers):
        q, k, v = (
            build("Transpose", build("Reshape", build.dense(x, width, width), split), perm=order)
            for order in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
        )
        scores = build("Div", build("MatMul", q, k), build.number((width // heads) ** 0.5))
        weights = build("Softmax", build("Add", scores, bias), axis=-1)
        mixed = build("Transpose", build("MatMul", weights, v), perm=[0, 2, 1, 3])
        mixed = build.dense(build("Reshape", mixed, joined), width, width)
        x = build.norm(build("Add", x, mixed), width)
        inner = build("Gelu", build.dense(x, width, 4 * width))
        x = build.norm(build("Add", x, build.dense(inner, 4 * width, width)), width)
    build.nodes.append(helper.make_node("Identity", [x], ["y"]))
    shape = (batch, "n")
    graph = helper.make_graph(
        build.nodes,
        "encoder",
        [helper.make_tensor_value_info(n, TensorProto.INT64, shape) for n in (ids, "mask")],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, "n", width])],
        build.constants,
    )
    return _model(graph), {ids: shape, "mask": shape}


class _Builder:
    """Nodes and constants of a graph; a call adds a node and gives the name of its result."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self._random = np.random.default_rng(0)

    def __call__(self, operator: str, *inputs: str, **attributes: int | list[int]) -> str:
        name = f"v{len(self.nodes)}"
        node = helper.make_node(operator, list(inputs), [name])
        for key, value in attributes.items():
            node.attribute.append(helper.make_attribute(key, value))
        self.nodes.append(node)
        return name

    def _constant(self, array: np.ndarray) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def ints(self, values: list[int]) -> str:
        return self._constant(np.array(values, np.int64))

    def number(self, value: float) -> str:
        return self._constant(np.array(value, np.float32))

    def weight(self, *shape: int) -> str:
        array = self._random.standard_normal(shape) / shape[0] ** 0.5
        return self._constant(array.astype(np.float32))

    def dense(self, x: str, width: int, outputs: int) -> str:
        return self("Add", self("MatMul", x, self.weight(width, outputs)), self.weight(outputs))

    def norm(self, x: str, width: int) -> str:
        ones, zeros = (self._constant(np.full(width, n, np.float32)) for n in (1, 0))
        return self("LayerNormalization", x, ones, zeros)


def _model(graph: onnx.GraphProto) -> onnx.ModelProto:
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
