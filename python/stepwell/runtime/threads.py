"""How many threads a run gets when nobody says."""

from __future__ import annotations

import functools
import os
from pathlib import Path

_TOPOLOGY = Path("/sys/devices/system/cpu")


@functools.cache
def default_threads() -> int:
    """The physical cores that this process may use: affinity and cgroup quota are honoured."""
    cpus = (
        os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    )
    cores = {_siblings(cpu) for cpu in cpus}
    return max(1, min(len(cores), _quota()))


def _siblings(cpu: int) -> str:
    try:
        return (_TOPOLOGY / f"cpu{cpu}/topology/thread_siblings_list").read_text().strip()
    except OSError:
        return str(cpu)


def _quota() -> int:
    """CPUs that the cgroup grants, rounded up; a large number without a limit."""
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return -(-int(quota) // int(period))
    except (OSError, ValueError):
        return 1 << 16
