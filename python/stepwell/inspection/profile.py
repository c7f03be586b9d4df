"""`stepwell.profile`: one run of a model on a line of time, and what its threads did meanwhile."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from stepwell.artifact import KernelInfo
from stepwell.errors import UsageError
from stepwell.inspection.kernel_times import KernelTime, beside_peak
from stepwell.runtime.cuda_open_sizes import OnGpu
from stepwell.runtime.executable import Executable
from stepwell.runtime.open_sizes import OpenSizeExecutable
from stepwell.runtime.steps import SteppedModel
from stepwell.runtime.trace import KernelRun, Share, Trace

_WARM_UP_CALLS = 3
_KERNELS, _THREADS = 1, 2
"""Processes of the trace-event file: a viewer shows the tracks of each together."""

_LABEL_SOURCES = 3


@dataclass(frozen=True)
class ThreadTime:
    """Seconds of all threads together in a run, or of it in one kernel.

    `computing`; `starting`, between the begin of a kernel and the thread's own; `waiting`, from its
    last task to the kernel's end; `alone`, while another thread runs a kernel that is not split.
    """

    computing: float = 0.0
    starting: float = 0.0
    waiting: float = 0.0
    alone: float = 0.0

    @property
    def idle(self) -> float:
        """The share of their time in which threads do nothing."""
        total = self.computing + self.starting + self.waiting + self.alone
        return 1 - self.computing / total if total else 0.0

    def __add__(self, other: ThreadTime) -> ThreadTime:
        return ThreadTime(
            self.computing + other.computing,
            self.starting + other.starting,
            self.waiting + other.waiting,
            self.alone + other.alone,
        )


@dataclass(frozen=True)
class KernelProfile:
    """A kernel in a run: its time and work, of all `runs` of it, and what the threads did."""

    number: int
    time: KernelTime
    runs: int
    threads: ThreadTime


@dataclass(frozen=True)
class Profile:
    """One run of a model with these `infos` of kernels: when each of them ran, and `kernels`, what
    it comes to, the slowest first."""

    threads: int
    infos: tuple[KernelInfo, ...]
    trace: Trace
    kernels: tuple[KernelProfile, ...]

    @property
    def place(self) -> str:
        """Where it ran: "2 threads"."""
        return "1 thread" if self.threads == 1 else f"{self.threads} threads"

    @property
    def seconds(self) -> float:
        """From the begin of the first kernel to the end of the last."""
        runs = self.trace.runs
        return (runs[-1].end - runs[0].begin) / 1e9 if runs else 0.0

    @property
    def outside(self) -> float:
        """Seconds of the call before the first kernel and after the last: inputs are checked and
        memory for outputs is taken."""
        return (self.trace.end - self.trace.begin) / 1e9 - self.seconds

    @property
    def between(self) -> float:
        """Seconds in which no thread is in a kernel that is split: from when the last one has done
        its part to when the first one begins with the next kernel's."""
        gaps = (
            run.end - run.begin - (max(s.end for s in run.shares) - run.shares[0].begin)
            for run in self.trace.runs
            if run.shares
        )
        return sum(gaps) / 1e9

    @property
    def thread_time(self) -> ThreadTime:
        """What the threads did in all kernels together."""
        return sum((entry.threads for entry in self.kernels), ThreadTime())

    def to_dict(self) -> dict[str, object]:
        """As `--json` prints it; times in seconds."""
        return {
            "threads": self.threads,
            "seconds": self.seconds,
            "outside_seconds": self.outside,
            "between_seconds": self.between,
            "thread_seconds": vars(self.thread_time),
            "idle": self.thread_time.idle,
            "complete": self.trace.complete,
            "kernels": [
                entry.time.to_dict() | {"runs": entry.runs, "idle": entry.threads.idle}
                for entry in self.kernels
            ],
        }

    def to_chrome_trace(self) -> str:
        """The run in the Trace Event Format (JSON), which ui.perfetto.dev and chrome://tracing
        open: a track of kernels with their work, and one of each thread."""
        return json.dumps(
            {
                "traceEvents": [*self._tracks(), *self._slices()],
                "displayTimeUnit": "ns",
                "otherData": {"threads": self.threads, "complete": self.trace.complete},
            }
        )

    def _tracks(self) -> Iterator[dict[str, object]]:
        yield _name("process_name", _KERNELS, 0, "kernels")
        yield _name("thread_name", _KERNELS, 0, "the run")
        yield _name("process_name", _THREADS, 0, "threads")
        for thread in range(self.threads):
            caller = " (the caller)" if thread == 0 else ""
            yield _name("thread_name", _THREADS, thread, f"thread {thread}{caller}")

    def _slices(self) -> Iterator[dict[str, object]]:
        peaks = {entry.number: entry.time.roofline for entry in self.kernels}
        yield self._slice("call", "call", _KERNELS, 0, self.trace.begin, self.trace.end)
        for run in self.trace.runs:
            kernel = self.infos[run.kernel]
            name, threads = label(kernel), thread_time(run, self.threads)
            one = KernelTime(kernel, (run.end - run.begin) / 1e9, peaks[run.kernel])
            work = _arguments(one) | {"idle": round(threads.idle, 4)}
            yield self._slice(name, kernel.strategy, _KERNELS, 0, run.begin, run.end) | {
                "args": work
            }
            for share in _shares(run):
                yield self._slice(
                    name, kernel.strategy, _THREADS, share.thread, share.begin, share.end
                )

    def _slice(
        self, name: str, category: str, process: int, track: int, begin: int, end: int
    ) -> dict[str, object]:
        return {
            "name": name,
            "cat": category or "kernel",
            "ph": "X",
            "pid": process,
            "tid": track,
            "ts": (begin - self.trace.begin) / 1e3,
            "dur": (end - begin) / 1e3,
        }


def profile(exe: object, *arrays: np.ndarray, runs: int = 20) -> Profile:
    """Call `exe`, what `stepwell.load` or `stepwell.compile` gave for a CPU, `runs` times on
    `arrays`, and return the run whose time is the median (the lower of two), with all steps that a
    model runs in.

    Raises UsageError for models on GPUs and those of which the host runs nodes, InputError for
    arrays that do not fit.
    """
    if not isinstance(exe, Executable | OpenSizeExecutable | SteppedModel | OnGpu):
        raise UsageError(f"what is profiled is compiled whole, and this is not: {exe}")
    codes = exe.codes(*arrays) if isinstance(exe, SteppedModel) else [exe]
    for code in codes:
        if isinstance(code, OnGpu):
            raise UsageError(
                "a timeline is of the threads of a CPU; stepwell bench --per-kernel has the times "
                f"of kernels on {code.place}"
            )
    assert not isinstance(exe, OnGpu)
    for _ in range(_WARM_UP_CALLS):
        exe(*arrays)
    traces = sorted((exe.trace(*arrays) for _ in range(runs)), key=lambda t: t.end - t.begin)
    trace = traces[(runs - 1) // 2]
    infos = tuple(kernel for code in codes for kernel in code.kernels)
    threads = max(code.threads for code in codes if not isinstance(code, OnGpu))
    kernels = [
        KernelProfile(number, time, len(done), _threads_in(done, threads))
        for (number, done), time in zip(
            trace.by_kernel().items(), beside_peak(codes, trace.totals(infos)), strict=True
        )
    ]
    kernels.sort(key=lambda entry: -entry.time.seconds)
    return Profile(threads, infos, trace, tuple(kernels))


def label(kernel: KernelInfo) -> str:
    """What a timeline calls a kernel: its first source nodes, else its own name."""
    more = ", .." if len(kernel.sources) > _LABEL_SOURCES else ""
    return ", ".join(kernel.sources[:_LABEL_SOURCES]) + more or kernel.name


def thread_time(run: KernelRun, threads: int) -> ThreadTime:
    """What `threads` threads did while a kernel ran."""
    duration = run.end - run.begin
    if not run.shares:
        return ThreadTime(computing=duration / 1e9, alone=(threads - 1) * duration / 1e9)
    computing = sum(share.end - share.begin for share in run.shares)
    waiting = 0
    for thread in {share.thread for share in run.shares}:
        waiting += run.end - max(s.end for s in run.shares if s.thread == thread)
    starting = threads * duration - computing - waiting
    return ThreadTime(computing / 1e9, starting / 1e9, waiting / 1e9)


def _threads_in(runs: Sequence[KernelRun], threads: int) -> ThreadTime:
    return sum((thread_time(run, threads) for run in runs), ThreadTime())


def _shares(run: KernelRun) -> tuple[Share, ...]:
    return run.shares or (Share(0, run.begin, run.end),)


def _name(what: str, process: int, track: int, name: str) -> dict[str, object]:
    return {"name": what, "ph": "M", "pid": process, "tid": track, "args": {"name": name}}


def _arguments(entry: KernelTime) -> dict[str, object]:
    kernel = entry.kernel
    data: dict[str, object] = {
        "kernel": kernel.name,
        "sources": list(kernel.sources),
        "strategy": kernel.strategy,
    }
    if entry.roofline is None:
        return data
    return data | {
        "flop": kernel.flops,
        "bytes": kernel.bytes,
        "GFLOP/s": round(kernel.flops / max(entry.seconds, 1e-9) / 1e9, 3),
        "GB/s": round(kernel.bytes / max(entry.seconds, 1e-9) / 1e9, 3),
        "share of peak": round(entry.roofline.share(kernel, entry.seconds), 4),
        "bound": entry.roofline.bound(kernel),
    }
