"""The logarithm of the gamma function, the digamma and the polygamma function, in f64.

For x > 0, with u = (x - a) / (x + a), which takes the functions' logarithmic growth and the poles
left of zero about equally far from the interval of u:

- up to 8, lgamma(x) = (x - 1) (x - 2) R(u) and digamma(x) = (x - x0) Q(u), x0 being the positive
  zero of digamma in two parts: the zeros are factors, so that values near them keep their digits;
- from 8 on, the asymptotic series in 1 / x^2 (Abramowitz and Stegun, 6.1.40 and 6.3.18).

R and Q are least-squares fits in Chebyshev points whose coefficients were rounded one by one, each
before the next was fitted; the others are Chebyshev interpolants. All are right to 7e-17 relative.

Left of zero the reflection formulas (6.1.17, 6.3.7) are taken of the distance to the nearest
integer, which is exact. Near a negative zero, where two terms cancel, the error is one of the
terms: 1e-15 absolute.
"""

from __future__ import annotations

import math

from stepwell.dialects.formulas import (
    Elements,
    chlo,
    choose,
    exponential,
    floor,
    log,
    polynomial,
    round_to_even,
    rounded,
)

_FAR = 8.0
"""Where the asymptotic series begin."""

_LGAMMA_POLE = 2.375
_LGAMMA = (
    -0.14080496553192604, 0.15606249784756687, 0.1333992991884933, -0.1682346966065768,
    -0.09939998640786392, 0.13564257889198553, 0.0023546891910601942, -0.024663574072425302,
    -0.020977773266058167, 0.03018807407342788, -0.02416672358943177, 0.02162275731389233,
    -0.024069429138611615, 0.02466423688845523, -0.027561511877830968, 0.027546205725308748,
    -0.030826003202789835, 0.03088437793747483, -0.03523270553708677, 0.03525018107363486,
    -0.041095357288333995, 0.04103342754414701, -0.04934837519413522, 0.04908661140917971,
    -0.06188739461129092, 0.06109752217853651, -0.08354936809283887, 0.08122985841504228,
    -0.13232384054391044, 0.12476178166381383, -0.3797058218141935, 0.38923337770173255,
)  # fmt: skip
"""R, for 0.7 <= x <= 8."""
_LGAMMA_FAR = (
    0.005065905360081594, -0.0018903829938839239, 0.0008414700852502405, -0.0005952365845057042,
    0.0007936507897524059, -0.002777777777773988, 0.08333333333333333,
)  # fmt: skip
"""(lgamma(x) - (x - 1/2) (log x - 1) - log(2 pi) / 2 + 1/2) x, in 1 / x^2."""

_DIGAMMA_POLE = 2.75
_DIGAMMA = (
    -3.4460408606690183, 3.659889962858497, 2.6225558063037417, -2.9767102173815054,
    -2.201061291744225, 2.46104004108886, 0.0865190325817032, -0.20049425758655476,
    -0.6345991952476183, 0.6660552548970816, -0.4754559713966586, 0.46806977745009887,
    -0.500879759034705, 0.5004665532873874, -0.4981270792559789, 0.4963728168531711,
    -0.49863861605006465, 0.4964259228610166, -0.4990826878306806, 0.49602047504179514,
    -0.5000448663376094, 0.4956900097306576, -0.5026466507730591, 0.4964947546661927,
    -0.5116610636829317, 0.504119790743906, -0.5506778967685553, 0.548224100564684,
    -0.8454259561518245, 0.6356111895971849,
)  # fmt: skip
"""Q, for 1 <= x <= 8."""
_DIGAMMA_FAR = (
    -0.2994253706194389, 0.08002337465354925, -0.02105106090803768, 0.007575459920369056,
    -0.004166665501516724, 0.003968253965999701, -0.008333333333331664, 0.08333333333333333,
)  # fmt: skip
"""(log x - 1 / (2 x) - digamma(x)) x^2, in 1 / x^2."""
_DIGAMMA_ZERO = (1.4616321449683622, 9.549995429965697e-17)

_SINE = (
    -7.114052818769393e-09, 2.5303274566671354e-07, -6.975851212142347e-06,
    0.00014842878972770888, -0.002346081035170168, 0.026147847817640922, -0.19075182412208389,
    0.8117424252833536, -1.6449340668482264,
)  # fmt: skip
"""(sin(pi r) / (pi r) - 1) / r^2, in r^2, for |r| <= 1/2."""
_COTANGENT = (
    20.752184842994836, -22.952694194644753, 18.922736811283006, -5.233228984928978,
    4.122960978018377, 1.5537766010277896, 2.0685548337007, 1.9922575279026504,
    2.0006728612280056, 2.0000840143758025, 2.0004937978940047, 2.0019891038489543,
    2.0081547132364523, 2.034686123960216, 2.1646464674223185, 3.289868133696453,
)  # fmt: skip
"""(1 / r - pi cot(pi r)) / r, in r^2, for |r| <= 1/2."""

_EXACT_FACTORIALS = 22
"""The largest number whose factorial is an f64."""


def lgamma(x: Elements) -> Elements:
    """log |gamma(x)|; infinity at the poles and at both infinities.

    Of x < 0.7 it is taken at x + 1; of x < 0 at -x, or at 1 - x behind -1."""
    below = x < 0.0
    near_zero = x > -1.0
    left = choose(near_zero, 1.0 - x, -x)
    place = choose(below, left, choose(x < 0.7, x + 1.0, x))
    r = _to_integer(x)
    square = r * r
    sine = abs(r) * (1.0 + square * polynomial(square, _SINE))
    factor = choose(below, choose(near_zero, sine, abs(x) * sine), choose(x < 0.7, x, x.full(1.0)))
    shift = -log(factor)
    size = _lgamma_of_positive(place)
    result = choose(below, shift - size, shift + size)
    return choose(abs(x).equals(math.inf), math.inf, result)


def _lgamma_of_positive(x: Elements) -> Elements:
    """For x >= 0.7."""
    u = (x - _LGAMMA_POLE) / (x + _LGAMMA_POLE)
    near = (x - 1.0) * ((x - 2.0) * polynomial(u, _LGAMMA))
    inverse = 1.0 / x
    series = inverse * polynomial(inverse * inverse, _LGAMMA_FAR)
    far = (x - 0.5) * (log(x) - 1.0) + (series + (math.log(2 * math.pi) - 1) / 2)
    return choose(x < _FAR, near, far)


def digamma(x: Elements) -> Elements:
    """The logarithmic derivative of the gamma function; NaN at the poles.

    Of x < 1 it is taken at x + 1, of x < 0 at 1 - x."""
    below = x < 0.0
    place = choose(below, 1.0 - x, choose(x < 1.0, x + 1.0, x))
    r = choose(below, _to_integer(x), x)
    square = r * r
    turned = 1.0 / r - r * polynomial(square, _COTANGENT)
    shift = choose(below, turned, choose(x < 1.0, 1.0 / x, x.full(0.0)))
    result = _digamma_of_positive(place) - shift
    at_pole = choose(x <= 0.0, (floor(x) - x), x.full(1.0)).equals(0.0)
    return choose(at_pole, math.nan, choose(x.equals(-math.inf), math.nan, result))


def _digamma_of_positive(x: Elements) -> Elements:
    """For x >= 1."""
    u = (x - _DIGAMMA_POLE) / (x + _DIGAMMA_POLE)
    zero, rest = _DIGAMMA_ZERO
    near = (rounded(x - zero) - rest) * polynomial(u, _DIGAMMA)
    inverse = 1.0 / x
    series = inverse * polynomial(inverse * inverse, _DIGAMMA_FAR)
    far = log(x) - inverse * (0.5 + series)
    return choose(x < _FAR, near, far)


def _to_integer(x: Elements) -> Elements:
    """x less the nearest integer."""
    return x - round_to_even(x)


def polygamma(n: Elements, x: Elements) -> Elements:
    """The derivative of order n of digamma: (-1)^(n + 1) n! zeta(n + 1, x); NaN of orders that
    are negative or not whole."""
    factorial = n.full(1.0)
    for k in range(2, _EXACT_FACTORIALS + 1):
        factorial = factorial * choose(n < float(k), 1.0, n.full(float(k)))
    large = exponential(_lgamma_of_positive(n + 1.0))
    factorial = choose(n > float(_EXACT_FACTORIALS), large, factorial)
    half = n * 0.5
    sign = choose(floor(half).equals(half), -1.0, n.full(1.0))
    result = choose(n.equals(0.0), digamma(x), sign * (factorial * chlo("zeta", n + 1.0, x)))
    known = choose(n >= 0.0, floor(n) - n, n.full(1.0)).equals(0.0)
    return choose(known, result, n.full(math.nan))
