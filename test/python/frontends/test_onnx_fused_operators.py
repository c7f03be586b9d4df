"""Operators that the standard defines by many smaller ones, lowered as one kernel on every target,
with the numbers of onnx's reference evaluator."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import stepwell

X = {"x": (2, 12, 64)}
HEADS = {"q": (2, 4, 16, 32), "k": (2, 4, 16, 32), "v": (2, 4, 16, 32)}
ANGLES = {"cos": (64, 8), "sin": (64, 8), "positions": (2, 16)}
OPERATORS = {
    "Softmax": ("Softmax", X, {}, 22),
    "LogSoftmax": ("LogSoftmax", X, {}, 22),
    "LayerNormalization": ("LayerNormalization", X | {"scale": (64,), "bias": (64,)}, {}, 22),
    "RMSNormalization": ("RMSNormalization", X | {"scale": (64,)}, {}, 23),
    "GroupNormalization": (
        "GroupNormalization",
        {"x": (2, 16, 8, 8), "scale": (16,), "bias": (16,)},
        {"num_groups": 4},
        21,
    ),
    "Gelu": ("Gelu", X, {}, 22),
    "Gelu-tanh": ("Gelu", X, {"approximate": "tanh"}, 22),
    "Attention": ("Attention", HEADS, {}, 23),
    "RotaryEmbedding": ("RotaryEmbedding", {"x": (2, 4, 16, 16)} | ANGLES, {}, 23),
    "RotaryEmbedding-neighbours": (
        "RotaryEmbedding",
        {"x": (2, 4, 16, 16)} | ANGLES,
        {"interleaved": 1},
        23,
    ),
    "RotaryEmbedding-part": (
        "RotaryEmbedding",
        {"x": (2, 16, 96)} | ANGLES,
        {"num_heads": 4, "rotary_embedding_dim": 16},
        23,
    ),
    "RotaryEmbedding-in-order": (
        "RotaryEmbedding",
        {"x": (2, 16, 64), "cos": (2, 16, 8), "sin": (2, 16, 8)},
        {"num_heads": 4},
        23,
    ),
    "SwiGLU": ("SwiGLU", {"a": (8, 64), "b": (8, 64)}, {}, 28),
}  # fmt: skip

KERNELS = {("Attention", "x86_64-v3"): 3, ("Attention", "cuda:sm_90a"): 2}
"""Those that are more than one kernel: queries that come as inputs are scaled before, which a
model's own product does for nothing, and on CPUs keys are transposed."""


def _model(name: str) -> onnx.ModelProto:
    operator, shapes, attributes, opset = OPERATORS[name]
    inputs = [
        helper.make_tensor_value_info(
            n, TensorProto.INT64 if n == "positions" else TensorProto.FLOAT, s
        )
        for n, s in shapes.items()
    ]
    node = helper.make_node(operator, list(shapes), ["y"], **attributes)
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], name, inputs, [output])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


@pytest.mark.parametrize("target", ["x86_64-v3", "cuda:sm_90a"])
@pytest.mark.parametrize("name", OPERATORS)
def test_one_kernel(name: str, target: str) -> None:
    lowered = stepwell.lower(_model(name), target=target)
    lowered.step("affine")
    assert str(lowered).count("call @kernel_") == KERNELS.get((name, target), 1)
    assert not lowered.remarks


@pytest.mark.parametrize("name", OPERATORS)
def test_numbers(name: str) -> None:
    generator = np.random.default_rng(3)
    model = _model(name)
    feed = {
        n: generator.integers(0, 64, s)
        if n == "positions"
        else generator.standard_normal(s).astype(np.float32)
        for n, s in OPERATORS[name][1].items()
    }
    (wanted,) = ReferenceEvaluator(model).run(None, feed)
    result = stepwell.compile(model).run(feed)["y"]
    np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize(
    ("shapes", "attributes", "reason"),
    [
        ({"x": (2, 16, 65)} | ANGLES, {"num_heads": 4}, "num_heads 4"),
        ({"x": (2, 4, 16, 8)} | ANGLES, {}, "16 elements of heads of 8"),
        ({"x": (2, 4, 9, 16)} | ANGLES, {}, r"positions of shape \[2, 16\]"),
    ],
)
def test_rotary_embedding_that_does_not_fit(
    shapes: dict[str, tuple[int, ...]], attributes: dict[str, int], reason: str, monkeypatch
) -> None:
    entry = ("RotaryEmbedding", shapes, attributes, 23)
    monkeypatch.setitem(OPERATORS, "bad", entry)
    with pytest.raises(stepwell.ModelError, match=reason):
        stepwell.lower(_model("bad"))
