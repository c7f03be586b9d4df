"""Random graphs of two to ten nodes, compared with onnx's reference evaluator.

Every node is evaluated while the graph is drawn, so that its shape is known, and dropped when its
result is not finite or large. Inputs are multiples of 1/4; a value is called exact as long as every
float that led to it is exactly representable. Only exact values are rounded, compared or cast to
integers: elsewhere one unit in the last place would decide. STEPWELL_TEST_EXAMPLES=N draws N graphs
that are new each time.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from onnx import helper
from onnx.reference import ReferenceEvaluator

import stepwell

EXAMPLES = os.environ.get("STEPWELL_TEST_EXAMPLES")

RTOL, ATOL = 2e-5, 2e-5
"""A dozen float32 operations whose results stay below LARGE; float16 gets its own."""

LARGE = 100.0

KINDS = [np.float32, np.float32, np.float64, np.int32, np.int64, np.uint8, np.bool_]
CODES = {np.dtype(kind): helper.np_dtype_to_tensor_dtype(np.dtype(kind)) for kind in KINDS}


@dataclass(frozen=True)
class Value:
    """A tensor of the graph with the data that it is expected to have."""

    name: str
    array: np.ndarray
    exact: bool


Draw = Callable[[st.SearchStrategy], object]


class Graph:
    """A graph that grows node by node."""

    def __init__(self, draw: Callable) -> None:
        self.draw = draw
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, np.ndarray] = {}
        self.inputs = [self._input(i) for i in range(draw(st.integers(1, 3)))]
        self.values = list(self.inputs)

    def _input(self, number: int) -> Value:
        shape = self.draw(st.lists(st.sampled_from([1, 2, 3, 4, 17]), min_size=1, max_size=3))
        kind = np.dtype(self.draw(st.sampled_from(KINDS)))
        seed = self.draw(st.integers(0, 1000))
        numbers = np.random.default_rng(seed).integers(-12, 13, shape)
        array = (
            numbers / 4 if kind.kind == "f" else np.abs(numbers) if kind.kind == "u" else numbers
        )
        return Value(f"x{number}", (array > 0 if kind == np.bool_ else array.astype(kind)), True)

    def pick(self, *kinds: str, exact: bool = False, rank: int = 0) -> Value | None:
        """One of the values so far, of dtype kinds f, i, u or b."""
        fitting = [
            value
            for value in self.values
            if value.array.dtype.kind in kinds
            and value.array.ndim >= rank
            and (value.exact or not exact)
        ]
        return self.draw(st.sampled_from(fitting)) if fitting else None

    def partner(self, value: Value) -> Value:
        """A value of the same dtype that broadcasts with `value`; possibly itself."""
        fitting = [v for v in self.values if v.array.dtype == value.array.dtype and _fit(v, value)]
        return self.draw(st.sampled_from(fitting))

    def constant(self, array: np.ndarray) -> str:
        """An initializer."""
        name = f"c{len(self.weights)}"
        self.weights[name] = array
        return name

    def add(
        self, operator: str, inputs: list[Value | str], exact: bool | None = None, **attributes
    ) -> None:
        """Append a node, unless its result is too large. Results are exact when all inputs are and
        the operator computes exactly, unless `exact` says it."""
        names = [entry if isinstance(entry, str) else entry.name for entry in inputs]
        node = helper.make_node(operator, names, [f"v{len(self.nodes)}"], **attributes)
        feed = {v.name: v.array for v in inputs if isinstance(v, Value)}
        feed |= {n: self.weights[n] for n in names if n in self.weights}
        with np.errstate(all="ignore"):
            (array,) = ReferenceEvaluator(_model([node], feed, node.output)).run(None, feed)
        array = np.asarray(array)
        numbers = array.astype(np.float64)
        if array.size > 5000 or (array.size and not np.abs(numbers).max() < LARGE):
            return
        if exact is None:
            exact = all(v.exact for v in inputs if isinstance(v, Value))
        exact = exact and bool(np.all(numbers * 4096 == np.round(numbers * 4096)))
        self.nodes.append(node)
        self.values.append(Value(node.output[0], array, exact))


def _fit(a: Value, b: Value) -> bool:
    pairs = zip(reversed(a.array.shape), reversed(b.array.shape), strict=False)
    return all(m == n or 1 in (m, n) for m, n in pairs)


def _model(nodes: list[onnx.NodeProto], feed: dict[str, np.ndarray], outputs) -> onnx.ModelProto:
    inputs = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in feed.items()
    ]
    results = [onnx.ValueInfoProto(name=name) for name in outputs]
    graph = helper.make_graph(nodes, "random", inputs, results)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


# --- Kinds of nodes ------------------------------------------------------------------------------


def smooth(graph: Graph) -> None:
    names = ["Exp", "Tanh", "Sigmoid", "Erf", "Softplus", "Elu", "Gelu", "Sin", "Atan", "Softsign"]
    if x := graph.pick("f"):
        graph.add(graph.draw(st.sampled_from(names)), [x], exact=False)


def simple(graph: Graph) -> None:
    if x := graph.pick("f", "i"):
        graph.add(graph.draw(st.sampled_from(["Abs", "Neg"])), [x])


def rectified(graph: Graph) -> None:
    if x := graph.pick("f"):
        graph.add(graph.draw(st.sampled_from(["Relu", "LeakyRelu", "HardSwish"])), [x], exact=False)


def rounded(graph: Graph) -> None:
    if x := graph.pick("f", exact=True):
        graph.add(graph.draw(st.sampled_from(["Floor", "Ceil", "Round", "Sign"])), [x])


def arithmetic(graph: Graph) -> None:
    if x := graph.pick("f", "i"):
        names = ["Add", "Sub", "Mul", "Max", "Min"]
        graph.add(graph.draw(st.sampled_from(names)), [x, graph.partner(x)])


def division(graph: Graph) -> None:
    x = graph.pick("f", "i")
    if x and np.all(np.abs(graph.partner(x).array) >= 0.25):
        y = graph.partner(x)
        if np.all(np.abs(y.array) >= 0.25):
            graph.add("Div", [x, y], exact=x.array.dtype.kind == "i")


def comparison(graph: Graph) -> None:
    if x := graph.pick("f", "i", exact=True):
        y = graph.partner(x)
        names = ["Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal"]
        if y.exact:
            graph.add(graph.draw(st.sampled_from(names)), [x, y])


def logic(graph: Graph) -> None:
    if x := graph.pick("b"):
        graph.add(graph.draw(st.sampled_from(["And", "Or", "Xor"])), [x, graph.partner(x)])


def choice(graph: Graph) -> None:
    condition, x = graph.pick("b"), graph.pick("f", "i")
    if condition and x and _fit(condition, x):
        y = graph.partner(x)
        if _fit(condition, y):
            graph.add("Where", [condition, x, y])


def cast(graph: Graph) -> None:
    if x := graph.pick("f", "i", "u", "b", exact=True):
        kind = np.dtype(graph.draw(st.sampled_from(KINDS)))
        if kind.kind == "u" and (x.array.size and x.array.min() < 0):
            return
        graph.add("Cast", [x], to=CODES[kind])


def transpose(graph: Graph) -> None:
    if x := graph.pick("f", "i", "u", "b", rank=2):
        graph.add("Transpose", [x], perm=graph.draw(st.permutations(range(x.array.ndim))))


def reshape(graph: Graph) -> None:
    if x := graph.pick("f", "i", "u", "b"):
        size = x.array.size
        first = graph.draw(st.sampled_from([n for n in range(1, size + 1) if size % n == 0] or [0]))
        graph.add("Reshape", [x, graph.constant(np.array([first, -1] if first else [0]))])


def concatenation(graph: Graph) -> None:
    if x := graph.pick("f", "i", "u"):
        graph.add("Concat", [x, x], axis=graph.draw(st.integers(0, x.array.ndim - 1)))


def slices(graph: Graph) -> None:
    if x := graph.pick("f", "i", "u", "b"):
        axis = graph.draw(st.integers(0, x.array.ndim - 1))
        size = x.array.shape[axis]
        begin = graph.draw(st.integers(0, size - 1))
        end = graph.draw(st.integers(begin + 1, size))
        step = graph.draw(st.sampled_from([1, 1, 2]))
        parts = [[begin], [end], [axis], [step]]
        graph.add("Slice", [x, *(graph.constant(np.array(p)) for p in parts)])


def padding(graph: Graph) -> None:
    if x := graph.pick("f", "i"):
        pads = graph.draw(
            st.lists(st.integers(0, 2), min_size=2 * x.array.ndim, max_size=2 * x.array.ndim)
        )
        mode = graph.draw(st.sampled_from(["constant", "edge"]))
        graph.add("Pad", [x, graph.constant(np.array(pads))], mode=mode)


def reduction(graph: Graph) -> None:
    if x := graph.pick("f", "i"):
        names = ["ReduceSum", "ReduceMax", "ReduceMin", "ReduceMean"]
        name = graph.draw(st.sampled_from(names if x.array.dtype.kind == "f" else names[:3]))
        axis = graph.constant(np.array([graph.draw(st.integers(0, x.array.ndim - 1))]))
        exact = False if name == "ReduceMean" else None
        if x.array.ndim > 1:
            keep = graph.draw(st.integers(0, 1))
            graph.add(name, [x, axis], exact=exact, keepdims=keep)


def softmax(graph: Graph) -> None:
    if x := graph.pick("f"):
        axis = graph.draw(st.integers(0, x.array.ndim - 1))
        graph.add(
            graph.draw(st.sampled_from(["Softmax", "LogSoftmax"])), [x], exact=False, axis=axis
        )


def product(graph: Graph) -> None:
    if x := graph.pick("f", rank=2):
        *_, inner = x.array.shape
        columns = graph.draw(st.sampled_from([1, 3, 8]))
        seed = graph.draw(st.integers(0, 1000))
        weights = np.random.default_rng(seed).integers(-4, 5, (inner, columns)) / 4
        graph.add("MatMul", [x, graph.constant(weights.astype(x.array.dtype))])


def gather(graph: Graph) -> None:
    if x := graph.pick("f", "i", "u", "b"):
        axis = graph.draw(st.integers(0, x.array.ndim - 1))
        size = x.array.shape[axis]
        index = graph.draw(st.lists(st.integers(-size, size - 1), min_size=1, max_size=5))
        graph.add("Gather", [x, graph.constant(np.array(index))], axis=axis)


def argmax(graph: Graph) -> None:
    if x := graph.pick("f", "i", exact=True):
        axis = graph.draw(st.integers(0, x.array.ndim - 1))
        graph.add(graph.draw(st.sampled_from(["ArgMax", "ArgMin"])), [x], axis=axis)


def cumulation(graph: Graph) -> None:
    if x := graph.pick("f", "i"):
        axis = graph.constant(np.array(graph.draw(st.integers(0, x.array.ndim - 1))))
        graph.add("CumSum", [x, axis], reverse=graph.draw(st.integers(0, 1)))


def expansion(graph: Graph) -> None:
    if x := graph.pick("f", "i", "u", "b"):
        graph.add("Expand", [x, graph.constant(np.array([2, *x.array.shape]))])


STEPS = [
    smooth, simple, rectified, rounded, arithmetic, arithmetic, division, comparison, logic, choice,
    cast, transpose, reshape, concatenation, slices, padding, reduction, reduction, softmax,
    product, gather, argmax, cumulation, expansion,
]  # fmt: skip


@st.composite
def graphs(draw: Callable) -> Graph:
    """A graph of two to ten nodes."""
    graph = Graph(draw)
    for step in draw(st.lists(st.sampled_from(STEPS), min_size=2, max_size=10)):
        step(graph)
    return graph


@settings(
    max_examples=int(EXAMPLES or 40),
    deadline=None,
    derandomize=EXAMPLES is None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.too_slow],
)
@given(graphs())
def test_random_graphs(graph: Graph) -> None:
    if not graph.nodes:
        return
    used = {name for node in graph.nodes for name in node.input}
    outputs = [v for v in graph.values[len(graph.inputs) :] if v.name not in used]
    feed = {value.name: value.array for value in graph.inputs}
    model = _model(graph.nodes, feed, [value.name for value in outputs])
    for name, array in graph.weights.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    text = onnx.printer.to_text(model)
    results = stepwell.compile(model, threads=1, options={"progress": False}).run(feed)
    for value in outputs:
        result = results[value.name]
        assert result.dtype == value.array.dtype, text
        np.testing.assert_allclose(result, value.array, rtol=RTOL, atol=ATOL, err_msg=text)
