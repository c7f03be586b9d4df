"""The inverse of the error function in f32 and f64.

With w = -log((1 - x) (1 + x)), erf_inv(x) / x is a polynomial in w up to 5, in sqrt(w) further out
(M. Giles, "Approximating the erfinv function", GPU Computing Gems 2, 2011). Those of f32 are
least-squares fits in Chebyshev points with coefficients rounded one by one, of relative errors 4e-8
and 7.6e-8, up to where 1 - x is the least for f32. Those of f64 are Chebyshev interpolants, of 4e-9
and 3.3e-8, up to where it is the least for f64, and Halley's step follows:

    e = (erf(y) - |x|) / (2 / sqrt(pi) exp(-y^2))         // where |x| < 1/2
    e = ((1 - |x|) - erfc(y)) / ..                        // further out
    y - e (1 - y e)                                       // an error of the order of e^3

erf loses near one what erfc keeps; 1 - |x| is exact there. The two residuals are of one formula,
so each element takes the one that is good for it.
"""

from __future__ import annotations

import math

from stepwell.dialects.formulas import (
    Elements,
    chlo,
    choose,
    exponential,
    log,
    polynomial,
    sqrt,
)

_CUT = 5.0
_NEAR = (
    4.671932509038665e-10, -2.0418841975426785e-08, 3.440101487642903e-07, -2.696533465757212e-06,
    6.531430799205241e-06, 3.8981637368426895e-05, -0.00012002570136587074,
    -0.0023400270757833017, 0.011550900732630565, 0.23201347310748227, 0.8862269294433731,
)  # fmt: skip
_FAR = (
    -4.1969981477554394e-07, 2.175135261275999e-05, -0.0005121231670917546, 0.0072374708581187195,
    -0.06830559906523388, 0.4529065968768218, -2.159196807984739, 7.436607604026392,
    -18.286885240591733, 31.096951419628702, -34.29006020109224, 22.482835515553855,
    -5.624757535347605,
)  # fmt: skip
_NEAR_CENTER, _FAR_CENTER = 2.5, 3.0
_NEAR_OF_SINGLE = (
    -8.643000093e-09, 2.425282197e-08, 4.640616851e-07, -3.476942084e-06, -4.95329823e-06,
    0.0002184105251, -0.001252759714, -0.004177500028, 0.2466402948, 1.501409411,
)  # fmt: skip
"""In w less its center."""
_FAR_OF_SINGLE = (
    -0.0002002518304, 0.0001007437313, 0.001352220774, -0.003673894331, 0.005736072548,
    -0.007622090168, 0.009440058842, 1.001674056, 2.832976818,
)  # fmt: skip
"""In sqrt(w) less its center."""


def erf_inv_of_single(x: Elements) -> Elements:
    """Of f32: infinite at one and minus one, NaN beyond."""
    w = _logarithm(x)
    near = polynomial(w - _NEAR_CENTER, _NEAR_OF_SINGLE)
    far = polynomial(sqrt(w) - _FAR_CENTER, _FAR_OF_SINGLE)
    return _choose_form(x, w, near, far)


def erf_inv(x: Elements) -> Elements:
    """Of f64: infinite at one and minus one, NaN beyond."""
    w = _logarithm(x)
    first = _choose_form(x, w, polynomial(w, _NEAR), polynomial(sqrt(w), _FAR))
    size, y = abs(x), abs(first)
    residual = choose(size < 0.5, chlo("erf", y) - size, (1.0 - size) - chlo("erfc", y))
    e = residual / (exponential(-(y * y)) * (2 / math.sqrt(math.pi)))
    moved = y - e * (1.0 - y * e)
    signed = choose(x < 0.0, -moved, moved)
    # Of one and beyond, of zeros and of NaN the polynomial has the value, and the step has not.
    inside = choose(size > 0.0, size, size.full(1.0)) < 1.0
    return choose(inside, signed, first)


def _logarithm(x: Elements) -> Elements:
    size = abs(x)
    return -log((1.0 - size) * (1.0 + size))


def _choose_form(x: Elements, w: Elements, near: Elements, far: Elements) -> Elements:
    return choose(abs(x).equals(1.0), x * math.inf, x * choose(w < _CUT, near, far))
