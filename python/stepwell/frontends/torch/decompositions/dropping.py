"""Dropout, with the random numbers that PyTorch draws for it."""

# pyright: reportMissingImports=false
from __future__ import annotations

import torch

from stepwell.frontends.torch.decompositions.registry import mend
from stepwell.frontends.torch.memory_order import inverse, memory_order

aten = torch.ops.aten


@mend(aten.native_dropout.default)
def _native_dropout(
    x: torch.Tensor, p: float, train: bool | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """PyTorch's own rule compares numbers of another distribution, so that another mask comes of
    a seed. Masks are drawn in the order of memory."""
    if train is False:
        return x.clone(), torch.ones_like(x, dtype=torch.bool)
    order = memory_order(x.stride())
    empty = x.new_empty([x.shape[d] for d in order], dtype=torch.bool)
    mask = aten.bernoulli.p(empty, 1 - p).permute(inverse(order))
    return x * mask * (1 / (1 - p) if p < 1 else 0.0), mask
