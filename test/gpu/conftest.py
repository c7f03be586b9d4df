"""The emulated GPU, once for all tests; the programs that the CPU is tested with."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from emulator import Emulator, RealGpu
from models import ON_GPU
from recording import FOLDER, recorded

from stepwell import assembly
from stepwell.runtime.cuda import DRIVER_VARIABLE
from stepwell.runtime.cuda_executable import CudaExecutable

_TESTS = Path(__file__).parents[1] / "python"
sys.path += [str(_TESTS), str(_TESTS / "kernels"), str(_TESTS / "models")]


@pytest.fixture(scope="session")
def emulator_library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator | RealGpu]:
    """The emulator, in the place of the CUDA driver. A process loads one driver, once."""
    with pytest.MonkeyPatch.context() as patch:
        # jax has threads, which do not survive the fork of compiling processes.
        patch.setattr(assembly, "in_processes", lambda function, items: list(map(function, items)))
        if ON_GPU:
            yield RealGpu()
            return
        emulator = Emulator.build(tmp_path_factory.mktemp("emulator"))
        patch.setenv(DRIVER_VARIABLE, str(emulator.path))
        if FOLDER is not None:
            patch.setattr(CudaExecutable, "__call__", recorded(CudaExecutable.__call__, FOLDER))
        yield emulator


@pytest.fixture
def emulator(emulator_library: Emulator | RealGpu) -> Emulator | RealGpu:
    """The emulator without kernels; on a machine with a GPU (make test-gpu) what stands for it."""
    if isinstance(emulator_library, Emulator):
        emulator_library.reset()
    return emulator_library
