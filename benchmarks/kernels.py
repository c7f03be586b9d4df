"""`python -m benchmarks.kernels`: single kernels against the core's peak, on one thread.

Stepwell, onnxruntime and torch (oneDNN with prepacked weights) run the same kernel in one process,
pinned to one core, in turns; the figure is the median CPU time of a call from Python.
"""

from __future__ import annotations

import datetime
import json
import os
import shlex
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import click
import numpy as np

import stepwell
from benchmarks import kernel_cases, machine
from benchmarks.folders import RESULTS
from benchmarks.kernel_cases import Case
from benchmarks.kernels_table import kernels_table
from benchmarks.peers.registry import PEERS
from benchmarks.run import cpus_for

_SAMPLE_S = 0.004
"""Calls are timed in groups that last about this long."""

Row = dict[str, object]


@click.command()
@click.option("--only", default="", help="Kernels whose names contain this.")
@click.option("--rounds", default=15, show_default=True, help="Samples of each contender.")
@click.option("--out", type=click.Path(path_type=Path), help="JSON file.  [default: results/]")
def main(only: str, rounds: int, out: Path | None) -> None:
    """Time single kernels; write JSON and print a table."""
    os.environ["OMP_NUM_THREADS"] = "1"
    import torch  # pyright: ignore[reportMissingImports]

    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    cpu = cpus_for(1)[0]
    facts = machine.describe(cpu)
    rows = []
    for make in kernel_cases.makers():
        case = make()
        if only in case.name:
            rows.append(measure(case, rounds, cpu))
            click.echo(case.name, err=True)
    packages = [p for peer in ("stepwell", "onnxruntime", "eager") for p in PEERS[peer].packages]
    data = {
        "date": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "command": shlex.join(["python", "-m", "benchmarks.kernels", *sys.argv[1:]]),
        "machine": facts,
        "versions": machine.versions(packages),
        "kernels": rows,
    }
    out = out or RESULTS / f"{datetime.date.today()}-{machine.slug()}-kernels.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(data, indent=1) + "\n")
    kernels_table(data).print()
    click.echo(f"wrote {out}", err=True)


def measure(case: Case, rounds: int, cpu: int) -> Row:
    """Compile, compare with torch, and time one kernel; "error" says why it does not compile."""
    row: Row = {"name": case.name, "flops": case.flops, "bytes": case.bytes}
    try:
        executable = stepwell.compile(case.own, threads=1, options={"progress": False})
    except stepwell.Error as error:
        return row | {"error": str(error)}
    assert isinstance(executable, stepwell.Executable)
    own = (case.own_input, *case.more.values())
    calls: dict[str, Callable[[], object]] = {
        "stepwell": lambda: executable(*own),
        "onnxruntime": _onnxruntime_call(case),
        "torch": case.torch,
    }
    everywhere = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cpu})
    try:
        times = time_in_turns(calls, rounds)
    finally:
        os.sched_setaffinity(0, everywhere)
    return row | {
        "kernels": [kernel.strategy for kernel in executable.kernels],
        "relative_difference": _difference(case, executable(*own)[0]),
        "seconds": times,
    }


def _onnxruntime_call(case: Case) -> Callable[[], object]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        case.onnx.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    feed = {"x": case.onnx_input, **case.more}
    return lambda: session.run(None, feed)


def _difference(case: Case, output: np.ndarray) -> float:
    """Relative L2 difference between Stepwell's and torch's result."""
    theirs = np.asarray(case.torch())
    if theirs.ndim == 4 and theirs.shape != output.shape:
        theirs = theirs.transpose(0, 2, 3, 1)
    return float(np.linalg.norm(output - theirs) / np.linalg.norm(theirs))


def time_in_turns(calls: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Median CPU seconds of a call of each, sampled in turns."""
    counts = {}
    for name, call in calls.items():
        call()
        begin = time.process_time()
        call()
        counts[name] = max(1, round(_SAMPLE_S / max(time.process_time() - begin, 1e-6)))
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            call()  # brings caches back after another contender ran
            begin = time.process_time()
            for _ in range(counts[name]):
                call()
            samples[name].append((time.process_time() - begin) / counts[name])
    return {name: statistics.median(values) for name, values in samples.items()}


if __name__ == "__main__":
    main()
