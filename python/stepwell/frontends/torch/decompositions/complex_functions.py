"""Functions of complex numbers that come down to others of them, or to those of their parts.

log2(z)          ->  log(z) / log(2)
vector_norm(z)   ->  vector_norm(abs(z))
logical_and(z, w)  ->  logical_and(z != 0, w != 0)
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import torch

from stepwell.frontends.torch.decompositions.complex_numbers import REAL, is_complex
from stepwell.frontends.torch.decompositions.registry import by_kernel, mend

aten = torch.ops.aten

Number = int | float | complex


# --- Exponentials and logarithms ------------------------------------------------------------------


def _log_to_base(base: float, z: torch.Tensor) -> object:
    return z.log() * (1 / math.log(base)) if is_complex(z) else NotImplemented


for _overload, _base in ((aten.log2.default, 2), (aten.log10.default, 10)):
    mend(_overload)(functools.partial(_log_to_base, _base))


@mend(aten.exp2.default)
def _exp2(z: torch.Tensor) -> object:
    return (z * math.log(2)).exp() if is_complex(z) else NotImplemented


@mend(aten.ldexp.Tensor)
def _ldexp(z: torch.Tensor, exponent: torch.Tensor) -> object:
    return z * torch.exp2(exponent) if is_complex(z) or is_complex(exponent) else NotImplemented


@mend(aten.logaddexp.default)
def _logaddexp(x: torch.Tensor, y: torch.Tensor) -> object:
    """The one of the larger real part is taken out, so that no exponential overflows."""
    if not is_complex(x):
        return NotImplemented
    first = x.real >= y.real
    high, low = torch.where(first, x, y), torch.where(first, y, x)
    return high + torch.log1p(torch.exp(low - high))


# --- Truth ----------------------------------------------------------------------------------------


def _is_true(z: torch.Tensor) -> torch.Tensor:
    return (z.real != 0) | (z.imag != 0) if z.dtype.is_complex else z != 0


def _of_truths(overload: torch._ops.OpOverload, *operands: torch.Tensor) -> object:
    if not any(map(is_complex, operands)):
        return NotImplemented
    return overload(*map(_is_true, operands))


for _overload in (
    aten.logical_not.default,
    aten.logical_and.default,
    aten.logical_or.default,
    aten.logical_xor.default,
):
    mend(_overload)(functools.partial(_of_truths, _overload))


def _reduced_truths(overload: torch._ops.OpOverload, z: torch.Tensor, *how: object) -> object:
    return overload(_is_true(z), *how) if is_complex(z) else NotImplemented


for _packet in (aten.any, aten.all):
    for _overload in (_packet.default, _packet.dim, _packet.dims):
        mend(_overload)(functools.partial(_reduced_truths, _overload))


@mend(aten.isnan.default)
def _isnan(z: torch.Tensor) -> object:
    return z.real.isnan() | z.imag.isnan() if is_complex(z) else NotImplemented


@mend(aten.isinf.default)
def _isinf(z: torch.Tensor) -> object:
    return z.real.isinf() | z.imag.isinf() if is_complex(z) else NotImplemented


@mend(aten.isfinite.default)
def _isfinite(z: torch.Tensor) -> object:
    return z.real.isfinite() & z.imag.isfinite() if is_complex(z) else NotImplemented


@mend(aten.ne.Tensor)
def _not_equal(x: torch.Tensor, y: torch.Tensor) -> object:
    return ~torch.eq(x, y) if is_complex(x) or is_complex(y) else NotImplemented


@mend(aten.eq.Scalar)
def _equal_to_number(z: torch.Tensor, number: Number) -> object:
    if not (is_complex(z) or isinstance(number, complex)):
        return NotImplemented
    number = complex(number)
    if not is_complex(z):
        return (z == number.real) & (number.imag == 0)
    return (z.real == number.real) & (z.imag == number.imag)


@mend(aten.ne.Scalar)
def _not_equal_to_number(z: torch.Tensor, number: Number) -> object:
    found = _equal_to_number(z, number)
    return found if found is NotImplemented else ~found  # pyright: ignore[reportOperatorIssue]


# --- Products -------------------------------------------------------------------------------------


@mend(aten.prod.default)
def _prod(z: torch.Tensor, *, dtype: torch.dtype | None = None) -> object:
    if not (is_complex(z) or (dtype is not None and dtype.is_complex)):
        return NotImplemented
    return _prod_along(z.reshape(-1), 0, dtype=dtype)


@mend(aten.prod.dim_int)
def _prod_along(
    z: torch.Tensor, dim: int, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> object:
    if dtype is not None and (dtype.is_complex or is_complex(z)):
        return aten.prod.dim_int(z.to(dtype), dim, keepdim)
    if not is_complex(z):
        return NotImplemented
    if z.dim() == 0:
        return z.clone()
    product = z.cumprod(dim).narrow(dim, z.shape[dim] - 1, 1)
    return product if keepdim else product.squeeze(dim)


# --- Norms and variances --------------------------------------------------------------------------


def _norm(overload: torch._ops.OpOverload, z: torch.Tensor, *how: object, **more: object) -> object:
    """Of absolute values; the type that is asked for is that of the numbers before."""
    if not is_complex(z):
        return NotImplemented
    dtype = more.get("dtype")
    if isinstance(dtype, torch.dtype):
        more["dtype"] = REAL.get(dtype, dtype)
    return overload(z.abs(), *how, **more)


for _overload in (
    aten.linalg_vector_norm.default,
    aten.norm.Scalar,
    aten.norm.ScalarOpt_dim,
    aten.norm.ScalarOpt_dtype,
    aten.norm.ScalarOpt_dim_dtype,
):
    mend(_overload)(functools.partial(_norm, _overload))


@mend(aten.rms_norm.default)
def _rms_norm(z: torch.Tensor, *how: object) -> object:
    return by_kernel(aten.rms_norm.default, z, *how) if is_complex(z) else NotImplemented


@mend(aten.var.correction)
def _var(z: torch.Tensor, dim: Sequence[int] | None = None, **how: object) -> object:
    """The parts vary apart from each other."""
    if not is_complex(z):
        return NotImplemented
    real, imaginary = (aten.var.correction(part, dim, **how) for part in (z.real, z.imag))
    return real + imaginary


@mend(aten.var_mean.correction)
def _var_mean(z: torch.Tensor, dim: Sequence[int] | None = None, **how: object) -> object:
    if not is_complex(z):
        return NotImplemented
    mean = z.mean(tuple(dim or range(z.dim())), keepdim=bool(how.get("keepdim")))
    return aten.var.correction(z, dim, **how), mean
