"""Gradient of ai.onnx.preview.training, against the derivatives written out."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

import stepwell

HEAD = '<ir_version: 8, opset_import: ["" : 17, "ai.onnx.preview.training" : 1]>'
RANDOM = np.random.default_rng(0)


def run(text: str, **feed: np.ndarray) -> dict[str, np.ndarray]:
    model = onnx.parser.parse_model(f"{HEAD}\n{text}")
    return stepwell.compile(model, options={"progress": False}).run(feed)


def test_layers() -> None:
    """d/dw and d/dx of tanh(x w) * sigmoid(x w): sums of products of float32, to 1e-5."""
    text = """g (float[3, 4] x, float[4, 5] w) => (float[3, 5] y, float[4, 5] dw, float[3, 4] dx) {
        p = MatMul (x, w)
        t = Tanh (p)
        s = Sigmoid (p)
        y = Mul (t, s)
        dw, dx = ai.onnx.preview.training.Gradient <xs = ["w", "x"], y = "y"> (w, x)
    }"""
    x = RANDOM.standard_normal((3, 4)).astype(np.float32)
    w = RANDOM.standard_normal((4, 5)).astype(np.float32)
    results = run(text, x=x, w=w)
    tanh, sigmoid = np.tanh(x @ w), 1 / (1 + np.exp(-(x @ w)))
    slope = (1 - tanh**2) * sigmoid + tanh * sigmoid * (1 - sigmoid)
    np.testing.assert_allclose(results["y"], tanh * sigmoid, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(results["dw"], x.T @ slope, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(results["dx"], slope @ w.T, rtol=1e-5, atol=1e-6)


def test_at_another_point() -> None:
    """The gradient is taken where the node's own inputs say, and of what does not count, zero."""
    text = """g (float[6] a, float[6] b, float[6] at) => (float[6] da, float[6] db, float[6] dc) {
        c = Div (a, b)
        d = Exp (b)
        y = Sub (c, d)
        da, db, dc = ai.onnx.preview.training.Gradient <xs = ["a", "b", "at"], y = "y"> (at, b, a)
    }"""
    a, b, at = (RANDOM.uniform(1, 2, 6).astype(np.float32) for _ in range(3))
    results = run(text, a=a, b=b, at=at)
    np.testing.assert_allclose(results["da"], 1 / b, rtol=1e-6)
    np.testing.assert_allclose(results["db"], -at / b**2 - np.exp(b), rtol=1e-5)
    assert not results["dc"].any()


@pytest.mark.parametrize(
    ("attributes", "inputs", "sentence"),
    [
        ('y = "y"', "a", 'lacks the attribute "xs"'),
        ('xs = ["a", "b"], y = "y"', "a", "1 inputs and 1 outputs"),
        ('xs = ["a"], y = "nothing"', "a", "is not computed from its inputs"),
    ],
)
def test_wrong_attributes_are_named(attributes: str, inputs: str, sentence: str) -> None:
    text = f"""g (float[6] a) => (float[6] da) {{
        y = Exp (a)
        da = ai.onnx.preview.training.Gradient <{attributes}> ({inputs})
    }}"""
    with pytest.raises(stepwell.ModelError, match=sentence):
        run(text, a=np.ones(6, np.float32))


@pytest.mark.parametrize(
    ("node", "sentence"),
    [
        ("y = Floor (a)", "the gradient of Floor"),
        ("y = Add (a, b)", "are broadcast"),
    ],
)
def test_what_is_not_known_is_refused(node: str, sentence: str) -> None:
    text = f"""g (float[6] a, float[1] b) => (float[6] da) {{
        {node}
        da = ai.onnx.preview.training.Gradient <xs = ["a"], y = "y"> (a)
    }}"""
    with pytest.raises(stepwell.ModelError, match=sentence):
        run(text, a=np.ones(6, np.float32), b=np.ones(1, np.float32))
