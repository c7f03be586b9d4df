"""Concatenation on the host, which leaves room behind its results."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import parser
from onnx.reference import ReferenceEvaluator

from stepwell.frontends.onnx.host_operators import OPERATORS


@pytest.fixture
def joined() -> object:
    model = parser.parse_model(
        '<ir_version: 9, opset_import: ["": 18]> g (float[n, k] x, float[m, k] y)'
        " => (float[l, k] z) { z = Concat <axis = 0> (x, y) }"
    )
    evaluator = ReferenceEvaluator(model, new_ops=OPERATORS)
    return lambda x, y: evaluator.run(None, {"x": x, "y": y})[0]


def rows(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, 256)).astype(np.float32)


def test_what_grows_is_rarely_copied(joined) -> None:
    x = want = rows(100, 0)
    places = set()
    for seed in range(1, 200):
        x, want = joined(x, rows(3, seed)), np.concatenate([want, rows(3, seed)])
        places.add(x.ctypes.data)
        assert x.flags.c_contiguous
    np.testing.assert_array_equal(x, want)
    assert len(places) < 5


def test_earlier_results_stay_what_they_are(joined) -> None:
    """Two go on from one; others are that one backwards, a part of it, or of another shape."""
    first = joined(rows(100, 0), rows(2, 1))
    one, other = joined(first, rows(2, 2)), joined(first, rows(2, 3))
    backwards = joined(other[::-1], rows(1, 4))
    part = joined(backwards[:90], rows(1, 5))
    wide = joined(np.concatenate([part, part]).reshape(-1, 512), np.ones((1, 512), np.float32))
    start = np.concatenate([rows(100, 0), rows(2, 1)])
    np.testing.assert_array_equal(first, start)
    np.testing.assert_array_equal(one, np.concatenate([start, rows(2, 2)]))
    np.testing.assert_array_equal(other, np.concatenate([start, rows(2, 3)]))
    np.testing.assert_array_equal(backwards, np.concatenate([other[::-1], rows(1, 4)]))
    np.testing.assert_array_equal(part, np.concatenate([backwards[:90], rows(1, 5)]))
    np.testing.assert_array_equal(wide[-1], np.ones(512))
