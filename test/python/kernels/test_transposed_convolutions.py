"""Transposed convolutions end in their kernels: activations in registers, pixels in place."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, numpy_helper, parser

import stepwell
from stepwell.inspection.explain import explain

AVX2 = "x86_64-v3"

ACTIVATIONS = {
    "": "y = Identity(c)",
    "relu": "y = Relu(c)",
    "silu": "s = Sigmoid(c) y = Mul(c, s)",
    "clip": "y = Clip(c, low, high)",
    "scaled": "s = Mul(c, scale) y = LeakyRelu(s)",
}


def decoder(
    channels: int, kernel: int, attributes: str, after: str, shape: tuple[int, ...] = (2, 6, 5, 7)
) -> ModelProto:
    spatial = [kernel] * (len(shape) - 2)
    sizes = ", ".join(map(str, shape))
    model = parser.parse_model(f"""<ir_version: 8, opset_import: ["": 18]>
    g (float[{sizes}] x) => (float[] y) {{
      low = Constant <value_float = -0.5> ()
      high = Constant <value_float = 0.5> ()
      c = ConvTranspose <{attributes}> (x, w, b) {after}
    }}""")
    random = np.random.default_rng(0)
    for name, dims in {
        "w": (shape[1], channels, *spatial),
        "b": (channels,),
        "scale": (channels, *[1] * len(spatial)),
    }.items():
        array = random.standard_normal(dims).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    model.graph.output[0].type.tensor_type.ClearField("shape")
    return model


def check(model: ModelProto, shape: tuple[int, ...] = (2, 6, 5, 7), target: str = "cpu") -> None:
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    (expected,) = session.run(None, {"x": x})
    for threads in (1, 2):
        (y,) = stepwell.compile(model, target, threads)(x)
        np.testing.assert_allclose(y, expected, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("after", ACTIVATIONS.values(), ids=ACTIVATIONS)
@pytest.mark.parametrize(
    ("kernel", "attributes"),
    [
        (2, "strides = [2, 2]"),
        (4, "strides = [2, 2], pads = [1, 1, 1, 1]"),
        (3, "strides = [2, 2], pads = [1, 1, 1, 1], output_padding = [1, 1]"),
        (3, "strides = [2, 2], pads = [1, 1, 1, 1]"),
        (5, "strides = [3, 2], pads = [1, 2, 1, 2]"),
    ],
)
@pytest.mark.parametrize("channels", [5, 32])
def test_what_follows(channels: int, kernel: int, attributes: str, after: str) -> None:
    check(decoder(channels, kernel, attributes, after))


def test_one_and_three_dimensions() -> None:
    for shape in ((2, 6, 9), (1, 4, 3, 4, 5)):
        rank = len(shape) - 2
        attributes = f"strides = {[2] * rank}, pads = {[1] * 2 * rank}"
        check(decoder(8, 4, attributes, ACTIVATIONS["silu"], shape), shape)


def test_avx2() -> None:
    attributes = "strides = [2, 2], pads = [1, 1, 1, 1]"
    check(decoder(24, 4, attributes, ACTIVATIONS["scaled"]), target=AVX2)


@pytest.mark.parametrize(
    ("kernel", "attributes", "contractions"),
    [
        (2, "strides = [2, 2]", 1),
        (4, "strides = [2, 2], pads = [1, 1, 1, 1]", 4),
        (3, "strides = [2, 2], pads = [1, 1, 1, 1], output_padding = [1, 1]", 4),
    ],
)
def test_no_pass_over_the_result(kernel: int, attributes: str, contractions: int) -> None:
    """Beside the products there are transposes from and to NCHW, and halos."""
    model = decoder(32, kernel, attributes, ACTIVATIONS["scaled"], (1, 32, 16, 16))
    kinds = Counter(kernel.kind for kernel in explain(model, AVX2, 1).kernels)
    assert kinds.pop("contraction") == contractions
    assert set(kinds) <= {"transpose", "pad"}
