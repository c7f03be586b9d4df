"""Norms of vectors, distances between them, and their gradients."""

# pyright: reportMissingImports=false
from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from stepwell.frontends.torch.decompositions.registry import mend

aten = torch.ops.aten


@mend(aten.linalg_vector_norm.default)
def _vector_norm(
    x: torch.Tensor,
    ord: float = 2,
    dim: Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> object:
    """Half precision is rounded once: fourth powers of numbers above 16 overflow float16."""
    if x.dtype not in (torch.float16, torch.bfloat16):
        return NotImplemented
    found = torch.linalg.vector_norm(x.float(), ord, dim, keepdim)  # pyright: ignore
    return found.to(dtype or x.dtype)


@mend(aten._cdist_forward.default)
def _cdist(
    x: torch.Tensor, y: torch.Tensor, p: float, compute_mode: int | None = None
) -> torch.Tensor:
    return torch.linalg.vector_norm(x.unsqueeze(-2) - y.unsqueeze(-3), p, -1)


@mend(aten._cdist_backward.default)
def _cdist_backward(
    gradient: torch.Tensor, x: torch.Tensor, y: torch.Tensor, p: float, distance: torch.Tensor
) -> torch.Tensor:
    """Of the first vectors; zero where two are the same."""
    apart = x.unsqueeze(-2) - y.unsqueeze(-3)
    gradient, distance = gradient.unsqueeze(-1), distance.unsqueeze(-1)
    if p == 0:
        return torch.zeros_like(x)
    if p == 1:
        parts = apart.sign()
    elif math.isinf(p):
        parts = torch.where(apart.abs() == distance, apart.sign(), 0)
    else:
        safe = torch.where(distance == 0, 1, distance)
        parts = apart.sign() * (apart.abs() / safe) ** (p - 1)
    found = torch.where(distance == 0, 0, gradient * parts)
    return found.sum(-2)


@mend(aten._pdist_backward.default)
def _pdist_backward(
    gradient: torch.Tensor, x: torch.Tensor, p: float, distance: torch.Tensor
) -> torch.Tensor:
    """As between all of them, of which those below the diagonal count for none."""
    count = x.shape[0]
    rows, columns = torch.triu_indices(count, count, 1)
    zeros = torch.zeros(count, count, dtype=x.dtype)
    gradients, distances = (zeros.index_put((rows, columns), v) for v in (gradient, distance))
    both = (gradients + gradients.T, x, x, p, distances + distances.T)
    return _cdist_backward(*both)  # pyright: ignore[reportReturnType]


@mend(aten._pdist_forward.default)
def _pdist(x: torch.Tensor, p: float = 2.0) -> torch.Tensor:
    rows, columns = torch.triu_indices(x.shape[0], x.shape[0], 1)
    return torch.linalg.vector_norm(x[rows] - x[columns], p, -1)


@mend(aten.dist.default)
def _dist(x: torch.Tensor, y: torch.Tensor, p: float = 2.0) -> torch.Tensor:
    return torch.linalg.vector_norm(x - y, p)
