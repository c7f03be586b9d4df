"""One peer, one model, in a process of its own: `python -m benchmarks.peers.worker JOB`.

JOB is a Job as JSON. The worker writes one line of JSON when the first result is there, then reads
commands, one a line, and answers each with a line:

    {"do": "run", "seconds": 0.25, "least": 3}  ->  {"ok": true, "wall": [...], "cpu": [...]}
    {"do": "quit"}                              ->  {"ok": true, "peak_rss_bytes": ...}

Whatever libraries print goes to stderr.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import numpy as np

from benchmarks.peers.job import Job, Prepared

_MOST_CALLS = 2000
_TINY = 1e-30


def main() -> None:
    """Serve one job until "quit" or the end of input."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    job = Job.from_json(sys.argv[1])
    try:
        prepared, report = start(job)
    except Exception as error:
        traceback.print_exc()
        say(answers, {"ok": False, "error": f"{type(error).__name__}: {error}"[:500]})
        return
    say(answers, report)
    for line in sys.stdin:
        command = json.loads(line)
        if command["do"] == "quit":
            say(answers, {"ok": True, "peak_rss_bytes": peak_rss(resource.RUSAGE_SELF)})
            return
        wall, cpu = burst(prepared, command["seconds"], command["least"])
        say(answers, {"ok": True, "wall": wall, "cpu": cpu})


def say(stream: IO[str], message: dict[str, object]) -> None:
    """Write one line of JSON."""
    stream.write(json.dumps(message) + "\n")
    stream.flush()


def start(job: Job) -> tuple[Prepared, dict[str, object]]:
    """Import the peer, compile, run once and compare; then pin all threads to the job's CPUs.

    `first_result_s` is from the imported library to the first result.
    """
    if job.starts_pinned:
        os.sched_setaffinity(0, job.cpus)
    begin = time.perf_counter()
    peer = importlib.import_module(f"benchmarks.peers.{job.module}")
    imported = time.perf_counter()
    prepared: Prepared = peer.prepare(job)
    ready = time.perf_counter()
    outputs = prepared.call()
    first = time.perf_counter()
    error = relative_error(outputs, job.references())
    del outputs
    pin(job.cpus)
    report: dict[str, object] = {
        "ok": True,
        "import_s": imported - begin,
        "prepare_s": ready - imported - prepared.building_s,
        "first_result_s": first - imported - prepared.building_s,
        "relative_error": error,
        "artifact_bytes": prepared.artifact_bytes,
        "compiler_rss_bytes": peak_rss(resource.RUSAGE_CHILDREN),
    }
    return prepared, report


def relative_error(outputs: Sequence[np.ndarray], references: Sequence[np.ndarray]) -> float:
    """The largest relative L2 error of all outputs. Raises ValueError when shapes differ."""
    shapes = [np.shape(output) for output in outputs]
    wanted = [reference.shape for reference in references]
    if shapes != wanted:
        raise ValueError(f"the outputs have shapes {shapes}, expected {wanted}")
    return max(
        float(
            np.linalg.norm(np.asarray(output, np.float64) - reference)
            / (np.linalg.norm(reference) + _TINY)
        )
        for output, reference in zip(outputs, references, strict=True)
    )


def pin(cpus: Sequence[int]) -> None:
    """Pin every thread of this process, the pools' too."""
    for thread in Path("/proc/self/task").iterdir():
        try:
            os.sched_setaffinity(int(thread.name), cpus)
        except ProcessLookupError:
            continue


def burst(prepared: Prepared, seconds: float, least: int) -> tuple[list[float], list[float]]:
    """Wall and CPU seconds of single calls, for `seconds` and at least `least` calls."""
    prepared.call()  # brings caches back after another peer ran
    wall: list[float] = []
    cpu: list[float] = []
    end = time.perf_counter() + seconds
    while len(wall) < least or (time.perf_counter() < end and len(wall) < _MOST_CALLS):
        wall_begin, cpu_begin = time.perf_counter(), time.process_time()
        prepared.call()
        cpu.append(time.process_time() - cpu_begin)
        wall.append(time.perf_counter() - wall_begin)
    return wall, cpu


def peak_rss(who: int) -> int:
    """Peak resident bytes of this process, or of the largest of its ended children."""
    return resource.getrusage(who).ru_maxrss * 1024


if __name__ == "__main__":
    main()
