"""Sampling of volumes, and of images by bicubic interpolation, at points of a grid, and the
gradients of it and of other sampling of images."""

# pyright: reportMissingImports=false
from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import torch

from stepwell.frontends.torch.decompositions.registry import mend

aten = torch.ops.aten

_BILINEAR, _NEAREST, _BICUBIC = 0, 1, 2
_ZEROS, _BORDER, _REFLECTION = 0, 1, 2


Tensors = Sequence[torch.Tensor]


@mend(aten.grid_sampler_3d.default)
def _grid_sampler_3d(
    x: torch.Tensor, grid: torch.Tensor, interpolation: int, padding: int, align_corners: bool
) -> torch.Tensor:
    """`x` [N, C, D, H, W] at `grid` [N, d, h, w, 3], whose last dimension counts from W to D."""
    return _sampled(x, grid, interpolation, padding, align_corners)


def _sampled(
    x: torch.Tensor, grid: torch.Tensor, interpolation: int, padding: int, align_corners: bool
) -> torch.Tensor:
    """The nearest elements, or those around a place by their shares of it. Half precision has no
    places between the elements of long dimensions, and is rounded once."""
    wide = torch.promote_types(x.dtype, torch.float32)
    places, _ = _places(x.to(wide), grid.to(wide), padding, align_corners)
    if interpolation == _NEAREST:
        return _taken(x, [place.round() for place in places])
    corners = _corners(places)
    found = [_taken(x.to(wide), near) * math.prod(parts) for near, parts, _ in corners]
    return sum(found[1:], found[0]).to(x.dtype)


@mend(aten.grid_sampler_2d.default)
def _grid_sampler_2d(
    x: torch.Tensor, grid: torch.Tensor, interpolation: int, padding: int, align_corners: bool
) -> torch.Tensor:
    """`x` [N, C, H, W] at `grid` [N, h, w, 2]. Sixteen elements as a dimension: PyTorch spells
    them out in more than a thousand operators."""
    if interpolation != _BICUBIC:
        return _sampled(x, grid, interpolation, padding, align_corners)
    wide = torch.promote_types(x.dtype, torch.float32)
    near, parts, _, _ = _sixteen(x, grid.to(wide), padding, align_corners)
    return (_taken(x.to(wide), near) * (parts[0] * parts[1]).unsqueeze(1)).sum(2).to(x.dtype)


@mend(aten.grid_sampler_2d_backward.default, aten.grid_sampler_3d_backward.default)
def _grid_sampler_backward(
    gradient: torch.Tensor,
    x: torch.Tensor,
    grid: torch.Tensor,
    interpolation: int,
    padding: int,
    align_corners: bool,
    output_mask: Sequence[bool],
) -> object:
    """For `x` [N, C, sizes] and `grid`, whose last dimension counts from the last size to the
    first. What the grid gets is the slope along each dimension, and zero for the nearest."""
    if interpolation == _BICUBIC:
        return _bicubic_backward(gradient, x, grid, padding, align_corners, output_mask[0])
    places, slopes = _places(x, grid, padding, align_corners)
    if interpolation == _NEAREST:
        of_x = _given([(gradient, [place.round() for place in places])], x)
        return of_x if output_mask[0] else None, torch.zeros_like(grid)
    given: list[tuple[torch.Tensor, Tensors]] = []
    of_places = [torch.zeros_like(place) for place in places]
    for near, parts, signs in _corners(places):
        given.append((gradient * math.prod(parts), near))
        height = (gradient * _taken(x, near)).sum(1, keepdim=True)
        for dim, sign in enumerate(signs):
            others = math.prod(part for d, part in enumerate(parts) if d != dim)
            of_places[dim] = of_places[dim] + (sign * others * height).squeeze(1)
    of_grid = [slope * there for slope, there in zip(slopes, of_places, strict=True)]
    of_x = _given(given, x) if output_mask[0] else None
    return of_x, torch.stack(of_grid[::-1], -1)


def _places(
    x: torch.Tensor, grid: torch.Tensor, padding: int, align_corners: bool
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Where the points lie among the elements, by dimension of `x`, and how that changes with
    them."""
    sizes = x.shape[2:]
    found = [
        _place(grid[..., len(sizes) - 1 - d], size, padding, align_corners)
        for d, size in enumerate(sizes)
    ]
    return [place for place, _ in found], [slope for _, slope in found]


def _place(
    point: torch.Tensor, size: int, padding: int, align_corners: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Where a point of [-1, 1] lies among the elements of a dimension, and the slope of that."""
    place, scale = _unbounded(point, size, align_corners)
    place, slope = _bounded(place, size, padding, align_corners)
    return place, slope * scale


def _unbounded(point: torch.Tensor, size: int, align_corners: bool) -> tuple[torch.Tensor, float]:
    """Where it lies if elements went on without end, and the slope of that."""
    if align_corners:
        return (point + 1) / 2 * (size - 1), (size - 1) / 2
    return ((point + 1) * size - 1) / 2, size / 2


def _bounded(
    place: torch.Tensor, size: int, padding: int, align_corners: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """The place whose element stands for one at `place`, and the slope of that."""
    slope = torch.ones_like(place)
    if padding == _ZEROS:
        return place, slope
    if padding == _REFLECTION:
        low, high = (0.0, size - 1.0) if align_corners else (-0.5, size - 0.5)
        span = high - low
        if not span:
            return torch.zeros_like(place), torch.zeros_like(place)
        away = place - low
        turns = (away.abs() / span).floor()
        rest = away.abs() - turns * span
        forth = turns % 2 == 0
        place = torch.where(forth, rest, span - rest) + low
        slope = torch.where(forth == (away >= 0), slope, -slope)
    inside = (place > 0) & (place < size - 1)
    return place.clamp(0.0, size - 1.0), torch.where(inside, slope, 0)


def _bicubic_backward(
    gradient: torch.Tensor,
    x: torch.Tensor,
    grid: torch.Tensor,
    padding: int,
    align_corners: bool,
    of_elements: bool,
) -> tuple[torch.Tensor | None, torch.Tensor]:
    near, parts, slopes, scales = _sixteen(x, grid, padding, align_corners)
    height = (gradient.unsqueeze(2) * _taken(x, near)).sum(1)
    of_rows = (height * slopes[0] * parts[1]).sum(1) * scales[0]
    of_columns = (height * parts[0] * slopes[1]).sum(1) * scales[1]
    of_x = None
    if of_elements:
        shares = gradient.unsqueeze(2) * (parts[0] * parts[1]).unsqueeze(1)
        of_x = _given([(shares, near)], x)
    return of_x, torch.stack([of_columns, of_rows], -1)


def _sixteen(
    x: torch.Tensor, grid: torch.Tensor, padding: int, align_corners: bool
) -> tuple[Tensors, list[torch.Tensor], Tensors, Sequence[float]]:
    """The elements around each point, each of which may stand for one that is outside, as a
    dimension behind the batch; by dimension of `x` where they are, the part of each and its slope,
    and how places change with points."""
    near, parts, slopes, scales = [], [], [], []
    for d, size in enumerate(x.shape[2:]):
        place, scale = _unbounded(grid[..., 1 - d], size, align_corners)
        low = place.floor()
        number = torch.arange(-1, 3, dtype=grid.dtype).view(-1, 1, 1)
        taps = low.unsqueeze(1) + number
        each = _bounded(taps, size, padding, align_corners)[0], *_keys(place.unsqueeze(1) - taps)
        spread = [part.unsqueeze(2 - d).expand(-1, 4, 4, -1, -1).flatten(1, 2) for part in each]
        for found, part in zip((near, parts, slopes), spread, strict=True):
            found.append(part)
        scales.append(scale)
    return near, parts, slopes, scales


def _keys(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys' kernel of a = -0.75 (R. Keys, 1981), and its slope."""
    a, far_off = -0.75, x.abs()
    near = ((a + 2) * far_off - (a + 3)) * far_off * far_off + 1
    far = ((a * far_off - 5 * a) * far_off + 8 * a) * far_off - 4 * a
    near_slope = (3 * (a + 2) * far_off - 2 * (a + 3)) * far_off
    far_slope = (3 * a * far_off - 10 * a) * far_off + 8 * a
    slope = torch.where(far_off <= 1, near_slope, far_slope) * x.sign()
    return torch.where(far_off <= 1, near, far), slope


def _corners(places: Tensors) -> Iterator[tuple[list[torch.Tensor], list[torch.Tensor], list[int]]]:
    """The elements around each place; by dimension the part of each, over the channels, and whether
    it grows (1) or shrinks (-1) with the place."""
    lows = [place.floor() for place in places]
    for ends in itertools.product((0, 1), repeat=len(places)):
        parts = [
            (place - low if end else 1 - (place - low)).unsqueeze(1)
            for place, low, end in zip(places, lows, ends, strict=True)
        ]
        near = [low + end for low, end in zip(lows, ends, strict=True)]
        yield near, parts, [1 if end else -1 for end in ends]


def _index(x: torch.Tensor, places: Tensors) -> tuple[torch.Tensor, torch.Tensor]:
    """Of whole places: which are inside, and their numbers among the elements of a channel, the
    nearest for others. Both are those of all channels."""
    inside = torch.ones_like(places[0], dtype=torch.bool)
    flat = torch.zeros_like(places[0], dtype=torch.int64)
    for place, size in zip(places, x.shape[2:], strict=True):
        inside = inside & (place >= 0) & (place < size)
        flat = flat * size + place.clamp(0, size - 1).to(torch.int64)
    return inside, flat


def _taken(x: torch.Tensor, places: Tensors) -> torch.Tensor:
    """Zero outside."""
    inside, index = _index(x, places)
    elements = x.flatten(2).transpose(1, 2)
    first = torch.arange(x.shape[0]).unsqueeze(1) * elements.shape[1]
    found = elements.flatten(0, 1).index_select(0, (first + index.flatten(1)).flatten())
    found = found.unflatten(0, index.shape).movedim(-1, 1)
    return torch.where(inside.unsqueeze(1), found, 0)


def _given(shares: Sequence[tuple[torch.Tensor, Tensors]], x: torch.Tensor) -> torch.Tensor:
    """Values summed at their places, in the shape of `x`; what lies outside is left out."""
    total = torch.zeros_like(x).flatten(2)
    for values, places in shares:
        inside, index = _index(x, places)
        index = index.flatten(1).unsqueeze(1).expand(-1, x.shape[1], -1)
        total = total.scatter_add(2, index, torch.where(inside.unsqueeze(1), values, 0).flatten(2))
    return total.reshape(x.shape)
