"""`stepwell compile` as a user walks down with it: every --emit, stop and resume, dumped phases."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import stepwell
from stepwell.pipeline import LEVELS
from stepwell.tools import stepwell as tool

Capture = pytest.CaptureFixture[str]

TOLERANCE = 1e-6
"""The same operations in the same order; sums of eight products."""


@pytest.fixture
def layer(tmp_path: Path) -> Path:
    """A layer with a weight of its own, as StableHLO text."""
    weights = ", ".join(f"[{', '.join(f'{i + j / 8}' for j in range(5))}]" for i in range(8))
    path = tmp_path / "layer.mlir"
    path.write_text(f"""
func.func @main(%x: tensor<4x8xf32>) -> tensor<4x5xf32> {{
  %w = stablehlo.constant dense<[{weights}]> : tensor<8x5xf32>
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
      : (tensor<4x8xf32>, tensor<8x5xf32>) -> tensor<4x5xf32>
  %1 = stablehlo.tanh %0 : tensor<4x5xf32>
  return %1 : tensor<4x5xf32>
}}
""")
    return path


def expected(x: np.ndarray) -> np.ndarray:
    weights = np.arange(8)[:, None] + np.arange(5)[None] / 8
    return np.tanh(x.astype(np.float64) @ weights)


def assert_right(artifact: Path) -> None:
    x = np.linspace(-0.01, 0.01, 32, dtype=np.float32).reshape(4, 8)
    np.testing.assert_allclose(stepwell.load(artifact)(x)[0], expected(x), atol=TOLERANCE)


@pytest.mark.parametrize(
    ("kind", "mark"),
    [
        ("stablehlo", b"stablehlo.dot_general"),
        ("linalg", b"linalg.generic"),
        ("affine", b"affine.parallel"),
        ("llvm", b"llvm.func @stepwell_main"),
        ("asm", b"stepwell_main:"),
        ("obj", b"\x7fELF"),
        ("so", b"\x7fELF"),
        ("artifact", b"STEPWELL"),
    ],
)
def test_emit(layer: Path, tmp_path: Path, kind: str, mark: bytes) -> None:
    output = tmp_path / "out"
    assert tool.main(["compile", str(layer), f"--emit={kind}", "-o", str(output)]) == 0
    assert mark in output.read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["layer.mlir", "out"]


@pytest.mark.parametrize("level", LEVELS)
def test_stop_and_resume(layer: Path, tmp_path: Path, level: str) -> None:
    stopped, artifact = tmp_path / f"{level}.mlir", tmp_path / "out.stepwell"
    assert tool.main(["compile", str(layer), f"--compile-to={level}", "-o", str(stopped)]) == 0
    assert Path(f"{stopped}.safetensors").exists()
    arguments = [f"--compile-from={level}", "-o", str(artifact)]
    assert tool.main(["compile", str(stopped), *arguments]) == 0
    assert_right(artifact)


def test_resume_without_weights(layer: Path, tmp_path: Path, capsys: Capture) -> None:
    stopped = tmp_path / "linalg.mlir"
    assert tool.main(["compile", str(layer), "--compile-to=linalg", "-o", str(stopped)]) == 0
    Path(f"{stopped}.safetensors").unlink()
    output = tmp_path / "out.stepwell"
    assert tool.main(["compile", str(stopped), "--compile-from=linalg", "-o", str(output)]) == 1
    assert "error: the module names weights, but" in capsys.readouterr().err
    assert not output.exists()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "error: the module cannot be read: no such file"),
        (b"\xff\xfe\x00", "error: the module is no text"),
        (b"func.func @main(", "the text is no valid module"),
        (b"func.func @other() { return }", "the module has no function @main"),
        (b"func.func @main() { return }", "@main does not say its inputs and outputs"),
    ],
)
def test_resume_from_no_module(
    tmp_path: Path, capsys: Capture, content: bytes | None, sentence: str
) -> None:
    path, output = tmp_path / "bad.mlir", tmp_path / "out.stepwell"
    if content is not None:
        path.write_bytes(content)
    assert tool.main(["compile", str(path), "--compile-from=affine", "-o", str(output)]) == 1
    assert sentence in capsys.readouterr().err
    assert not output.exists()


def test_dump_phases(layer: Path, tmp_path: Path) -> None:
    folder, output = tmp_path / "phases", tmp_path / "out.stepwell"
    arguments = ["--dump-phases-to", str(folder), "-o", str(output)]
    assert tool.main(["compile", str(layer), *arguments]) == 0
    names = [path.name for path in sorted(folder.iterdir())]
    assert names[0] == "00-legalize-open-sizes.mlir"
    assert names[-1].endswith("-plan-arena.mlir")
    assert "stepwell.arena_bytes" in (folder / names[-1]).read_text()
    assert_right(output)


def test_inspect_names_the_kernel(layer: Path, tmp_path: Path, capsys: Capture) -> None:
    output = tmp_path / "out.stepwell"
    assert tool.main(["compile", str(layer), "-o", str(output), "--target", "x86_64-v3"]) == 0
    assert tool.main(["inspect", str(output)]) == 0
    out = capsys.readouterr().out
    assert "x86_64-v3" in out
    assert "1 kernels" in out or "1 kernel" in out
    assert "contraction" in out


def test_progress_is_for_terminals(layer: Path, tmp_path: Path) -> None:
    """A line a step on a terminal; nothing elsewhere."""
    command = [sys.executable, "-m", "stepwell.tools.stepwell", "compile", str(layer), "--no-cache"]
    output = str(tmp_path / "out.stepwell")
    quiet = subprocess.run([*command, "-o", output], capture_output=True, check=True)
    assert quiet.stderr == quiet.stdout == b""
    reading, writing = pty.openpty()
    process = subprocess.Popen(
        [*command, "-o", output], stderr=writing, env={**os.environ, "TERM": "xterm"}
    )
    os.close(writing)
    shown = bytearray()
    try:
        while part := os.read(reading, 4096):
            shown += part
    except OSError:  # a terminal whose other side is closed
        pass
    os.close(reading)
    assert process.wait() == 0
    for step in ("import", "form-fusion-groups", "plan-arena", "compile-kernels"):
        assert step.encode() in shown
    assert b" s" in shown
