"""Bessel functions, those of the normal distribution, and the parts of floating-point numbers."""

# pyright: reportMissingImports=false
from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import torch

from stepwell.frontends.torch.decompositions.registry import Decomposition, mend

aten = torch.ops.aten

Function = Callable[[torch.Tensor], torch.Tensor]


def _in_float32_at_least(function: Function) -> Decomposition:
    """Integers become floats, and half precision is rounded once."""

    @functools.wraps(function)
    def call(x: torch.Tensor) -> torch.Tensor:
        result = x.dtype if x.dtype.is_floating_point else torch.get_default_dtype()
        return function(x.to(torch.promote_types(result, torch.float32))).to(result)

    return call


def _polynomial(x: torch.Tensor, coefficients: Sequence[float]) -> torch.Tensor:
    """The highest power first."""
    total = torch.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        total = total * x + coefficient
    return total


def _chebyshev(x: torch.Tensor, coefficients: Sequence[float]) -> torch.Tensor:
    """A sum of Chebyshev polynomials, the lowest first and counted half (Clenshaw's rule)."""
    after, total = torch.zeros_like(x), torch.zeros_like(x)
    for coefficient in reversed(coefficients[1:]):
        after, total = total, 2 * x * total - after + coefficient
    return x * total - after + coefficients[0] / 2


# --- Modified Bessel functions --------------------------------------------------------------------

# S. L. Moshier, Methods and Programs for Mathematical Functions, 1989 (Cephes, i0.c): of |x| / 4
# - 1 up to 8, and of 16 / |x| - 1 beyond.
_I0E_SMALL = (
    6.76795274409476084995e-1,
    -3.04682672343198398683e-1,
    1.71620901522208775349e-1,
    -9.49010970480476444210e-2,
    4.93052842396707084878e-2,
    -2.37374148058994688156e-2,
    1.05464603945949983183e-2,
    -4.32430999505057594430e-3,
    1.63947561694133579842e-3,
    -5.76375574538582365885e-4,
    1.88502885095841655729e-4,
    -5.75419501008210370398e-5,
    1.64484480707288970893e-5,
    -4.41673835845875056359e-6,
    1.11738753912010371815e-6,
    -2.67079385394061173391e-7,
    6.04699502254191894932e-8,
    -1.30002500998624804212e-8,
    2.65982372468238665035e-9,
    -5.18979560163526290666e-10,
    9.67580903537323691224e-11,
    -1.72682629144155570723e-11,
    2.95505266312963983461e-12,
    -4.85644678311192946090e-13,
    7.67618549860493561688e-14,
    -1.16853328779934516808e-14,
    1.71539128555513303061e-15,
    -2.43127984654795469359e-16,
    3.33079451882223809783e-17,
    -4.41534164647933937950e-18,
)
_I0E_LARGE = (
    8.04490411014108831608e-1,
    3.36911647825569408990e-3,
    6.88975834691682398426e-5,
    2.89137052083475648297e-6,
    2.04891858946906374183e-7,
    2.26666899049817806459e-8,
    3.39623202570838634515e-9,
    4.94060238822496958910e-10,
    1.18891471078464383424e-11,
    -3.14991652796324136454e-11,
    -1.32158118404477131188e-11,
    -1.79417853150680611778e-12,
    7.18012445138366623367e-13,
    3.85277838274214270114e-13,
    1.54008621752140982691e-14,
    -4.15056934728722208663e-14,
    -9.55484669882830764870e-15,
    3.81168066935262242075e-15,
    1.77256013305652638360e-15,
    -3.42548561967721913462e-16,
    -2.82762398051658348494e-16,
    3.46122286769746109310e-17,
    4.46562142029675999901e-17,
    -4.83050448594418207126e-18,
    -7.23318048787475395456e-18,
)


def _i0e(x: torch.Tensor) -> torch.Tensor:
    x = x.abs()
    near, far = x.clamp(max=8.0), x.clamp(min=8.0)
    small = _chebyshev(near / 4 - 1, _I0E_SMALL)
    large = _chebyshev(16 / far - 1, _I0E_LARGE) / far.sqrt()
    return torch.where(x > 8, large, small)


@mend(aten.special_i0e.default)
@_in_float32_at_least
def _special_i0e(x: torch.Tensor) -> torch.Tensor:
    return _i0e(x)


@mend(aten.i0.default, aten.special_i0.default, aten.special_modified_bessel_i0.default)
@_in_float32_at_least
def _i0(x: torch.Tensor) -> torch.Tensor:
    return x.abs().exp() * _i0e(x)


@mend(aten.special_i1.default, aten.special_modified_bessel_i1.default)
@_in_float32_at_least
def _i1(x: torch.Tensor) -> torch.Tensor:
    return x.abs().exp() * torch.special.i1e(x)


# --- The normal distribution ----------------------------------------------------------------------

_ERFCX = (
    2.3551578691348035,
    -0.0045900545806464773,
    -0.084249133366517916,
    0.05920993999819189,
    -0.026658668435305752,
    0.0090749976707052651,
    -0.0024131635404176082,
    0.00049077583652580863,
    -6.9169733025012064e-5,
    4.1390279860730102e-6,
    7.7403830661984907e-7,
    -2.1886401049234396e-7,
    1.076499946567091e-8,
    4.5219598112182869e-9,
    -7.7544002088313511e-10,
    -6.3180883408866845e-11,
    2.8687950109306699e-11,
    1.9455868545777347e-13,
    -9.6546967484334389e-13,
    3.2525481481487398e-14,
    3.3478119482868054e-14,
    -1.8645628804193132e-15,
    -1.2507950530688648e-15,
    7.4182352566240292e-17,
    5.0681489047960961e-17,
)
"""(1 + 2x) erfcx(x) for x >= 0, of (x - 3.75) / (x + 3.75): M. M. Shepherd and J. G. Laframboise,
Chebyshev approximation of (1 + 2x) exp(x^2) erfc x, 1981."""


def _erfcx_of_positive(x: torch.Tensor) -> torch.Tensor:
    return _chebyshev(1 - 7.5 / (x + 3.75), _ERFCX) / (1 + 2 * x)


@mend(aten.special_erfcx.default)
@_in_float32_at_least
def _erfcx(x: torch.Tensor) -> torch.Tensor:
    """exp(x^2) erfc(x), which is 2 exp(x^2) - erfcx(-x) for negative x; x^2 is exact, as a rounded
    sum and what rounding has lost."""
    positive = _erfcx_of_positive(x.abs())
    return torch.where(x < 0, 2 * _exp_of_square(x) - positive, positive)


def _exp_of_square(x: torch.Tensor) -> torch.Tensor:
    """exp(high^2) exp((x - high) (x + high)), the square of `high` being exact."""
    bits = 10 if x.dtype == torch.float32 else 26
    scale = 2.0 ** (bits - 5)  # exp overflows where x^2 does not need more
    high = (x.clamp(-27, 27) * scale).round() / scale
    return (high * high).exp() * ((x - high) * (x + high)).exp()


@mend(aten.special_log_ndtr.default)
@_in_float32_at_least
def _log_ndtr(x: torch.Tensor) -> torch.Tensor:
    t = x * math.sqrt(0.5)
    low = (_erfcx_of_positive((-t).clamp(min=0.0)) / 2).log() - t * t
    return torch.where(x < 0, low, torch.log1p(-torch.special.erfc(t) / 2))


# Cephes, ndtri.c: quotients of polynomials for probabilities above exp(-2), above exp(-32), below.
_NDTRI_MIDDLE = (
    (
        -5.99633501014107895267e1,
        9.80010754185999661536e1,
        -5.66762857469070293439e1,
        1.39312609387279679503e1,
        -1.23916583867381258016e0,
    ),
    (
        1.0,
        1.95448858338141759834e0,
        4.67627912898881538453e0,
        8.63602421390890590575e1,
        -2.25462687854119370527e2,
        2.00260212380060660359e2,
        -8.20372256168333339912e1,
        1.59056225126211695515e1,
        -1.18331621121330003142e0,
    ),
)
_NDTRI_TAIL = (
    (
        4.05544892305962419923e0,
        3.15251094599893866154e1,
        5.71628192246421288162e1,
        4.40805073893200834700e1,
        1.46849561928858024014e1,
        2.18663306850790267539e0,
        -1.40256079171354495875e-1,
        -3.50424626827848203418e-2,
        -8.57456785154685413611e-4,
    ),
    (
        1.0,
        1.57799883256466749731e1,
        4.53907635128879210584e1,
        4.13172038254672030440e1,
        1.50425385692907503408e1,
        2.50464946208309415979e0,
        -1.42182922854787788574e-1,
        -3.80806407691578277194e-2,
        -9.33259480895457427372e-4,
    ),
)
_NDTRI_FAR_TAIL = (
    (
        3.23774891776946035970e0,
        6.91522889068984211695e0,
        3.93881025292474443415e0,
        1.33303460815807542389e0,
        2.01485389549179081538e-1,
        1.23716634817820021358e-2,
        3.01581553508235416007e-4,
        2.65806974686737550832e-6,
        6.23974539184983293730e-9,
    ),
    (
        1.0,
        6.02427039364742014255e0,
        3.67983563856160859403e0,
        1.37702099489081330271e0,
        2.16236993594496635890e-1,
        1.34204006088543189037e-2,
        3.28014464682127739104e-4,
        2.89247864745380683936e-6,
        6.79019408009981274425e-9,
    ),
)


def _quotient(x: torch.Tensor, polynomials: Sequence[Sequence[float]]) -> torch.Tensor:
    above, below = polynomials
    return _polynomial(x, above) / _polynomial(x, below)


@mend(aten.special_ndtri.default)
@_in_float32_at_least
def _ndtri(p: torch.Tensor) -> torch.Tensor:
    edge = math.exp(-2)
    upper = p > 1 - edge
    tail = torch.where(upper, 1 - p, p)
    inside = (tail > 0) & (tail < 1)
    safe = torch.where(inside, tail, 0.5)
    w = safe - 0.5
    square = w * w
    middle = (w + w * square * _quotient(square, _NDTRI_MIDDLE)) * math.sqrt(2 * math.pi)
    z = (-2 * safe.clamp(max=edge).log()).sqrt()
    near, far = _quotient(1 / z, _NDTRI_TAIL), _quotient(1 / z, _NDTRI_FAR_TAIL)
    low = (torch.where(z < 8, near, far) / z) - (z - z.log() / z)
    found = torch.where(safe > edge, middle, torch.where(upper, -low, low))
    ends = torch.where(p == 0, -math.inf, torch.where(p == 1, math.inf, math.nan))
    return torch.where(inside, found, ends.to(p.dtype))


# --- Parts of numbers -----------------------------------------------------------------------------

_LAYOUTS = {
    torch.float64: (torch.int64, 52, 11),
    torch.float32: (torch.int32, 23, 8),
    torch.float16: (torch.int16, 10, 5),
    torch.bfloat16: (torch.int16, 7, 8),
}
"""An integer of the width, bits of the fraction, bits of the exponent."""


@mend(aten.frexp.Tensor)
def _frexp(x: torch.Tensor) -> object:
    """Fractions from 1/2 to 1, and exponents. Subnormal numbers are made normal first."""
    if x.dtype not in _LAYOUTS:
        return NotImplemented
    integer, fraction, exponent = _LAYOUTS[x.dtype]
    bias, shift = 2 ** (exponent - 1) - 2, fraction + 1
    is_small = x.abs() < torch.finfo(x.dtype).tiny
    bits = torch.where(is_small, x * 2.0**shift, x).view(integer)
    power = (bits >> fraction) & (2**exponent - 1)
    # The sign and the fraction; the sign bit makes the mask a negative number.
    kept = bits & ~((2**exponent - 1) << fraction)
    part = (kept | (bias << fraction)).view(x.dtype)
    power = power.to(torch.int32) - bias - torch.where(is_small, shift, 0)
    special = (x == 0) | ~x.isfinite()
    return torch.where(special, x, part), torch.where(special, 0, power).to(torch.int32)
