"""What a conformance case is, and random arguments of all element types."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass

import ml_dtypes
import numpy as np

BF16 = np.dtype(ml_dtypes.bfloat16)

TOLERANCE = {"float64": 1e-11, "float32": 3e-5, "float16": 4e-3, "bfloat16": 3e-2}
"""Relative to the largest magnitude of a result: a few roundings, and sums in another order."""


@dataclass(frozen=True)
class Case:
    """A JAX function and its arguments; expected values come from XLA on the CPU."""

    name: str
    function: Callable
    arguments: tuple[np.ndarray, ...]
    tolerance: float | None = None


CASES: dict[str, Case] = {}


def case(
    name: str, function: Callable, *arguments: np.ndarray, tolerance: float | None = None
) -> None:
    """Enter a case into the table."""
    if name in CASES:
        raise ValueError(f"two cases are called {name}")
    CASES[name] = Case(name, function, arguments, tolerance)


def numbers(
    *shape: int, dtype: object = np.float32, low: float = -3, high: float = 3
) -> np.ndarray:
    """Random numbers of `shape` in [low, high), the same each time."""
    kind = np.dtype(dtype)
    rng = np.random.default_rng(zlib.crc32(repr((shape, kind.name, low, high)).encode()))
    if kind == np.bool_:
        return rng.random(shape) < 0.5
    if kind.kind in "iu":
        first = max(int(low), 0) if kind.kind == "u" else int(low)
        return rng.integers(first, int(high) + 1, shape).astype(kind)
    return rng.uniform(low, high, shape).astype(kind)


def integers(*values: int, dtype: object = np.int32) -> np.ndarray:
    """The given integers as a vector."""
    return np.array(values, dtype)
