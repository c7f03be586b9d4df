"""torch.compile with inductor and frozen weights."""

# pyright: reportMissingImports=false
from __future__ import annotations

import time

import torch
import torch._inductor.config

from benchmarks.models import torch_models
from benchmarks.peers.job import Job, Prepared
from benchmarks.peers.torch_eager import numpy_call

torch._inductor.config.freezing = True


def prepare(job: Job) -> Prepared:
    """Build the module; compilation happens at the first call."""
    torch.set_num_threads(job.threads)
    begin = time.perf_counter()
    model = torch_models.build(job.model)
    building = time.perf_counter() - begin
    return Prepared(numpy_call(torch.compile(model.module), model.inputs), building_s=building)
