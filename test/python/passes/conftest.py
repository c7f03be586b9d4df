"""Fixtures of the pass tests."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from interpreter import Comparison, compare


@pytest.fixture(scope="session")
def run_compared() -> Iterator[Callable[..., Comparison]]:
    """`compare` in a child process, with the results checked to agree.

    Call it with the text, the pipeline and the tolerance relative to the largest magnitude; the
    default is a few roundings of f32.
    """
    pools = [_pool()]

    def run(text: str, pipeline: str, tolerance: float = 2e-6) -> Comparison:
        try:
            result = pools[-1].submit(compare, text, pipeline).result(timeout=60)
        except BrokenProcessPool:
            pools.append(_pool())
            pytest.fail("the interpreter or a pass ended its process")
        for before, after in zip(result.before, result.after, strict=True):
            assert before.dtype == after.dtype
            scale = float(np.abs(before.astype(np.float64)).max(initial=0.0)) or 1.0
            np.testing.assert_allclose(
                after.astype(np.float64), before.astype(np.float64), 0, tolerance * scale
            )
        return result

    yield run
    for pool in pools:
        pool.shutdown()


def _pool() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))
