"""Blocks as BERT and GPT have them, from ONNX and JAX; saved, loaded, in sessions, on threads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
import onnx
import pytest
from jax import numpy as jnp
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import stepwell

WIDTH, HEADS, LENGTH, WORDS = 64, 4, 19, 50

TOLERANCE = 2e-5
"""Two normalisations and a softmax over float32 sums of up to 256 products."""


class _Builder:
    """Nodes and weights of an ONNX graph."""

    def __init__(self) -> None:
        self.generator = np.random.default_rng(0)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def constant(self, array: np.ndarray) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def weight(self, *shape: int) -> str:
        array = self.generator.standard_normal(shape) / np.sqrt(shape[0])
        return self.constant(array.astype(np.float32))

    def __call__(self, kind: str, *inputs: str, **attributes: object) -> str:
        name = f"n{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=name, **attributes))
        return name

    def linear(self, x: str, inputs: int, outputs: int) -> str:
        return self("Add", self("MatMul", x, self.weight(inputs, outputs)), self.weight(outputs))

    def normalised(self, x: str) -> str:
        scale, shift = self.weight(WIDTH), self.weight(WIDTH)
        return self("LayerNormalization", x, scale, shift, axis=-1, epsilon=1e-5)

    def attention(self, x: str, mask: str | None) -> str:
        split = self.constant(np.array([1, LENGTH, HEADS, WIDTH // HEADS]))
        joined = self.constant(np.array([1, LENGTH, WIDTH]))
        q, k, v = (self("Reshape", self.linear(x, WIDTH, WIDTH), split) for _ in range(3))
        q, v = (self("Transpose", t, perm=[0, 2, 1, 3]) for t in (q, v))
        scores = self("MatMul", q, self("Transpose", k, perm=[0, 2, 3, 1]))
        root = self.constant(np.array(np.sqrt(WIDTH / HEADS), np.float32))
        scores = self("Div", scores, root)
        if mask is not None:
            scores = self("Add", scores, mask)
        context = self("MatMul", self("Softmax", scores, axis=-1), v)
        merged = self("Reshape", self("Transpose", context, perm=[0, 2, 1, 3]), joined)
        return self.linear(merged, WIDTH, WIDTH)

    def feed_forward(self, x: str) -> str:
        hidden = self("Gelu", self.linear(x, WIDTH, 4 * WIDTH))
        return self.linear(hidden, 4 * WIDTH, WIDTH)

    def embedded(self) -> str:
        words = self("Gather", self.weight(WORDS, WIDTH), "ids", axis=0)
        return self("Add", words, self.weight(LENGTH, WIDTH))

    def model(self, inputs: list[onnx.ValueInfoProto], output: str) -> onnx.ModelProto:
        self.nodes.append(helper.make_node("Identity", [output], ["y"]))
        outputs = [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)]
        graph = helper.make_graph(self.nodes, "block", inputs, outputs, self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])


IDS = helper.make_tensor_value_info("ids", onnx.TensorProto.INT64, [1, LENGTH])
MASK = helper.make_tensor_value_info("mask", onnx.TensorProto.FLOAT, [1, 1, 1, LENGTH])


def bert() -> onnx.ModelProto:
    """Embedding, two layers that normalise after the residual, a padding mask."""
    build = _Builder()
    x = build.normalised(build.embedded())
    for _ in range(2):
        x = build.normalised(build("Add", x, build.attention(x, "mask")))
        x = build.normalised(build("Add", x, build.feed_forward(x)))
    return build.model([IDS, MASK], x)


def gpt() -> onnx.ModelProto:
    """Embedding, two layers that normalise first, a causal mask, the last row's logits."""
    build = _Builder()
    causal = np.triu(np.full((LENGTH, LENGTH), -1e9, np.float32), 1)[None, None]
    x = build.embedded()
    for _ in range(2):
        x = build("Add", x, build.attention(build.normalised(x), build.constant(causal)))
        x = build("Add", x, build.feed_forward(build.normalised(x)))
    x = build("MatMul", build.normalised(x), build.weight(WIDTH, WORDS))
    return build.model([IDS], build("Gather", x, build.constant(np.array([LENGTH - 1])), axis=1))


def feed(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    ids = np.random.default_rng(1).integers(0, WORDS, (1, LENGTH))
    mask = np.where(np.arange(LENGTH) < 14, 0, -1e9).astype(np.float32).reshape(1, 1, 1, LENGTH)
    arrays = {"ids": ids, "mask": mask}
    return {value.name: arrays[value.name] for value in model.graph.input}


def expected(model: onnx.ModelProto) -> np.ndarray:
    return np.asarray(ReferenceEvaluator(model).run(None, feed(model))[0])


@pytest.mark.parametrize("make", [bert, gpt])
@pytest.mark.parametrize("opt_level", [0, 3])
def test_block(make: Callable[[], onnx.ModelProto], opt_level: int) -> None:
    model = make()
    exe = stepwell.compile(model, threads=1, options={"opt_level": opt_level})
    np.testing.assert_allclose(
        exe.run(feed(model))["y"], expected(model), rtol=TOLERANCE, atol=TOLERANCE
    )


@pytest.mark.parametrize("make", [bert, gpt])
def test_threads_agree(make: Callable[[], onnx.ModelProto]) -> None:
    """Threads share tasks, never a sum: the bits are the same."""
    model = make()
    one, two = (stepwell.compile(model, threads=n).run(feed(model))["y"] for n in (1, 2))
    np.testing.assert_array_equal(one, two)


def test_saved_loaded_and_in_a_session(tmp_path: Path) -> None:
    model, path = bert(), tmp_path / "bert.stepwell"
    exe = stepwell.compile(model, threads=1)
    want = exe.run(feed(model))["y"]
    exe.save(path)
    np.testing.assert_array_equal(stepwell.load(path).run(feed(model))["y"], want)
    session = stepwell.Session(path)
    assert [value.name for value in session.get_inputs()] == ["ids", "mask"]
    np.testing.assert_array_equal(session.run(["y"], feed(model))[0], want)
    weights = sum(numpy_helper.to_array(t).nbytes for t in model.graph.initializer)
    assert path.stat().st_size < weights + (1 << 20)


def test_arena_is_reused() -> None:
    """Eight layers need no more room for intermediate values than two."""

    def arena(layers: int) -> int:
        build = _Builder()
        x = build.embedded()
        for _ in range(layers):
            x = build("Add", x, build.feed_forward(build.normalised(x)))
        return stepwell.compile(build.model([IDS], x)).artifact.manifest.arena_bytes

    assert arena(8) == arena(2)


def mlp(x: jax.Array, a: jax.Array, b: jax.Array) -> jax.Array:
    return jax.nn.softmax(jax.nn.gelu(x @ a, approximate=False) @ b)


def network(x: jax.Array, a: jax.Array, b: jax.Array) -> jax.Array:
    numbers = ("NHWC", "HWIO", "NHWC")
    for w, stride in ((a, 2), (b, 1)):
        y = jax.lax.conv_general_dilated(x, w, (stride, stride), "SAME", dimension_numbers=numbers)
        x = jnp.maximum(y, 0)
    return x.mean((1, 2))


@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (mlp, [(7, 33), (33, 65), (65, 10)]),
        (network, [(2, 17, 17, 3), (3, 3, 3, 24), (3, 3, 24, 40)]),
    ],
)
def test_jax(function: Callable[..., jax.Array], shapes: list[tuple[int, ...]]) -> None:
    generator = np.random.default_rng(0)
    arrays = [generator.standard_normal(s) / np.sqrt(np.prod(s[:-1])) for s in shapes]
    single = [a.astype(np.float32) for a in arrays]
    exported = jax.export.export(jax.jit(function))(*single)
    got = stepwell.compile(exported, threads=1)(*single)[0]
    with jax.enable_x64(True):
        want = np.asarray(function(*[jnp.asarray(a, jnp.float64) for a in single]))
    np.testing.assert_allclose(got, want, rtol=TOLERANCE, atol=TOLERANCE)
