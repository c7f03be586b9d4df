"""Gradients of padding by what stands at the edge."""

# pyright: reportMissingImports=false
from __future__ import annotations

from collections.abc import Sequence

import torch

from stepwell.frontends.torch.decompositions.registry import mend

aten = torch.ops.aten


@mend(
    aten.replication_pad1d_backward.default,
    aten.replication_pad2d_backward.default,
    aten.replication_pad3d_backward.default,
)
def _replication_pad(
    gradient: torch.Tensor, x: torch.Tensor, padding: Sequence[int]
) -> torch.Tensor:
    """Elements of the padding add to the one at the edge, one dimension after the other."""
    for number, before in enumerate(padding[::2]):
        dim = x.dim() - 1 - number
        size = x.shape[dim]
        places = (torch.arange(gradient.shape[dim]) - before).clamp(0, size - 1)
        shape = [*gradient.shape]
        shape[dim] = size
        gradient = gradient.new_zeros(shape).index_add(dim, places, gradient)
    return gradient
