"""`stepwell explain`: what it says is what compiling does."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper, parser

import stepwell
from stepwell.errors import OpenModelError
from stepwell.inspection.explain import Explanation, explain
from stepwell.tools import stepwell as tool

Capture = pytest.CaptureFixture[str]
TARGET, THREADS = "x86_64-v4", 2

NETWORK = """<ir_version: 8, opset_import: ["": 18]>
g (float[1, 64, 28, 28] x) => (float[1, 100] y) {
    [conv] c = Conv <pads = [1, 1, 1, 1]> (x, w)
    [act] r = Relu (c)
    [pool] p = GlobalAveragePool (r)
    [flat] f = Flatten (p)
    [dense] y = MatMul (f, v)
}"""

WORDS = """<ir_version: 8, opset_import: ["": 20]>
g (string[2] s, float[2] x) => (string[2] t, float[2] y) {
    [lower] t = StringNormalizer <case_change_action = "LOWER"> (s)
    [minus] y = Neg (x)
}"""

LARGEST = """
func.func @main(%x: tensor<4x8xf32>) -> tensor<4xi32> {
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %i = stablehlo.iota dim = 1 : tensor<4x8xi32>
  %0:2 = stablehlo.reduce(%x init: %low), (%i init: %zero) across dimensions = [1]
      : (tensor<4x8xf32>, tensor<4x8xi32>, tensor<f32>, tensor<i32>)
      -> (tensor<4xf32>, tensor<4xi32>)
      reducer(%a: tensor<f32>, %b: tensor<f32>) (%j: tensor<i32>, %k: tensor<i32>) {
    %1 = stablehlo.compare GE, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %2 = stablehlo.select %1, %a, %b : tensor<i1>, tensor<f32>
    %3 = stablehlo.select %1, %j, %k : tensor<i1>, tensor<i32>
    stablehlo.return %2, %3 : tensor<f32>, tensor<i32>
  } loc("largest")
  return %0#1 : tensor<4xi32>
}
"""


def network() -> onnx.ModelProto:
    model = parser.parse_model(NETWORK)
    generator = np.random.default_rng(0)
    for name, shape in (("w", (64, 64, 3, 3)), ("v", (64, 100))):
        array = generator.standard_normal(shape, np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    return model


@pytest.fixture(scope="module")
def explained() -> Explanation:
    return explain(network(), TARGET, THREADS)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "network.onnx"
    onnx.save(network(), path)
    return path


def test_kernels_are_those_of_the_artifact(explained: Explanation) -> None:
    from stepwell.compiler import build

    manifest = build(network(), TARGET, THREADS).manifest
    assert [(k.name, k.sources, k.kind, k.flops, k.bytes) for k in explained.kernels] == [
        (k.name, k.sources, k.strategy, k.flops, k.bytes) for k in manifest.kernels
    ]
    assert explained.arena_bytes == manifest.arena_bytes
    assert explained.weights_bytes == manifest.weights_bytes


def test_what_became_of_nodes(explained: Explanation) -> None:
    assert explained.operators["conv"] == "Conv"
    assert explained.without_kernel == ("flat",)
    (kernel,) = (k for k in explained.of_node("conv") if k.kind == "contraction")
    assert {"conv", "act"} <= set(kernel.sources)
    assert kernel.computes == "convolution 3x3, m 784, n 64, k 576"
    assert (kernel.layout, kernel.precision) == ("channels last", "f32")
    (weights,) = (operand for operand in kernel.operands if operand.packed)
    assert kernel.packed_bytes == weights.bytes == 36 * 64 * 64 * 4


def test_the_algorithm_is_the_first_candidate(explained: Explanation) -> None:
    (kernel,) = (k for k in explained.of_node("conv") if k.kind == "contraction")
    algorithms = kernel.candidates["algorithm"]
    assert {c.name for c in algorithms} == {
        "direct", "Winograd F(2x2, 3x3)", "Winograd F(4x4, 3x3)",
    }  # fmt: skip
    assert [c.cost for c in algorithms] == sorted(c.cost for c in algorithms)
    tile = kernel.parameters["tile"]
    assert algorithms[0].name == f"Winograd F({tile}x{tile}, 3x3)"


def test_strict_precision_considers_no_other_algorithm() -> None:
    strict = explain(network(), TARGET, THREADS, options={"precision": "strict"})
    (kernel,) = (k for k in strict.of_node("conv") if k.kind == "contraction")
    assert "algorithm" not in kernel.candidates
    assert "tile" in kernel.candidates


def test_the_tile_is_the_first_candidate(explained: Explanation) -> None:
    (kernel,) = (k for k in explained.of_node("dense") if k.kind == "contraction")
    box = kernel.parameters["box"]
    assert isinstance(box, list)
    chosen, *others = kernel.candidates["tile"]
    assert chosen.name == f"{box[0] * box[1]} rows x {kernel.parameters['vectors']} vectors"
    assert others
    assert chosen.cost <= min(c.cost for c in others)


def test_on_a_gpu() -> None:
    found = explain(network(), "cuda:sm_90a", options={"precision": "tf32"})
    (kernel,) = (k for k in found.of_node("dense") if k.kind == "contraction")
    assert kernel.threads_of_block > 0
    assert kernel.tasks > 0


def test_what_is_slow_is_remarked() -> None:
    """No emitter takes a reduction with two results."""
    (kernel,) = explain(LARGEST, TARGET, THREADS).of_node("largest")
    assert kernel.kind == "scalar"
    assert kernel.remark.startswith("scalar loops, since ")


def test_a_model_in_parts() -> None:
    found = explain(parser.parse_model(WORDS), TARGET, THREADS)
    compiled, host = found.parts
    assert [kernel.sources for kernel in compiled.kernels] == [("minus",)]
    assert "runs on the host" in host.problem
    assert host.operators == {"lower": "StringNormalizer"}
    assert found.nodes() == ["minus", "lower"]


def test_open_shapes_have_to_be_given() -> None:
    model = network()
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    with pytest.raises(OpenModelError):
        explain(model, TARGET)
    assert explain(model, TARGET, shapes={"x": (1, 64, 28, 28)}).kernels


def test_table_of_a_model_in_parts(tmp_path: Path, capsys: Capture) -> None:
    onnx.save(parser.parse_model(WORDS), tmp_path / "words.onnx")
    assert tool.main(["explain", str(tmp_path / "words.onnx"), "--target", TARGET]) == 0
    out = capsys.readouterr().out
    assert "part 0 on x86_64-v4" in out
    assert "part 1 runs on the host, in onnx's reference evaluator: lower (StringNorm" in out


def test_tables(path: Path, capsys: Capture) -> None:
    assert tool.main(["explain", str(path), "--target", TARGET, "--threads=2"]) == 0
    out = capsys.readouterr().out
    assert f"the model on {TARGET}, 2 threads" in out
    assert "act (Relu)" in out
    assert (
        "in no kernel of their own, since folded into constants or in place: flat (Flatten)" in out
    )


def test_one_node(path: Path, capsys: Capture) -> None:
    given = ["explain", str(path), "--target", TARGET]
    assert tool.main([*given, "--node", "act"]) == 0
    out = capsys.readouterr().out
    assert "convolution 3x3, m 784, n 64, k 576" in out
    assert "Winograd F(2x2, 3x3) x" in out
    assert "weights, packed" in out
    assert tool.main([*given, "--node", "flat"]) == 0
    assert "flat: no kernel of its own" in capsys.readouterr().out
    assert tool.main([*given, "--node", "atc"]) == 1
    expected = "atc: error: the model has no node of that name; near: act\n"
    assert capsys.readouterr().err == expected


def test_json(path: Path, capsys: Capture) -> None:
    given = ["explain", str(path), "--target", TARGET, "--json"]
    assert tool.main(given) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["target"] == TARGET
    assert data["kernels"][0]["operands"][0]["place"] == "input"
    assert tool.main([*given, "--node", "act"]) == 0
    (kernel,) = json.loads(capsys.readouterr().out)
    assert kernel["candidates"]["algorithm"][0]["cost"] > 0


def test_stdin(path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    import io
    import sys

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(path.read_bytes())))
    assert tool.main(["explain", "-", "--target", TARGET]) == 0
    assert "conv" in capsys.readouterr().out


def test_mistakes(path: Path, tmp_path: Path, capsys: Capture) -> None:
    artifact = tmp_path / "network.stepwell"
    stepwell.compile(path, threads=1).save(artifact)
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"no model")
    unsupported = helper.make_model(
        helper.make_graph(
            [helper.make_node("NoSuchThing", ["x"], ["y"], name="odd")],
            "g",
            [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2])],
            [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [2])],
        )
    )
    onnx.save(unsupported, tmp_path / "unsupported.onnx")
    for arguments, code, sentence in (
        ([str(artifact)], 2, "is an artifact, which is compiled already"),
        ([str(broken)], 1, "broken.onnx"),
        ([str(tmp_path / "missing.onnx")], 1, "missing.onnx"),
        ([str(tmp_path / "unsupported.onnx")], 1, "odd: error: NoSuchThing"),
        ([str(path), "--target", "z80"], 2, "there is no target z80"),
        ([str(path), "--precision", "some"], 2, "Invalid value for '--precision'"),
        ([str(path), "--shape", "x=1xa"], 2, "is not of the form"),
    ):
        assert tool.main(["explain", *arguments]) == code
        captured = capsys.readouterr()
        assert sentence in captured.err
        assert "Traceback" not in captured.err
