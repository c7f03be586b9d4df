"""The command line with models of open dimensions, and with artifacts that take any size."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

import stepwell
from stepwell.tools import stepwell as tool

Capture = pytest.CaptureFixture[str]

GRAPH = """<ir_version: 8, opset_import: ["": 18]>
g (float[rows, 4] x, float[rows, more] z) => (float[rows, all] y) {
    e = Exp(x) y = Concat <axis = 1> (e, z)
}"""
RESHAPE = """<ir_version: 8, opset_import: ["": 18]>
g (float[n, 4] x, int64[k] shape) => (float[a, b] y) { y = Reshape(x, shape) }"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with models, and open.stepwell, which takes up to 16 of `rows` and of `more`."""
    folder = tmp_path_factory.mktemp("models")
    model = parser.parse_model(GRAPH)
    onnx.save(model, folder / "open.onnx")
    onnx.save(parser.parse_model(RESHAPE), folder / "reshape.onnx")
    exe = stepwell.compile(model, threads=1, options={"progress": False})
    for rows, more in ((2, 3), (5, 6)):
        exe(np.zeros((rows, 4), np.float32), np.zeros((rows, more), np.float32))
    exe.save(folder / "open.stepwell")
    np.save(folder / "z.npy", np.ones((3, 2), np.float32))
    return folder


def run(folder: Path, capsys: Capture, command: str, *arguments: str) -> str:
    """What a command prints on a file in `folder`."""
    name, *others = arguments
    code = tool.main([command, str(folder / name), *(o.format(folder=folder) for o in others)])
    captured = capsys.readouterr()
    assert code == 0, captured.err
    return captured.out


def test_inspect_shows_the_models_signature(folder: Path, capsys: Capture) -> None:
    lines = [
        line.split(None, 1) for line in run(folder, capsys, "inspect", "open.stepwell").split("\n")
    ]
    facts = [[line[0], line[1].strip()] for line in lines if len(line) == 2]
    assert [fact for fact in facts if fact[0] in ("input", "output", "sizes")] == [
        ["input", "x: float32[rows, 4]"],
        ["input", "z: float32[rows, more]"],
        ["output", "y: float32[rows, more + 4]"],
        ["sizes", "rows <= 16, more <= 16"],
    ]
    manifest = json.loads(run(folder, capsys, "inspect", "open.stepwell", "--json"))
    assert manifest["open_sizes"]["capacities"] == [16, 16]


@pytest.mark.parametrize("name", ["open.stepwell", "open.onnx"])
@pytest.mark.parametrize(
    "arguments",
    [
        ["--shape=x=3x4", "--shape=z=3x2"],
        ["--shape=z=3x2"],
        ["--input=z=@{folder}/z.npy"],
        ["--input=z=[[1, 2], [3, 4], [5, 6]]"],
    ],
    ids=["all shapes", "one shape", "an array", "a value"],
)
def test_run_on_random_inputs(
    folder: Path, capsys: Capture, name: str, arguments: list[str]
) -> None:
    """The rows of `z` are those of `x`."""
    out = run(folder, capsys, "run", name, "--random-inputs=0", *arguments, "--json")
    assert [(y["name"], y["shape"]) for y in json.loads(out)] == [("y", [3, 6])]


def test_run_with_values_of_which_shapes_depend(folder: Path, capsys: Capture) -> None:
    given = ["--shape=x=3x4", "--input=shape=[2, 6]", "--random-inputs=0"]
    out = run(folder, capsys, "run", "reshape.onnx", *given)
    assert out.startswith("y: float32[2, 6]  ")


def test_bench_of_an_artifact(folder: Path, capsys: Capture) -> None:
    arguments = ["open.stepwell", "--shape=z=3x2", "--seconds=0.01", "--per-kernel"]
    out = run(folder, capsys, "bench", *arguments)
    assert "Concat_y" in out
    assert "GFLOP" not in out, "work is known for the largest sizes alone"
    data = json.loads(run(folder, capsys, "bench", *arguments, "--json"))
    assert data["contenders"][0]["calls"] >= 5
    assert {tuple(kernel) for kernel in data["kernels"]} == {
        ("name", "sources", "strategy", "seconds")
    }


def test_bench_of_a_model(folder: Path, capsys: Capture) -> None:
    out = run(folder, capsys, "bench", "open.onnx", "--shape=z=3x2", "--seconds=0.01", "--json")
    assert json.loads(out)["contenders"][0]["calls"] >= 5


def test_bench_of_a_model_in_parts(folder: Path, capsys: Capture) -> None:
    """What is timed is all of it."""
    made = parser.parse_model(
        """<ir_version: 8, opset_import: ["": 18]> g (float[3, 4] x) => (float[n] y) {
            i = NonZero(x) p = Transpose(i) f = GatherND(x, p) y = Exp(f) }"""
    )
    onnx.save(made, folder / "parts.onnx")
    out = run(folder, capsys, "bench", "parts.onnx", "--seconds=0.01", "--json")
    assert json.loads(out)["contenders"][0]["calls"] >= 5


@pytest.mark.parametrize("name", ["open.stepwell", "open.onnx"])
def test_profile(folder: Path, capsys: Capture, name: str) -> None:
    arguments = [name, "--input=z=@{folder}/z.npy", "--runs=1"]
    assert "Concat_y" in run(folder, capsys, "profile", *arguments)
    data = json.loads(run(folder, capsys, "profile", *arguments, "--json"))
    assert len(data["kernels"]) == 1


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        ("run open.stepwell", 1, "the input 'x' was not given; it is float32[rows, 4]"),
        ("run open.stepwell --random-inputs=0", 2, "x: float32[rows, 4] is open; give --shape x="),
        ("run open.onnx --random-inputs=0", 2, "x: float32[rows, 4] is open; give --shape x=..."),
        ("run open.stepwell --random-inputs=0 --shape=x=3x4", 2, "z: float32[rows, more] is open"),
        ("run open.stepwell --random-inputs=0 --shape=z=3x17", 1, "rows <= 16, more <= 16"),
        ("run open.stepwell --shape=x=3x5", 1, "has shape (3, 5) and the model takes (rows, 4)"),
        ("run open.stepwell --shape=q=3x5", 2, "no such input; its inputs are x, z"),
        ("run open.onnx --shape=q=3x5", 1, "no input of the model (inputs: x, z)"),
        ("bench open.stepwell", 2, "x: float32[rows, 4] is open; give --shape x=... for it"),
        ("bench open.onnx --shape=x=3x4", 2, "give --shape for z: float32[rows, more]"),
        ("tune reshape.onnx -o t.json --shape=x=3x4 --shape=shape=2", 2, "whole and ahead"),
        ("profile open.stepwell", 2, "x: float32[rows, 4] is open; give --shape x=... for it"),
        ("compile open.onnx", 1, "on the command line --shape x=1x4"),
        ("compile open.stepwell", 2, "open.stepwell is an artifact, which is compiled already"),
        ("check open.stepwell", 2, "open.stepwell is an artifact, which is compiled already"),
        ("inspect open.onnx", 1, "open.onnx is not a Stepwell artifact"),
    ],
)
def test_mistakes(folder: Path, capsys: Capture, arguments: str, code: int, sentence: str) -> None:
    command, name, *others = arguments.split()
    assert tool.main([command, str(folder / name), *others]) == code
    captured = capsys.readouterr()
    assert sentence in captured.err
    assert captured.out == ""
