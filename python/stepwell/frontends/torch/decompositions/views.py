"""Views, slices and what is put into them."""

# pyright: reportMissingImports=false
from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from stepwell.frontends.torch.decompositions.registry import itself, mend
from stepwell.frontends.torch.memory_order import inverse, memory_order

aten = torch.ops.aten


@mend(aten.view.default)
def _view(x: torch.Tensor, size: Sequence[int]) -> torch.Tensor:
    """Views in an exported graph were right for the strides of an operator (attention) that has
    other ones once it is broken down."""
    if x.is_contiguous():
        return NotImplemented
    return aten._unsafe_view(x.clone(memory_format=torch.contiguous_format), size)


@mend(aten.as_strided.default)
def _as_strided(
    x: torch.Tensor,
    size: Sequence[int],
    stride: Sequence[int],
    storage_offset: int | None = None,
) -> object:
    """One element, without dimensions, is more than the importer can do; complex numbers go as
    pairs. Rows that overlap (the frames of a signal) are made of pieces."""
    if x.dtype.is_complex and x.is_contiguous():
        begin = 0 if storage_offset is None else storage_offset - int(x.storage_offset())
        steps = [*(2 * step for step in stride), 1]
        pairs = torch.view_as_real(x).clone().as_strided([*size, 2], steps, 2 * begin)
        return torch.view_as_complex(pairs)
    if not x.is_contiguous():
        return NotImplemented
    if not len(size):
        return x.reshape(-1).narrow(0, storage_offset or 0, 1).reshape(())
    known = all(isinstance(n, int) for n in (*x.shape, *size, *stride))
    begins = storage_offset is None or storage_offset == x.storage_offset()
    if not known or not begins or len(size) != x.dim() + 1 or x.dim() == 0:
        return NotImplemented
    outer = [*x.shape[:-1]] == [*size[:-2]] and [*x.stride()[:-1]] == [*stride[:-2]]
    if not outer or stride[-1] != 1:
        return NotImplemented
    return _windows(x, size[-2], size[-1], stride[-2])


_MOST_PIECES = 32
"""Of which a window is made."""


def _windows(x: torch.Tensor, count: int, size: int, step: int) -> object:
    """[.., count, size]: windows along the last dimension, `step` apart, made of pieces as long as
    both size and step are multiples of."""
    length = (count - 1) * step + size
    if not all(isinstance(n, int) for n in (*x.shape, count, size, step)) or 0 in (count, step):
        return NotImplemented
    piece = math.gcd(size, step)
    if size // piece > _MOST_PIECES or length > x.shape[-1]:
        return NotImplemented
    pieces = x.narrow(-1, 0, length).unflatten(-1, (length // piece, piece))
    apart = step // piece
    parts = [
        pieces[..., first : first + (count - 1) * apart + 1 : apart, :]
        for first in range(size // piece)
    ]
    return torch.cat(parts, -1)


@mend(aten.slice.Tensor)
def _slice(
    x: torch.Tensor,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> torch.Tensor:
    """A slice without elements has no form for the importer."""
    begin, stop = _bounds(x.shape[dim], start, end)
    if x.numel() == 0 or begin < stop:
        return NotImplemented
    shape = list(x.shape)
    shape[dim] = 0
    return x.new_zeros(shape)


@mend(aten.slice_scatter.default)
def _slice_scatter(
    x: torch.Tensor,
    source: torch.Tensor,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> torch.Tensor:
    size = x.shape[dim]
    begin, stop = _bounds(size, start, end)
    if begin >= stop:
        return x.clone()
    if step == 1:
        parts = [x.narrow(dim, 0, begin), source, x.narrow(dim, stop, size - stop)]
        return torch.cat([part for part in parts if part.shape[dim]], dim)
    position = torch.arange(size) - begin
    inside = (position >= 0) & (position < stop - begin) & (position % step == 0)
    number = torch.div(position, step, rounding_mode="trunc").clamp(0, source.shape[dim] - 1)
    along = [1] * x.dim()
    along[dim] = size
    return torch.where(inside.view(along), source.index_select(dim, number), x)


@mend(aten.roll.default)
def _roll(x: torch.Tensor, shifts: Sequence[int], dims: Sequence[int] = ()) -> torch.Tensor:
    """The importer is right where a shift is neither 0 nor as long as its dimension, which it has
    to have."""
    if not dims:
        return torch.roll(x.flatten(), shifts[0], 0).reshape(x.shape)
    rolled = x
    for shift, dim in zip(shifts, dims, strict=True):
        size = rolled.shape[dim]
        if shift == 0:
            continue
        if not isinstance(size, int):
            found = itself(aten.roll.default, rolled, [shift], [dim])
            assert isinstance(found, torch.Tensor)
            rolled = found
        elif begin := -shift % max(1, size):
            parts = rolled.narrow(dim, begin, size - begin), rolled.narrow(dim, 0, begin)
            rolled = torch.cat(parts, dim)
    return x.clone() if rolled is x else rolled


@mend(aten.diagonal.default)
def _diagonal(x: torch.Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> torch.Tensor:
    """Of rows and columns that lie in one dimension, every element that is a row and a column
    further on."""
    first, second = sorted((dim1 % x.dim(), dim2 % x.dim()))
    offset = offset if first == dim1 % x.dim() else -offset
    moved = x.movedim(second, first + 1)
    rows, columns = moved.shape[first : first + 2]
    row = max(-offset, 0)
    length = max(min(rows - row, columns - max(offset, 0)), 0)
    begin, step = row * (columns + 1) + offset, columns + 1
    flat = moved.flatten(first, first + 1)
    if not length:
        return flat.narrow(first, 0, 0).movedim(first, -1)
    return aten.slice(flat, first, begin, begin + (length - 1) * step + 1, step).movedim(first, -1)


@mend(aten.trace.default)
def _trace(x: torch.Tensor) -> torch.Tensor:
    return torch.diagonal(x).sum()


@mend(aten.diagonal_scatter.default)
def _diagonal_scatter(
    x: torch.Tensor, source: torch.Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> torch.Tensor:
    moved = x.movedim((dim1, dim2), (-2, -1))
    rows, columns = moved.shape[-2:]
    row, column = torch.arange(rows).unsqueeze(1), torch.arange(columns)
    number = (torch.arange(rows) + min(offset, 0)).clamp(0, source.shape[-1] - 1)
    spread = source.index_select(-1, number).unsqueeze(-1)
    return torch.where(column - row == offset, spread, moved).movedim((-2, -1), (dim1, dim2))


@mend(aten.as_strided_scatter.default)
def _as_strided_scatter(
    x: torch.Tensor,
    source: torch.Tensor,
    size: Sequence[int],
    stride: Sequence[int],
    storage_offset: int | None = None,
) -> torch.Tensor:
    """The positions are those in memory, which `x` has to fill without gaps."""
    order = memory_order(x.stride())
    in_memory = x.permute(order)
    if not in_memory.is_contiguous():
        return NotImplemented
    begin = 0 if storage_offset is None else storage_offset - int(x.storage_offset())
    position = torch.full((), begin)
    for length, step in zip(size, stride, strict=True):
        position = position.unsqueeze(-1) + torch.arange(length) * step
    flat = in_memory.reshape(-1).scatter(0, position.reshape(-1), source.reshape(-1))
    return flat.view(in_memory.shape).permute(inverse(order))


@mend(aten.unfold.default)
def _unfold(x: torch.Tensor, dim: int, size: int, step: int) -> torch.Tensor:
    if x.dim() == 0:
        return NotImplemented
    dim %= x.dim()
    count = (x.shape[dim] - size) // step + 1
    windows = _windows(x, count, size, step) if dim == x.dim() - 1 else NotImplemented
    if windows is not NotImplemented:
        return windows
    number = torch.arange(count).unsqueeze(1) * step + torch.arange(size)
    shape = [*x.shape[:dim], count, size, *x.shape[dim + 1 :]]
    return x.index_select(dim, number.reshape(-1)).reshape(shape).movedim(dim + 1, -1)


def _bounds(size: int, start: int | None, end: int | None) -> tuple[int, int]:
    begin = 0 if start is None else start
    stop = size if end is None else end
    begin = begin + size if begin < 0 else begin
    stop = stop + size if stop < 0 else stop
    begin = min(max(begin, 0), size)
    return begin, max(min(stop, size), begin)
