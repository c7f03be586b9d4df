"""Weights as a direction and a length."""

# pyright: reportMissingImports=false
from __future__ import annotations

import torch

from stepwell.frontends.torch.decompositions.registry import mend

aten = torch.ops.aten


@mend(aten._weight_norm_interface_backward.default)
def _weight_norm_backward(
    gradient: torch.Tensor,
    direction: torch.Tensor,
    length: torch.Tensor,
    norms: torch.Tensor,
    dim: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Of `direction / norms * length`, whose norms are taken over all dimensions but `dim`."""
    others = [d for d in range(direction.dim()) if d != dim]
    norms = norms.reshape(length.shape)
    along = (gradient * direction).sum(others, keepdim=True) / norms
    return length / norms * (gradient - direction * along / norms), along
