"""Pools of as many windows as are asked for, whose sizes differ by one where they do not fit."""

# pyright: reportMissingImports=false
from __future__ import annotations

from collections.abc import Sequence

import torch

from stepwell.frontends.torch.decompositions.registry import mend

aten = torch.ops.aten

Sizes = Sequence[int]


@mend(aten.adaptive_max_pool2d.default)
def _adaptive_max_pool2d(x: torch.Tensor, outputs: Sizes) -> object:
    """Windows of one size are a pool."""
    sizes, outputs = x.shape[-2:], _each(outputs, 2)
    if not any(size % count for size, count in zip(sizes, outputs, strict=True)):
        kernel = [size // count for size, count in zip(sizes, outputs, strict=True)]
        return aten.max_pool2d_with_indices(x, kernel, kernel)
    return _largest(x, outputs)


@mend(aten.adaptive_max_pool3d.default)
def _adaptive_max_pool3d(x: torch.Tensor, outputs: Sizes) -> object:
    return _largest(x, _each(outputs, 3))


@mend(aten._adaptive_avg_pool2d.default)
def _adaptive_avg_pool2d(x: torch.Tensor, outputs: Sizes) -> object:
    """Windows of one size are left to the importer, which has a pool for them."""
    outputs = _each(outputs, 2)
    if not any(size % count for size, count in zip(x.shape[-2:], outputs, strict=True)):
        return NotImplemented
    return _means(x, outputs)


@mend(aten._adaptive_avg_pool3d.default)
def _adaptive_avg_pool3d(x: torch.Tensor, outputs: Sizes) -> torch.Tensor:
    return _means(x, _each(outputs, 3))


def _means(x: torch.Tensor, outputs: Sizes) -> torch.Tensor:
    """The mean of each window, one dimension after the other; half precision is rounded once."""
    dtype = x.dtype
    x = x.to(torch.promote_types(dtype, torch.float32))
    for dim, count in enumerate(outputs, x.dim() - len(outputs)):
        size = x.shape[dim]
        if size % count == 0:
            x = x.unflatten(dim, (count, size // count)).mean(dim + 1)
            continue
        places, inside = _windows(size, count)
        picked = x.index_select(dim, places.flatten()).unflatten(dim, places.shape)
        own = (-1, places.shape[1], *[1] * (x.dim() - 1 - dim))
        total = torch.where(inside.view(own), picked, 0).sum(dim + 1)
        x = total / inside.sum(1).view(own[:1] + own[2:]).to(x.dtype)
    return x.to(dtype)


def _largest(x: torch.Tensor, outputs: Sizes) -> tuple[torch.Tensor, torch.Tensor]:
    """The largest of each window and where they stand. Elements are laid out window by window:
    windows of fewer than the most elements repeat their last one."""
    rank, picked = len(outputs), x
    outer = x.dim() - rank
    places, shape = torch.zeros((1, 1), dtype=torch.int64), list(x.shape[:outer])
    for dim, count in enumerate(outputs, outer):
        own, _ = _windows(x.shape[dim], count)
        picked = picked.index_select(dim, own.flatten())
        shape += own.shape
        every = places[:, None, :, None] * x.shape[dim] + own[None, :, None, :]
        places = every.flatten(2).flatten(0, 1)
    by_window = [*range(outer), *range(outer, len(shape), 2), *range(outer + 1, len(shape), 2)]
    values, best = picked.reshape(shape).permute(by_window).flatten(-rank).max(-1)
    places = places.reshape(*outputs, -1).expand(*best.shape, -1)
    return values, places.gather(-1, best.unsqueeze(-1)).squeeze(-1)


def _windows(size: int, outputs: int) -> tuple[torch.Tensor, torch.Tensor]:
    """[outputs, most elements of a window]: the places of its elements along a dimension, and
    whether there are so many; its last one is repeated where not."""
    numbers = torch.arange(outputs)
    begin = torch.div(numbers * size, outputs, rounding_mode="floor")
    end = torch.div((numbers + 1) * size + outputs - 1, outputs, rounding_mode="floor")
    most = max(-(-(n + 1) * size // outputs) - n * size // outputs for n in range(outputs))
    places = begin[:, None] + torch.arange(most)
    return torch.minimum(places, end[:, None] - 1), places < end[:, None]


def _each(sizes: Sizes, count: int) -> list[int]:
    return list(sizes) * count if len(sizes) == 1 else list(sizes)
