"""Gradients of pooling."""

# pyright: reportMissingImports=false
from __future__ import annotations

import functools
from collections.abc import Sequence

import torch

from stepwell.frontends.torch.decompositions.pooling import window_counts
from stepwell.frontends.torch.decompositions.registry import mend

aten = torch.ops.aten

Sizes = Sequence[int]


def _to_places(
    gradient: torch.Tensor, x: torch.Tensor, places: torch.Tensor, count: int
) -> torch.Tensor:
    """The gradient of what has been taken from `places` in the last `count` dimensions of `x`."""
    flat = torch.zeros_like(x.flatten(-count))
    found = flat.scatter_add(-1, places.flatten(-count), gradient.flatten(-count))
    return found.reshape(x.shape)


@mend(aten.max_pool2d_with_indices_backward.default)
def _max_pool2d(
    gradient: torch.Tensor,
    x: torch.Tensor,
    kernel: Sizes,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    ceil_mode: bool,
    places: torch.Tensor,
) -> torch.Tensor:
    return _to_places(gradient, x, places, 2)


@mend(aten.max_pool3d_with_indices_backward.default)
def _max_pool3d(
    gradient: torch.Tensor,
    x: torch.Tensor,
    kernel: Sizes,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    ceil_mode: bool,
    places: torch.Tensor,
) -> torch.Tensor:
    return _to_places(gradient, x, places, 3)


@mend(aten.adaptive_max_pool2d_backward.default)
def _adaptive_max_pool2d(
    gradient: torch.Tensor, x: torch.Tensor, places: torch.Tensor
) -> torch.Tensor:
    return _to_places(gradient, x, places, 2)


@mend(aten.adaptive_max_pool3d_backward.default)
def _adaptive_max_pool3d(
    gradient: torch.Tensor, x: torch.Tensor, places: torch.Tensor
) -> torch.Tensor:
    return _to_places(gradient, x, places, 3)


def _avg_pool(
    count: int,
    gradient: torch.Tensor,
    x: torch.Tensor,
    kernel: Sizes,
    stride: Sizes,
    padding: Sizes,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor_override: int | None,
) -> torch.Tensor:
    """A convolution, transposed, with ones, of what each element of a window is given."""
    kernel, stride, padding = (_each(v, count) for v in (kernel, stride or kernel, padding))
    sizes, outputs = x.shape[-count:], gradient.shape[-count:]
    if divisor_override is None:
        divisor = torch.ones([], dtype=x.dtype)
        for d in range(count):
            counts = window_counts(
                sizes[d], kernel[d], stride[d], padding[d], outputs[d], count_include_pad
            )
            divisor = divisor * counts.to(x.dtype).view([-1] + [1] * (count - 1 - d))
    else:
        divisor = torch.full((), divisor_override, dtype=x.dtype)
    each = (gradient / divisor).reshape(-1, 1, *outputs)
    ones, zeros = torch.ones(1, 1, *kernel, dtype=x.dtype), [0] * count
    found = aten.convolution(each, ones, None, stride, zeros, [1] * count, True, zeros, 1)
    for d, dim in enumerate(range(2, 2 + count)):
        behind = padding[d] + sizes[d] - found.shape[dim]
        if behind > 0:
            found = aten.constant_pad_nd(found, [0, 0] * (count - 1 - d) + [0, behind], 0.0)
        found = found.narrow(dim, padding[d], sizes[d])
    return found.reshape(x.shape)


for _rank, _backward in ((2, aten.avg_pool2d_backward), (3, aten.avg_pool3d_backward)):
    mend(_backward.default)(functools.partial(_avg_pool, _rank))


def _adaptive_avg_pool(count: int, gradient: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Products with the matrices of the means along each dimension."""
    for dim in range(-count, 0):
        means = _means(x.shape[dim], gradient.shape[dim]).to(x.dtype)
        gradient = (gradient.transpose(dim, -1) @ means).transpose(dim, -1)
    return gradient


mend(aten._adaptive_avg_pool2d_backward.default)(functools.partial(_adaptive_avg_pool, 2))
mend(aten._adaptive_avg_pool3d_backward.default)(functools.partial(_adaptive_avg_pool, 3))


def _means(size: int, outputs: int) -> torch.Tensor:
    """[outputs, size]: the part that an element has in each mean."""
    number, place = torch.arange(outputs).unsqueeze(1), torch.arange(size)
    begin = torch.div(number * size, outputs, rounding_mode="floor")
    end = -torch.div(-(number + 1) * size, outputs, rounding_mode="floor")
    inside = (place >= begin) & (place < end)
    return inside / (end - begin)


def _each(sizes: Sizes, count: int) -> list[int]:
    return list(sizes) * count if len(sizes) == 1 else list(sizes)
