"""Remainders, shifts, comparisons and bits."""

# pyright: reportMissingImports=false
from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import torch

from stepwell.frontends.torch.decompositions.registry import itself, mend

aten = torch.ops.aten

Number = int | float


def _like(number: Number, x: torch.Tensor) -> torch.Tensor:
    """A tensor of one number, of the type that the operator promotes to."""
    return torch.full((), number, dtype=torch.result_type(x, number))


@mend(aten.fmod.Scalar)
def _fmod(x: torch.Tensor, divisor: Number) -> torch.Tensor:
    number = _like(divisor, x)
    return torch.fmod(x.to(number.dtype), number)


@mend(aten.fmod.Tensor)
def _fmod_of_infinite(x: torch.Tensor, divisor: torch.Tensor) -> object:
    """A finite number is all that is left of it by an infinite one; elsewhere the lowering is
    right."""
    if not torch.result_type(x, divisor).is_floating_point:
        return NotImplemented
    rest = itself(aten.fmod.Tensor, x, divisor)
    return torch.where(divisor.isinf() & x.isfinite(), x.to(rest.dtype), rest)  # pyright: ignore


@mend(aten.remainder.Scalar)
def _remainder_of_number(x: torch.Tensor, divisor: Number) -> torch.Tensor:
    """The sign is known here; a comparison of two constants is folded wrong by the importer."""
    number = _like(divisor, x)
    rest = torch.fmod(x.to(number.dtype), number)
    if not number.dtype.is_signed:
        return rest
    return torch.where(rest > 0 if divisor < 0 else rest < 0, rest + number, rest)


@mend(aten.remainder.Scalar_Tensor)
def _remainder_by_tensor(x: Number, divisor: torch.Tensor) -> torch.Tensor:
    return _remainder(_like(x, divisor), divisor)  # pyright: ignore[reportReturnType]


@mend(aten.remainder.Tensor)
def _remainder(x: torch.Tensor, divisor: torch.Tensor) -> torch.Tensor:
    """With the sign of the divisor, where fmod has that of the dividend."""
    dtype = torch.result_type(x, divisor)
    x, divisor = x.to(dtype), divisor.to(dtype)
    rest = torch.fmod(x, divisor)
    if not dtype.is_signed:
        return rest
    other_sign = (rest != 0) & ((rest < 0) != (divisor < 0))
    return torch.where(other_sign, rest + divisor, rest)


@mend(aten.div.Tensor_mode, aten.div.Scalar_mode)
def _divide(
    x: torch.Tensor, divisor: torch.Tensor | Number, *, rounding_mode: str | None = None
) -> object:
    dtype = torch.result_type(x, divisor)
    if rounding_mode != "floor" or not dtype.is_floating_point:
        return NotImplemented
    wide = torch.promote_types(dtype, torch.float32)
    if isinstance(divisor, torch.Tensor):
        divisor = divisor.to(wide)
    else:
        divisor = torch.full((), divisor, dtype=wide)
    return _floor_of_quotient(x.to(wide), divisor).to(dtype)


def _floor_of_quotient(x: torch.Tensor, divisor: torch.Tensor) -> torch.Tensor:
    """Of the quotient before it is rounded, which may be up to a whole number, or to zero."""
    rest, rounded = torch.fmod(x, divisor), x / divisor
    other_sign = (rest != 0) & ((rest < 0) != (divisor < 0))
    whole = ((x - rest) / divisor).round() - other_sign.to(x.dtype)
    whole = torch.where(whole == 0, torch.copysign(torch.zeros_like(rounded), rounded), whole)
    return torch.where(divisor == 0, rounded, whole)


@mend(aten.__lshift__.Tensor)
def _left_shift(x: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
    return torch.bitwise_left_shift(x, count)


@mend(aten.__rshift__.Tensor)
def _right_shift(x: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
    return torch.bitwise_right_shift(x, count)


@mend(aten.bitwise_right_shift.Tensor)
def _right_shift_of_bytes(x: torch.Tensor, count: torch.Tensor) -> object:
    """The importer shifts the sign in, which unsigned numbers have not."""
    if torch.result_type(x, count) is not torch.uint8:
        return NotImplemented
    return torch.bitwise_right_shift(x.to(torch.int32), count.to(torch.int32)).to(torch.uint8)


def _shift(overload: torch._ops.OpOverload, x: torch.Tensor, count: torch.Tensor) -> object:
    """The importer does not broadcast them."""
    if x.shape == count.shape:
        return NotImplemented
    dtype = torch.result_type(x, count)
    return itself(overload, *torch.broadcast_tensors(x.to(dtype), count.to(dtype)))


for _overload in (aten.bitwise_left_shift.Tensor, aten.bitwise_right_shift.Tensor):
    mend(_overload)(functools.partial(_shift, _overload))


@mend(aten.__lshift__.Scalar, aten.bitwise_left_shift.Tensor_Scalar)
def _left_shift_by_number(x: torch.Tensor, count: Number) -> torch.Tensor:
    return torch.bitwise_left_shift(x, torch.full_like(x, int(count)))


@mend(aten.__rshift__.Scalar, aten.bitwise_right_shift.Tensor_Scalar)
def _right_shift_by_number(x: torch.Tensor, count: Number) -> torch.Tensor:
    return torch.bitwise_right_shift(x, torch.full_like(x, int(count)))


def _compare(overload: torch._ops.OpOverload, x: torch.Tensor, number: Number) -> object:
    """With a float where the tensor is of floats: of a constant tensor and an integer, the importer
    folds something else."""
    if x.dtype.is_complex or isinstance(number, complex):
        return NotImplemented
    return itself(overload, x, float(number) if x.dtype.is_floating_point else number)


for _packet in (aten.eq, aten.ne, aten.lt, aten.le, aten.gt, aten.ge):
    mend(_packet.Scalar)(functools.partial(_compare, _packet.Scalar))


@mend(aten.bitwise_and.Scalar)
def _and_number(x: torch.Tensor, number: Number) -> torch.Tensor:
    return torch.bitwise_and(x, _like(number, x))


@mend(aten.bitwise_or.Scalar)
def _or_number(x: torch.Tensor, number: Number) -> torch.Tensor:
    return torch.bitwise_or(x, _like(number, x))


@mend(aten.bitwise_xor.Scalar)
def _xor_number(x: torch.Tensor, number: Number) -> torch.Tensor:
    return torch.bitwise_xor(x, _like(number, x))


@mend(aten.hypot.default)
def _hypot(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Scaled by the larger, so that no square overflows; infinite beside NaN, too."""
    a, b = x.abs(), y.abs()
    high, low = torch.maximum(a, b), torch.minimum(a, b)
    ratio = torch.where(high == 0, torch.zeros_like(high), low / high)
    length = high * (1 + ratio * ratio).sqrt()
    return torch.where(a.isinf() | b.isinf(), torch.inf, length)


@mend(aten.logaddexp2.default)
def _logaddexp2(x: torch.Tensor, y: torch.Tensor) -> object:
    """The larger, and what the smaller adds to it, however little that is."""
    dtype = torch.result_type(x, y)
    if dtype.is_complex:
        return NotImplemented
    wide = torch.promote_types(dtype, torch.float32)
    x, y = x.to(wide), y.to(wide)
    added = torch.log1p(torch.exp2(-(x - y).abs())) / math.log(2)
    found = torch.where((x == y) & x.isinf(), x, torch.maximum(x, y) + added)
    return found.to(dtype)


@mend(aten.fmax.default)
def _fmax(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return _unless_nan(torch.maximum, x, y)


@mend(aten.fmin.default)
def _fmin(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return _unless_nan(torch.minimum, x, y)


@mend(aten.clamp.Tensor)
def _clamp(
    x: torch.Tensor, min: torch.Tensor | None = None, max: torch.Tensor | None = None
) -> torch.Tensor:
    """The importer does not broadcast the bounds."""
    if min is not None:
        x = torch.maximum(x, min)
    return x if max is None else torch.minimum(x, max)


@mend(aten.clamp_min.Tensor)
def _clamp_min(x: torch.Tensor, min: torch.Tensor) -> torch.Tensor:
    return torch.maximum(x, min)


@mend(aten.clamp_max.Tensor)
def _clamp_max(x: torch.Tensor, max: torch.Tensor) -> torch.Tensor:
    return torch.minimum(x, max)


def _unless_nan(
    extreme: Callable[..., torch.Tensor], x: torch.Tensor, y: torch.Tensor
) -> torch.Tensor:
    """The other one where one is NaN; the importer does not broadcast them."""
    found = extreme(x, y)
    if not found.dtype.is_floating_point:
        return found
    x, y = x.to(found.dtype), y.to(found.dtype)
    return torch.where(x.isnan(), y, torch.where(y.isnan(), x, found))


@mend(aten.isclose.default)
def _isclose(
    x: torch.Tensor,
    y: torch.Tensor,
    rtol: float = 1e-5,
    atol: float = 1e-8,
    equal_nan: bool = False,
) -> torch.Tensor:
    """Infinite numbers are close to none but themselves."""
    close = x == y
    if equal_nan and (x.dtype.is_floating_point or x.dtype.is_complex):
        close = close | (x.isnan() & y.isnan())
    if rtol == 0 and atol == 0:
        return close
    if not (y.dtype.is_floating_point or y.dtype.is_complex):
        y = y.to(torch.get_default_dtype())
    allowed, distance = atol + (rtol * y).abs(), (x - y).abs()
    return close | (distance.isfinite() & (distance <= allowed))


@mend(aten.copysign.Scalar)
def _copysign_of_number(x: torch.Tensor, sign: Number) -> torch.Tensor:
    dtype = x.dtype if x.dtype.is_floating_point else torch.get_default_dtype()
    return torch.copysign(x.to(dtype), torch.full((), sign, dtype=dtype))


@mend(aten.reciprocal.default)
def _reciprocal(x: torch.Tensor) -> object:
    """Of integers, a float."""
    if x.dtype.is_floating_point or x.dtype.is_complex:
        return NotImplemented
    return torch.div(torch.ones_like(x), x)


@mend(aten.isfinite.default)
def _isfinite(x: torch.Tensor) -> object:
    """NaN compares as no number does, which the importer overlooks."""
    if x.dtype.is_complex:
        return NotImplemented
    if x.dtype.is_floating_point:
        return x.abs() < torch.inf
    return torch.full_like(x, True, dtype=torch.bool)


@mend(aten.erf.default)
def _erf(x: torch.Tensor) -> object:
    return NotImplemented if x.dtype.is_floating_point else x.to(torch.get_default_dtype()).erf()


@mend(aten.angle.default)
def _angle(x: torch.Tensor) -> object:
    """Of a real number: 0, or pi for a negative one."""
    if x.dtype.is_complex:
        return NotImplemented
    dtype = x.dtype if x.dtype.is_floating_point else torch.get_default_dtype()
    x = x.to(dtype)
    turned = torch.where(x < 0, torch.full((), math.pi, dtype=dtype), torch.zeros_like(x))
    return torch.where(x.isnan(), x, turned)


@mend(aten.all.dims)
def _all(x: torch.Tensor, dim: Sequence[int] | None = None, keepdim: bool = False) -> torch.Tensor:
    return _along_each(torch.all, x, dim, keepdim)


@mend(aten.any.dims)
def _any(x: torch.Tensor, dim: Sequence[int] | None = None, keepdim: bool = False) -> torch.Tensor:
    return _along_each(torch.any, x, dim, keepdim)


def _along_each(
    reduce: Callable[..., torch.Tensor],
    x: torch.Tensor,
    dims: Sequence[int] | None,
    keepdim: bool,
) -> torch.Tensor:
    """One dimension after the other, the last first; no list of them means all, an empty one
    none."""
    found = x if x.dtype in (torch.bool, torch.uint8) else x != 0
    listed = range(x.dim()) if dims is None else [d % max(x.dim(), 1) for d in dims]
    if not x.dim():
        return found.clone()
    for dim in sorted(listed, reverse=True):
        found = reduce(found, dim, keepdim)
    return found


@mend(aten.addmv.default)
def _addmv(
    x: torch.Tensor,
    matrix: torch.Tensor,
    vector: torch.Tensor,
    *,
    beta: Number = 1,
    alpha: Number = 1,
) -> object:
    product = torch.mv(matrix, vector) * alpha
    return product if beta == 0 else product + x * beta


@mend(aten.addbmm.default)
def _addbmm(
    x: torch.Tensor,
    first: torch.Tensor,
    second: torch.Tensor,
    *,
    beta: Number = 1,
    alpha: Number = 1,
) -> torch.Tensor:
    """One product of matrices, so that its sums are rounded once."""
    left = first.transpose(0, 1).flatten(1)
    product = torch.mm(left, second.flatten(0, 1)) * alpha
    return product if beta == 0 else product + x * beta


@mend(aten._trilinear.default)
def _trilinear(
    first: torch.Tensor,
    second: torch.Tensor,
    third: torch.Tensor,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    unroll_dim: int = 1,
) -> torch.Tensor:
    """Each factor is given dimensions of size 1, whose batch may be of size 0 elsewhere."""
    found = torch.ones((), dtype=first.dtype)
    for factor, dims in ((first, expand1), (second, expand2), (third, expand3)):
        for dim in dims:
            factor = factor.unsqueeze(dim)
        found = found * factor
    return found.sum(list(sumdim)) if sumdim else found


def of_inductor() -> dict[torch._ops.OperatorBase, Callable[..., object]]:
    """What steps of optimizers are traced to once PyTorch has loaded its own compiler."""
    fused = getattr(torch.ops.prims, "fma", None)
    return {} if fused is None else {fused.default: _multiply_add}


def _multiply_add(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    return x * y + z
