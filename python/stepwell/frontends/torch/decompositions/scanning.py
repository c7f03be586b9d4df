"""Cumulative operators, by doubling: after step k each element covers 2^k elements up to its own.

(Hillis and Steele, Data parallel algorithms, 1986.)
"""

# pyright: reportMissingImports=false
from __future__ import annotations

from collections.abc import Callable

import torch

from stepwell.frontends.torch.decompositions.registry import mend

aten = torch.ops.aten

Parts = tuple[torch.Tensor, ...]


def _scan(parts: Parts, dim: int, combine: Callable[[Parts, Parts], Parts]) -> Parts:
    if parts[0].dim() == 0:
        return parts
    size, reach = parts[0].shape[dim], 1
    while reach < size:
        earlier = tuple(part.narrow(dim, 0, size - reach) for part in parts)
        later = tuple(part.narrow(dim, reach, size - reach) for part in parts)
        parts = tuple(
            torch.cat([part.narrow(dim, 0, reach), combined], dim)
            for part, combined in zip(parts, combine(earlier, later), strict=True)
        )
        reach *= 2
    return parts


@mend(aten.cumprod.default)
def _cumprod(x: torch.Tensor, dim: int, *, dtype: torch.dtype | None = None) -> torch.Tensor:
    integral = not x.dtype.is_floating_point and not x.dtype.is_complex
    x = x.to(dtype or (torch.int64 if integral else x.dtype))
    return _scan((x,), dim, lambda earlier, later: (earlier[0] * later[0],))[0]


@mend(aten.logcumsumexp.default)
def _logcumsumexp(x: torch.Tensor, dim: int) -> torch.Tensor:
    def combine(earlier: Parts, later: Parts) -> Parts:
        high = torch.maximum(earlier[0], later[0])
        shift = torch.where(high.isinf(), torch.zeros_like(high), high)
        return (((earlier[0] - shift).exp() + (later[0] - shift).exp()).log() + shift,)

    def combine_complex(earlier: Parts, later: Parts) -> Parts:
        return (torch.logaddexp(earlier[0], later[0]),)

    return _scan((x,), dim, combine_complex if x.dtype.is_complex else combine)[0]


@mend(aten.cummax.default)
def _cummax(x: torch.Tensor, dim: int) -> Parts:
    return _extreme(x, dim, torch.ge)


@mend(aten.cummin.default)
def _cummin(x: torch.Tensor, dim: int) -> Parts:
    return _extreme(x, dim, torch.le)


def _extreme(x: torch.Tensor, dim: int, wins: Callable) -> Parts:
    """The extreme so far and where it stands, the last of equal ones; NaN wins over all."""
    if x.dim() == 0:
        return x.clone(), torch.zeros((), dtype=torch.int64)
    along = [1] * x.dim()
    along[dim] = x.shape[dim]
    where = torch.arange(x.shape[dim]).view(along).expand(x.shape)

    def combine(earlier: Parts, later: Parts) -> Parts:
        take = wins(later[0], earlier[0])
        if x.dtype.is_floating_point:
            take = take | later[0].isnan()
        return tuple(torch.where(take, b, a) for a, b in zip(earlier, later, strict=True))

    return _scan((x, where), dim, combine)
