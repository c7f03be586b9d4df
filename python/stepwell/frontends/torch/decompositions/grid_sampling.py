"""Sampling of volumes at points of a grid."""

# pyright: reportMissingImports=false
from __future__ import annotations

import itertools

import torch

from stepwell.frontends.torch.decompositions.registry import mend

aten = torch.ops.aten

_BILINEAR, _NEAREST = 0, 1
_ZEROS, _BORDER, _REFLECTION = 0, 1, 2


@mend(aten.grid_sampler_3d.default)
def _grid_sampler_3d(
    x: torch.Tensor, grid: torch.Tensor, interpolation: int, padding: int, align_corners: bool
) -> torch.Tensor:
    """`x` [N, C, D, H, W] at `grid` [N, d, h, w, 3], whose last dimension counts from W to D."""
    sizes = x.shape[2:]
    places = [
        _place(grid[..., 2 - d], size, padding, align_corners) for d, size in enumerate(sizes)
    ]
    if interpolation == _NEAREST:
        return _taken(x, [place.round() for place in places])
    lows = [place.floor() for place in places]
    total = torch.zeros_like(_taken(x, lows))
    for corner in itertools.product((0, 1), repeat=3):
        weight = torch.ones_like(places[0])
        for place, low, end in zip(places, lows, corner, strict=True):
            part = place - low
            weight = weight * (part if end else 1 - part)
        corners = [low + end for low, end in zip(lows, corner, strict=True)]
        total = total + _taken(x, corners) * weight.unsqueeze(1)
    return total


def _place(point: torch.Tensor, size: int, padding: int, align_corners: bool) -> torch.Tensor:
    """Where a point of [-1, 1] lies among the elements of a dimension."""
    if align_corners:
        place, low, high = (point + 1) / 2 * (size - 1), 0.0, size - 1.0
    else:
        place, low, high = ((point + 1) * size - 1) / 2, -0.5, size - 0.5
    if padding == _ZEROS:
        return place
    if padding == _REFLECTION:
        span = high - low
        if not span:
            return torch.zeros_like(place)
        away = (place - low).abs()
        turns = (away / span).floor()
        rest = away - turns * span
        place = torch.where(turns % 2 == 0, rest, span - rest) + low
    return place.clamp(0.0, size - 1.0)


def _taken(x: torch.Tensor, places: list[torch.Tensor]) -> torch.Tensor:
    """Zero outside."""
    batch, channels, *sizes = x.shape
    inside = torch.ones_like(places[0], dtype=torch.bool)
    flat = torch.zeros_like(places[0], dtype=torch.int64)
    for place, size in zip(places, sizes, strict=True):
        inside = inside & (place >= 0) & (place < size)
        flat = flat * size + place.clamp(0, size - 1).to(torch.int64)
    index = flat.reshape(batch, 1, -1).expand(-1, channels, -1)
    found = x.flatten(2).gather(2, index).reshape(batch, channels, *places[0].shape[1:])
    return torch.where(inside.unsqueeze(1), found, 0)
