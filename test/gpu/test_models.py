"""Whole small models: each artifact's launch program on the emulated GPU against the CPU target."""

from __future__ import annotations

from collections.abc import Callable

import jax
import numpy as np
import onnx
import pytest
import test_onnx_models
from emulator import Emulator
from jax import lax
from jax import numpy as jnp
from models import assert_same_as_cpu, compile_for_gpu, load_on_emulator
from onnx import helper, numpy_helper

import stepwell
from stepwell.launch import JUMP, JUMP_UNLESS, LOAD, instructions


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def exported(function: Callable[..., object], *arrays: np.ndarray) -> str:
    return str(jax.export.export(jax.jit(function))(*arrays).mlir_module())


def test_mlp(emulator: Emulator) -> None:
    """Constant weights, in a section of the artifact that is copied to the GPU once."""
    weights = [normal(24, 40, seed=1) / 5, normal(40, 7, seed=2) / 6]
    biases = [normal(40, seed=3), normal(7, seed=4)]

    def mlp(x: jax.Array) -> jax.Array:
        hidden = jax.nn.relu(x @ weights[0] + biases[0])
        return jax.nn.softmax(hidden @ weights[1] + biases[1])

    x = normal(5, 24)
    compiled = assert_same_as_cpu(exported(mlp, x), [x], emulator)
    assert compiled.artifact.manifest.weights_bytes >= sum(a.nbytes for a in (*weights, *biases))
    assert not compiled.remarks


def test_repeated_calls_copy_the_weights_once(emulator: Emulator) -> None:
    weight = normal(8, 8)
    x = normal(3, 8)
    compiled = compile_for_gpu(exported(lambda x: x @ weight, x))
    executable = load_on_emulator(compiled, emulator)
    loaded = emulator.library.emulator_copies()
    for seed in range(3):
        x = normal(3, 8, seed=seed)
        np.testing.assert_allclose(executable(x)[0], x @ weight, rtol=1e-5, atol=1e-5)
    assert emulator.library.emulator_copies() - loaded == 3 * 2  # an input and an output a call


def convolution_network() -> onnx.ModelProto:
    """Convolution, batch normalisation, relu, pools, in ONNX's NCHW."""
    shapes = {"w0": (8, 3, 3, 3), "w1": (16, 8, 3, 3), "w2": (16, 10), "b2": (10,)}
    weights = [
        numpy_helper.from_array(normal(*shape, seed=n) / 4, name)
        for n, (name, shape) in enumerate(shapes.items())
    ]
    norms = {"scale": 1.0, "shift": 0.1, "mean": 0.2, "variance": 1.5}
    weights += [
        numpy_helper.from_array(np.full(8, value, np.float32), name)
        for name, value in norms.items()
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["c0"], pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c0", *norms], ["n0"]),
        helper.make_node("Relu", ["n0"], ["r0"]),
        helper.make_node("MaxPool", ["r0"], ["p0"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["p0", "w1"], ["c1"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("GlobalAveragePool", ["r1"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("Gemm", ["f", "w2", "b2"], ["y"]),
    ]
    kind = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "cnn",
        [helper.make_tensor_value_info("x", kind, (2, 3, 12, 12))],
        [helper.make_tensor_value_info("y", kind, (2, 10))],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])


def test_convolution_network(emulator: Emulator) -> None:
    compiled = assert_same_as_cpu(
        convolution_network(), [normal(2, 3, 12, 12)], emulator, rtol=1e-4, atol=1e-4
    )
    assert not compiled.remarks


def test_resnet50(emulator: Emulator) -> None:
    """All of it, with seeded weights, on an image of 96 by 96: one of 224 takes minutes here."""
    (path,) = (path for path in test_onnx_models.paths() if path.stem == "light_resnet50")
    model = test_onnx_models.seeded(path)
    sides = model.graph.input[0].type.tensor_type.shape.dim[2:]
    sides[0].dim_value = sides[1].dim_value = 96
    (pool,) = (node for node in model.graph.node if node.op_type == "AveragePool")
    (kernel,) = (a for a in pool.attribute if a.name == "kernel_shape")
    kernel.ints[:] = [3, 3]
    image = normal(1, 3, 96, 96)
    compiled = compile_for_gpu(model)
    (got,) = load_on_emulator(compiled, emulator)(image)
    (expected,) = stepwell.compile(model)(image)
    assert test_onnx_models.relative_l2(got, expected) < 1e-5
    assert not compiled.remarks


def layer_norm(x: jax.Array) -> jax.Array:
    centred = x - x.mean(-1, keepdims=True)
    return centred * lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5)


def transformer_block(x: jax.Array, qkv: jax.Array, out: jax.Array, up: jax.Array) -> jax.Array:
    length, width = x.shape
    heads = 4
    parts = (layer_norm(x) @ qkv).reshape(length, 3, heads, width // heads)
    q, k, v = (parts[:, i].swapaxes(0, 1) for i in range(3))
    scores = jax.nn.softmax(q @ k.swapaxes(1, 2) / np.sqrt(width // heads))
    x = x + (scores @ v).swapaxes(0, 1).reshape(length, width) @ out
    return x + jax.nn.gelu(layer_norm(x) @ up, approximate=False) @ up.T


def test_transformer_block(emulator: Emulator) -> None:
    arrays = [normal(20, 64), *(normal(64, n, seed=n) / 8 for n in (192, 64, 96))]
    # Attention and two norms in a row: some hundred roundings of order one.
    compiled = assert_same_as_cpu(
        exported(transformer_block, *arrays), arrays, emulator, rtol=1e-4, atol=1e-4
    )
    assert not compiled.remarks


def test_loop_of_the_host(emulator: Emulator) -> None:
    """A loop whose condition kernels compute: the launch program jumps."""
    weight = normal(96, 96, seed=1) / 12

    def converge(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        def goes_on(state: tuple[jax.Array, jax.Array]) -> jax.Array:
            return (jnp.abs(state[0]).max() > 0.3) & (state[1] < 50)

        return lax.while_loop(goes_on, lambda s: (jnp.tanh(s[0] @ weight), s[1] + 1), (x, 0))

    x = normal(64, 96)
    compiled = assert_same_as_cpu(exported(converge, x), [x], emulator, rtol=1e-4, atol=1e-4)
    program = compiled.artifact.manifest.cuda
    assert program is not None
    assert {LOAD, JUMP, JUMP_UNLESS} <= {operation for operation, _ in instructions(program.code)}


def test_lstm(emulator: Emulator) -> None:
    steps, batch, width, hidden = 4, 3, 6, 8
    w, r = normal(1, 4 * hidden, width, seed=1), normal(1, 4 * hidden, hidden, seed=2)
    node = helper.make_node("LSTM", ["x", "w", "r"], ["y", "last"], hidden_size=hidden)
    kind = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        [node],
        "lstm",
        [helper.make_tensor_value_info("x", kind, (steps, batch, width))],
        [helper.make_tensor_value_info(n, kind, None) for n in ("y", "last")],
        [numpy_helper.from_array(w / 3, "w"), numpy_helper.from_array(r / 3, "r")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
    assert_same_as_cpu(model, [normal(steps, batch, width)], emulator)


def test_what_no_emitter_takes_runs_on_one_block(emulator: Emulator) -> None:
    """A function of scattered elements has no emitter: its loops are shared among threads, and a
    remark says so."""

    def ordered(x: jax.Array, i: jax.Array) -> jax.Array:
        return jnp.sort(x, axis=1).at[i].apply(jnp.tanh)

    x, i = normal(6, 17), np.array([1, 4, 1], np.int32)
    compiled = assert_same_as_cpu(exported(ordered, x, i), [x, i], emulator)
    assert any("the threads of one block" in remark for remark in compiled.remarks)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_remainders_are_exact(dtype: str, emulator: Emulator) -> None:
    """Also where the quotient is large, or so near to an integer that a division rounds to it."""
    kind = np.finfo(dtype)
    x, y = (normal(400, seed=n).astype(dtype) for n in (1, 2))
    x[:100] *= np.asarray(1000, dtype)
    x[100:200] = np.nextafter(y[100:200] * np.asarray(3, dtype), np.asarray(0, dtype))
    special = np.array([0.0, -0.0, 1.5, np.inf, -np.inf, np.nan, kind.max, kind.tiny / 4], dtype)
    x[200:264], y[200:264] = np.repeat(special, 8), np.tile(special, 8)
    with jax.enable_x64(True):
        module = exported(lax.rem, x, y)
    (got,) = load_on_emulator(compile_for_gpu(module), emulator)(x, y)
    with np.errstate(invalid="ignore"):
        expected = np.fmod(x, y)
    np.testing.assert_array_equal(got, expected)
    known = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(got[known]), np.signbit(expected[known]))


@pytest.mark.parametrize("target", ["cuda:sm_80", "cuda:sm_100a", "cuda:sm_120"])
def test_other_architectures(target: str, emulator: Emulator) -> None:
    x = normal(3, 70)
    compiled = compile_for_gpu(exported(jax.nn.softmax, x), target)
    program = compiled.artifact.manifest.cuda
    assert program is not None
    emulator.configure(capability=program.capability)
    (y,) = load_on_emulator(compiled, emulator)(x)
    # Exponentials and a sum of 70: some units in the last place.
    np.testing.assert_allclose(y, np.asarray(jax.nn.softmax(x)), rtol=1e-5)
