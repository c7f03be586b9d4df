"""What the C runtime records of a call: each run of a kernel, and each thread's part of it."""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from stepwell.artifact import KernelInfo
from stepwell.runtime import library

_SHARES = 1 << 20
"""Room for so many parts of kernels; a thread has a handful of each. Only what is used of it takes
memory."""

_SHARE = np.dtype([("event", "u8"), ("thread", "u8"), ("begin", "i8"), ("end", "i8")])
"""`stepwell_share` of runtime/stepwell_runtime.h."""


@dataclass(frozen=True)
class Share:
    """Tasks of a kernel that thread number `thread` ran at a stretch; the caller is thread 0.
    Times are nanoseconds of the monotonic clock."""

    thread: int
    begin: int
    end: int


@dataclass(frozen=True)
class KernelRun:
    """One run of kernel number `kernel`, until the next one or the end. Without `shares` (it is not
    split, or nobody asked for them) it is the caller's."""

    kernel: int
    begin: int
    end: int
    shares: tuple[Share, ...] = ()


@dataclass
class Trace:
    """The runs of kernels in order, in a call that took from `begin` to `end`. `complete` is False
    where the record had no room for all."""

    runs: list[KernelRun] = field(default_factory=list)
    begin: int = 0
    end: int = 0
    complete: bool = True

    def by_kernel(self) -> dict[int, list[KernelRun]]:
        """The runs of each kernel by its number, in the order of the first runs."""
        found: dict[int, list[KernelRun]] = {}
        for run in self.runs:
            found.setdefault(run.kernel, []).append(run)
        return found

    def totals(self, kernels: Sequence[KernelInfo]) -> list[tuple[KernelInfo, int]]:
        """Each kernel that ran and the nanoseconds in it, times and work of its runs added."""
        return [
            (kernels[number].repeated(len(runs)), sum(run.end - run.begin for run in runs))
            for number, runs in self.by_kernel().items()
        ]


def joined(traces: Sequence[Trace], kernels: Sequence[int]) -> Trace:
    """The trace of a call that ran several codes with so many `kernels`, of the traces of each."""
    runs: list[KernelRun] = []
    first = 0
    for trace, count in zip(traces, kernels, strict=True):
        runs += [dataclasses.replace(run, kernel=first + run.kernel) for run in trace.runs]
        first += count
    return Trace(
        sorted(runs, key=lambda run: run.begin),
        max(trace.begin for trace in traces),
        min(trace.end for trace in traces),
        all(trace.complete for trace in traces),
    )


@contextmanager
def recorded(context: int, *, with_shares: bool = False) -> Iterator[Trace]:
    """Record the calls made with `context` inside; the trace is filled in at the end."""
    trace = Trace()
    room = np.empty(_SHARES if with_shares else 0, _SHARE)
    if with_shares:
        library.library().stepwell_trace_start_shares(context, room.ctypes.data, len(room))
    else:
        library.library().stepwell_trace_start(context)
    trace.begin = time.monotonic_ns()  # the clock of the C runtime
    try:
        yield trace
    finally:
        trace.end = time.monotonic_ns()
        events = library.read_events(context)
    shares: dict[int, list[Share]] = {}
    if with_shares:
        count = library.library().stepwell_trace_shares(context)
        trace.complete = count <= len(room)
        for event, thread, begin, end in np.sort(room[:count], order="begin").tolist():
            shares.setdefault(event, []).append(Share(thread, begin, end))
    for number, ((kernel, begin), (_, end)) in enumerate(itertools.pairwise(events)):
        if kernel >= 0:
            trace.runs.append(KernelRun(kernel, begin, end, tuple(shares.get(number, ()))))
    trace.complete &= not events or events[-1][0] < 0
