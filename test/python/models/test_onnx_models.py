"""Whole models as they lie in the onnx package, against onnxruntime without its optimisations.

By default three that differ most run; STEPWELL_TEST_ALL_MODELS=1 runs all nine.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from expected_failures import EXPECTED_FAILURES

import stepwell

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
DEFAULT = ("squeezenet", "shufflenet", "resnet50")
ALL = os.environ.get("STEPWELL_TEST_ALL_MODELS") == "1"

RELATIVE_L2 = 2e-5
"""Both sides compute in float32 and sum in different orders."""

CODE_BYTES = 1 << 20
"""What an artifact may hold beside the weights."""


def paths() -> list[Path]:
    found = sorted(LIGHT.glob("*.onnx"))
    return found if ALL else [p for p in found if p.stem.removeprefix("light_") in DEFAULT]


def seeded(path: Path) -> onnx.ModelProto:
    """The model with random weights: the package has equal ones, and each class gets 1/1000."""
    model = onnx.load(path)
    generator = np.random.default_rng(0)
    fills = {n.output[0]: n for n in model.graph.node if n.op_type == "ConstantOfShape"}
    shapes = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    variances = {n.input[4] for n in model.graph.node if n.op_type == "BatchNormalization"}
    for name, node in fills.items():
        shape = shapes[node.input[0]].tolist()
        scale = np.sqrt(2 / max(np.prod(shape[1:]), 1)) if len(shape) > 1 else 0.1
        array = generator.standard_normal(shape) * scale
        if name in variances:
            array = 0.5 + np.abs(array)
        tensor = onnx.numpy_helper.from_array(array.astype(np.float32), name)
        model.graph.initializer.append(tensor)
        model.graph.node.remove(node)
    return model


def unoptimised(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    providers = ["CPUExecutionProvider"]
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=providers)


def relative_l2(result: np.ndarray, expected: np.ndarray) -> float:
    wide = expected.astype(np.float64)
    return float(np.linalg.norm(result - wide) / max(float(np.linalg.norm(wide)), 1e-30))


def _marked(path: Path):
    reason = EXPECTED_FAILURES.get(path.stem)
    marks = [] if reason is None else [pytest.mark.xfail(reason=reason, strict=True)]
    return pytest.param(path, id=path.stem, marks=marks)


@pytest.mark.parametrize("path", [_marked(path) for path in paths()])
def test_light_model(path: Path) -> None:
    model = seeded(path)
    exe = stepwell.compile(model, threads=1)
    generator = np.random.default_rng(1)
    feed = {s.name: generator.standard_normal(s.shape).astype(np.float32) for s in exe.inputs}
    expected = unoptimised(model).run(None, feed)
    for got, want in zip(exe.run(feed).values(), expected, strict=True):
        assert relative_l2(got, np.asarray(want)) < RELATIVE_L2


def test_as_it_lies_and_its_size() -> None:
    path = LIGHT / "light_squeezenet.onnx"
    exe = stepwell.compile(path, threads=1)
    x = np.random.default_rng(0).standard_normal((1, 3, 224, 224)).astype(np.float32)
    (want,) = unoptimised(onnx.load(path)).run(None, {"data_0": x})
    assert relative_l2(exe(x)[0], np.asarray(want)) < RELATIVE_L2
    manifest = exe.artifact.manifest
    assert len(exe.artifact.file) <= manifest.weights_bytes + CODE_BYTES
    # The largest two buffers that live at once are the first convolution's result (64 x 111 x 111)
    # and its pooled form; all buffers of the model together are several times that.
    assert manifest.arena_bytes < 5 << 20
