"""Tensors without a content: any content does, and theirs is zero."""

# pyright: reportMissingImports=false
from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from stepwell.frontends.torch.decompositions.registry import itself, mend
from stepwell.frontends.torch.memory_order import inverse, memory_order

aten = torch.ops.aten

Kind = torch.dtype | None


@mend(aten.empty.memory_format)
def _empty(size: Sequence[int], *, dtype: Kind = None, **where: object) -> torch.Tensor:
    return torch.zeros(size, dtype=dtype)


@mend(aten.empty_like.default)
def _empty_like(x: torch.Tensor, *, dtype: Kind = None, **where: object) -> torch.Tensor:
    return torch.full_like(x, 0, dtype=dtype)


@mend(aten.empty_strided.default)
def _empty_strided(
    size: Sequence[int],
    stride: Sequence[int],
    *,
    dtype: Kind = None,
    device: torch.device | None = None,
    **where: object,
) -> torch.Tensor:
    """Zeros come down to this operator, too: only what is like it is filled without it. The
    importer knows it where it is contiguous."""
    order = memory_order(stride)
    placed = [size[d] for d in order]
    steps = [math.prod(placed[d + 1 :]) for d in range(len(size))]
    empty = itself(aten.empty_strided.default, placed, steps, dtype=dtype, device=device)
    zeros = torch.full_like(empty, 0)  # pyright: ignore[reportArgumentType]
    return zeros.permute(inverse(order))


@mend(aten._efficientzerotensor.default)
def _zeros(size: Sequence[int], *, dtype: Kind = None, **where: object) -> torch.Tensor:
    """Gradients that are zero, which PyTorch keeps without memory."""
    return torch.zeros(size, dtype=dtype)


@mend(aten._new_zeros_with_same_feature_meta.default)
def _new_zeros(
    x: torch.Tensor, like: torch.Tensor, *, self_num_batch_dims: int = 0
) -> torch.Tensor:
    """The tangents that forward mode begins with: batch dimensions of `x`, features of `like`."""
    return torch.zeros([*x.shape[:self_num_batch_dims], *like.shape], dtype=like.dtype)
