"""Operators that come down to sorting."""

# pyright: reportMissingImports=false
from __future__ import annotations

import functools

import torch

from stepwell.frontends.torch.decompositions.registry import mend

aten = torch.ops.aten

Pair = tuple[torch.Tensor, torch.Tensor]


@mend(aten.sort.stable)
def _sort_stable(
    x: torch.Tensor, *, stable: bool | None, dim: int = -1, descending: bool = False
) -> object:
    """The compiled sort is stable either way."""
    return aten.sort.default(x, dim, descending)


@mend(aten.topk.default)
def _topk(
    x: torch.Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> object:
    """In order, which it is no matter whether it is asked for."""
    return NotImplemented if sorted else aten.topk.default(x, k, dim, largest, True)


@mend(aten.kthvalue.default)
def _kthvalue(x: torch.Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Pair:
    if x.dim() == 0:
        return x.clone(), torch.zeros((), dtype=torch.int64)
    values, indices = torch.sort(x, dim=dim)
    found = values.narrow(dim, k - 1, 1), indices.narrow(dim, k - 1, 1)
    return found if keepdim else (found[0].squeeze(dim), found[1].squeeze(dim))


@mend(aten.median.dim)
def _median_along(x: torch.Tensor, dim: int, keepdim: bool = False) -> Pair:
    """The lower of the two in the middle; NaN, of which the first is taken, wins over all."""
    if x.dim() == 0:
        return x.clone(), torch.zeros((), dtype=torch.int64)
    values, indices = torch.sort(x, dim=dim)
    size = x.shape[dim]
    middle, last = (size - 1) // 2, size - 1
    found = [part.narrow(dim, middle, 1) for part in (values, indices)]
    if x.dtype.is_floating_point:
        lost = values.narrow(dim, last, 1)
        first = x.isnan().to(torch.int32).argmax(dim, keepdim=True)
        ends = lost, first
        found = [torch.where(lost.isnan(), e, part) for e, part in zip(ends, found, strict=True)]
    return (found[0], found[1]) if keepdim else (found[0].squeeze(dim), found[1].squeeze(dim))


@mend(aten.median.default)
def _median(x: torch.Tensor) -> torch.Tensor:
    return _median_along(x.reshape(-1), 0)[0]  # pyright: ignore[reportIndexIssue]


@mend(aten.mode.default)
def _mode(x: torch.Tensor, dim: int = -1, keepdim: bool = False) -> Pair:
    """The smallest of the most frequent, with the place of its last occurrence."""
    if x.dim() == 0:
        return x.clone(), torch.zeros((), dtype=torch.int64)
    values, indices = torch.sort(x, dim=dim, stable=True)
    size = x.shape[dim]
    along = [1] * x.dim()
    along[dim] = size
    place = torch.arange(size).view(along).expand(x.shape)
    first = torch.ones_like(values.narrow(dim, 0, 1), dtype=torch.bool)
    differs = values.narrow(dim, 1, size - 1) != values.narrow(dim, 0, size - 1)
    starts = torch.where(torch.cat([first, differs], dim), place, 0).cummax(dim)[0]
    best = (place - starts).argmax(dim, keepdim=True)
    found = values.gather(dim, best), indices.gather(dim, best)
    return found if keepdim else (found[0].squeeze(dim), found[1].squeeze(dim))


@mend(aten.nanmedian.dim)
def _nanmedian_along(x: torch.Tensor, dim: int, keepdim: bool = False) -> Pair:
    """The lower of the two in the middle of those that are no NaN, which sort last."""
    if x.dim() == 0:
        return x.clone(), torch.zeros((), dtype=torch.int64)
    if not x.dtype.is_floating_point:
        return _median_along(x, dim, keepdim)  # pyright: ignore[reportReturnType]
    values, indices = torch.sort(x, dim=dim)
    count = (~x.isnan()).sum(dim, keepdim=True)
    middle = ((count - 1) // 2).clamp(min=0)
    found = values.gather(dim, middle), indices.gather(dim, middle)
    return found if keepdim else (found[0].squeeze(dim), found[1].squeeze(dim))


@mend(aten.nanmedian.default)
def _nanmedian(x: torch.Tensor) -> torch.Tensor:
    return _nanmedian_along(x.reshape(-1), 0)[0]  # pyright: ignore[reportIndexIssue]


_NO_SIGN = (torch.uint8, torch.bool)


def _without_sign(overload: torch._ops.OpOverload, x: torch.Tensor, *how: object) -> object:
    """The importer starts from the extremes of signed numbers."""
    if x.dtype not in _NO_SIGN:
        return NotImplemented
    return overload(x.to(torch.int32), *how).to(x.dtype)


def _without_sign_along(overload: torch._ops.OpOverload, x: torch.Tensor, *how: object) -> object:
    if x.dtype not in _NO_SIGN:
        return NotImplemented
    values, indices = overload(x.to(torch.int32), *how)
    return values.to(x.dtype), indices


for _overload in (aten.max.default, aten.min.default, aten.amax.default, aten.amin.default):
    mend(_overload)(functools.partial(_without_sign, _overload))
for _overload in (aten.max.dim, aten.min.dim):
    mend(_overload)(functools.partial(_without_sign_along, _overload))


def _place_without_sign(overload: torch._ops.OpOverload, x: torch.Tensor, *how: object) -> object:
    return overload(x.to(torch.int32), *how) if x.dtype in _NO_SIGN else NotImplemented


for _overload in (aten.argmax.default, aten.argmin.default):
    mend(_overload)(functools.partial(_place_without_sign, _overload))
