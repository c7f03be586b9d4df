"""Memory for results: used again once nobody holds an array on it."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from stepwell.runtime.buffers import ResultBuffers

SHAPE = (256, 1024)
FLOAT = np.dtype(np.float32)


def test_memory_is_used_again() -> None:
    buffers = ResultBuffers(1)
    first = buffers.allocate(SHAPE, FLOAT)
    place = first.ctypes.data
    assert (first.shape, first.dtype, place % 64) == (SHAPE, FLOAT, 0)
    del first
    second = buffers.allocate((64, 1024), np.dtype(ml_dtypes.bfloat16))
    assert second.ctypes.data != place, "much more memory would be held than is used"
    third = buffers.allocate((1024, 128), np.dtype(np.int32))
    assert (third.ctypes.data, third.shape, third.dtype) == (place, (1024, 128), np.int32)


@pytest.mark.parametrize(
    "hold", [lambda a: a, lambda a: a[3:4, ::2], memoryview, lambda a: a.__dlpack__()]
)
def test_memory_that_is_held_is_not_used_again(hold) -> None:
    buffers = ResultBuffers(1)
    held, places = [], set()
    for _ in range(5):
        result = buffers.allocate(SHAPE, FLOAT)
        places.add(result.ctypes.data)
        held.append(hold(result))
        del result
    assert len(places) == len(held)
