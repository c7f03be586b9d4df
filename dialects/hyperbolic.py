"""Hyperbolic sine and cosine in f64.

From e^|x| and its inverse; where that overflows, from the square of e^(|x| / 2). The sine near zero
is that of m = e^|x| - 1: (m + m / (m + 1)) / 2."""

from __future__ import annotations

from stepwell.dialects.formulas import (
    Elements,
    choose,
    exponential,
    exponential_minus_one,
)

_HUGE = 709.0
"""e to this is finite."""


def cosh(x: Elements) -> Elements:
    """(e^x + e^-x) / 2."""
    size = abs(x)
    half = exponential(size) * 0.5
    return choose(size > _HUGE, _huge(size), half + 0.25 / half)


def sinh(x: Elements) -> Elements:
    """(e^x - e^-x) / 2."""
    size = abs(x)
    half = exponential(size) * 0.5
    less = exponential_minus_one(size)
    near = (less + less / (less + 1.0)) * 0.5
    far = choose(size > _HUGE, _huge(size), half - 0.25 / half)
    result = choose(size < 1.0, near, far)
    result = choose(x < 0.0, -result, result)
    return choose(x.equals(0.0), x, result)


def _huge(size: Elements) -> Elements:
    root = exponential(size * 0.5)
    return (root * 0.5) * root
