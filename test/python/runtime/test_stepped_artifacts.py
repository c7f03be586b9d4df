"""Artifacts of models that run in steps, since shapes depend on data or on values."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

import stepwell
from stepwell.runtime.stepped_executable import SteppedExecutable
from stepwell.specializing import SpecializingExecutable
from stepwell.tools.stepwell import main

POSITIVE = """g (float[16, 4] x) => (float[n] y, float total) {
    zero = Constant <value = float {0.0}> ()
    m = Greater (x, zero)
    nz = NonZero (m)
    t = Transpose (nz)
    v = GatherND (x, t)
    y = Neg (v)
    total = ReduceSum <keepdims = 0> (v)
}"""


def model(graph: str) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: 9, opset_import: ["": 18]>\n{graph}')


def compiled(graph: str) -> SpecializingExecutable:
    exe = stepwell.compile(model(graph), threads=1, options={"progress": False})
    assert isinstance(exe, SpecializingExecutable)
    return exe


def saved(exe: SpecializingExecutable, folder: Path) -> SteppedExecutable:
    """What is loaded of the artifact of `exe`."""
    exe.save(folder / "model.stepwell")
    loaded = stepwell.load(folder / "model.stepwell", threads=1)
    assert isinstance(loaded, SteppedExecutable)
    return loaded


def floats(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def check_positive(exe: SteppedExecutable, x: np.ndarray) -> None:
    y, total = exe(x)
    np.testing.assert_array_equal(y, -x[x > 0])
    np.testing.assert_allclose(total, x[x > 0].sum(), rtol=1e-5)


def test_any_number_of_elements_found(tmp_path: Path) -> None:
    exe = compiled(POSITIVE)
    for seed in (0, 1):
        exe(floats(seed, 16, 4))
    loaded = saved(exe, tmp_path)
    assert repr(loaded) == (
        "<stepwell.SteppedExecutable (x: float32[16, 4]) -> (y: float32[n], total: float32[])>"
    )
    for seed in range(2, 12):
        check_positive(loaded, floats(seed, 16, 4))
    check_positive(loaded, np.ones((16, 4), np.float32))
    assert list(loaded.run({"x": floats(0, 16, 4)})) == ["y", "total"]
    with pytest.raises(stepwell.InputError, match=r"'x' has shape \(2, 4\)"):
        loaded(floats(0, 2, 4))
    with pytest.raises(stepwell.InputError, match="takes 1 input"):
        loaded()


def test_what_no_call_needed_is_not_there(tmp_path: Path) -> None:
    """After one call it takes that size alone; the size 0 has code of its own."""
    exe = compiled(POSITIVE)
    x = floats(0, 16, 4)
    exe(x)
    loaded = saved(exe, tmp_path)
    check_positive(loaded, x)
    with pytest.raises(stepwell.InputError, match=r"no code for x: \[16, 4\], nz: \[2, 64\]"):
        loaded(np.ones((16, 4), np.float32))
    exe(np.zeros((16, 4), np.float32))
    loaded = saved(exe, tmp_path)
    check_positive(loaded, np.zeros((16, 4), np.float32))
    check_positive(loaded, x)


def test_numbers_that_shapes_depend_on(tmp_path: Path) -> None:
    """Any of them, once calls had two; where there is no such code, those of the calls."""
    x = floats(0, 20)
    rows = compiled(
        """g (float[20] x, int64[1] count) => (float[m, 20] y) {
            zero = Constant <value_ints = [0]> ()
            one = Constant <value_ints = [1]> ()
            repeats = Concat <axis = 0> (count, one)
            rows = Unsqueeze (x, zero)
            tiled = Tile (rows, repeats)
            y = Exp (tiled)
        }"""
    )
    for count in (3, 9):
        rows(x, [count])
    loaded = saved(rows, tmp_path)
    for count in (3, 5, 14):
        np.testing.assert_allclose(loaded(x, [count])[0], np.exp([x] * count), rtol=1e-6)

    parts = compiled(
        """g (float[20] x, int64[1] begin, int64[1] count) => (float[n] y) {
            end = Add (begin, count)
            part = Slice (x, begin, end)
            y = Exp (part)
        }"""
    )
    seen = ((2, 3), (4, 9), (1, 6))
    for begin, count in seen:
        parts(x, [begin], [count])
    loaded = saved(parts, tmp_path)
    for begin, count in seen:
        (y,) = loaded(x, [begin], [count])
        np.testing.assert_allclose(y, np.exp(x[begin : begin + count]), rtol=1e-6)
    with pytest.raises(stepwell.InputError, match=r"no code for .*, begin = \[5\], end = \[7\]"):
        loaded(x, [5], [2])


def test_code_for_one_size_is_left_out_where_code_for_any_does_the_same(tmp_path: Path) -> None:
    exe = compiled(POSITIVE)
    exe(floats(0, 16, 4))
    saved(exe, tmp_path)
    exe(floats(1, 16, 4))
    loaded = saved(exe, tmp_path)
    kinds = [step.any_size for step in loaded.artifact.steps]
    assert kinds == [False, True]  # the first one has an input of one size
    check_positive(loaded, floats(0, 16, 4))


def test_it_needs_no_compiler_and_can_be_saved_again(tmp_path: Path) -> None:
    exe = compiled(POSITIVE)
    for seed in (0, 1):
        exe(floats(seed, 16, 4))
    saved(exe, tmp_path).save(tmp_path / "again.stepwell")
    assert (tmp_path / "again.stepwell").read_bytes() == (tmp_path / "model.stepwell").read_bytes()
    program = f"""
import sys, numpy, stepwell
exe = stepwell.load({str(tmp_path / "again.stepwell")!r})
x = numpy.random.default_rng(7).standard_normal((16, 4), numpy.float32)
assert (exe(x)[0] == -x[x > 0]).all()
assert not [name for name in sys.modules if "mlir" in name or name == "onnx"]
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_damaged_file(tmp_path: Path) -> None:
    exe = compiled(POSITIVE)
    exe(floats(0, 16, 4))
    exe.save(tmp_path / "model.stepwell")
    data = (tmp_path / "model.stepwell").read_bytes()
    (tmp_path / "cut.stepwell").write_bytes(data[:-5000])
    with pytest.raises(stepwell.ArtifactError, match="was cut short"):
        stepwell.load(tmp_path / "cut.stepwell")
    (tmp_path / "changed.stepwell").write_bytes(data[:-5000] + bytes(5000))
    with pytest.raises(stepwell.ArtifactError, match="is damaged"):
        stepwell.load(tmp_path / "changed.stepwell")


def test_a_loop_on_the_host_is_refused(tmp_path: Path) -> None:
    exe = compiled(
        """g (float[16] x) => (float[n] y) {
            zero = Constant <value = float {0.0}> ()
            m = Greater (x, zero)
            nz = NonZero (m)
            shape = Shape (nz)
            one = Constant <value_int = 1> ()
            trips = Gather (shape, one)
            go = Cast <to = 9> (one)
            y = Loop (trips, go, x) <body = b (int64 i, bool c, float[k] v)
                => (bool c_out, float[l] v_out) {
                    c_out = Identity (c)
                    v_out = Concat <axis = 0> (v, x)
                }>
        }"""
    )
    exe(floats(0, 16))
    with pytest.raises(stepwell.UsageError, match="the loop y runs on the host"):
        exe.save(tmp_path / "model.stepwell")


def test_profile(tmp_path: Path) -> None:
    """The kernels of all steps, on one line of time."""
    exe = compiled(POSITIVE)
    x = floats(0, 16, 4)
    for seed in (0, 1):
        exe(floats(seed, 16, 4))
    for model in (exe, saved(exe, tmp_path)):
        codes = model.codes(x)
        assert len(codes) == 2
        shown = stepwell.profile(model, x, runs=2)
        assert len(shown.infos) == sum(len(code.kernels) for code in codes)
        assert {entry.number for entry in shown.kernels} == set(range(len(shown.infos)))
        times = [time for run in shown.trace.runs for time in (run.begin, run.end)]
        times = [shown.trace.begin, *times, shown.trace.end]
        assert times == sorted(times)
        names = [kernel.name for kernel, _ in model.profile(x)]
        assert sorted(names) == sorted(info.name for info in shown.infos)


def test_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(model(POSITIVE), "model.onnx")
    np.savez("one.npz", x=floats(3, 16, 4))
    assert main(["compile", "model.onnx"]) == 1
    assert "--example" in capsys.readouterr().err
    assert main(["compile", "model.onnx", "--example", "@one.npz", "--random-example", "4"]) == 0
    assert main(["inspect", "model.stepwell"]) == 0
    shown = capsys.readouterr().out
    assert "step 1, finds the shape of nz" in shown
    assert "step 2, the last" in shown
    assert main(["inspect", "--json", "model.stepwell"]) == 0
    steps = json.loads(capsys.readouterr().out)["steps"]
    assert [step["sizes"] for step in steps] == [["nz"], []]
    np.savez("expected.npz", y=-floats(3, 16, 4)[floats(3, 16, 4) > 0])
    more = ["--input", "@one.npz", "--expected", "@expected.npz"]
    assert main(["run", "model.stepwell", *more]) == 0
    assert main(["bench", "model.stepwell", "--seconds", "0.01", "--per-kernel"]) == 0
    assert "Greater_m, NonZero_nz" in capsys.readouterr().out
    assert main(["profile", "model.stepwell"]) == 0
    assert "a run of" in capsys.readouterr().out


@pytest.mark.parametrize("more", [["--emit=so"], ["--max", "n=4"], ["--compile-from=linalg"]])
def test_examples_are_for_artifacts(
    more: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(model(POSITIVE), "model.onnx")
    assert main(["compile", "model.onnx", "--random-example", "0", *more]) == 2
    assert "examples are for artifacts" in capsys.readouterr().err


def test_an_artifact_is_compiled_already(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    exe = compiled(POSITIVE)
    exe(floats(0, 16, 4))
    exe.save(tmp_path / "model.stepwell")
    path = str(tmp_path / "model.stepwell")
    assert main(["compile", path, "--random-example", "0", "-o", f"{path}2"]) == 2
    assert "which is compiled already" in capsys.readouterr().err
