"""Hyperbolic sine and cosine in f32 and f64.

From h = e^|x| / 2, and 1 / (4 h). Where e^|x| may be more than the largest float, h is a constant
times e^(|x| - c); the difference is exact, and so, to 0.003 ulp, is the constant. The sine near
zero is |x| + |x|^3 p(x^2), a least-squares fit in Chebyshev points with coefficients rounded one by
one, of relative errors 3.6e-10 and 1.5e-19.
"""

from __future__ import annotations

from dataclasses import dataclass

from stepwell.dialects.formulas import Elements, choose, exponential, polynomial


@dataclass(frozen=True)
class _Constants:
    """Those of one type: from `large` on h is `factor` * e^(|x| - `shift`); `near` is p."""

    large: float
    shift: float
    factor: float
    near: tuple[float, ...]


_SINGLE = _Constants(
    large=80.0,
    shift=1.09765625,
    factor=1.4985666275024414,
    near=(2.78998391e-06, 0.0001984166593, 0.008333315141, 0.1666666716),
)
_DOUBLE = _Constants(
    large=700.0,
    shift=1.494140625,
    factor=2.2277529783463783,
    near=(4.493426052302047e-15, 7.578409758982064e-13, 1.6060201955679355e-10,
          2.5052098126714683e-08, 2.755731927486812e-06, 0.00019841269841131145,
          0.00833333333333352, 0.16666666666666666),
)  # fmt: skip


def cosh(x: Elements) -> Elements:
    """(e^x + e^-x) / 2, of f32 or f64."""
    half = _half_of_exponential(abs(x))
    return half + 0.25 / half


def sinh(x: Elements) -> Elements:
    """(e^x - e^-x) / 2, of f32 or f64."""
    size = abs(x)
    half = _half_of_exponential(size)
    square = x * x
    near = x + x * (square * polynomial(square, _constants(x).near))
    far = half - 0.25 / half
    return choose(size < 1.0, near, choose(x < 0.0, -far, far))


def _half_of_exponential(size: Elements) -> Elements:
    """e^size / 2, where half of it is no more than the largest float."""
    constants = _constants(size)
    is_large = size > constants.large
    reduced = choose(is_large, size - constants.shift, size)
    factor = choose(is_large, constants.factor, size.full(0.5))
    return exponential(reduced) * factor


def _constants(x: Elements) -> _Constants:
    return _DOUBLE if x.is_double else _SINGLE
