"""`stepwell tune`: which choices it keeps, by a clock of the test's own, and what it writes."""

from __future__ import annotations

import io
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

import stepwell
from stepwell.errors import CompilerCrash, LoweringError, UsageError
from stepwell.inspection import tune as tuning
from stepwell.options import CompileOptions
from stepwell.runtime.executable import Executable
from stepwell.tools import stepwell as tool
from stepwell.tuning_record import ALGORITHM, STRATEGY, TuningRecord

NETWORK = """<ir_version: 8, opset_import: ["": 18]>
g (float[1, 32, 14, 14] x) => (float[1, 100] y) {
    [conv] c = Conv <pads = [1, 1, 1, 1]> (x, w)
    [pool] p = GlobalAveragePool (c)
    [flat] f = Flatten (p)
    [dense] y = MatMul (f, v)
}"""

THREADS = 1


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = parser.parse_model(NETWORK)
    generator = np.random.default_rng(0)
    for name, shape in (("w", (64, 32, 3, 3)), ("v", (64, 100))):
        array = generator.standard_normal(shape, np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    path = tmp_path_factory.mktemp("models") / "network.onnx"
    onnx.save(model, path)
    return path


@pytest.fixture
def image() -> np.ndarray:
    return np.random.default_rng(1).standard_normal((1, 32, 14, 14), np.float32)


def kernels_of(exe: Executable) -> list[str]:
    return [kernel.name for kernel in exe.kernels]


def clock(monkeypatch: pytest.MonkeyPatch, network: Path, seconds: float, ratio: float) -> None:
    """Kernels that are not of the default take so many seconds, others one; a run with a record is
    so many times as fast."""
    default = set(kernels_of(stepwell.compile(str(network), threads=THREADS)))

    def profile(exe: Executable, _: Sequence[np.ndarray]) -> list[tuple[tuple[str, ...], float]]:
        return [
            (kernel.sources, 1.0 if kernel.name in default else seconds) for kernel in exe.kernels
        ]

    monkeypatch.setattr(tuning, "_profile", profile)
    monkeypatch.setattr(tuning._Tuner, "_ratios_of_runs", lambda *_: [ratio] * 4)


def test_faster_choices_are_recorded(
    network: Path, image: np.ndarray, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    clock(monkeypatch, network, seconds=0.5, ratio=1.5)
    found = stepwell.tune(str(network), {"x": image}, threads=THREADS)
    assert {entry.kind for entry in found.record.entries} == {ALGORITHM, STRATEGY}
    assert found.ratio == 1.5
    found.save(str(tmp_path / "record.json"))
    options = CompileOptions(tuning=TuningRecord.read(tmp_path / "record.json"))
    tuned = stepwell.compile(str(network), threads=THREADS, options=options)
    default = stepwell.compile(str(network), threads=THREADS)
    assert set(kernels_of(tuned)) != set(kernels_of(default))
    (expected,), (got,) = default(image), tuned(image)
    np.testing.assert_allclose(got, expected, 0, 1e-5 * np.abs(expected).max())


def test_slower_choices_are_not(
    network: Path, image: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock(monkeypatch, network, seconds=2.0, ratio=0.5)
    found = stepwell.tune(str(network), {"x": image}, threads=THREADS)
    assert found.tried > 2
    assert not found.record.entries


def test_winners_that_do_not_help_the_whole_are_dropped(
    network: Path, image: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock(monkeypatch, network, seconds=0.5, ratio=0.99)
    found = stepwell.tune(str(network), {"x": image}, threads=THREADS)
    assert not found.record.entries
    assert found.ratio == 1


def test_other_results_are_refused(
    network: Path, image: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock(monkeypatch, network, seconds=0.5, ratio=1.5)
    monkeypatch.setattr(tuning, "_TOLERANCE", -1.0)
    with pytest.raises(LoweringError, match="y: error: the results of tuned kernels differ"):
        stepwell.tune(str(network), {"x": image}, threads=THREADS)


def test_gpus_are_refused(
    network: Path, image: np.ndarray, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UsageError, match="tuning is for CPUs"):
        stepwell.tune(str(network), {"x": image}, target="cuda:sm_90a")
    arguments = [str(network), "-o", str(tmp_path / "record.json"), "--target", "cuda:sm_90a"]
    assert tool.main(["tune", *arguments]) == 2
    assert "tuning is for CPUs" in capsys.readouterr().err


def test_a_crash_of_one_round_loses_no_other(
    network: Path,
    image: np.ndarray,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock(monkeypatch, network, seconds=0.5, ratio=1.5)
    compile = tuning.compile
    calls = 0

    def crashing(*arguments: object) -> object:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise CompilerCrash("the compiler crashed")
        return compile(*arguments)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(tuning, "compile", crashing)
    with caplog.at_level(logging.WARNING, "stepwell"):
        found = stepwell.tune(str(network), {"x": image}, threads=THREADS)
    assert "is left out: the compiler crashed" in caplog.text
    assert found.found > 1


def test_an_interrupt_keeps_what_was_found(
    network: Path, image: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock(monkeypatch, network, seconds=0.5, ratio=1.5)

    def interrupt(_: str, winners: int) -> None:
        if winners:
            raise KeyboardInterrupt

    found = stepwell.tune(str(network), {"x": image}, threads=THREADS, on_round=interrupt)
    assert found.found == 1


def test_command_writes_a_record(network: Path, tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    arguments = ["tune", str(network), "-o", str(path), "--budget", "0", "--threads", "1"]
    assert tool.main(arguments) == 0
    record = TuningRecord.read(path)
    assert (record.threads, record.entries) == (THREADS, ())
    again = tmp_path / "again.json"
    assert tool.main([*arguments[:3], str(again), *arguments[4:], "--tuning", str(path)]) == 0


def test_command_reads_stdin(
    network: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(network.read_bytes())))
    path = tmp_path / "record.json"
    assert tool.main(["tune", "-", "-o", str(path), "--budget", "0", "--threads", "1"]) == 0
    assert TuningRecord.read(path).threads == THREADS


def test_command_refuses_artifacts(
    network: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "network.stepwell"
    stepwell.compile(str(network), threads=THREADS).save(path)
    assert tool.main(["tune", str(path), "-o", str(tmp_path / "record.json")]) == 2
    assert "an artifact is compiled already" in capsys.readouterr().err
    assert not (tmp_path / "record.json").exists()
