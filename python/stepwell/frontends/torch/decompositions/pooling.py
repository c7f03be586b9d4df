"""Pooling: windows that reach beyond the padded input (`ceil_mode`), places of the largest."""

# pyright: reportMissingImports=false
from __future__ import annotations

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
    """The largest of the elements at one place of each window."""
    if ceil_mode:
        return NotImplemented
    kernel, stride = _each(kernel, 3), _each(stride or kernel, 3)
    padding, dilation = _each(padding, 3), _each(dilation, 3)
    sizes = x.shape[-3:]
    outputs = [
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, s, p, d in zip(sizes, kernel, stride, padding, dilation, strict=True)
    ]
    pads = [p for pad in reversed(padding) for p in (pad, pad)]
    padded = aten.constant_pad_nd(x, pads, _lowest(x.dtype)) if any(padding) else x
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
    every = torch.stack(places).reshape(len(places), *[1] * (x.dim() - 3), *outputs)
    return values, every.expand(-1, *values.shape).gather(0, best.unsqueeze(0)).squeeze(0)


@mend(aten.adaptive_max_pool2d.default)
def _adaptive_max_pool2d(x: torch.Tensor, outputs: Sizes) -> object:
    """Windows of one size are a pool. Of others, elements are laid out window by window: windows
    of fewer than the most elements repeat their last one."""
    sizes, outputs = x.shape[-2:], _each(outputs)
    if not any(size % count for size, count in zip(sizes, outputs, strict=True)):
        kernel = [size // count for size, count in zip(sizes, outputs, strict=True)]
        return aten.max_pool2d_with_indices(x, kernel, kernel)
    rows, columns = (_adaptive_windows(*pair) for pair in zip(sizes, outputs, strict=True))
    picked = x.index_select(-2, rows.flatten()).index_select(-1, columns.flatten())
    windows = picked.reshape(*x.shape[:-2], *rows.shape, *columns.shape).transpose(-2, -3)
    values, best = windows.flatten(-2).max(-1)
    places = rows[:, None, :, None] * sizes[1] + columns[None, :, None, :]
    every = places.flatten(-2).expand(*best.shape, -1)
    return values, every.gather(-1, best.unsqueeze(-1)).squeeze(-1)


def _adaptive_windows(size: int, outputs: int) -> torch.Tensor:
    """[outputs, most elements of a window]: the places of its elements along a dimension."""
    numbers = torch.arange(outputs)
    begin = torch.div(numbers * size, outputs, rounding_mode="floor")
    end = torch.div((numbers + 1) * size + outputs - 1, outputs, rounding_mode="floor")
    most = max(-(-(n + 1) * size // outputs) - n * size // outputs for n in range(outputs))
    return torch.minimum(begin[:, None] + torch.arange(most), end[:, None] - 1)


@mend(aten.avg_pool2d.default)
def _avg_pool2d(
    x: torch.Tensor,
    kernel: Sizes,
    stride: Sizes = (),
    padding: Sizes = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> torch.Tensor:
    if not ceil_mode:
        return NotImplemented
    kernel, stride, padding = _each(kernel), _each(stride or kernel), _each(padding)
    padded, outputs = _padded(x, kernel, stride, padding, 0.0)
    total = aten.avg_pool2d(padded, kernel, stride) * math.prod(kernel)
    if divisor_override is not None:
        return total / divisor_override
    counts = [
        window_counts(
            x.shape[d - 2], kernel[d], stride[d], padding[d], outputs[d], count_include_pad
        )
        for d in range(2)
    ]
    return total / (counts[0].unsqueeze(1) * counts[1]).to(x.dtype)


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
    x: torch.Tensor, reach: Sizes, stride: Sizes, padding: Sizes, value: float
) -> tuple[torch.Tensor, list[int]]:
    """`x` padded until all windows lie inside, and how many windows there are; a window has to
    begin inside the input or the padding before it."""
    pads: list[int] = []
    outputs: list[int] = []
    for size, window, step, pad in zip(x.shape[-2:], reach, stride, padding, strict=True):
        count = -(-(size + 2 * pad - window) // step) + 1
        if (count - 1) * step >= size + pad:
            count -= 1
        outputs.append(count)
        pads = [pad, max((count - 1) * step + window - size - pad, 0), *pads]
    return aten.constant_pad_nd(x, pads, value), outputs


def _each(sizes: Sizes, count: int = 2) -> list[int]:
    return list(sizes) * count if len(sizes) == 1 else list(sizes)


def _lowest(dtype: torch.dtype) -> float:
    return float("-inf") if dtype.is_floating_point else torch.iinfo(dtype).min
