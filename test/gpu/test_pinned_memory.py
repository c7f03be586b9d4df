"""Arrays of the host go to the GPU and back by way of page-locked memory, where there is some."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from emulator import Emulator
from models import Compiled, compile_for_gpu, load_on_emulator
from test_models import exported, normal

import stepwell
from stepwell.runtime.device_arrays import DeviceArray

PIECE = 1 << 20
"""Bytes that the runtime copies to page-locked memory at once."""

LARGE = (5, 131_101)
"""Two pieces and a part of a third, which ends within a vector."""

PIECES = 3


@pytest.fixture(autouse=True)
def counted_from_none() -> None:
    """Models of other tests that nothing refers to any more are gone."""
    gc.collect()


@pytest.fixture(scope="module")
def compiled() -> Compiled:
    return compile_for_gpu(exported(lambda x, y: (x * y, y + 1), normal(*LARGE), normal(5, 1)))


@pytest.mark.parametrize("pinned", [True, False])
def test_results(pinned: bool, compiled: Compiled, emulator: Emulator) -> None:
    """The same with page-locked memory, of which a model asks for one block, and without."""
    emulator.configure(pinned=pinned)
    counters = emulator.library
    executable, other = (load_on_emulator(compiled, emulator) for _ in range(2))
    loaded = counters.emulator_copies()
    assert PIECES == -(-normal(*LARGE).nbytes // PIECE)
    for seed in range(3):  # launches, their recording as a graph, its replay
        x, y = normal(*LARGE, seed=seed), normal(5, 1, seed=seed + 3)
        product, total = executable(x, y)
        np.testing.assert_array_equal(product, x * y)
        np.testing.assert_array_equal(total, y + 1)
        assert counters.emulator_pinned_blocks() == int(pinned)
    copies = 3 * ((PIECES if pinned else 1) + 1 + 2)
    assert counters.emulator_copies() - loaded == copies
    assert counters.emulator_pinned_copies() == (copies if pinned else 0)
    np.testing.assert_array_equal(other(x, y)[0], product)
    assert counters.emulator_pinned_blocks() == 2 * int(pinned)
    del executable
    gc.collect()
    assert counters.emulator_pinned_blocks() == int(pinned)
    np.testing.assert_array_equal(other(x, y)[0], product)
    del other
    gc.collect()
    assert counters.emulator_pinned_blocks() == 0


def test_arrays_on_the_gpu_need_none(compiled: Compiled, emulator: Emulator) -> None:
    executable = load_on_emulator(compiled, emulator)
    x, y = normal(*LARGE), normal(5, 1)
    product, _ = executable.run_on_device(DeviceArray.copy_of(x), DeviceArray.copy_of(y))
    assert emulator.library.emulator_pinned_blocks() == 0
    np.testing.assert_array_equal(product.numpy(), x * y)


def test_a_failed_call(compiled: Compiled, emulator: Emulator) -> None:
    """The next call does not see what the failed one left in page-locked memory."""
    executable = load_on_emulator(compiled, emulator)
    x, y = normal(*LARGE), normal(5, 1)
    emulator.configure(broken=True)
    with pytest.raises(stepwell.Error, match="could not launch a kernel"):
        executable(x, y)
    emulator.configure()
    np.testing.assert_array_equal(executable(-x, y)[0], -x * y)
