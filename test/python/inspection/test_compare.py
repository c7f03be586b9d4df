"""`stepwell compare`: which layer differs from a reference, and by how much."""

from __future__ import annotations

import io
import json
import math
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

import stepwell
from stepwell.inspection.compare import compare, difference_of
from stepwell.inspection.intermediates import instrumented
from stepwell.inspection.references import REFERENCES
from stepwell.tools import stepwell as tool

Capture = pytest.CaptureFixture[str]
THREADS = 1
SHAPE = (1, 16, 12, 12)

NETWORK = """<ir_version: 8, opset_import: ["": 18]>
g (float[batch, 16, 12, 12] x) => (float[batch, 10] y) {
    [conv] c = Conv <pads = [1, 1, 1, 1]> (x, w)
    [act] r = Relu (c)
    [pool] p = GlobalAveragePool (r)
    [flat] f = Flatten (p)
    [dense] y = MatMul (f, v)
}"""

QUANTIZED = """<ir_version: 10, opset_import: ["": 21]>
g (float[4, 32] x) => (float[4, 32] y) <float s = {0.05}, uint8 z = {128}> {
    [coarse] q = QuantizeLinear (x, s, z)
    [back] d = DequantizeLinear (q, s, z)
    [dense] y = MatMul (d, w)
}"""


def network() -> onnx.ModelProto:
    model = parser.parse_model(NETWORK)
    generator = np.random.default_rng(0)
    for name, shape in (("w", (16, 16, 3, 3)), ("v", (16, 10))):
        array = generator.standard_normal(shape, np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    return model


def feed() -> dict[str, np.ndarray]:
    return {"x": np.random.default_rng(1).standard_normal(SHAPE, np.float32)}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "network.onnx"
    onnx.save(network(), path)
    return path


@pytest.fixture(scope="module")
def jax_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    def layer(x: jax.Array, w: jax.Array) -> jax.Array:
        return jnp.tanh(x @ w) @ w

    specs = (jax.ShapeDtypeStruct((4, 8), jnp.float32), jax.ShapeDtypeStruct((8, 8), jnp.float32))
    path = tmp_path_factory.mktemp("models") / "layer.mlirbc"
    path.write_bytes(jax.export.export(jax.jit(layer))(*specs).mlir_module_serialized)
    return path


@pytest.mark.parametrize(
    ("got", "expected", "largest", "out"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0.0, 0),
        ([1.0, math.nan, math.inf], [1.0, math.nan, math.inf], 0.0, 0),
        ([1.0, math.nan], [1.0, 2.0], math.inf, 1),
        ([1.0, math.inf], [1.0, 2.0], math.inf, 1),
        ([1.0, -math.inf], [1.0, math.inf], math.inf, 1),
        ([1.001, 1e-4], [1.0, 0.0], 1e-3, 0),
        ([1.01, 0.01], [1.0, 0.0], 1e-2, 2),
        ([], [], 0.0, 0),
    ],
)
def test_differences(got: list[float], expected: list[float], largest: float, out: int) -> None:
    difference = difference_of(np.array(got), np.array(expected))
    assert difference.largest == pytest.approx(largest)
    assert difference.out == out


def test_difference_of_other_kinds() -> None:
    assert difference_of(np.array([1, 2]), np.array([1, 2, 3])).out == 2
    assert difference_of(np.array([True, False]), np.array([True, True])).out == 1
    assert difference_of(np.array([1 + 1j]), np.array([1 - 1j])).largest == pytest.approx(2)
    turned = difference_of(np.array([1.0, 0.0]), np.array([0.0, 1.0]))
    assert (turned.cosine, turned.relative) == (0.0, 1.0)


@pytest.mark.parametrize("reference", [None, *REFERENCES])
def test_layers_of_onnx(reference: str | None) -> None:
    found = compare(network(), feed(), threads=THREADS, reference=reference)
    assert found.reference == (reference or "onnx")
    assert [(r.layer.node, r.layer.operator, r.layer.value) for r in found.layers] == [
        ("conv", "Conv", "c"),
        ("act", "Relu", "r"),
        ("pool", "GlobalAveragePool", "p"),
        ("flat", "Flatten", "f"),
        ("dense", "MatMul", "y"),
    ]
    assert found.first_out is None
    assert [r.type for r in found.outputs] == ["float32[1, 10]"]


def test_the_first_layer_out_of_tolerance_is_named() -> None:
    """Sums of 144 products in another order are not the same to the last bit."""
    found = compare(network(), feed(), threads=THREADS, rtol=0, atol=0)
    assert found.first_out is not None
    assert found.first_out.layer.node == "conv"
    conv, act, *_ = found.layers
    assert conv.growth is None
    assert act.growth == pytest.approx(act.difference.relative / conv.difference.relative)


@pytest.mark.parametrize("reference", ["-O0", "interpreter"])
def test_layers_of_jax(jax_path: Path, reference: str) -> None:
    generator = np.random.default_rng(0)
    arrays = {
        "arg0": generator.standard_normal((4, 8), np.float32),
        "arg1": generator.standard_normal((8, 8), np.float32),
    }
    found = compare(jax_path, arrays, threads=THREADS, reference=reference)
    names = [report.layer.node for report in found.layers]
    assert names == ["jit(layer)/dot_general", "jit(layer)/tanh", "jit(layer)/dot_general #2"]
    assert found.layers[2].layer.inputs == ("jit(layer)/tanh", "arg1")
    assert found.first_out is None
    assert compare(jax_path, arrays, threads=THREADS).reference == "-O0"


def test_a_quantized_layer_is_compared() -> None:
    model = parser.parse_model(QUANTIZED)
    weights = np.random.default_rng(0).standard_normal((32, 32), np.float32)
    model.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    x = np.random.default_rng(1).standard_normal((4, 32), np.float32)
    found = compare(model, {"x": x}, threads=THREADS)
    assert [report.type for report in found.layers][:2] == ["uint8[4, 32]", "float32[4, 32]"]
    assert found.first_out is None


def test_values_in_another_form_are_no_layers() -> None:
    text = """
    func.func @main(%x: tensor<2x3xf32>) -> tensor<6xf32> {
      %0 = stablehlo.negate %x : tensor<2x3xf32> loc("minus")
      %1 = stablehlo.reshape %0 : (tensor<2x3xf32>) -> tensor<6xf32> loc("flat")
      %2 = stablehlo.exponential %1 : tensor<6xf32> loc("up")
      return %2 : tensor<6xf32>
    }
    """
    found = instrumented(text, {})
    assert found.values == ("output 0", "minus", "up")
    assert [(layer.node, layer.inputs) for layer in found.layers] == [
        ("minus", ("arg0",)),
        ("up", ("minus",)),
    ]


def test_programs_with_checks_are_refused() -> None:
    text = """
    func.func @main(%x: tensor<2xf32>) {
      stablehlo.custom_call @check.expect_eq(%x, %x) {has_side_effect = true}
          : (tensor<2xf32>, tensor<2xf32>) -> ()
      return
    }
    """
    with pytest.raises(stepwell.ModelError, match="has checks in it"):
        instrumented(text, {})


def test_command(path: Path, capsys: Capture) -> None:
    given = ["compare", str(path), "--shape=x=1x16x12x12", "--threads=1"]
    assert tool.main(given) == 0
    captured = capsys.readouterr()
    assert "layers, beside those of onnx" in captured.out
    assert "outputs of the model as it is" in captured.out
    assert "layers are of the model compiled with all of them as outputs" in captured.out
    assert "0 of 5 layers are out of tolerance" in captured.out
    assert captured.err == ""
    assert tool.main([*given, "--rtol=0", "--atol=0", "--reference", "-O0"]) == 1
    captured = capsys.readouterr()
    assert captured.err.startswith("conv: error: the first layer out of tolerance: ")


def test_json_and_stdin(path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(path.read_bytes())))
    given = ["compare", "-", "--shape=x=1x16x12x12", "--threads=1", "--json"]
    assert tool.main(given) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["first_out"] is None
    assert data["layers"][0]["layer"]["node"] == "conv"
    assert data["layers"][0]["difference"]["size"] == 16 * 12 * 12


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["{path}"], 2, "x: float32[batch, 16, 12, 12] is open; give --shape x=... for it"),
        (["{path}", "--reference", "guess"], 2, "Invalid value for '--reference'"),
        (["{path}", "--rtol=-1"], 2, "tolerances must not be negative"),
        (["{path}", "--input", "x=[1]"], 1, "input 'x' has rank 1"),
        (["{jax}", "--reference", "onnx"], 2, "onnx runs ONNX models alone"),
        (["missing.onnx"], 1, "missing.onnx: error: the model cannot be read"),
    ],
)
def test_mistakes(
    path: Path, jax_path: Path, capsys: Capture, arguments: list[str], code: int, sentence: str
) -> None:
    given = [argument.format(path=path, jax=jax_path) for argument in arguments]
    assert tool.main(["compare", *given]) == code
    captured = capsys.readouterr()
    assert sentence in captured.err
    assert "Traceback" not in captured.err
