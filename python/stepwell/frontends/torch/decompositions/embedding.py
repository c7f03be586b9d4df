"""Bags of embeddings: sums, means and maxima over runs of rows."""

# pyright: reportMissingImports=false
from __future__ import annotations

import torch

from stepwell.frontends.torch.decompositions.registry import mend

aten = torch.ops.aten

_SUM, _MEAN, _MAX = range(3)


@mend(aten._embedding_bag.default, aten._embedding_bag_forward_only.default)
def _embedding_bag(
    weight: torch.Tensor,
    indices: torch.Tensor,
    offsets: torch.Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = _SUM,
    sparse: bool = False,
    per_sample_weights: torch.Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    if include_last_offset:
        offsets = offsets[:-1]
    bags = offsets.shape[0]
    bag = _bags(indices, offsets)
    counted = indices != padding_idx
    rows = weight.index_select(0, indices)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(1)
    sizes = torch.zeros(bags, dtype=torch.int64).index_add(0, bag, counted.to(torch.int64))
    if mode == _MAX:
        inside = (torch.arange(bags).unsqueeze(1) == bag) & counted
        lowest = float("-inf")
        masked = torch.where(inside.unsqueeze(2), rows.unsqueeze(0), lowest)
        values, best = masked.max(1)
        some = sizes.unsqueeze(1) > 0
        result = torch.where(some, values, 0.0).to(rows.dtype)
        largest = torch.where(some, indices.to(torch.int64)[best], -1)
        return result, bag, sizes, largest
    wide = torch.promote_types(rows.dtype, torch.float32)
    taken = torch.where(counted.unsqueeze(1), rows.to(wide), 0.0)
    result = torch.zeros([bags, rows.shape[1]], dtype=wide).index_add(0, bag, taken)
    if mode == _MEAN:
        result = result / sizes.clamp(min=1).unsqueeze(1).to(wide)
    return result.to(rows.dtype), bag, sizes, sizes


def _bags(indices: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """The bag of each of `indices`: how many `offsets`, where bags begin, do not lie behind it."""
    begun = torch.zeros(indices.shape[0], dtype=torch.int64)
    return begun.index_add(0, offsets, torch.ones_like(offsets, dtype=torch.int64)).cumsum(0) - 1


@mend(aten._embedding_bag_backward.default)
def _embedding_bag_backward(
    gradient: torch.Tensor,
    indices: torch.Tensor,
    offsets: torch.Tensor,
    bag: torch.Tensor,
    sizes: torch.Tensor,
    largest: torch.Tensor,
    rows: int,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: torch.Tensor | None,
    padding_idx: int = -1,
) -> object:
    """The gradient of a bag is added to each row that it has taken; of a maximum, to the row that
    `largest` [bags, features] names, or to none where that is negative."""
    if scale_grad_by_freq or sparse:
        return NotImplemented
    zeros = torch.zeros([rows, gradient.shape[1]], dtype=gradient.dtype)
    if mode == _MAX:
        taken = torch.where(largest >= 0, gradient, 0.0)
        return zeros.scatter_add(0, largest.clamp(min=0), taken)
    bag = _bags(indices, offsets)
    if mode == _MEAN:
        gradient = gradient / sizes.clamp(min=1).unsqueeze(1).to(gradient.dtype)
    taken = gradient.index_select(0, bag)
    if per_sample_weights is not None:
        taken = taken * per_sample_weights.unsqueeze(1)
    taken = torch.where((indices != padding_idx).unsqueeze(1), taken, 0.0)
    return zeros.index_add(0, indices, taken)


@mend(aten._embedding_bag_per_sample_weights_backward.default)
def _embedding_bag_per_sample_weights_backward(
    gradient: torch.Tensor,
    weight: torch.Tensor,
    indices: torch.Tensor,
    offsets: torch.Tensor,
    bag: torch.Tensor,
    mode: int,
    padding_idx: int = -1,
) -> torch.Tensor:
    """Of sums alone: how far the row lies along the gradient of its bag."""
    bag = _bags(indices, offsets)
    along = (gradient.index_select(0, bag) * weight.index_select(0, indices)).sum(1)
    return torch.where(indices != padding_idx, along, 0.0)


@mend(aten.embedding.default)
def _embedding(
    weight: torch.Tensor,
    indices: torch.Tensor,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> object:
    """How gradients are made changes nothing here."""
    if not scale_grad_by_freq and not sparse:
        return NotImplemented
    return aten.embedding.default(weight, indices, padding_idx)
