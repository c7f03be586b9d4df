"""Files that are no models: one sentence on what is wrong with which file, and nothing written."""

from __future__ import annotations

import re
from pathlib import Path

import jax
import jax.export
import numpy as np
import pytest

import stepwell
from stepwell.errors import ModelError
from stepwell.tools import stepwell as tool
from stepwell.tools import stepwell_opt, stepwell_translate

Capture = pytest.CaptureFixture[str]

NOISE = bytes(range(256))

CASES = {
    "empty.onnx": (b"", "is empty"),
    "empty.mlir": (b"", "is empty"),
    "words": (b"hello, world\n", "is neither MLIR .* nor an ONNX model nor an exported JAX"),
    "noise.bin": (NOISE, "is neither MLIR .* nor an ONNX model nor an exported JAX"),
    "words.onnx": (b"hello, world\n", "is not an ONNX model, or it is cut short"),
    "words.mlir": (b"hello, world\n", "is not StableHLO: .*1:1: custom op 'hello'"),
    "words.mlirbc": (b"hello, world\n", "is not StableHLO: .*1:1: custom op 'hello'"),
    "noise.mlir": (NOISE, "is not StableHLO: .*1:2: unexpected"),
    "words.pt2": (b"hello, world\n", "is no exported program, which is a zip file"),
    "cut.mlirbc": (None, "is bytecode that cannot be read, because it is damaged, cut short"),
}
"""What is in a file, and what is said of it; None stands for part of a portable artifact."""


@pytest.fixture(scope="module")
def portable() -> bytes:
    exported = jax.export.export(jax.jit(jax.numpy.sin))(np.ones(3, np.float32))
    return exported.mlir_module_serialized


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest, tmp_path: Path, portable: bytes) -> tuple[Path, str]:
    """A file, and what is said of it."""
    content, sentence = CASES[request.param]
    path = tmp_path / request.param
    path.write_bytes(portable[: len(portable) // 2] if content is None else content)
    return path, sentence


def _check(status: int, capture: Capture, path: Path, sentence: str) -> None:
    assert status == 1
    out, err = capture.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    assert path.name in line
    assert re.search(sentence, line)


def test_translate(case: tuple[Path, str], tmp_path: Path, capfd: Capture) -> None:
    path, sentence = case
    status = stepwell_translate.main(["--import", str(path), "-o", str(tmp_path / "out.mlir")])
    _check(status, capfd, path, sentence)
    assert list(tmp_path.iterdir()) == [path]


def test_compile(case: tuple[Path, str], tmp_path: Path, capfd: Capture) -> None:
    path, sentence = case
    status = tool.main(["compile", str(path), "-o", str(tmp_path / "out.stepwell")])
    _check(status, capfd, path, sentence)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", ["folder", "folder.onnx", "folder.mlir", "folder.pt2"])
def test_folder(name: str, tmp_path: Path, capfd: Capture) -> None:
    path = tmp_path / name
    path.mkdir()
    _check(stepwell_translate.main(["--import", str(path)]), capfd, path, "is a folder")
    status = tool.main(["compile", str(path), "-o", str(tmp_path / "out.stepwell")])
    _check(status, capfd, path, "is a (folder|directory)")


@pytest.mark.parametrize("content", [b"hello", b"", NOISE, b"func.func @main() { foo }"])
def test_models_in_memory(content: bytes) -> None:
    """Messages do not name the file that the compiler process reads."""
    with pytest.raises(ModelError, match=r"^the given model is (neither|empty|not StableHLO)"):
        stepwell.compile(content)


def test_resuming(tmp_path: Path, capfd: Capture) -> None:
    path = tmp_path / "words.mlir"
    path.write_text("hello, world\n")
    status = tool.main(["compile", str(path), "--compile-from=linalg", "-o", str(tmp_path / "out")])
    _check(status, capfd, path, "the text is no valid module: .*1:1: custom op 'hello'")
    assert list(tmp_path.iterdir()) == [path]


def test_opt(tmp_path: Path, capfd: Capture) -> None:
    path = tmp_path / "noise.mlir"
    path.write_bytes(NOISE)
    status = stepwell_opt.main([str(path), "--pass-pipeline=builtin.module(cse)"])
    _check(status, capfd, path, "noise.mlir:1:2: error: unexpected")
