"""Functions of the gamma family and its kin, which JAX exports as series in loops, random numbers
that are distributed so, and their derivatives."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import jax.scipy.special as special
import numpy as np
from jax import lax

from .case import BF16, case, numbers

SHAPE = (5, 19)

# Names, functions and the range of each argument.
FUNCTIONS = {
    "lgamma_of_negative": (lax.lgamma, (-20, 0)),
    "digamma_of_negative": (lax.digamma, (-20, 0)),
    "gamma": (special.gamma, (-5, 9)),
    "zeta": (lax.zeta, (1.1, 20), (0.5, 20)),
    "polygamma": (lambda n, x: lax.polygamma(jnp.floor(n), x), (0, 6), (0.5, 20)),
    "igamma": (lax.igamma, (0.05, 20), (0.05, 30)),
    "igammac": (lax.igammac, (0.05, 20), (0.05, 30)),
    "igamma_of_large": (lax.igamma, (20, 500), (20, 500)),
    "igammac_of_large": (lax.igammac, (20, 500), (20, 500)),
    "igamma_grad_a": (lax.igamma_grad_a, (0.05, 20), (0.05, 30)),
    "random_gamma_grad": (lax.random_gamma_grad, (0.5, 20), (0.05, 30)),
    "betainc": (special.betainc, (0.5, 20), (0.5, 20), (0.01, 0.99)),
    "betaln": (special.betaln, (0.1, 20), (0.1, 20)),
    "bessel_i0e": (lax.bessel_i0e, (-20, 20)),
    "bessel_i1e": (lax.bessel_i1e, (-20, 20)),
    "exp1": (special.exp1, (0.1, 9)),
    "expi": (special.expi, (0.1, 9)),
    "spence": (special.spence, (0.1, 9)),
    "ndtri": (special.ndtri, (0.001, 0.999)),
    "log_ndtr": (special.log_ndtr, (-10, 5)),
}


def _kinds(name: str) -> tuple[type, ...]:
    """Series of large arguments in f32 are right to four digits alone, those of XLA as well."""
    if name.endswith("of_large"):
        return (np.float64,)
    return (np.float32, np.float64) if name in _IN_BOTH else (np.float32,)


_IN_BOTH = ("zeta", "polygamma", "igamma", "igammac", "random_gamma_grad", "betainc", "spence")

for _name, (_function, *_ranges) in FUNCTIONS.items():
    for _kind in _kinds(_name):
        case(
            f"{_name}_{np.dtype(_kind).name}",
            _function,
            *(numbers(*SHAPE, dtype=_kind, low=low, high=high) for low, high in _ranges),
        )
for _name in ("gamma", "igamma", "polygamma", "zeta"):
    _function, *_ranges = FUNCTIONS[_name]
    for _kind in (np.float16, BF16):
        case(
            f"{_name}_{np.dtype(_kind).name}",
            _function,
            *(numbers(*SHAPE, dtype=_kind, low=low, high=high) for low, high in _ranges),
        )

_INF, _NAN = np.inf, np.nan
_EDGES = np.array([0, -0.0, 1, -1, 2, -2, 0.5, -0.5, -2.5, 1e-3, 20, 100, _INF, -_INF, _NAN])
for _name in ("lgamma", "digamma"):
    case(f"{_name}_at_edges", getattr(lax, _name), _EDGES)
_FIRST, _SECOND = (grid.ravel() for grid in np.meshgrid(_EDGES, _EDGES))
for _name in ("igamma", "igammac", "random_gamma_grad"):
    case(f"{_name}_at_edges", getattr(lax, _name), _FIRST, _SECOND)


def _drawn(draw, **more):
    return lambda *arguments: draw(jax.random.key(3), *arguments, **more)


for _kind in (np.float32, np.float64, BF16):
    case(
        f"random_gamma_{np.dtype(_kind).name}",
        _drawn(jax.random.gamma, dtype=_kind),
        numbers(40, dtype=_kind, low=0.1, high=9),
    )
for _name, _draw, *_ranges in (
    ("loggamma", jax.random.loggamma, (0.01, 9)),
    ("beta", jax.random.beta, (0.1, 9), (0.1, 9)),
    ("dirichlet", jax.random.dirichlet, (0.1, 9)),
    ("t", jax.random.t, (0.5, 30)),
):
    case(
        f"random_{_name}_float32",
        _drawn(_draw, dtype=np.float32),
        *(numbers(40, low=low, high=high) for low, high in _ranges),
    )
case("random_poisson", _drawn(jax.random.poisson), numbers(40, low=0.1, high=30))
case(
    "gradient_of_random_gamma",
    jax.grad(lambda a: jax.random.gamma(jax.random.key(3), a).sum()),
    numbers(40, dtype=np.float64, low=0.5, high=9),
)
