"""Random inputs of models."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stepwell.runtime.inputs import numpy_dtype


def random_array(generator: np.random.Generator, dtype: str, shape: Sequence[int]) -> np.ndarray:
    """Standard normal floats, and zeros and ones, which are valid as flags, masks and indices."""
    kind = numpy_dtype(dtype)
    if kind.kind in "fV":
        return generator.standard_normal(shape, np.float32).astype(kind)
    return generator.integers(0, 2, shape).astype(kind)
