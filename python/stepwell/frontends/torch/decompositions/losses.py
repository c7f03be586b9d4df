"""Losses whose own decomposition differs from their kernel."""

# pyright: reportMissingImports=false
from __future__ import annotations

import torch

from stepwell.frontends.torch.decompositions.registry import mend

aten = torch.ops.aten

_MEAN, _SUM = 1, 2


@mend(aten.multilabel_margin_loss_forward.default)
def _multilabel_margin_loss(
    x: torch.Tensor, target: torch.Tensor, reduction: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Each class of a row that is no target against each target: those before the first -1."""
    scores, targets = torch.atleast_2d(x), torch.atleast_2d(target)
    classes = scores.shape[1]
    counts = (targets < 0).cumsum(1) == 0
    known = torch.where(counts, targets, 0)
    numbers = torch.arange(classes)
    is_target = ((known.unsqueeze(-1) == numbers) & counts.unsqueeze(-1)).any(1)
    margins = 1 - scores.gather(1, known).unsqueeze(-1) + scores.unsqueeze(1)
    counted = counts.unsqueeze(-1) & ~is_target.unsqueeze(1)
    losses = torch.where(counted, margins.clamp(min=0), 0).sum((1, 2)) / classes
    mask = is_target.to(x.dtype).reshape(target.shape)
    if reduction == _MEAN:
        return losses.mean(), mask
    if reduction == _SUM:
        return losses.sum(), mask
    return losses.reshape(x.shape[:-1]), mask
