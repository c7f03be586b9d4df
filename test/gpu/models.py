"""Compiles models for a GPU, runs their artifacts on the emulator, and compares with the CPU."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest
from emulator import KERNEL, Emulator, RealGpu

import stepwell
from stepwell import assembly, compiler, ptx, ptxas, targets, worker
from stepwell.artifact import Artifact, read
from stepwell.runtime.cuda import device
from stepwell.runtime.cuda_executable import CudaExecutable

ON_GPU = "STEPWELL_TEST_GPU" in os.environ
"""Whether kernels run on a GPU instead of the emulator."""

TARGET = targets.get("cuda").name if ON_GPU else "cuda:sm_90a"


@dataclass
class Compiled:
    """A model for a GPU: its artifact, each kernel's LLVM IR, and what passes had to say."""

    artifact: Artifact
    kernels: dict[str, str]
    remarks: list[str]


def compile_for_gpu(model: object, target: str = TARGET, **options: object) -> Compiled:
    """Compile `model` in this process, to have the LLVM IR of its kernels."""
    lowered = stepwell.lower(model, target=target, options={"use_cache": False, **options})
    kernels: dict[str, str] = {}
    optimize = ptx.kernel_llvm

    def recorded(*arguments: Any) -> llvm.ModuleRef:
        module = optimize(*arguments)
        text = str(module)
        kernels[KERNEL.findall(text)[0][0]] = text
        return module

    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(ptx, "kernel_llvm", recorded)
        patch.setattr(assembly, "in_processes", lambda function, items: list(map(function, items)))
        path = Path(folder) / "model.stepwell"
        lowered._write_artifact(path)
        return Compiled(read(path, check_host=False), kernels, lowered.remarks)


@contextmanager
def compiling_for(emulator: Emulator | RealGpu) -> Iterator[None]:
    """While it lasts, `stepwell.compile` works in this process, and kernels for GPUs go to the
    emulator."""
    optimize = ptx.kernel_llvm

    def recorded(*arguments: Any) -> llvm.ModuleRef:
        module = optimize(*arguments)
        emulator.add(str(module))
        return module

    def work(request: worker.Request, *_: object) -> None:
        worker.compile_request(request, lambda *_: None)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ptx, "kernel_llvm", recorded)
        patch.setattr(compiler, "run_worker", work)
        yield


def load_on_emulator(compiled: Compiled, emulator: Emulator) -> CudaExecutable:
    """The executable of a compiled model, on the emulated GPU, or on the one that there is if it
    runs its code; else the test is skipped."""
    program = compiled.artifact.manifest.cuda
    if ON_GPU and program is not None and not program.runs_on(device().capability):
        pytest.skip(f"code for {program.architecture} does not run on this GPU")
    for text in compiled.kernels.values():
        emulator.add(text)
    return CudaExecutable(compiled.artifact)


def emulate(
    model: object, inputs: list[np.ndarray], emulator: Emulator, target: str = TARGET
) -> tuple[np.ndarray, ...]:
    """The outputs of `model` for a GPU."""
    compiled = compile_for_gpu(model, target)
    return load_on_emulator(compiled, emulator)(*inputs)


def assert_same_as_cpu(
    model: object,
    inputs: list[np.ndarray],
    emulator: Emulator,
    *,
    rtol: float = 1e-5,
    atol: float = 1e-5,
) -> Compiled:
    """Assert that GPU and CPU give the same; integers and booleans exactly. The tolerances cover
    sums in another order and fused multiply-adds at other places."""
    compiled = compile_for_gpu(model)
    executable = load_on_emulator(compiled, emulator)
    expected = stepwell.compile(model)(*inputs)
    for backwards in (False, True):
        emulator.configure(backwards=backwards)
        for got, want in zip(executable(*inputs), expected, strict=True):
            assert got.dtype == want.dtype
            if got.dtype.kind in "biu":
                np.testing.assert_array_equal(got, want)
            else:
                got, want = got.astype(np.float64), want.astype(np.float64)
                np.testing.assert_allclose(got, want, rtol=rtol, atol=atol)
    return compiled


def needs_ptxas() -> bool:
    """Whether tests that assemble have to be skipped."""
    return ptxas.release() is None
