"""`stepwell profile`: the sums of a timeline, and the trace-event file that shows it."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

import stepwell
from stepwell.artifact import KernelInfo
from stepwell.inspection.profile import Profile, ThreadTime, label, thread_time
from stepwell.runtime.trace import KernelRun, Share, Trace
from stepwell.tools import stepwell as tool

LAYERS = """
module {
  func.func @main(%x: tensor<256x64xf32> loc("x"), %w: tensor<64x64xf32>) -> tensor<256x64xf32> {
    %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0]
        : (tensor<256x64xf32>, tensor<64x64xf32>) -> tensor<256x64xf32> loc("first")
    %1 = stablehlo.tanh %0 : tensor<256x64xf32> loc("bend")
    %2 = stablehlo.dot_general %1, %w, contracting_dims = [1] x [0]
        : (tensor<256x64xf32>, tensor<64x64xf32>) -> tensor<256x64xf32> loc("second")
    return %2 : tensor<256x64xf32>
  }
}
"""
THREADS = 2


@pytest.fixture(scope="module")
def layers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "layers.mlir"
    path.write_text(LAYERS)
    return path


def test_threads_of_a_split_kernel() -> None:
    """Thread 0 computes from 1 to 6 us and waits; thread 1 begins at 3 and ends last."""
    shares = (Share(0, 1000, 6000), Share(1, 3000, 7000), Share(1, 7000, 9000))
    spent = thread_time(KernelRun(0, 0, 10000, shares), 2)
    assert (spent.computing, spent.starting, spent.waiting, spent.alone) == pytest.approx(
        (11e-6, 4e-6, 5e-6, 0)
    )
    assert spent.idle == pytest.approx(9 / 20)


def test_threads_of_a_kernel_that_is_not_split() -> None:
    assert thread_time(KernelRun(0, 0, 1000), 3) == ThreadTime(computing=1e-6, alone=2e-6)


def test_times_between_and_outside() -> None:
    shares = (Share(0, 1500, 3000), Share(1, 2000, 3500))
    runs = [KernelRun(0, 1000, 4000, shares), KernelRun(0, 4000, 5000)]
    shown = Profile(2, (KernelInfo("k"),), Trace(runs, begin=0, end=7000), ())
    assert shown.seconds == pytest.approx(4e-6)
    assert shown.between == pytest.approx(1e-6)
    assert shown.outside == pytest.approx(3e-6)


def test_labels() -> None:
    assert label(KernelInfo("k")) == "k"
    assert label(KernelInfo("k", ("a", "b"))) == "a, b"
    assert label(KernelInfo("k", tuple("abcd"))) == "a, b, c, .."


def test_from_python(layers: Path) -> None:
    exe = stepwell.compile(layers, threads=THREADS)
    shown = stepwell.profile(exe, *(np.ones(spec.shape, np.float32) for spec in exe.inputs), runs=2)
    assert {entry.number for entry in shown.kernels} == set(range(len(exe.kernels)))
    assert shown.thread_time.computing > 0
    assert 0 <= shown.thread_time.idle < 1
    with pytest.raises(stepwell.UsageError, match="compiled whole, and this is not"):
        stepwell.profile(layers)


def check_trace_events(data: dict, threads: int) -> dict[tuple[int, int], list[dict]]:
    """Assert what the Trace Event Format asks for, and that slices of a track nest, without which a
    viewer drops some; returns the slices by track."""
    tracks: dict[tuple[int, int], list[dict]] = defaultdict(list)
    names: set[tuple[int, int]] = set()
    for event in data["traceEvents"]:
        assert {"name", "ph", "pid", "tid"} <= event.keys()
        assert event["ph"] in ("M", "X")
        track = event["pid"], event["tid"]
        if event["ph"] == "M":
            assert event["name"] in ("process_name", "thread_name")
            assert isinstance(event["args"]["name"], str)
            names.add(track)
        else:
            assert event["ts"] >= 0
            assert event["dur"] >= 0
            assert event["cat"]
            tracks[track].append(event)
    assert set(tracks) <= names
    for slices in tracks.values():
        ends: list[float] = []
        for event in sorted(slices, key=lambda e: (e["ts"], -e["dur"])):
            end = event["ts"] + event["dur"]
            while ends and ends[-1] <= event["ts"] + 1e-4:  # sums of rounded microseconds
                ends.pop()
            assert not ends or end <= ends[-1] + 1e-4
            ends.append(end)
    assert {tid for pid, tid in tracks if pid == 2} <= set(range(threads))
    return tracks


@pytest.mark.parametrize("threads", [1, THREADS])
def test_trace_file(layers: Path, tmp_path: Path, threads: int) -> None:
    output = tmp_path / "trace.json"
    assert tool.main(["profile", str(layers), f"--threads={threads}", "-o", str(output)]) == 0
    tracks = check_trace_events(json.loads(output.read_text()), threads)
    call, *kernels = tracks[1, 0]
    assert call["name"] == "call"
    assert [kernel["name"] for kernel in kernels] == ["first, bend", "second"]
    for kernel in kernels:
        work = kernel["args"]
        assert work["strategy"] == kernel["cat"] == "contraction"
        assert work["flop"] >= 2 * 256 * 64 * 64
        assert work["GFLOP/s"] > 0
        assert work["bytes"] > 0
        assert 0 <= work["idle"] < 1
    labels = {event["name"] for events in tracks.values() for event in events}
    assert labels == {"call", "first, bend", "second"}


def test_output_to_stdout(layers: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tool.main(["profile", str(layers), "--runs=1", "--threads=2", "-o", "-"]) == 0
    check_trace_events(json.loads(capsys.readouterr().out), 2)


def test_tables(layers: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tool.main(["profile", str(layers), "--runs=3", "--threads=2", "--top=1"]) == 0
    out = capsys.readouterr().out
    assert "threads wait for others to end a kernel" in out
    assert "nobody works between two kernels" in out
    assert "1 shorter ones left out" in out


def test_json(layers: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tool.main(["profile", str(layers), "--runs=3", "--threads=2", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["threads"] == 2
    assert data["complete"]
    assert sum(data["thread_seconds"].values()) == pytest.approx(2 * data["seconds"])
    assert {"sources", "seconds", "share_of_peak", "runs", "idle"} <= data["kernels"][0].keys()


def test_gpu_models_are_refused() -> None:
    from stepwell.runtime.cuda_executable import CudaExecutable

    class OnGpu(CudaExecutable):
        place = "a GPU"

        def __init__(self) -> None:
            pass

    with pytest.raises(stepwell.UsageError, match="bench --per-kernel has the times"):
        stepwell.profile(OnGpu())
