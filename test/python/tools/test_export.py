"""`stepwell export` and `stepwell-translate` write StableHLO in all its formats."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import onnx
import pytest
import torch

import stepwell
from stepwell.tools import stepwell as tool
from stepwell.tools import stepwell_translate

Capture = pytest.CaptureFixture[str]

BYTECODE = b"ML\xefR"
PORTABLE = b"StableHLO_v1.8.0"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    text = '<ir_version: 8, opset_import: ["": 18]> g (float[2] x) => (float[2] y) { y = Abs (x) }'
    path = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    return path


@pytest.mark.parametrize(
    ("name", "options", "portable", "text"),
    [
        ("out.mlirbc", ["--version=1.8.0"], True, False),
        ("out.mlir", [], False, True),
        ("out.mlirbc", ["--format=bytecode"], False, False),
        ("out.mlir", ["--format=portable", "--version=1.8.0"], True, False),
    ],
)
def test_export(
    model: Path, tmp_path: Path, name: str, options: list[str], portable: bool, text: bool
) -> None:
    output = tmp_path / name
    assert tool.main(["export", str(model), "-o", str(output), *options]) == 0
    data = output.read_bytes()
    assert data.startswith(BYTECODE) is not text
    assert (PORTABLE in data) is portable
    assert (b"stablehlo.abs %" in data) is text


def _jax_file(path: Path) -> None:
    exported = jax.export.export(jax.jit(jnp.sin))(jax.ShapeDtypeStruct((2,), jnp.float32))
    path.write_bytes(exported.serialize())


def _torch_file(path: Path) -> None:
    class Sine(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.sin(x)

    with path.open("wb") as file:
        torch.export.save(torch.export.export(Sine(), (torch.ones(2),)), file)


def _onnx_file(path: Path) -> None:
    text = '<ir_version: 8, opset_import: ["": 18]> g (float[2] x) => (float[2] y) { y = Sin (x) }'
    path.write_bytes(onnx.parser.parse_model(text).SerializeToString())


def _stablehlo_file(path: Path) -> None:
    path.write_text(
        "func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {\n"
        "  %y = stablehlo.sine %x : tensor<2xf32>\n  return %y : tensor<2xf32>\n}\n"
    )


WRITERS = {"onnx": _onnx_file, "jax": _jax_file, "torch": _torch_file, "stablehlo": _stablehlo_file}


@pytest.mark.parametrize("frontend", WRITERS)
def test_export_from(tmp_path: Path, frontend: str) -> None:
    """A file of any name; what is written runs."""
    model, output = tmp_path / "model.bin", tmp_path / "out.mlirbc"
    WRITERS[frontend](model)
    assert tool.main(["export", str(model), "--from", frontend, "-o", str(output)]) == 0
    x = np.array([0.5, -2.0], np.float32)
    (result,) = stepwell.compile(output)(x)
    np.testing.assert_allclose(result, np.sin(x), rtol=1e-6)


@pytest.mark.parametrize("frontend", WRITERS)
def test_export_from_another_frontend(tmp_path: Path, frontend: str, capsys: Capture) -> None:
    model, output = tmp_path / "model.bin", tmp_path / "out.mlirbc"
    WRITERS["onnx" if frontend != "onnx" else "stablehlo"](model)
    assert tool.main(["export", str(model), "--from", frontend, "-o", str(output)]) == 1
    assert str(model) in capsys.readouterr().err
    assert not output.exists()


def test_export_from_is_for_files(tmp_path: Path) -> None:
    with pytest.raises(stepwell.UsageError, match="this is a ModelProto"):
        stepwell.export(onnx.ModelProto(), tmp_path / "out.mlirbc", frontend="onnx")
    with pytest.raises(stepwell.UsageError, match="no frontend tf; there are onnx, jax"):
        stepwell.export(b"", tmp_path / "out.mlirbc", frontend="tf")  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("options", "portable", "text"),
    [
        (["--import"], False, True),
        (["--to-bytecode"], False, False),
        (["--serialize-stablehlo", "--version=1.8.0"], True, False),
    ],
)
def test_translate(
    model: Path, tmp_path: Path, options: list[str], portable: bool, text: bool
) -> None:
    output = tmp_path / "out"
    assert stepwell_translate.main([str(model), *options, "-o", str(output)]) == 0
    data = output.read_bytes()
    assert data.startswith(BYTECODE) is not text
    assert (PORTABLE in data) is portable
    assert (b"stablehlo.abs %" in data) is text


def test_mistakes(model: Path, capsys: Capture) -> None:
    export = ["export", str(model), "-o", "-"]
    assert tool.main([*export, "--format=text", "--version=1.8.0"]) == 2
    assert "StableHLO is written as text in its current version alone" in capsys.readouterr().err
    assert tool.main([*export, "--version=0.0.1"]) == 2
    assert "cannot be written as StableHLO 0.0.1" in capsys.readouterr().err
    assert tool.main([*export, "--format=protobuf"]) == 2
    assert stepwell_translate.main([str(model)]) == 2
    assert "give one of: --import, --to-bytecode" in capsys.readouterr().err
    assert stepwell_translate.main([str(model), "--mlir-to-llvmir", "--version=1.8.0"]) == 2
    assert "--version is for StableHLO" in capsys.readouterr().err
