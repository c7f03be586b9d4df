"""Small models through the real compiler: command line, call, session, jit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
import onnx
import pytest

import stepwell
from stepwell import cache
from stepwell.tools import stepwell as tool

LAYER = """
module {
  func.func @main(%x: tensor<4x3xf32>, %w: tensor<3x5xf32>) -> tensor<4x5xf32> {
    %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
        : (tensor<4x3xf32>, tensor<3x5xf32>) -> tensor<4x5xf32>
    %1 = stablehlo.constant dense<0.0> : tensor<4x5xf32>
    %2 = stablehlo.maximum %0, %1 : tensor<4x5xf32>
    return %2 : tensor<4x5xf32>
  }
}
"""
TOLERANCE = 1e-6
"""Sums of three products in single precision."""


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("STEPWELL_CACHE_DIR", str(tmp_path / "cache"))
    cache.root.cache_clear()
    yield
    cache.root.cache_clear()


def operands() -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    return (
        generator.standard_normal((4, 3), np.float32),
        generator.standard_normal((3, 5), np.float32),
    )


def layer(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    return np.maximum(x @ w, 0)


def test_command_line(tmp_path: Path) -> None:
    x, w = operands()
    (tmp_path / "m.mlir").write_text(LAYER)
    np.savez(tmp_path / "in.npz", arg0=x, arg1=w)
    np.save(tmp_path / "want.npy", layer(x, w))
    model, inputs, want = (str(tmp_path / name) for name in ("m.stepwell", "in.npz", "want.npy"))
    assert tool.main(["compile", str(tmp_path / "m.mlir"), "-o", model]) == 0
    arguments = ["--input", f"@{inputs}", "--expected", f"@{want}", "--atol", str(TOLERANCE)]
    assert tool.main(["run", model, *arguments]) == 0


@pytest.mark.parametrize("opt_level", [0, 3])
def test_compile_text(opt_level: int) -> None:
    exe = stepwell.compile(LAYER, threads=2, options={"opt_level": opt_level})
    np.testing.assert_allclose(exe(*operands())[0], layer(*operands()), atol=TOLERANCE)


def test_session_with_open_dimensions(tmp_path: Path) -> None:
    def info(name: str) -> onnx.ValueInfoProto:
        return onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["rows", 3])

    node = onnx.helper.make_node("Relu", ["x"], ["y"])
    graph = onnx.helper.make_graph([node], "g", [info("x")], [info("y")])
    onnx.save(onnx.helper.make_model(graph), tmp_path / "m.onnx")
    session = stepwell.Session(tmp_path / "m.onnx")
    for rows in (1, 4):
        x = operands()[0][:rows]
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], np.maximum(x, 0))


def test_jit() -> None:
    double = stepwell.jit(lambda tree: jax.tree_util.tree_map(lambda leaf: leaf + leaf, tree))
    x, w = operands()
    result = double({"x": x, "w": [w]})
    np.testing.assert_array_equal(result["x"], 2 * x)
    np.testing.assert_array_equal(result["w"][0], 2 * w)
