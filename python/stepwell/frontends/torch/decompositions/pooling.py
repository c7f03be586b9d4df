"""Pooling whose last windows reach beyond the padded input (`ceil_mode`)."""

# pyright: reportMissingImports=false
from __future__ import annotations

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
    if not ceil_mode:
        return NotImplemented
    kernel, stride = _each(kernel), _each(stride or kernel)
    padding, dilation = _each(padding), _each(dilation)
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
    padded, _ = _padded(x, reach, stride, padding, _lowest(x.dtype))
    values, flat = aten.max_pool2d_with_indices(padded, kernel, stride, [0, 0], dilation)
    row = torch.div(flat, padded.shape[-1], rounding_mode="trunc") - padding[0]
    column = flat % padded.shape[-1] - padding[1]
    return values, row * x.shape[-1] + column


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
        _counts(x.shape[d - 2], kernel[d], stride[d], padding[d], outputs[d], count_include_pad)
        for d in range(2)
    ]
    return total / (counts[0].unsqueeze(1) * counts[1]).to(x.dtype)


def _counts(
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


def _each(sizes: Sizes) -> list[int]:
    return list(sizes) * 2 if len(sizes) == 1 else list(sizes)


def _lowest(dtype: torch.dtype) -> float:
    return float("-inf") if dtype.is_floating_point else torch.iinfo(dtype).min
