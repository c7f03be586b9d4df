"""Stepwell through its public interface."""

from __future__ import annotations

import stepwell
from benchmarks.peers.job import Job, Prepared
from stepwell import worker_process


def prepare(job: Job) -> Prepared:
    """Compile (or find in the cache) and load."""
    executable = stepwell.compile(job.path, threads=job.threads, options={"progress": False})
    worker_process.end_server()  # its peak of memory is known from then on
    assert isinstance(executable, stepwell.Executable)  # the benchmark's models have no open shapes
    inputs = tuple(job.inputs().values())
    return Prepared(lambda: executable(*inputs), executable.artifact.file.nbytes)
