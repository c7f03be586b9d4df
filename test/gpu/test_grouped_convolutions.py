"""Depthwise and grouped convolutions on GPUs, beside XLA, and those of quantised layers, exact
beside onnxruntime: windows at the edges, strides, several outputs of a channel."""

from __future__ import annotations

import jax
import numpy as np
import onnxruntime
import pytest
from emulator import Emulator
from models import compile_for_gpu, load_on_emulator
from onnx import TensorProto, helper, load_from_string
from programs import assert_close, normal
from test_quantized import model, numbers, weights_of_7_bits

U8, S8 = np.uint8, np.int8


@pytest.mark.parametrize("dtype", [np.float32, np.float16], ids=["f32", "f16"])
def test_groups(dtype: type, emulator: Emulator) -> None:
    """A depthwise convolution with its activation, one with two outputs a channel, and groups."""

    def convolved(x: jax.Array, w: jax.Array, strides: tuple[int, int], groups: int) -> jax.Array:
        return jax.lax.conv_general_dilated(
            x, w, strides, "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"),
            feature_group_count=groups, preferred_element_type=np.float32,
        )  # fmt: skip

    def network(x: jax.Array, *w: jax.Array) -> tuple[jax.Array, ...]:
        return (
            jax.nn.relu(convolved(x, w[0], (1, 1), 24)),
            convolved(x, w[1], (2, 2), 24),
            convolved(x, w[2], (1, 2), 3),
        )

    shapes = ((2, 9, 11, 24), (3, 3, 1, 24), (5, 5, 1, 48), (3, 3, 8, 30))
    inputs = [normal(*shape, seed=i).astype(dtype) for i, shape in enumerate(shapes)]
    exported = jax.export.export(jax.jit(network))(*inputs).mlir_module()
    executable = load_on_emulator(compile_for_gpu(str(exported)), emulator)
    expected = network(*(x.astype(np.float32) for x in inputs))
    for backwards in (False, True):
        emulator.configure(backwards=backwards)
        for got, want in zip(executable(*inputs), expected, strict=True):
            # Products of halves are exact in f32; sums come in another order.
            assert_close(got, np.asarray(want), 1e-5)


@pytest.mark.parametrize("groups", [24, 4])
def test_quantized_groups(groups: int, emulator: Emulator) -> None:
    """Each of 24 channels by itself, and four groups; what pads the image stands for 0."""
    inputs = {"x": numbers((2, 24, 9, 9), U8)}
    weights = {
        "w": weights_of_7_bits((24, 24 // groups, 3, 3)), "z": U8(114), "s": np.float32(0.02),
        "wz": np.zeros(24, S8), "ws": np.linspace(0.001, 0.002, 24, dtype=np.float32),
        "yz": U8(7), "ys": np.float32(0.5), "b": np.arange(-12, 12, dtype=np.int32),
    }  # fmt: skip
    names = ["x", "s", "z", "w", "ws", "wz", "ys", "yz", "b"]
    node = helper.make_node("QLinearConv", names, ["y"], pads=[1] * 4, strides=[2, 1], group=groups)
    source = model([node], inputs, weights, TensorProto.UINT8)
    expected = onnxruntime.InferenceSession(source).run(None, inputs)[0]
    compiled = compile_for_gpu(load_from_string(source), "cuda:sm_90a")
    assert not compiled.remarks
    executable = load_on_emulator(compiled, emulator)
    for backwards in (False, True):
        emulator.configure(backwards=backwards)
        np.testing.assert_array_equal(executable(*inputs.values())[0], expected)
