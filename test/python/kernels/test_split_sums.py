"""Long sums of few results, which the threads of a CPU share."""

from __future__ import annotations

import operator
from collections.abc import Callable

import jax
import numpy as np
import pytest

import stepwell

SHAPES = {
    "product": ((16, 20000), (20000, 16)),
    "columns": ((1, 112, 112, 64),),
}
FUNCTIONS: dict[str, Callable] = {
    "product": operator.matmul,
    "columns": lambda x: x.mean((1, 2)),
}
TOLERANCE = 1e-6
"""Relative L2 error of sums of 20,000 numbers in float32."""


@pytest.mark.parametrize("name", FUNCTIONS)
def test_threads_share_a_sum(name: str) -> None:
    random = np.random.default_rng(0)
    given = [random.random(shape).astype(np.float32) for shape in SHAPES[name]]
    exported = jax.export.export(jax.jit(FUNCTIONS[name]))(*given)
    assert max(kernel.tasks for kernel in stepwell.explain(exported, threads=2).kernels) >= 4
    one, two = (stepwell.compile(exported, threads=count)(*given)[0] for count in (1, 2))
    np.testing.assert_array_equal(one, two)
    exact = FUNCTIONS[name](*(array.astype(np.float64) for array in given))
    assert np.linalg.norm(one - exact) <= TOLERANCE * np.linalg.norm(exact)
