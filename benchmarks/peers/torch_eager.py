"""torch, eager."""

# pyright: reportMissingImports=false
from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import torch

from benchmarks.models import torch_models
from benchmarks.peers.job import Job, Prepared


def prepare(job: Job) -> Prepared:
    """Build the module."""
    torch.set_num_threads(job.threads)
    begin = time.perf_counter()
    model = torch_models.build(job.model)
    building = time.perf_counter() - begin
    return Prepared(numpy_call(model.module, model.inputs), building_s=building)


def numpy_call(
    function: Callable[..., object], inputs: tuple[torch.Tensor, ...]
) -> Callable[[], list[np.ndarray]]:
    """A call of `function` without gradients whose outputs are numpy views."""

    def call() -> list[np.ndarray]:
        with torch.no_grad():
            outputs = function(*inputs)
        tensors = outputs if isinstance(outputs, tuple) else (outputs,)
        return [np.asarray(t) for t in tensors if isinstance(t, torch.Tensor)]

    return call
