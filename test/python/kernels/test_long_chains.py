"""Models of more operations in a row than one kernel has, or than Python's calls may nest."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import stepwell

OPERATIONS = 1500


def _chain(operators: list[str], kind: int, shape: tuple[int, ...]) -> onnx.ModelProto:
    """x = operator(x, c) again and again, with the operators in turns."""
    nodes, last = [], "x"
    for number in range(OPERATIONS):
        operator = operators[number % len(operators)]
        read = [last] if operator == "Tanh" else [last, "c"]
        last = f"x{number}"
        nodes.append(helper.make_node(operator, read, [last], f"{operator}_{number}"))
    inputs = [helper.make_tensor_value_info(name, kind, shape) for name in ("x", "c")]
    outputs = [helper.make_tensor_value_info(last, kind, shape)]
    graph = helper.make_graph(nodes, "chain", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


def _by_numpy(operators: list[str], x: np.ndarray, c: np.ndarray) -> np.ndarray:
    functions = {"Add": np.add, "Mul": np.multiply, "Max": np.maximum}
    for number in range(OPERATIONS):
        operator = operators[number % len(operators)]
        x = np.tanh(x) if operator == "Tanh" else functions[operator](x, c)
    return x


@pytest.mark.parametrize("precision", ["default", "strict"])
def test_floats(precision: str) -> None:
    operators = ["Mul", "Add", "Tanh"]
    x, c = np.random.default_rng(1).uniform(-0.5, 0.5, (2, 64)).astype(np.float32)
    model = _chain(operators, TensorProto.FLOAT, (64,))
    (found,) = stepwell.compile(model, options={"precision": precision})(x, c)
    # Rounding does not add up: each step makes a difference smaller than it was.
    np.testing.assert_allclose(found, _by_numpy(operators, x, c), rtol=1e-5)


def test_integers() -> None:
    operators = ["Mul", "Add", "Max"]
    x, c = np.random.default_rng(2).integers(-9, 9, (2, 64), dtype=np.int32)
    (found,) = stepwell.compile(_chain(operators, TensorProto.INT32, (64,)))(x, c)
    np.testing.assert_array_equal(found, _by_numpy(operators, x, c))


def test_for_a_gpu() -> None:
    model = _chain(["Mul", "Add", "Tanh"], TensorProto.FLOAT, (64,))
    lowered = stepwell.lower(model, target="cuda:sm_90a")
    lowered.step("affine")
    assert str(lowered).count("  call @kernel_") == 6  # of at most 256 operations each
