"""Tuning records: what they choose is what is compiled, and what cannot be is a sentence."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

import stepwell
from stepwell.compiler import build
from stepwell.errors import UsageError
from stepwell.inspection.explain import explain
from stepwell.inspection.kernel_report import KernelReport
from stepwell.kernels.strategy import Decision
from stepwell.options import CompileOptions
from stepwell.tools import stepwell as tool
from stepwell.tuning_record import TuningEntry, TuningRecord

TARGET, THREADS = "x86_64-v3", 1

NETWORK = """<ir_version: 8, opset_import: ["": 18]>
g (float[1, 64, 28, 28] x) => (float[1, 100] y) {
    [conv] c = Conv <pads = [1, 1, 1, 1]> (x, w)
    [pool] p = GlobalAveragePool (c)
    [flat] f = Flatten (p)
    [dense] y = MatMul (f, v)
}"""

OTHER = """<ir_version: 8, opset_import: ["": 18]>
g (float[1, 64, 28, 28] image) => (float[1, 64, 28, 28] result) {
    [double] twice = Add (image, image)
    [other] result = Conv <pads = [1, 1, 1, 1]> (twice, filters)
}"""


def network() -> onnx.ModelProto:
    model = parser.parse_model(NETWORK)
    generator = np.random.default_rng(0)
    for name, shape in (("w", (64, 64, 3, 3)), ("v", (64, 100))):
        array = generator.standard_normal(shape, np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    return model


def kernel(node: str, tuning: TuningRecord | None = None) -> KernelReport:
    found = explain(network(), TARGET, THREADS, options=CompileOptions(tuning=tuning))
    (kernel,) = (k for k in found.of_node(node) if k.kind == "contraction")
    return kernel


def decision(node: str, kind: str, tuning: TuningRecord | None = None) -> Decision:
    (found,) = (d for d in kernel(node, tuning).decisions if d.kind == kind)
    return found


def record(found: Decision, chosen: Mapping[str, object]) -> TuningRecord:
    entry = TuningEntry(found.kind, found.key, "the layer", {**found.chosen, **chosen}, 1.0, 2.0)
    return TuningRecord(TARGET, THREADS, entries=(entry,))


def outputs(tuning: TuningRecord | None) -> np.ndarray:
    exe = stepwell.compile(network(), TARGET, THREADS, options=CompileOptions(tuning=tuning))
    x = np.random.default_rng(1).standard_normal((1, 64, 28, 28), np.float32)
    (y,) = exe(x)
    return y


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    written = record(decision("dense", "strategy"), {"vectors": 1})
    written.save(tmp_path / "tuning.json")
    read = TuningRecord.read(tmp_path / "tuning.json")
    again = json.loads(json.dumps(dataclasses.asdict(dataclasses.replace(read, path=""))))
    assert again == json.loads(json.dumps(dataclasses.asdict(written)))
    assert read.digest == written.digest


@pytest.mark.parametrize("tile", [0, 2, 4])
def test_the_algorithm_is_what_the_record_says(tile: int) -> None:
    tuning = record(decision("conv", "algorithm"), {"tile": tile})
    tuned = kernel("conv", tuning)
    assert tuned.parameters.get("tile", 0) == tile
    assert tuned.decisions[0].tuned
    names = {0: "direct", 2: "Winograd F(2x2, 3x3)", 4: "Winograd F(4x4, 3x3)"}
    assert tuned.candidates["algorithm"][0].name == names[tile]
    np.testing.assert_allclose(outputs(tuning), outputs(None), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("node", "chosen"),
    [
        ("dense", {"vectors": 1, "panels": 2}),
        ("conv", {"block": 10, "rows": 5, "vectors": 2, "panels": 1}),
    ],
)
def test_the_strategy_is_what_the_record_says(node: str, chosen: Mapping[str, object]) -> None:
    tuning = record(decision(node, "strategy"), chosen)
    tuned = decision(node, "strategy", tuning)
    assert tuned.tuned
    assert {name: tuned.chosen[name] for name in chosen} == chosen
    np.testing.assert_allclose(outputs(tuning), outputs(None), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("node", ["conv", "dense"])
def test_what_cost_models_say_can_be(node: str) -> None:
    for found in kernel(node).decisions:
        assert kernel(node, record(found, {})).decisions


@pytest.mark.parametrize(
    ("node", "kind", "chosen", "sentence"),
    [
        ("conv", "algorithm", {"tile": 3}, "tile is 3, which is none of it"),
        (
            "conv",
            "strategy",
            {"rows": 14, "vectors": 4, "block": 14, "panels": 1},
            "do not fit x86_64-v3",
        ),
        ("conv", "strategy", {"block": 7, "rows": 3}, "no whole register tiles of 3"),
        ("dense", "strategy", {"box": [1, 20]}, "no register tile of 1x20 rows"),
        ("dense", "strategy", {"panels": 0}, "panels is 0"),
        ("dense", "strategy", {"ask_panels": True, "chains": 2}, "one chain at a time"),
        ("dense", "strategy", {"ask_rows": True, "chains": 2}, "one chain at a time"),
        ("dense", "strategy", {"apart": True}, "apart, a task has one panel"),
        ("dense", "strategy", {"vectors": "two"}, 'vectors is "two"'),
        ("dense", "strategy", {"width": 2}, "there is no field width"),
    ],
)
def test_what_cannot_be_is_a_sentence(
    node: str, kind: str, chosen: Mapping[str, object], sentence: str
) -> None:
    tuning = record(decision(node, kind), chosen)
    with pytest.raises(UsageError, match=r"the tuning record: error: .* of the layer") as caught:
        build(network(), TARGET, THREADS, options=CompileOptions(tuning=tuning))
    assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"target": "x86_64-v4"}, "made for target x86_64-v4, and this is for x86_64-v3"),
        ({"threads": 2}, "made for threads 2, and this is for 1"),
        ({"precision": "strict"}, "made for precision strict, and this is for default"),
    ],
)
def test_another_machine(changes: Mapping[str, object], sentence: str) -> None:
    tuning = TuningRecord.from_dict({"target": TARGET, "threads": THREADS, **changes})
    with pytest.raises(UsageError, match=sentence):
        build(network(), TARGET, THREADS, options=CompileOptions(tuning=tuning))
    with pytest.raises(UsageError, match=sentence):
        explain(network(), TARGET, THREADS, options=CompileOptions(tuning=tuning))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "it is no JSON"),
        ("[]", "this is no tuning record"),
        ('{"format": "stepwell.tuning", "version": 9}', "is of version 9"),
        ('{"format": "stepwell.tuning", "version": 1, "threads": 1}', "target is missing"),
        (
            '{"format": "stepwell.tuning", "version": 1, "target": "a", "threads": true}',
            "threads is true",
        ),
        (
            json.dumps(
                {
                    "format": "stepwell.tuning",
                    "version": 1,
                    "target": "a",
                    "threads": 1,
                    "entries": 3,
                }
            ),
            "entries is 3",
        ),
    ],
)
def test_a_damaged_file(
    text: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "tuning.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=sentence):
        CompileOptions(tuning=str(path))
    onnx.save(network(), tmp_path / "network.onnx")
    assert tool.main(["explain", str(tmp_path / "network.onnx"), "--tuning", str(path)]) == 2
    assert f"{path}: error: " in capsys.readouterr().err


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read: no such file"):
        CompileOptions(tuning=str(tmp_path / "none.json"))


ATTENTION = """func.func @main(%q: tensor<4x128x64xf32>, %k: tensor<4x96x64xf32>,
    %v: tensor<4x96x64xf32>) -> tensor<4x128x64xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %s = stablehlo.dot_general %q, %k, batching_dims = [0] x [0], contracting_dims = [2] x [2]
      : (tensor<4x128x64xf32>, tensor<4x96x64xf32>) -> tensor<4x128x96xf32>
  %m = stablehlo.reduce(%s init: %low) applies stablehlo.maximum across dimensions = [2]
      : (tensor<4x128x96xf32>, tensor<f32>) -> tensor<4x128xf32>
  %mb = stablehlo.broadcast_in_dim %m, dims = [0, 1]
      : (tensor<4x128xf32>) -> tensor<4x128x96xf32>
  %d = stablehlo.subtract %s, %mb : tensor<4x128x96xf32>
  %e = stablehlo.exponential %d : tensor<4x128x96xf32>
  %t = stablehlo.reduce(%e init: %zero) applies stablehlo.add across dimensions = [2]
      : (tensor<4x128x96xf32>, tensor<f32>) -> tensor<4x128xf32>
  %tb = stablehlo.broadcast_in_dim %t, dims = [0, 1]
      : (tensor<4x128xf32>) -> tensor<4x128x96xf32>
  %w = stablehlo.divide %e, %tb : tensor<4x128x96xf32>
  %o = stablehlo.dot_general %w, %v, batching_dims = [0] x [0], contracting_dims = [2] x [1]
      : (tensor<4x128x96xf32>, tensor<4x96x64xf32>) -> tensor<4x128x64xf32>
  func.return %o : tensor<4x128x64xf32>
}"""


def attention_decision() -> Decision:
    (found,) = (k for k in explain(ATTENTION, TARGET, THREADS).kernels if k.kind == "attention")
    assert found.candidates["tile"]
    return found.decisions[0]


def test_attention_is_what_the_record_says() -> None:
    found = attention_decision()
    generator = np.random.default_rng(3)
    inputs = [generator.standard_normal((4, n, 64), np.float32) for n in (128, 96, 96)]
    (expected,) = stepwell.compile(ATTENTION, TARGET, THREADS)(*inputs)
    assert len(found.variants) > 4
    for variant in found.variants:
        options = CompileOptions(tuning=record(found, variant))
        (result,) = stepwell.compile(ATTENTION, TARGET, THREADS, options=options)(*inputs)
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("chosen", "sentence"),
    [
        ({"rows": 0}, "rows is 0, of 8"),
        ({"rows": 8, "score_vectors": 4}, "register tiles of 8 by 4 do not fit x86_64-v3"),
        ({"value_vectors": 0}, "by 0 do not fit"),
        ({"row_tiles": 500}, "row_tiles is 500, of"),
        ({"box": [1, 4]}, "there is no field box"),
    ],
)
def test_attention_that_cannot_be_is_a_sentence(
    chosen: Mapping[str, object], sentence: str
) -> None:
    options = CompileOptions(tuning=record(attention_decision(), chosen))
    with pytest.raises(UsageError, match=sentence):
        build(ATTENTION, TARGET, THREADS, options=options)


def test_the_cache_knows_records_by_what_they_choose() -> None:
    tuning = record(decision("dense", "strategy"), {"vectors": 1})
    measured_again = dataclasses.replace(tuning.entries[0], seconds=5.0)
    keys = [
        CompileOptions(tuning=found).result_key()
        for found in (tuning, tuning.with_entries([measured_again]), None)
    ]
    assert keys[0] == keys[1] != keys[2]
    empty = CompileOptions(tuning=TuningRecord(TARGET, THREADS))
    assert empty.result_key() == keys[2]


def test_an_equal_layer_of_another_model_is_tuned() -> None:
    tuning = record(decision("conv", "algorithm"), {"tile": 0})
    model = parser.parse_model(OTHER)
    weights = np.random.default_rng(2).standard_normal((64, 64, 3, 3), np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weights, "filters"))
    found = explain(model, TARGET, THREADS, options=CompileOptions(tuning=tuning))
    (kernel,) = (k for k in found.of_node("other") if k.kind == "contraction")
    assert kernel.decisions[0].tuned


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record(decision("conv", "algorithm"), {"tile": 0}).save(tmp_path / "tuning.json")
    onnx.save(network(), tmp_path / "network.onnx")
    common = [str(tmp_path / "network.onnx"), "--target", TARGET, "--threads", "1"]
    given = [*common, "--tuning", str(tmp_path / "tuning.json")]
    assert tool.main(["explain", *given]) == 0
    assert "from the tuning record, the algorithm of kernels" in capsys.readouterr().out
    assert tool.main(["run", *given, "--random-inputs", "0"]) == 0
