"""Functions that a model brings along: nested, with attributes, of other versions, in branches."""

from __future__ import annotations

import numpy as np
from onnx import ModelProto, parser

import stepwell

X = np.arange(-3, 3, dtype=np.float32).reshape(2, 3)


def check(model: ModelProto, expected: np.ndarray, *more: np.ndarray) -> None:
    (y,) = stepwell.compile(model, threads=1)(X, *more)
    np.testing.assert_array_equal(y, expected)


def test_nested_with_attributes() -> None:
    check(
        parser.parse_model("""<ir_version: 8, opset_import: ["": 18, "my": 1]>
        g (float[2,3] x) => (float[2,3] y) { y = my.scaled <alpha = 2.0> (x) }
        <domain: "my", opset_import: ["": 18, "my": 1]>
        scaled <alpha> (a) => (b) {
          c = Constant <value_float: float = @alpha> () d = my.part(a) b = Mul(d, c)
        }
        <domain: "my", opset_import: ["": 18]> part (a) => (b) { b = Relu(a) }"""),
        2 * np.maximum(X, 0),
    )


def test_in_a_branch() -> None:
    model = parser.parse_model("""<ir_version: 8, opset_import: ["": 18, "my": 1]>
    g (float[2,3] x, bool c) => (float[2,3] y) {
      y = If (c) <then_branch = t () => (float[2,3] u) { u = my.twice(x) },
                  else_branch = e () => (float[2,3] v) { v = Neg(x) }>
    }
    <domain: "my", opset_import: ["": 18]> twice (a) => (b) { b = Add(a, a) }""")
    check(model, 2 * X, np.array(True))
    check(model, -X, np.array(False))


def test_of_an_older_version() -> None:
    """In version 11, the axes of ReduceSum are an attribute, as they are in no model of 18."""
    check(
        parser.parse_model("""<ir_version: 8, opset_import: ["": 18, "my": 1]>
        g (float[2,3] x) => (float[1,3] y) { y = my.columns(x) }
        <domain: "my", opset_import: ["": 11]> columns (a) => (b) { b = ReduceSum <axes = [0]> (a) }
        """),
        X.sum(0, keepdims=True),
    )


def test_in_the_place_of_an_operator() -> None:
    model = parser.parse_model("""<ir_version: 8, opset_import: ["": 18]>
    g (float[2,3] x) => (float[2,3] y) { y = Relu(x) }
    <domain: "", opset_import: ["": 18]> Relu (a) => (b) { b = Neg(a) }""")
    check(model, -X)
