"""Stepwell through its public interface."""

from __future__ import annotations

import time

import stepwell
from benchmarks.models.catalog import family
from benchmarks.peers.job import Job, Prepared
from stepwell import worker_process


def prepare(job: Job) -> Prepared:
    """Compile (or find in the cache) and load."""
    precision = "default" if job.precision == "f32" else job.precision
    options = {"progress": False, "precision": precision}
    executable = stepwell.compile(job.path, threads=job.threads, options=options)
    worker_process.end_server()  # its peak of memory is known from then on
    assert isinstance(executable, stepwell.Executable)  # the benchmark's models have no open shapes
    inputs = tuple(job.inputs().values())
    begin = time.perf_counter()
    if family(job.model) == "jax":  # its users have arrays of JAX, and XLA is given these
        import jax

        inputs = tuple(map(jax.device_put, inputs))
    building = time.perf_counter() - begin
    return Prepared(lambda: executable(*inputs), executable.artifact.file.nbytes, building)
