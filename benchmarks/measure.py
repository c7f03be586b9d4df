"""Contenders in processes of their own, timed in turns."""

from __future__ import annotations

import json
import os
import queue
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from benchmarks.folders import ROOT
from benchmarks.models.catalog import ModelFiles, ensure_portable
from benchmarks.peers.job import Job
from benchmarks.peers.registry import PEERS

_SLOW_CALL_S = 1.5
"""Calls longer than this run one at a time, and in two rounds only."""

_SLOW_ROUNDS = 2
_PAUSE_S = 0.05  # idle threads of onnxruntime wait for work that long, and keep processors busy

Report = dict[str, object]


@dataclass(frozen=True)
class Settings:
    """How to measure. `burst_s` seconds a round and contender; `start_timeout_s` bounds compiling;
    `pythons` gives peers another interpreter; `precision` is that of products of float32."""

    rounds: int = 5
    burst_s: float = 0.5
    start_timeout_s: float = 600.0
    pythons: Mapping[str, str] = field(default_factory=dict)
    precision: str = "f32"


class Worker:
    """A worker process and its lines of JSON."""

    def __init__(self, job: Job, python: str, variables: Mapping[str, str]) -> None:
        log = (Path(job.folder) / f"{job.model}-{job.peer}-{job.threads}.log").open("w")
        with log:
            self._process = subprocess.Popen(
                [python, "-m", "benchmarks.peers.worker", job.to_json()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=ROOT,
                env=os.environ | variables,
                start_new_session=True,
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input: IO[str] = self._process.stdin
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True).start()

    def _read(self, stream: IO[str]) -> None:
        for line in stream:
            self._lines.put(line)
        self._lines.put("")

    def answer(self, timeout: float) -> Report:
        """The next answer; a worker that takes longer or dies is one that says ok = False."""
        try:
            line = self._lines.get(timeout=timeout)
        except queue.Empty:
            self.kill()
            return {"ok": False, "error": f"no answer within {timeout:.0f} s"}
        if not line:
            return {"ok": False, "error": f"ended with exit code {self._process.wait()}"}
        return json.loads(line)

    def ask(self, command: Mapping[str, object], timeout: float = 120.0) -> Report:
        """Send a command and wait for its answer."""
        try:
            self._input.write(json.dumps(command) + "\n")
            self._input.flush()
        except BrokenPipeError:
            pass
        return self.answer(timeout)

    def quit(self) -> Report:
        """End the worker; its last answer."""
        report = self.ask({"do": "quit"}, timeout=30.0)
        try:
            self._process.wait(timeout=30.0)
        except subprocess.TimeoutExpired:
            self.kill()
        return report

    def kill(self) -> None:
        """End the worker and what it started."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


def time_contenders(
    contenders: Mapping[str, tuple[ModelFiles, str]],
    threads: int,
    cpus: tuple[int, ...],
    folder: Path,
    settings: Settings,
    note: Callable[[str], None],
) -> dict[str, Report]:
    """Start every contender, a model and a peer, then run them in turns. Returns a report for each
    by its name."""
    reports: dict[str, Report] = {}
    live: dict[str, Worker] = {}
    try:
        for name, (files, peer) in contenders.items():
            report, worker = _start(files, peer, threads, cpus, folder, settings)
            reports[name] = report
            if worker is not None:
                live[name] = worker
            note(_sentence(files.name, peer, threads, report))
        _run_rounds(live, reports, settings)
        for name, worker in live.items():
            reports[name]["peak_rss_bytes"] = worker.quit().get("peak_rss_bytes")
    finally:
        for worker in live.values():
            worker.kill()
    return reports


def _start(
    files: ModelFiles,
    peer: str,
    threads: int,
    cpus: tuple[int, ...],
    folder: Path,
    settings: Settings,
) -> tuple[Report, Worker | None]:
    """Start one peer: cold, and when it has a cache once more, warm; the last one stays."""
    info = PEERS[peer]
    own = folder / f"{files.name}-{peer}-{threads}"
    own.mkdir(parents=True)
    path = ensure_portable(files.name) if info.reads_portable else files.path
    job = Job(
        peer=peer,
        module=info.module,
        model=files.name,
        path=str(path),
        data=str(files.data),
        folder=str(own),
        threads=threads,
        cpus=cpus,
        starts_pinned=info.starts_pinned,
        precision=settings.precision,
    )
    variables = {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    variables |= {"HF_HUB_OFFLINE": "1"} | dict(info.variables)
    if info.cache:
        variables[info.cache] = str(own / "cache")
    python = settings.pythons.get(peer, sys.executable)
    worker = Worker(job, python, variables)
    report = worker.answer(settings.start_timeout_s)
    if report["ok"] and info.cache:
        cold_seconds, cold_rss = report["first_result_s"], report["compiler_rss_bytes"]
        worker.quit()
        worker = Worker(job, python, variables)
        report = worker.answer(settings.start_timeout_s)
        report |= {
            "first_result_warm_s": report.get("first_result_s"),
            "first_result_s": cold_seconds,
            "compiler_rss_bytes": cold_rss,
        }
    if not report["ok"]:
        worker.kill()
        return report, None
    return report, worker


def _run_rounds(live: dict[str, Worker], reports: dict[str, Report], settings: Settings) -> None:
    wall: dict[str, list[float]] = {name: [] for name in live}
    cpu: dict[str, list[float]] = {name: [] for name in live}
    for number in range(settings.rounds):
        for name, worker in list(live.items()):
            slow = bool(wall[name]) and statistics.median(wall[name]) > _SLOW_CALL_S
            if slow and number >= _SLOW_ROUNDS:
                continue
            command = {"do": "run", "seconds": settings.burst_s, "least": 1 if slow else 3}
            answer = worker.ask(command)
            if not answer["ok"]:
                reports[name] |= answer
                live.pop(name).kill()
                continue
            for times, key in ((wall[name], "wall"), (cpu[name], "cpu")):
                values = answer[key]
                assert isinstance(values, list)
                times.extend(values)
            time.sleep(_PAUSE_S)
    for name in live:
        reports[name] |= {
            "wall_ms": 1e3 * statistics.median(wall[name]),
            "wall_least_ms": 1e3 * min(wall[name]),
            "cpu_ms": 1e3 * statistics.median(cpu[name]),
            "cpu_least_ms": 1e3 * min(cpu[name]),
            "calls": len(wall[name]),
        }


def _sentence(model: str, peer: str, threads: int, report: Report) -> str:
    noun = "thread" if threads == 1 else "threads"
    if not report["ok"]:
        return f"{model}, {threads} {noun}, {peer}: failed: {report['error']}"
    seconds, error = report["first_result_s"], report["relative_error"]
    return f"{model}, {threads} {noun}, {peer}: first result in {seconds:.1f} s, error {error:.1e}"
