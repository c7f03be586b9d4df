"""Variances in the type that kernels compute in; the importer would take all of them in float64."""

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
) -> tuple[torch.Tensor, torch.Tensor] | None:
    """The variance and the mean of float32, or of the type of `x` where that is wider; where there
    are no more elements than degrees of freedom are taken off, they are divided by 0. None for an
    unbiased variance of a number of elements that is not known."""
    dims = tuple(dim or range(x.dim()))
    correction = 1 if correction is None else correction
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    mean = wide.mean(dims, keepdim=True)
    squares = (wide - mean).square()
    if correction == 0:
        variance = squares.mean(dims, keepdim=keepdim)
    else:
        count = math.prod(x.shape[d] for d in dims)
        if not isinstance(count, int):
            return None
        variance = squares.sum(dims, keepdim=keepdim) / float(max(count - correction, 0))
    mean = mean if keepdim else mean.squeeze(dims)
    return variance.to(x.dtype), mean.to(x.dtype)


@mend(aten.var.correction)
def _var(
    x: torch.Tensor,
    dim: Sequence[int] | None = None,
    *,
    correction: Number | None = None,
    keepdim: bool = False,
) -> object:
    found = None if x.dtype.is_complex else _variance(x, dim, correction, keepdim)
    return NotImplemented if found is None else found[0]


@mend(aten.var_mean.correction)
def _var_mean(
    x: torch.Tensor,
    dim: Sequence[int] | None = None,
    *,
    correction: Number | None = None,
    keepdim: bool = False,
) -> object:
    found = None if x.dtype.is_complex else _variance(x, dim, correction, keepdim)
    return NotImplemented if found is None else found
