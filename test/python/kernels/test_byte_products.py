"""Products of bytes, which CPUs with AVX-512 VNNI multiply four at a time, and those without it if
one factor is a constant of small numbers; as 16-bit integers, two at a time. Sums are exact."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from programs import runs_here

import stepwell

U8, S8 = np.uint8, np.int8
WITH, PAIRS, WITHOUT = "x86_64-v4+vnni", "x86_64-v3", "aarch64-neoverse-v2"


def runnable(*names: str) -> list[str]:
    """Those that this machine has the features of."""
    return [name for name in names if runs_here(name)]


def numbers(
    shape: tuple[int, ...], dtype: type, seed: int = 0, most: int | None = None
) -> np.ndarray:
    """All that the type has, or up to `most` in magnitude."""
    info = np.iinfo(dtype)
    low, high = (info.min, info.max) if most is None else (max(info.min, -most), most)
    return np.random.default_rng(seed).integers(low, high + 1, shape).astype(dtype)


class Graph:
    """A graph under construction whose constants and inputs are arrays."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, np.ndarray] = {}
        self.inputs: dict[str, np.ndarray] = {}
        self.outputs: dict[str, int] = {}

    def constant(self, array: np.ndarray | np.generic) -> str:
        name = f"w{len(self.weights)}"
        self.weights[name] = np.asarray(array)
        return name

    def input(self, array: np.ndarray) -> str:
        name = f"x{len(self.inputs)}"
        self.inputs[name] = array
        return name

    def node(self, kind: str, *inputs: str, domain: str = "", **attributes: object) -> str:
        name = f"n{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], domain=domain, **attributes))
        return name

    def output(self, name: str, label: str, kind: int = TensorProto.INT32) -> None:
        self.nodes.append(helper.make_node("Identity", [name], [label]))
        self.outputs[label] = kind

    def model(self) -> onnx.ModelProto:
        inputs = [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in self.inputs.items()
        ]
        outputs = [helper.make_tensor_value_info(n, kind, None) for n, kind in self.outputs.items()]
        weights = [numpy_helper.from_array(a, n) for n, a in self.weights.items()]
        graph = helper.make_graph(self.nodes, "layers", inputs, outputs, weights)
        domains = [helper.make_opsetid("", 19), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=domains, ir_version=9)

    def check(self, expected: dict[str, np.ndarray]) -> None:
        """Every output is what is expected, to the bit, with and without products of bytes."""
        for target in {"host", *runnable(PAIRS)}:
            got = stepwell.compile(self.model(), target=target, threads=1).run(self.inputs)
            assert got.keys() == expected.keys()
            for name, value in expected.items():
                np.testing.assert_array_equal(got[name], value, err_msg=f"{name} on {target}")


def product(a: np.ndarray, b: np.ndarray, zero_a: int = 0, zero_b: int = 0) -> np.ndarray:
    return (a.astype(np.int64) - zero_a) @ (b.astype(np.int64) - zero_b)


@pytest.mark.parametrize("most", [None, 64])
def test_matrix_products(most: int | None) -> None:
    """Odd sizes: rows and columns that are left over, sums that fill no word."""
    graph, expected = Graph(), {}
    for m, k, n in itertools.product((1, 33), (3, 130), (7, 130)):
        a, b = numbers((m, k), U8), numbers((k, n), S8, 1, most)
        y = graph.node("MatMulInteger", graph.input(a), graph.constant(b), graph.constant(U8(120)))
        label = f"{m}x{k}x{n}"
        graph.output(y, label)
        expected[label] = product(a, b, 120)
    graph.check(expected)


KINDS = {
    "u8 by s8": (U8, S8, 100, 0),
    "u8 by s8, of zero": (U8, S8, 0, 0),
    "s8 by s8": (S8, S8, 0, 0),
    "s8 by s8, zero at the end": (S8, S8, -128, 0),
    "u8 by u8": (U8, U8, 3, 128),
    "s8 by u8": (S8, U8, 5, 128),
    "9 bits": (U8, U8, 100, 7),
}
"""Types of both operands, and their zero points; of the last, weights have no 8 bits."""


@pytest.mark.parametrize("kind", KINDS)
def test_types_and_zero_points(kind: str) -> None:
    of_a, of_b, zero_a, zero_b = KINDS[kind]
    a, b = numbers((2, 9, 72), of_a), numbers((72, 40), of_b, 1)
    graph = Graph()
    zeros = graph.constant(of_a(zero_a)), graph.constant(of_b(zero_b))
    graph.output(graph.node("MatMulInteger", graph.input(a), graph.constant(b), *zeros), "right")
    turned = graph.input(np.ascontiguousarray(a.swapaxes(1, 2)))
    left = graph.constant(np.ascontiguousarray(b.T))
    graph.output(graph.node("MatMulInteger", left, turned, *reversed(zeros)), "left")
    expected = product(a, b, zero_a, zero_b)
    graph.check({"right": expected, "left": expected.swapaxes(1, 2)})


@pytest.mark.parametrize(("low", "high"), [(-128, 127), (-64, 64), (-65, 65)])
def test_largest_sums(low: int, high: int) -> None:
    """Of products that have all the same sign and the most bits; none saturates."""
    a, b = np.full((5, 4096), 255, U8), np.full((4096, 33), low, S8)
    b[:, 1::2] = high
    graph = Graph()
    graph.output(graph.node("MatMulInteger", graph.input(a), graph.constant(b)), "y")
    graph.check({"y": product(a, b)})


def test_operands_of_the_call() -> None:
    """An rhs that is no constant is brought into words a panel at a time."""
    graph, expected = Graph(), {}
    for m, k, n in itertools.product((1, 70), (8, 132), (3, 40)):
        a, b = numbers((2, m, k), U8), numbers((2, k, n), S8, 1)
        label = f"{m}x{k}x{n}"
        graph.output(graph.node("MatMulInteger", graph.input(a), graph.input(b)), label)
        expected[label] = product(a, b)
    graph.check(expected)


@pytest.mark.parametrize("kind", KINDS)
def test_offsets_of_operands_of_the_call(kind: str) -> None:
    """Sums of rows and columns are taken at run time, and so is the one zero point."""
    of_a, of_b, zero_a, zero_b = KINDS[kind]
    a, b = numbers((2, 9, 70), of_a), numbers((2, 70, 40), of_b, 1)
    graph = Graph()
    factors = graph.input(a), graph.input(b)
    zeros = graph.input(np.array(zero_a, of_a)), graph.constant(of_b(zero_b))
    graph.output(graph.node("MatMulInteger", *factors, *zeros), "y")
    graph.check({"y": product(a, b, zero_a, zero_b)})


@pytest.mark.parametrize("most", [None, 64])
def test_convolutions(most: int | None) -> None:
    """Windows, strides, dilations, padding with the zero point, and channels that fill no word."""
    graph, expected = Graph(), {}
    windows = ((1, 1, 1), (1, 2, 1), (3, 1, 1), (3, 2, 1), (3, 1, 2))
    sizes = itertools.cycle(((3, 48), (20, 5)))
    for (side, stride, dilation), (channels, outputs) in zip(windows, sizes, strict=False):
        x = numbers((2, channels, 11, 9), U8)
        w = numbers((outputs, channels, side, side), S8, 1, most)
        attributes = {
            "strides": [stride] * 2,
            "dilations": [dilation] * 2,
            "pads": [side // 2, side // 2, 0, side // 2],
        }
        inputs = [graph.input(x), graph.constant(w), graph.constant(U8(77))]
        label = f"{side}-{stride}-{dilation}-{channels}-{outputs}"
        graph.output(graph.node("ConvInteger", *inputs, **attributes), label)
        node = helper.make_node("Conv", ["x", "w"], ["y"], **attributes)
        shifted, filters = x.astype(np.float64) - 77, w.astype(np.float64)
        (expected[label],) = ReferenceEvaluator(_alone(node)).run(
            None, {"x": shifted, "w": filters}
        )
    graph.check(expected)


def _alone(node: onnx.NodeProto) -> onnx.ModelProto:
    inputs = [helper.make_tensor_value_info(n, TensorProto.DOUBLE, None) for n in node.input]
    outputs = [helper.make_tensor_value_info(n, TensorProto.DOUBLE, None) for n in node.output]
    graph = helper.make_graph([node], "one", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


def network() -> Graph:
    """A residual block: each layer requantizes in the kernel of its convolution."""
    graph = Graph()
    scales = np.random.default_rng(3).uniform(0.001, 0.004, 24).astype(np.float32)
    between = graph.constant(np.float32(0.05)), graph.constant(U8(128))

    def layer(x: str, channels: int, side: int, seed: int) -> str:
        w = graph.constant(numbers((24, channels, side, side), S8, seed) // 2)
        zero = graph.constant(np.zeros(24, S8))
        bias = graph.constant(numbers((24,), S8, seed + 1).astype(np.int32) * 10)
        return graph.node(
            "QLinearConv", x, *between, w, graph.constant(scales), zero, *between, bias,
            pads=[side // 2] * 4,
        )  # fmt: skip

    first = layer(graph.input(numbers((1, 3, 14, 14), U8)), 3, 3, 1)
    inner = layer(layer(first, 24, 1, 5), 24, 3, 9)
    y = graph.node("QLinearAdd", inner, *between, first, *between, *between, domain="com.microsoft")
    graph.output(y, "y", TensorProto.UINT8)
    return graph


def test_network() -> None:
    """Beside onnxruntime, whose additions round in fixed point."""
    graph = network()
    (expected,) = onnxruntime.InferenceSession(graph.model().SerializeToString()).run(
        None, graph.inputs
    )
    (got,) = stepwell.compile(graph.model(), threads=1).run(graph.inputs).values()
    assert np.abs(got.astype(int) - expected).max() <= 1
    assert got.std() > 10


@pytest.mark.parametrize("kind", [np.uint8, np.int8, np.int16])
def test_numbers_by_way_of_integers(kind: type) -> None:
    """In one kernel: what the integer cannot hold gives its bounds, NaN gives 0."""
    limits = np.iinfo(kind)
    edges = [0.0, -0.5, 0.5, 1.5, limits.max + 0.5, limits.min - 0.5, 1e9, -1e9, 7.9, -7.9]
    x = np.array([*edges, np.inf, -np.inf, np.nan], np.float32)

    def there_and_back(x: jax.Array) -> jax.Array:
        return x.astype(kind).astype(jnp.float32) * 2

    (got,) = stepwell.compile(jax.jit(there_and_back).lower(x), threads=1)(x)
    np.testing.assert_array_equal(
        got, 2 * np.trunc(np.nan_to_num(x, nan=0).clip(limits.min, limits.max))
    )


def test_jax() -> None:
    a, b = numbers((9, 68), S8), numbers((68, 50), S8, 1)

    def dot(x: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.matmul(x, y, preferred_element_type=jnp.int32)

    (got,) = stepwell.compile(jax.jit(dot).lower(a, b), threads=1)(a, b)
    np.testing.assert_array_equal(got, product(a, b))


def test_batches_that_are_not_first() -> None:
    """Heads of attention: the sums of signed bytes are of the product's rows and columns."""
    q, k = numbers((33, 3, 64), S8), numbers((48, 3, 64), S8, 1)

    def scores(q: jax.Array, k: jax.Array) -> jax.Array:
        return jnp.einsum("qhd,khd->hqk", q, k, preferred_element_type=jnp.int32)

    lowered = jax.jit(scores).lower(q, k)
    (got,) = stepwell.compile(lowered, threads=1)(q, k)
    expected = np.einsum("qhd,khd->hqk", q.astype(np.int64), k.astype(np.int64))
    np.testing.assert_array_equal(got, expected)
    kernels = str(stepwell.lower(lowered, target=WITH).step("affine"))
    assert "vpdpbusd" in kernels


@pytest.mark.parametrize("steps", [60, 300])
def test_long_chains_of_integers(steps: int) -> None:
    """What an operand is made of is looked at as far as quantised layers go, no further."""
    x, y = numbers((4, 8), S8), numbers((8, 4), S8, 1)
    shift = np.int32(3)

    def product(x: jax.Array, y: jax.Array, shift: jax.Array) -> jax.Array:
        x = x.astype(jnp.int32)
        for number in range(steps):
            x = x + x if number % 2 else x + shift
        return x @ y.astype(jnp.int32)

    jitted = jax.jit(product)
    (got,) = stepwell.compile(jitted.lower(x, y, shift), threads=1)(x, y, shift)
    np.testing.assert_array_equal(got, jitted(x, y, shift))


@pytest.mark.parametrize(
    ("target", "most", "instructions"),
    [
        (WITH, None, {"vpdpbusd"}),
        (WITH, 64, {"vpdpbusd"}),
        (PAIRS, None, {"pmadd.wd"}),
        (PAIRS, 64, {"pmadd.ub.sw", "pmadd.wd"}),
        ("x86_64-v4", 64, {"pmaddubs", "pmaddw.d"}),
        (WITHOUT, None, set()),
    ],
)
def test_instructions(target: str, most: int | None, instructions: set[str]) -> None:
    """For a target that has them, whatever machine compiles."""
    graph = Graph()
    b = numbers((64, 32), S8, 1, most)
    y = graph.node("MatMulInteger", graph.input(numbers((8, 64), U8)), graph.constant(b))
    graph.output(y, "y")
    kernels = str(stepwell.lower(graph.model(), target=target).step("affine"))
    known = ("vpdpbusd", "pmadd.wd", "pmadd.ub.sw", "pmaddubs", "pmaddw.d")
    assert {name for name in known if name in kernels} == instructions
