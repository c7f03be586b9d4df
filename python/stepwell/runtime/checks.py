"""Checks that a program has in it, made after a call (`artifact.Check`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from stepwell.artifact import Check
from stepwell.errors import CheckError

_Difference = Callable[[np.ndarray, np.ndarray], np.ndarray]

_UNITS = "check.expect_close"
"""The check that counts in units in the last place."""


def make_checks(checks: Sequence[Check], outputs: Sequence[np.ndarray]) -> None:
    """Compare what `checks` name among `outputs`; raises CheckError for the first that fails."""
    for number, check in enumerate(checks, 1):
        actual, expected = outputs[check.actual], outputs[check.expected]
        compare = _in_units if check.name == _UNITS else _as_numbers
        differences = np.atleast_1d(compare(actual, expected))
        failing = (differences > check.most) | (differences < check.least)
        if failing.any():
            raise CheckError(_sentence(number, check, actual, expected, differences, failing))


def _sentence(
    number: int,
    check: Check,
    actual: np.ndarray,
    expected: np.ndarray,
    differences: np.ndarray,
    failing: np.ndarray,
) -> str:
    first = tuple(int(n) for n in np.argwhere(failing)[0])
    place = first if actual.ndim else ()
    allowed = f"{check.least:g} to {check.most:g}"
    if check.name == _UNITS:
        allowed += f" units in the last place are allowed, it is {differences[first]:g} away"
    else:
        allowed += " is allowed"
    return (
        f"{check.name}, check {number} of the program, fails for {np.count_nonzero(failing)} of "
        f"{differences.size} elements; the first, at {list(place)}, is {actual[place]} and should "
        f"be {expected[place]} ({allowed})"
    )


def _as_numbers(actual: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """How much they differ."""
    return _worst(_number_difference, actual, expected)


def _in_units(actual: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """How many numbers of the type lie between them; 0 and -0 are one apart from nothing."""
    return _worst(_units_between, actual, expected)


def _worst(difference: _Difference, actual: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """The difference of the elements, of complex ones the larger of both parts'."""
    pairs = zip(_parts(actual), _parts(expected), strict=True)
    with np.errstate(all="ignore"):
        return np.max([difference(*pair) for pair in pairs], axis=0)


def _parts(array: np.ndarray) -> list[np.ndarray]:
    if array.dtype.kind != "c":
        return [array]
    return [np.real(array), np.imag(array)]


def _number_difference(actual: np.ndarray, expected: np.ndarray) -> np.ndarray:
    same = (actual == expected) | ((actual != actual) & (expected != expected))
    if actual.dtype.kind in "iub":
        return np.where(same, 0.0, np.inf)
    a, b = actual.astype(np.float64), expected.astype(np.float64)
    apart = np.abs(a - b)
    return np.where(same, 0.0, np.where(np.isfinite(apart), apart, np.inf))


def _units_between(actual: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Of finite numbers; NaNs are the same, and infinities are like themselves alone."""
    bits = 8 * actual.dtype.itemsize
    a, b = (np.ascontiguousarray(x).view(f"u{bits // 8}") for x in (actual, expected))
    largest = a.dtype.type((1 << (bits - 1)) - 1)
    magnitudes = [(x & largest).astype(np.int64) for x in (a, b)]
    between = np.where(
        (a > largest) == (b > largest),
        np.abs(magnitudes[0] - magnitudes[1]).astype(np.float64),
        magnitudes[0].astype(np.float64) + magnitudes[1].astype(np.float64),
    )
    finite = np.isfinite(actual) & np.isfinite(expected)
    same = (a == b) | (np.isnan(actual) & np.isnan(expected))
    return np.where(same, 0.0, np.where(finite, between, np.inf))
