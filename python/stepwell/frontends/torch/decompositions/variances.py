"""Variances of no more elements than degrees of freedom are taken off."""

# pyright: reportMissingImports=false
from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from stepwell.frontends.torch.decompositions.registry import mend

aten = torch.ops.aten

Number = int | float


def _variance(
    x: torch.Tensor, dim: Sequence[int] | None, correction: Number | None, keepdim: bool
) -> torch.Tensor | None:
    """Where the importer divides by what is left, be it negative, and PyTorch by 0 at least; None
    where some is left."""
    dims = dim or range(x.dim())
    count = math.prod(x.shape[d] for d in dims)
    if count > (1 if correction is None else correction):
        return None
    centred = x - x.mean(tuple(dims), keepdim=True)
    return centred.square().sum(tuple(dims), keepdim=keepdim) / 0.0


@mend(aten.var.correction)
def _var(
    x: torch.Tensor,
    dim: Sequence[int] | None = None,
    *,
    correction: Number | None = None,
    keepdim: bool = False,
) -> object:
    found = _variance(x, dim, correction, keepdim)
    return NotImplemented if found is None else found


@mend(aten.var_mean.correction)
def _var_mean(
    x: torch.Tensor,
    dim: Sequence[int] | None = None,
    *,
    correction: Number | None = None,
    keepdim: bool = False,
) -> object:
    found = _variance(x, dim, correction, keepdim)
    if found is None:
        return NotImplemented
    return found, x.mean(tuple(dim or range(x.dim())), keepdim=keepdim)
