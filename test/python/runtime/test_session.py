"""`Session`: names, signatures, a compilation for each new set of shapes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from handmade import WEIGHT

import stepwell
from stepwell import session


def batch(rows: int = 16) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((rows, 8), dtype=np.float32)


def test_artifact(model: Path) -> None:
    s = stepwell.Session(model)
    (y,) = s.run(None, {"x": batch()})
    np.testing.assert_array_equal(y, np.maximum(batch() + WEIGHT, 0))
    np.testing.assert_array_equal(s.run(["y"], {"x": batch()})[0], y)
    assert s.get_inputs() == [session.NodeArg("x", "tensor(float)", [16, 8])]
    assert s.get_outputs()[0].name == "y"
    with pytest.raises(stepwell.UsageError, match="no output 'z'; it has: y"):
        s.run(["z"], {"x": batch()})
    with pytest.raises(stepwell.InputError, match=r"has shape \(3, 8\)"):
        s.run(None, {"x": batch(3)})
    with pytest.raises(stepwell.InputError, match="was not given"):
        s.run(None, {})


def open_model(path: Path) -> Path:
    rows = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["rows", 8])
    result = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["rows", 8])
    node = onnx.helper.make_node("Relu", ["x"], ["y"])
    onnx.save(onnx.helper.make_model(onnx.helper.make_graph([node], "g", [rows], [result])), path)
    return path


def test_open_dimensions(tmp_path: Path) -> None:
    s = stepwell.Session(open_model(tmp_path / "open.onnx"), options={"progress": False})
    declared = [session.NodeArg("x", "tensor(float)", ["rows", 8])]
    assert s.get_inputs() == declared
    for rows in (16, 3, 16):
        (y,) = s.run(None, {"x": batch(rows)})
        np.testing.assert_array_equal(y, np.maximum(batch(rows), 0))
    assert s.get_inputs() == declared
    with pytest.raises(stepwell.InputError, match=r"has shape \(3, 7\) and the model takes"):
        s.run(None, {"x": batch(3)[:, :7]})
    with pytest.raises(stepwell.InputError, match="has rank 1"):
        s.run(None, {"x": batch()[0]})
    with pytest.raises(stepwell.InputError, match="'x' was not given"):
        s.run(None, {})
