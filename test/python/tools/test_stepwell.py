"""The command line: outputs, exit codes, one sentence for each mistake, nothing left behind."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from handmade import WEIGHT, manifest

import stepwell
from stepwell import artifact
from stepwell.tools import stepwell as tool
from stepwell.tools import stepwell_bench, stepwell_run

Capture = pytest.CaptureFixture[str]


def batch(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((16, 8), dtype=np.float32)


def text_model(tmp_path: Path, behaviour: str = "count /dev/null") -> Path:
    path = tmp_path / "model.mlir"
    path.write_text(f"// {behaviour}\nmodule {{}}\n")
    return path


def test_help_imports_little() -> None:
    code = (
        "import sys; from stepwell.tools.stepwell import main; main(['--help']);"
        "print(sorted({'numpy', 'rich', 'llvmlite', 'torch_mlir', 'onnx'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert all(name in run.stdout for name in tool.COMMANDS)
    assert run.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("name", tool.COMMANDS)
def test_every_command_has_help(name: str, capsys: Capture) -> None:
    assert tool.main([name, "--help"]) == 0
    assert f"Usage: stepwell {name}" in capsys.readouterr().out


def test_run_writes_and_compares(model: Path, tmp_path: Path, capsys: Capture) -> None:
    x = batch()
    y = np.maximum(x + WEIGHT, 0)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "good.npy", y)
    np.savez(tmp_path / "bad.npz", y=y + 1)
    given = [str(model), "--input", f"x=@{tmp_path}/x.npy"]
    assert tool.main(["run", *given, "--output", f"@{tmp_path}/y.npz"]) == 0
    np.testing.assert_array_equal(np.load(tmp_path / "y.npz")["y"], y)
    assert tool.main(["run", *given, "--output", f"y=@{tmp_path}/y.npy"]) == 0
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), y)
    assert tool.main(["run", *given, "--expected", f"@{tmp_path}/good.npy"]) == 0
    assert capsys.readouterr().out == ""
    assert tool.main(["run", *given, "--expected", f"@{tmp_path}/bad.npz"]) == 1
    assert "error: output y: 128 of 128 elements differ" in capsys.readouterr().err
    np.save(tmp_path / "bad.npy", y[:3])
    assert tool.main(["run", *given, "--expected", f"y=@{tmp_path}/bad.npy"]) == 1
    assert "output y has shape (16, 8), expected (3, 8)" in capsys.readouterr().err


def test_run_random_inputs_and_values(model: Path, capsys: Capture) -> None:
    assert tool.main(["run", str(model), "--random-inputs", "0", "--json"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert first[0]["shape"] == [16, 8]
    assert stepwell_run.main([str(model), "--random-inputs", "0", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == first
    values = json.dumps(np.full((16, 8), 2.0).tolist())
    assert tool.main(["run", str(model), "--input", f"x={values}"]) == 0
    assert capsys.readouterr().out.startswith("y: float32[16, 8]  0 0.428571")


def test_bench(model: Path, capsys: Capture) -> None:
    arguments = [str(model), "--threads", "1", "--seconds", "0.05", "--per-kernel"]
    assert tool.main(["bench", *arguments, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["threads"] == 1
    assert data["contenders"][0]["name"] == "stepwell"
    assert data["kernels"][0]["sources"] == ["Add_1", "Relu_2"]
    assert data["kernels"][0]["bound"] in ("compute", "memory")
    assert data["kernels"][0]["share_of_peak"] > 0
    assert data["peak"]["gflops"] > 1
    assert stepwell_bench.main(arguments) == 0
    assert "Add_1, Relu_2" in capsys.readouterr().out


def test_inspect(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "a.stepwell"
    content = manifest(triple="riscv64-unknown-linux-gnu", weights_bytes=0)
    artifact.write(path, content, b"code")
    assert tool.main(["inspect", str(path)]) == 0
    out = capsys.readouterr().out
    assert "riscv64" in out
    assert "x: float32[16, 8]" in out
    assert tool.main(["inspect", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["kernels"][0]["strategy"] == "by hand"


@pytest.mark.usefixtures("fake_compiler")
def test_compile(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    output = tmp_path / "out.stepwell"
    assert tool.main(["compile", str(text_model(tmp_path)), "-o", str(output), "--threads=1"]) == 0
    (y,) = stepwell.load(output)(batch())
    np.testing.assert_array_equal(y, np.maximum(batch() + WEIGHT, 0))
    assert tool.main(["compile", str(text_model(tmp_path)), "-o", str(tmp_path / "code.so")]) == 0
    assert (tmp_path / "code.so").read_bytes().startswith(b"\x7fELF")
    stdin = io.TextIOWrapper(io.BytesIO(text_model(tmp_path).read_bytes()))
    monkeypatch.setattr(sys, "stdin", stdin)
    assert tool.main(["run", "-", "--random-inputs", "1"]) == 0
    assert capsys.readouterr().out.startswith("y: float32[16, 8]")


@pytest.mark.usefixtures("fake_compiler")
@pytest.mark.parametrize(
    ("behaviour", "sentence"),
    [
        ("lowering-error no way down", "error: no way down"),
        ("unsupported", "error: 2 nodes are not supported:\n  node_1: error: Einsum: not yet"),
        ("segfault", "error: the compiler was ended by SIGSEGV"),
    ],
)
def test_failures_to_compile(
    tmp_path: Path, capsys: Capture, behaviour: str, sentence: str
) -> None:
    output = tmp_path / "out.stepwell"
    assert tool.main(["compile", str(text_model(tmp_path, behaviour)), "-o", str(output)]) == 1
    assert sentence in capsys.readouterr().err
    assert not output.exists()


@pytest.mark.usefixtures("fake_compiler")
@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["nonsense"], 2, "stepwell: error: No such command 'nonsense'."),
        (["run"], 2, "error: Missing argument 'MODEL'."),
        (["run", "{model}"], 1, "error: the input 'x' was not given; it is float32[16, 8]"),
        (["run", "{model}", "--input", "x"], 2, "error: x is not of the form NAME=@FILE"),
        (["run", "{model}", "--input", "x=@no.npy"], 1, "error: no.npy cannot be read: no such"),
        (["run", "{model}", "--input", "x=@{model}"], 1, "it is not a .npy or .npz file"),
        (["run", "{model}", "--input", "x=[1"], 2, "the value is neither @FILE nor JSON"),
        (["run", "{model}", "--input", "z=1"], 1, "the model has no input 'z'"),
        (["run", "{model}", "--input", "x=1"], 1, "input 'x' has rank 0"),
        (["run", "{model}", "--shape", "x=2x2"], 2, "--shape has no effect on an artifact"),
        (["run", "{model}", "--threads", "0"], 2, "error: Invalid value for '--threads'"),
        (["run", "missing.onnx"], 1, "missing.onnx: error: the model cannot be read: no such file"),
        (["run", "{model}", "--random-inputs=0", "--output=@no/y.npy"], 1, "cannot be written"),
        (["inspect", "missing"], 1, "error: missing cannot be read: no such file"),
        (["compile", "m", "--emit=asm", "--compile-to=llvm"], 2, "give one of them"),
        (["compile", "m", "--shape", "x=1xa"], 2, "--shape x=1xa is not of the form"),
        (["compile", "m", "-o", "no/m.stepwell"], 1, "error: no/m.stepwell cannot be written: no"),
        (["compile", "m", "-O4"], 2, "error: Invalid value for '-O'"),
        (["compile", "m", "--target", "z80"], 2, "error: there is no target z80"),
        (["bench", "{model}", "--against", "onnxruntime"], 2, "--against needs the model's own"),
        (["profile", "{model}", "-o", "no/t.json"], 1, "error: no/t.json cannot be written: no"),
        (["profile", "{model}", "-o", "-", "--json"], 2, "both write to stdout"),
        (["profile", "{model}", "--runs", "0"], 2, "error: Invalid value for '--runs'"),
        (["profile", "{model}", "--input", "x=[1]"], 1, "input 'x' has rank 1"),
        (["profile", "missing.onnx"], 1, "missing.onnx: error: the model cannot be read: no such"),
    ],
)
def test_mistakes(
    model: Path, capsys: Capture, arguments: list[str], code: int, sentence: str
) -> None:
    assert tool.main([argument.format(model=model) for argument in arguments]) == code
    captured = capsys.readouterr()
    assert sentence in captured.err
    assert "Traceback" not in captured.err


def test_damaged_artifact(model: Path, capsys: Capture) -> None:
    model.write_bytes(model.read_bytes()[:-5])
    assert tool.main(["run", str(model), "--random-inputs", "0"]) == 1
    assert "error:" in (message := capsys.readouterr().err)
    assert "was cut short" in message


def test_interrupt(fake_compiler: Path, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    os.mkfifo(pid_file)
    model = text_model(tmp_path, f"wait {pid_file}")
    code = (
        "import sys; from stepwell import compiler; from stepwell.tools.stepwell import main;"
        "compiler.ENTRY = 'fake_pipeline:compile_to_artifact'; sys.exit(main(sys.argv[1:]))"
    )
    output = tmp_path / "out.stepwell"
    parent = subprocess.Popen(
        [sys.executable, "-c", code, "compile", model, "-o", output], stderr=subprocess.PIPE
    )
    pid_file.read_text()
    parent.send_signal(signal.SIGINT)
    _, stderr = parent.communicate(timeout=30)
    assert parent.returncode == 130
    assert stderr.strip() == b""
    assert not output.exists()
    assert not list((fake_compiler / "work").iterdir())


def test_targets_and_version(capsys: Capture) -> None:
    assert tool.main(["targets", "--json"]) == 0
    targets = json.loads(capsys.readouterr().out)
    assert {"x86_64-v3", "x86_64-v4"} <= {target["name"] for target in targets}
    assert tool.main(["version", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["stepwell"] == stepwell.__version__
