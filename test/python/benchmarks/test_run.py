"""The benchmark's machinery on a tiny model: structure and errors, never times."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from benchmarks import report, run
from benchmarks.measure import Settings
from benchmarks.models import catalog
from benchmarks.summary import Results, figures
from benchmarks.tables import all_tables

MODEL = "light_squeezenet"
_FP32_ERROR = 1e-6
"""Rounding of a 16-term fp32 dot product, with room."""


@pytest.fixture(autouse=True)
def _bench_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPWELL_BENCH_DIR", str(tmp_path / "bench"))


@pytest.fixture
def results(tmp_path: Path) -> Results:
    """One short round of a perceptron that takes the place of a model."""
    write_tiny_model(catalog.files(MODEL))
    settings = Settings(rounds=1, burst_s=0.01, start_timeout_s=120.0)
    return run.run([MODEL], ["stepwell", "onnxruntime"], [1], settings, tmp_path / "results.json")


def write_tiny_model(files: catalog.ModelFiles) -> None:
    generator = np.random.default_rng(0)
    x, w = (generator.normal(size=shape).astype(np.float32) for shape in ((4, 16), (16, 8)))
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])]
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (4, 8))],
        [numpy_helper.from_array(w, "w")],
    )
    opset = helper.make_opsetid("", 18)
    onnx.save(helper.make_model(graph, opset_imports=[opset], ir_version=10), files.path)
    reference = np.maximum(x.astype(np.float64) @ w.astype(np.float64), 0)
    files.write_data({"x": x}, [reference], gflop=2 * 4 * 16 * 8 / 1e9, weights_bytes=w.nbytes)


def test_a_run_reports_every_contender(results: Results, tmp_path: Path) -> None:
    assert results.data == json.loads((tmp_path / "results.json").read_text())
    assert results.peers() == ["stepwell", "onnxruntime"]
    for peer in results.peers():
        one = results.report(MODEL, 1, peer)
        assert one["ok"], one
        error = results.number(MODEL, 1, peer, "relative_error")
        assert error is not None
        assert error < _FP32_ERROR
        for key in ("wall_ms", "cpu_ms", "first_result_s", "peak_rss_bytes", "artifact_bytes"):
            assert results.number(MODEL, 1, peer, key) is not None, key
    assert results.number(MODEL, 1, "stepwell", "first_result_warm_s") is not None
    assert results.ratio(MODEL, 1) is not None


def test_tables_and_figures_of_a_run(results: Results) -> None:
    tables = all_tables(results)
    assert all(len(row) == len(table.columns) for table in tables for row in table.rows)
    by_name = {figure.name: figure for figure in figures(results)}
    error = by_name["largest relative L2 error"]
    assert error.passed is None, "one model of eleven passes nothing"
    assert "1 of 11" in error.measured
    assert by_name["best peer's time / ours, resnet50_b1"].passed is None


def test_report_writes_between_the_markers(results: Results, tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    page.write_text(f"before\n{report.START}\nold\n{report.END}\nafter\n")
    assert report.replace_between_markers(page, report.summary(results))
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert MODEL in text
    assert "old" not in text
    page.write_text("no markers")
    assert not report.replace_between_markers(page, "text")


def test_newest_results_of_each_machine(tmp_path: Path) -> None:
    files = [("a", 1, "old"), ("b", 3, "old"), ("c", 2, "new"), ("d-layers", 4, "old")]
    for name, day, cpu in files:
        data = {"date": f"2026-01-0{day}", "machine": {"cpu": cpu}}
        (tmp_path / f"{name}.json").write_text(json.dumps(data))
    found = report.newest(tmp_path, lambda path: "layers" not in path.name)
    assert [path.stem for path in found] == ["b", "c"]


def test_runs_of_some_models_keep_those_of_all() -> None:
    everything = list(catalog.MODELS)
    paths = [run.default_path(names, "f32") for names in (everything, everything[:2])]
    assert paths[0].name == paths[1].name
    assert paths[1].parent == paths[0].parent / "selected"
    assert run.default_path(everything[:2], "bf16").parent == paths[0].parent


def test_a_contender_that_fails_is_reported(tmp_path: Path) -> None:
    files = catalog.files(MODEL)
    write_tiny_model(files)
    files.path.write_bytes(b"no model")
    settings = Settings(rounds=1, burst_s=0.01, start_timeout_s=120.0)
    broken = run.run([MODEL], ["onnxruntime"], [1], settings, tmp_path / "results.json")
    one = broken.report(MODEL, 1, "onnxruntime")
    assert not one["ok"]
    assert one["error"]
    assert all_tables(broken)
