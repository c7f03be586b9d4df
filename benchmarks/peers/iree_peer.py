"""IREE on the StableHLO portable artifact, with its settings for this CPU."""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false
from __future__ import annotations

from pathlib import Path

import iree.compiler
import iree.runtime
import numpy as np

from benchmarks.peers.job import Job, Prepared

_FLAGS = (
    "--iree-hal-target-device=local",
    "--iree-hal-local-target-device-backends=llvm-cpu",
    "--iree-llvmcpu-target-cpu=host",
    "--iree-opt-level=O3",
    "--iree-opt-data-tiling=true",
    "--iree-global-opt-use-im2col-for-convs",
    "--iree-llvmcpu-stack-allocation-limit=262144",
)


def prepare(job: Job) -> Prepared:
    """Compile to a flatbuffer and map it."""
    binary = Path(job.folder) / f"{job.model}.vmfb"
    iree.compiler.compile_file(
        job.path, input_type="stablehlo", output_file=str(binary), extra_args=list(_FLAGS)
    )
    if job.threads == 1:
        device = iree.runtime.get_device("local-sync")
    else:
        iree.runtime.flags.parse_flags(f"--task_topology_group_count={job.threads}")
        device = iree.runtime.get_device("local-task")
    context = iree.runtime.SystemContext(config=iree.runtime.Config(device=device))
    module = iree.runtime.VmModule.mmap(context.instance, str(binary))
    context.add_vm_module(module)
    main = context.modules[module.name]["main"]
    inputs = [iree.runtime.asdevicearray(device, array) for array in job.inputs().values()]

    def call() -> list[np.ndarray]:
        outputs = main(*inputs)
        several = isinstance(outputs, (tuple, list))
        return [output.to_host() for output in (outputs if several else (outputs,))]

    return Prepared(call, binary.stat().st_size)
