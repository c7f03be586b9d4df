"""Whole networks: all import and verify; some are compared with onnxruntime, run through XLA."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from xla import run_artifact

from stepwell.frontends import load
from stepwell.frontends.export import to_bytes

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
ZOO = Path(os.environ.get("STEPWELL_ZOO", "zoo"))
"""Folder of benchmark models with reference data; its tests are skipped where it is absent."""

RELATIVE_L2 = 2e-5
"""Both sides compute in float32 and sum in different orders."""


def _relative_l2(result: np.ndarray, expected: np.ndarray) -> float:
    wide = expected.astype(np.float64)
    return float(np.linalg.norm(result - wide) / max(float(np.linalg.norm(wide)), 1e-30))


@pytest.mark.parametrize("path", sorted(LIGHT.glob("*.onnx")), ids=lambda path: path.stem)
def test_light_models_import(path: Path) -> None:
    imported = load(path)
    declared = onnx.load(path).graph.output[0].type.tensor_type.shape.dim
    assert imported.outputs[0].shape == tuple(d.dim_value for d in declared)


@pytest.mark.parametrize("stem", ["shufflenet", "densenet121"])
def test_light_models_compute(stem: str) -> None:
    path = LIGHT / f"light_{stem}.onnx"
    imported = load(path)
    spec = imported.inputs[0]
    x = np.random.default_rng(0).standard_normal(spec.shape, np.float32)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    expected = np.asarray(session.run(None, {spec.name: x})[0])
    result = run_artifact(to_bytes(imported, "portable"), [x])[0]
    assert _relative_l2(result, expected) < RELATIVE_L2


def _zoo_models() -> list[Path]:
    kinds = (".onnx", ".mlir", ".jax_export")
    return [path for path in sorted(ZOO.glob("*")) if path.suffix in kinds]


@pytest.mark.parametrize("path", _zoo_models(), ids=lambda path: path.name)
def test_zoo_models_import(path: Path) -> None:
    imported = load(path)
    with np.load(path.with_suffix(".npz")) as data:
        for i, spec in enumerate(imported.outputs):
            assert spec.shape == data[f"out:{i}"].shape


@pytest.mark.skipif(not ZOO.is_dir(), reason="needs the benchmark models (STEPWELL_ZOO)")
@pytest.mark.parametrize("stem", ["light_squeezenet", "minilm6_s128", "mobilenetv2_b1"])
def test_zoo_models_compute(stem: str) -> None:
    imported = load(ZOO / f"{stem}.onnx")
    with np.load(ZOO / f"{stem}.npz") as data:
        arrays = [data[f"in:{spec.name}"] for spec in imported.inputs]
        results = run_artifact(to_bytes(imported, "portable"), arrays)
        for i, result in enumerate(results):
            assert _relative_l2(result, data[f"out:{i}"]) < RELATIVE_L2


def _is_mapped(array: np.ndarray) -> bool:
    base: object = array
    while isinstance(base, np.ndarray):
        base = base.base
    return isinstance(base, mmap.mmap)


def test_weights_are_mapped_not_copied(tmp_path: Path) -> None:
    weights = np.random.default_rng(0).standard_normal((64, 64), np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 64])],
        [numpy_helper.from_array(weights, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    for name, external in (("inside.onnx", False), ("outside.onnx", True)):
        onnx.save(model, tmp_path / name, save_as_external_data=external, location="weights.bin")
        table = load(tmp_path / name).weights
        assert _is_mapped(table["w"])
        np.testing.assert_array_equal(table["w"], weights)
