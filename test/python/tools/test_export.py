"""`stepwell export` and `stepwell-translate` write StableHLO in all its formats."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

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
