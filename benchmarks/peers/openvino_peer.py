"""OpenVINO's CPU plugin, held to the precision asked for, tuned for latency."""

# pyright: reportMissingImports=false
from __future__ import annotations

from pathlib import Path

import numpy as np
import openvino

from benchmarks.peers.job import Job, Prepared


def prepare(job: Job) -> Prepared:
    """Read and compile."""
    settings = {
        "INFERENCE_NUM_THREADS": job.threads,
        "INFERENCE_PRECISION_HINT": job.precision,
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": "1",
        "ENABLE_CPU_PINNING": False,
    }
    compiled = openvino.Core().compile_model(job.path, "CPU", settings)
    request = compiled.create_infer_request()
    inputs = job.inputs()
    count = len(compiled.outputs)

    def call() -> list[np.ndarray]:
        results = request.infer(inputs, share_inputs=True, share_outputs=True)
        return [results[index] for index in range(count)]

    return Prepared(call, Path(job.path).stat().st_size)
