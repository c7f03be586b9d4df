"""Cumulative operators of complex numbers, by doubling: after step k each element covers 2^k
elements up to its own. (Hillis and Steele, Data parallel algorithms, 1986.) Those of real numbers
are imported as they are (`frontends/torch/cumulative.py`).
"""

# pyright: reportMissingImports=false
from __future__ import annotations

from collections.abc import Callable

import torch

from stepwell.frontends.torch.decompositions.registry import mend

aten = torch.ops.aten


def _scan(
    x: torch.Tensor, dim: int, combine: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
) -> torch.Tensor:
    if x.dim() == 0:
        return x
    size, reach = x.shape[dim], 1
    while reach < size:
        earlier, later = x.narrow(dim, 0, size - reach), x.narrow(dim, reach, size - reach)
        x = torch.cat([x.narrow(dim, 0, reach), combine(earlier, later)], dim)
        reach *= 2
    return x


@mend(aten.cumprod.default)
def _cumprod(x: torch.Tensor, dim: int, *, dtype: torch.dtype | None = None) -> object:
    x = x if dtype is None else x.to(dtype)
    return _scan(x, dim, torch.mul) if x.dtype.is_complex else NotImplemented


@mend(aten.logcumsumexp.default)
def _logcumsumexp(x: torch.Tensor, dim: int) -> object:
    return _scan(x, dim, torch.logaddexp) if x.dtype.is_complex else NotImplemented
