"""The emulated GPU, once for all tests; the programs that the CPU is tested with."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from emulator import Emulator

from stepwell import assembly
from stepwell.runtime.cuda import DRIVER_VARIABLE

_TESTS = Path(__file__).parents[1] / "python"
sys.path += [str(_TESTS), str(_TESTS / "kernels"), str(_TESTS / "models")]


@pytest.fixture(scope="session")
def emulator_library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    """The emulator, in the place of the CUDA driver. A process loads one driver, once."""
    emulator = Emulator.build(tmp_path_factory.mktemp("emulator"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(DRIVER_VARIABLE, str(emulator.path))
        # jax has threads, which do not survive the fork of compiling processes.
        patch.setattr(assembly, "in_processes", lambda function, items: list(map(function, items)))
        yield emulator


@pytest.fixture
def emulator(emulator_library: Emulator) -> Emulator:
    """The emulator without kernels."""
    emulator_library.reset()
    return emulator_library
