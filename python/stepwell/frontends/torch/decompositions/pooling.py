"""Pooling: windows that reach beyond the padded input (`ceil_mode`), places of the largest."""

# pyright: reportMissingImports=false
from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence

import torch

from stepwell.frontends.torch.decompositions.registry import mend

aten = torch.ops.aten

Sizes = Sequence[int]


@mend(aten.max_pool2d_with_indices.default)
def _max_pool2d(
    x: torch.Tensor,
    kernel: Sizes,
    stride: Sizes = (),
    padding: Sizes = (0,),
    dilation: Sizes = (1,),
    ceil_mode: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    if not ceil_mode and stride:
        return NotImplemented
    kernel, stride = _each(kernel), _each(stride or kernel)
    padding, dilation = _each(padding), _each(dilation)
    if not ceil_mode:
        return aten.max_pool2d_with_indices(x, kernel, stride, padding, dilation)
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
    padded, _ = _padded(x, reach, stride, padding, _lowest(x.dtype))
    values, flat = aten.max_pool2d_with_indices(padded, kernel, stride, [0, 0], dilation)
    row = torch.div(flat, padded.shape[-1], rounding_mode="trunc") - padding[0]
    column = flat % padded.shape[-1] - padding[1]
    return values, row * x.shape[-1] + column


@mend(aten.max_pool3d_with_indices.default)
def _max_pool3d(
    x: torch.Tensor,
    kernel: Sizes,
    stride: Sizes = (),
    padding: Sizes = (0,),
    dilation: Sizes = (1,),
    ceil_mode: bool = False,
) -> object:
    """The places are those of the largest of the elements at one place of each window."""
    kernel, stride = _each(kernel, 3), _each(stride or kernel, 3)
    padding, dilation = _each(padding, 3), _each(dilation, 3)
    sizes = x.shape[-3:]
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
    padded, outputs = _padded(x, reach, stride, padding, _lowest(x.dtype), ceil_mode)
    parts, places = [], []
    for offsets in itertools.product(*map(range, kernel)):
        part, place = padded, torch.zeros([], dtype=torch.int64)
        for d, offset in enumerate(offsets):
            begin = offset * dilation[d]
            part = part[
                (..., slice(begin, begin + (outputs[d] - 1) * stride[d] + 1, stride[d]))
                + (slice(None),) * (2 - d)
            ]
            row = torch.arange(outputs[d]) * stride[d] + begin - padding[d]
            place = place * sizes[d] + row.view([-1] + [1] * (2 - d))
        parts.append(part)
        places.append(place.expand(outputs))
    values, best = torch.stack(parts).max(0)
    if x.is_floating_point():
        values = _largest(padded, kernel, stride, dilation)
    every = torch.stack(places).reshape(len(places), *[1] * (x.dim() - 3), *outputs)
    return values, every.expand(-1, *values.shape).gather(0, best.unsqueeze(0)).squeeze(0)


def _largest(x: torch.Tensor, kernel: Sizes, stride: Sizes, dilation: Sizes) -> torch.Tensor:
    """The largest of each window of three dimensions: of those of its rows and columns, along its
    depth. Channels are the second dimension of both poolings."""
    images = x.transpose(-4, -3)
    deep, *flat = zip(kernel, stride, [0] * 3, dilation, strict=True)
    found, _ = aten.max_pool2d_with_indices(
        images.reshape(-1, *images.shape[-3:]), *map(list, zip(*flat, strict=True))
    )
    rows, columns = found.shape[-2:]
    found = found.reshape(*images.shape[:-2], rows * columns).transpose(-3, -2)
    if deep[:2] == (1, 1):
        return found.reshape(*found.shape[:-1], rows, columns)
    along = zip(deep, (1, 1, 0, 1), strict=True)
    found, _ = aten.max_pool2d_with_indices(found, *map(list, along))
    return found.reshape(*found.shape[:-1], rows, columns)


def _average_pool(
    pool: torch._ops.OpOverloadPacket,
    rank: int,
    x: torch.Tensor,
    kernel: Sizes,
    stride: Sizes = (),
    padding: Sizes = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> object:
    if not ceil_mode and divisor_override is None:
        return NotImplemented
    sizes = [_each(part, rank) for part in (kernel, stride or kernel, padding)]
    return _means(pool, x, sizes, ceil_mode, count_include_pad, divisor_override)


for _rank, _pool in ((2, aten.avg_pool2d), (3, aten.avg_pool3d)):
    mend(_pool.default)(functools.partial(_average_pool, _pool, _rank))


def _means(
    pool: torch._ops.OpOverloadPacket,
    x: torch.Tensor,
    sizes: Sequence[Sizes],
    ceil_mode: bool,
    with_padding: bool,
    divisor: int | None,
) -> torch.Tensor:
    """Sums by `pool`, which knows neither `ceil_mode` nor divisors, divided by what counts; the
    kernel's `sizes`, its strides, and the padding."""
    kernel, stride, padding = sizes
    padded, outputs = _padded(x, kernel, stride, padding, 0.0, ceil_mode)
    wide = padded if x.dtype.is_floating_point else padded.to(torch.float64)
    total = pool(wide, kernel, stride) * math.prod(kernel)
    if divisor is not None:
        return _divided(total, torch.full((), divisor), x.dtype)
    counts, rank = torch.ones((), dtype=torch.int64), len(kernel)
    for d, size in enumerate(x.shape[-rank:]):
        along = window_counts(size, kernel[d], stride[d], padding[d], outputs[d], with_padding)
        counts = counts.unsqueeze(-1) * along
    return _divided(total, counts, x.dtype)


def _divided(total: torch.Tensor, counts: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """In `dtype`; of integers towards zero."""
    if dtype.is_floating_point:
        return total / counts.to(dtype)
    return torch.div(total.round().to(dtype), counts.to(dtype), rounding_mode="trunc")


def window_counts(
    size: int, kernel: int, stride: int, padding: int, outputs: int, with_padding: bool
) -> torch.Tensor:
    """How many elements each window of a dimension has that count."""
    begin = torch.arange(outputs) * stride - padding
    end = (begin + kernel).clamp(max=size + padding)
    if not with_padding:
        begin, end = begin.clamp(min=0), end.clamp(max=size)
    return end - begin


def _padded(
    x: torch.Tensor,
    reach: Sizes,
    stride: Sizes,
    padding: Sizes,
    value: float,
    ceil_mode: bool = True,
) -> tuple[torch.Tensor, list[int]]:
    """`x` padded until all windows lie inside, and how many windows there are; with `ceil_mode`, a
    window has to begin inside the input or the padding before it, else to lie in both."""
    pads: list[int] = []
    outputs: list[int] = []
    for size, window, step, pad in zip(x.shape[-len(reach) :], reach, stride, padding, strict=True):
        room = size + 2 * pad - window
        count = (-(-room // step) if ceil_mode else room // step) + 1
        if ceil_mode and (count - 1) * step >= size + pad:
            count -= 1
        outputs.append(count)
        pads = [pad, max((count - 1) * step + window - size - pad, 0), *pads]
    # By nothing, too, for sizes that have all windows inside: another size has not.
    return aten.constant_pad_nd(x, pads, value) if any(pads) or ceil_mode else x, outputs


def _each(sizes: Sizes, count: int = 2) -> list[int]:
    return list(sizes) * count if len(sizes) == 1 else list(sizes)


def _lowest(dtype: torch.dtype) -> float:
    return float("-inf") if dtype.is_floating_point else torch.iinfo(dtype).min


_MOST_TAPS = 64
"""Of a kernel whose elements are put in their places one after the other."""


@mend(aten.col2im.default)
def _col2im(
    x: torch.Tensor, size: Sizes, kernel: Sizes, dilation: Sizes, padding: Sizes, stride: Sizes
) -> object:
    """`x` [N, C * kernel, blocks]: for each element of the kernel, what all blocks have there,
    moved to its place and added."""
    taps = math.prod(kernel)
    if taps > _MOST_TAPS:
        return NotImplemented
    sides = [n + 2 * pad for n, pad in zip(size, padding, strict=True)]
    spans = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
    blocks = [(n - span) // step + 1 for n, span, step in zip(sides, spans, stride, strict=True)]
    parts = x.reshape([*x.shape[:-2], x.shape[-2] // taps, *kernel, *blocks])
    total: torch.Tensor | None = None
    for place in itertools.product(*map(range, kernel)):
        part = parts[(..., *place, slice(None), slice(None))]
        for dim, side in enumerate(sides):
            part = _moved(part, dim - 2, place[dim] * dilation[dim], stride[dim], side)
        total = part if total is None else total + part
    for dim, pad in enumerate(padding):
        total = total.narrow(dim - 2, pad, size[dim])  # pyright: ignore
    return total


def _moved(x: torch.Tensor, dim: int, start: int, step: int, size: int) -> torch.Tensor:
    """Zeros, `size` along `dim`, and at every `step` of them from `start` on those of `x`."""
    count = x.shape[dim]
    if step > 1:
        shape = list(x.shape)
        shape[dim] = size
        end = start + (count - 1) * step + 1
        return torch.zeros(shape, dtype=x.dtype).slice_scatter(x, dim, start, end, step)
    widths = [0] * (-2 * dim)
    widths[-2:] = [start, size - start - count]
    return torch.constant_pad_nd(x, widths)
