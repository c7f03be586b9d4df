"""Reading and writing by index."""

# pyright: reportMissingImports=false
from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch.fx.experimental.symbolic_shapes import guard_or_false

from stepwell.frontends.torch.decompositions.registry import itself, mend
from stepwell.frontends.torch.memory_order import inverse

aten = torch.ops.aten

Indices = Sequence[torch.Tensor | None]


@mend(aten.index.Tensor, aten._unsafe_index.Tensor)
def _index(x: torch.Tensor, indices: Indices) -> object:
    """The importer takes indices to be positive."""
    if _has_mask(indices):
        return NotImplemented
    return itself(aten.index.Tensor, x, _from_the_beginning(x, indices))


@mend(aten.index_put.default, aten._unsafe_index_put.default)
def _index_put(
    x: torch.Tensor, indices: Indices, values: torch.Tensor, accumulate: bool = False
) -> object:
    """The importer takes indices to be positive, and has no masks."""
    if not _has_mask(indices):
        indexed = [dim for dim, index in enumerate(indices) if index is not None]
        if indexed and indexed[-1] - indexed[0] >= len(indexed):  # the importer has them in a row
            order = [*indexed, *(dim for dim in range(x.dim()) if dim not in indexed)]
            found = torch.index_put(
                x.permute(order), [indices[d] for d in indexed], values, accumulate
            )
            return found.permute(inverse(order))
        positive = _from_the_beginning(x, indices)
        return itself(aten.index_put.default, x, positive, values, accumulate)
    mask = indices[0]
    if len(indices) != 1 or mask is None:
        return NotImplemented
    rest = x.dim() - mask.dim()
    mask = mask.view([*mask.shape, *[1] * rest]).to(torch.bool)
    if values.dim() <= rest or guard_or_false(values.shape[0] == 1):  # the same for all places
        value = values.reshape(values.shape[-rest:] if rest else ()).to(x.dtype)
        return torch.where(mask, x + value if accumulate else value, x)
    each = values.expand(values.shape[0], *x.shape[x.dim() - rest :]).to(x.dtype)
    start = torch.zeros_like(x) if accumulate else x
    put = torch.masked_scatter(start, mask, each)
    return x + put if accumulate else put


def _has_mask(indices: Indices) -> bool:
    return any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in indices)


def _from_the_beginning(x: torch.Tensor, indices: Indices) -> list[torch.Tensor | None]:
    """The indices, with those that count from the end made to count from the beginning."""
    sizes = x.shape
    return [
        None if index is None else torch.where(index < 0, index + sizes[dim], index)
        for dim, index in enumerate(indices)
    ]


_FEW_BOUNDARIES = 64
"""So many are compared with each value."""


@mend(aten.searchsorted.Tensor)
def _searchsorted(
    boundaries: torch.Tensor,
    values: torch.Tensor,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: torch.Tensor | None = None,
) -> torch.Tensor:
    """As many boundaries as lie before a value; all of them before NaN."""
    if sorter is not None:
        boundaries = torch.gather(boundaries, -1, sorter)
    behind = torch.gt if right or side == "right" else torch.ge
    kind = torch.int32 if out_int32 else torch.int64
    count = boundaries.shape[-1]
    if guard_or_false(count > _FEW_BOUNDARIES):
        return _bisected(boundaries, values, behind).to(kind)
    lined = boundaries if boundaries.dim() == 1 else boundaries.unsqueeze(-2)
    return (~behind(lined, values.unsqueeze(-1))).sum(-1).to(kind)


def _bisected(
    boundaries: torch.Tensor,
    values: torch.Tensor,
    behind: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
) -> torch.Tensor:
    """The same by halves: from the highest bit on, a number is as large as it may be."""
    count = boundaries.shape[-1]
    number = torch.zeros(values.shape, dtype=torch.int64)
    for bit in reversed(range(count.bit_length())):
        larger = number + (1 << bit)
        place = (larger - 1).clamp(max=count - 1)
        if boundaries.dim() == 1:
            last = boundaries.index_select(0, place.flatten()).view(values.shape)
        else:
            last = boundaries.gather(-1, place)
        number = torch.where((larger <= count) & ~behind(last, values), larger, number)
    return number


@mend(aten.searchsorted.Scalar)
def _searchsorted_of_number(
    boundaries: torch.Tensor, value: float, **how: bool | str | torch.Tensor | None
) -> torch.Tensor:
    values = torch.full((), value, dtype=torch.result_type(boundaries, value))
    return aten.searchsorted.Tensor(boundaries, values, **how)


@mend(aten.take.default)
def _take(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    return x.reshape(-1)[index.reshape(-1)].reshape(index.shape)


_REDUCTIONS = {"add": "sum", "multiply": "prod"}


@mend(aten.scatter.reduce)
def _scatter_with(
    x: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, *, reduce: str
) -> torch.Tensor:
    return x.scatter_reduce(dim, index, source, _REDUCTIONS[reduce])


@mend(aten.scatter.value_reduce)
def _scatter_number_with(
    x: torch.Tensor, dim: int, index: torch.Tensor, value: float, *, reduce: str
) -> torch.Tensor:
    source = torch.full(index.shape, value, dtype=x.dtype)
    return x.scatter_reduce(dim, index, source, _REDUCTIONS[reduce])


@mend(aten.index_reduce.default)
def _index_reduce(
    x: torch.Tensor,
    dim: int,
    index: torch.Tensor,
    source: torch.Tensor,
    reduce: str,
    *,
    include_self: bool = True,
) -> torch.Tensor:
    """Whole slices go where scatter_reduce has an element each go."""
    shape = [-1 if d == dim % x.dim() else 1 for d in range(x.dim())]
    places = index.reshape(shape).expand(source.shape)
    return x.scatter_reduce(dim, places, source, reduce, include_self=include_self)


@mend(aten.put.default)
def _put(
    x: torch.Tensor, index: torch.Tensor, source: torch.Tensor, accumulate: bool = False
) -> torch.Tensor:
    flat = torch.index_put(x.reshape(-1), (index.reshape(-1),), source.reshape(-1), accumulate)
    return flat.reshape(x.shape)


@mend(aten.nonzero_static.default)
def _nonzero_static(x: torch.Tensor, *, size: int, fill_value: int = -1) -> torch.Tensor:
    """The first `size` places, in order: as many elements that are not zero as lie before tell the
    row of each."""
    if not x.numel():
        return torch.full((size, x.dim()), fill_value, dtype=torch.int64)
    flat = (x != 0).reshape(-1)
    rank = flat.to(torch.int64).cumsum(0) - 1
    rows = torch.where(flat & (rank < size), rank, size)
    numbers = torch.full((size + 1,), -1, dtype=torch.int64)
    numbers = numbers.scatter(0, rows, torch.arange(flat.shape[0]))[:size]
    columns, rest = [], numbers
    for length in reversed(x.shape):
        columns.append(rest % length)
        rest = torch.div(rest, length, rounding_mode="floor")
    if not columns:
        return torch.zeros(size, 0, dtype=torch.int64)
    places = torch.stack(columns[::-1], 1)
    return torch.where((numbers >= 0).unsqueeze(1), places, fill_value)


@mend(aten.masked_scatter.default)
def _masked_scatter(x: torch.Tensor, mask: torch.Tensor, source: torch.Tensor) -> object:
    """The importer does not broadcast `x`."""
    shape = torch.broadcast_shapes(x.shape, mask.shape)
    return itself(aten.masked_scatter.default, x.expand(shape), mask.expand(shape), source)


@mend(aten.masked_scatter_backward.default)
def _masked_scatter_backward(
    gradient: torch.Tensor, mask: torch.Tensor, size: Sequence[int]
) -> torch.Tensor:
    """Of the source, whose elements went to the places of the mask one after the other; places
    without one are added up behind its end."""
    mask = mask.expand(gradient.shape).flatten()
    count = torch.Size(size).numel()
    place = torch.where(mask, mask.cumsum(0) - 1, count)
    zeros = torch.zeros(count + 1, dtype=gradient.dtype)
    return zeros.index_add(0, place, gradient.flatten())[:count].reshape(size)
