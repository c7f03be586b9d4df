"""Transposed convolutions with holes, and gradients of convolutions, as convolutions."""

# pyright: reportMissingImports=false
from __future__ import annotations

from collections.abc import Sequence

import torch

from stepwell.frontends.torch.decompositions.registry import mend

aten = torch.ops.aten

Sizes = Sequence[int]


@mend(aten.convolution.default)
def _convolution(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    transposed: bool,
    output_padding: Sizes,
    groups: int,
) -> object:
    """Of transposed ones with holes and more rows or columns at the end, or more of one than of the
    other, the importer mistakes the shape. What padding takes off is cut off here, or less where
    there is to be more."""
    equal = len({*output_padding}) == 1
    if not transposed or not any(output_padding) or (equal and all(d == 1 for d in dilation)):
        return NotImplemented
    count = weight.dim() - 2
    zeros = [0] * count
    whole = aten.convolution(x, weight, None, stride, zeros, dilation, True, zeros, groups)
    sides: list[int] = []
    for pad, more in zip(_each(padding, count), _each(output_padding, count), strict=True):
        sides = [-pad, more - pad, *sides]
    found = aten.constant_pad_nd(whole, sides, 0.0)
    return found if bias is None else found + bias.reshape([-1] + [1] * count)


@mend(aten.convolution_backward.default)
def _convolution_backward(
    gradient: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    bias_sizes: Sizes | None,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    transposed: bool,
    output_padding: Sizes,
    groups: int,
    output_mask: Sequence[bool],
) -> object:
    """Those of two dimensions without groups, dilation and transposition have a lowering. It counts
    on a number for each dimension, and on as many rows as columns that no window covers."""
    count = weight.dim() - 2
    padded = len(padding) == count
    stride, padding, dilation = (_each(v, count) for v in (stride, padding, dilation))
    rests = [0] * count
    if not transposed:
        rests = [
            size - ((out - 1) * s - 2 * p + d * (k - 1) + 1)
            for size, out, k, s, p, d in zip(
                x.shape[2:],
                gradient.shape[2:],
                weight.shape[2:],
                stride,
                padding,
                dilation,
                strict=True,
            )
        ]
    plain = count == 2 and groups == 1 and not transposed and dilation == [1, 1]
    if plain and padded and rests[0] == rests[1]:
        return NotImplemented
    of_x = of_weight = of_bias = None
    if output_mask[0]:
        of_x = aten.convolution(
            gradient, weight, None, stride, padding, dilation, not transposed, rests, groups
        )
        for dim, size in enumerate(x.shape[2:], 2):  # output_padding may be room for more
            of_x = of_x.narrow(dim, 0, size)
    if output_mask[1]:
        source, other = (gradient, x) if transposed else (x, gradient)
        of_weight = _of_weight(source, other, weight.shape[2:], stride, padding, dilation, groups)
    if output_mask[2]:
        of_bias = gradient.sum([0, *range(2, gradient.dim())])
    return of_x, of_weight, of_bias


def _of_weight(
    x: torch.Tensor,
    gradient: torch.Tensor,
    window: Sizes,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
    groups: int,
) -> torch.Tensor:
    """Sums of the batch are those of a convolution's channels: stride and dilation change roles."""
    channels = x.shape[1]
    x = x.unflatten(1, (groups, channels // groups)).permute(2, 1, 0, *range(3, x.dim() + 1))
    x = x.flatten(1, 2)
    gradient = gradient.transpose(0, 1)
    zeros = [0] * len(window)
    found = aten.convolution(x, gradient, None, dilation, padding, stride, False, zeros, groups)
    for dim, size in enumerate(window, 2):
        found = found.narrow(dim, 0, size)
    return found.transpose(0, 1)


def _each(sizes: Sizes, count: int) -> list[int]:
    return list(sizes) * count if len(sizes) == 1 else list(sizes)
