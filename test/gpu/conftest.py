"""The emulated GPU, once for all tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from emulator import Emulator

from stepwell.runtime.cuda import DRIVER_VARIABLE


@pytest.fixture(scope="session")
def emulator_library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    """The emulator, in the place of the CUDA driver. A process loads one driver, once."""
    emulator = Emulator.build(tmp_path_factory.mktemp("emulator"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(DRIVER_VARIABLE, str(emulator.path))
        yield emulator


@pytest.fixture
def emulator(emulator_library: Emulator) -> Emulator:
    """The emulator without kernels."""
    emulator_library.reset()
    return emulator_library
