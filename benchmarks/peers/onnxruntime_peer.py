"""onnxruntime's CPU provider with all graph optimisations."""

# pyright: reportMissingImports=false
from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime

from benchmarks.peers.job import Job, Prepared


def prepare(job: Job) -> Prepared:
    """Load, optimise and prepack."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = job.threads
    options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(job.path, options, providers=["CPUExecutionProvider"])
    inputs = job.inputs()

    def call() -> list[np.ndarray]:
        return [np.asarray(value) for value in session.run(None, inputs)]

    return Prepared(call, Path(job.path).stat().st_size)
