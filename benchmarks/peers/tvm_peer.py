"""TVM on the ONNX file: Relax's own pipeline for the host, without a search for schedules."""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false
from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import tvm
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx

from benchmarks.peers.job import Job, Prepared


def prepare(job: Job) -> Prepared:
    """Compile to a shared object and load it."""
    os.environ["TVM_NUM_THREADS"] = str(job.threads)
    model = from_onnx(onnx.load(job.path), keep_params_in_input=False)
    cpu = tvm.target.codegen.llvm_get_system_cpu()
    target = tvm.target.Target({"kind": "llvm", "mcpu": cpu, "num-cores": job.threads})
    library = Path(job.folder) / f"{job.model}.so"
    with target:
        relax.build(model, target).export_library(str(library))
    main = relax.VirtualMachine(tvm.runtime.load_module(str(library)), tvm.cpu())["main"]
    inputs = [tvm.runtime.tensor(array) for array in job.inputs().values()]

    def call() -> list[np.ndarray]:
        outputs = main(*inputs)
        several = not hasattr(outputs, "numpy")
        return [output.numpy() for output in (outputs if several else (outputs,))]

    return Prepared(call, library.stat().st_size)
