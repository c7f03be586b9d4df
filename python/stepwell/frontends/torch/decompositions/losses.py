"""Losses whose own decomposition differs from their kernel."""

# pyright: reportMissingImports=false
from __future__ import annotations

import torch

from stepwell.frontends.torch.decompositions.registry import mend
from stepwell.frontends.torch.decompositions.rules import instead

aten = torch.ops.aten

_AUTOGRAD = torch._C.DispatchKey.Autograd
_MEAN, _SUM = 1, 2


@instead(aten.multilabel_margin_loss_forward.default, "py_kernels", _AUTOGRAD)
@mend(aten.multilabel_margin_loss_forward.default)
def _multilabel_margin_loss(
    x: torch.Tensor, target: torch.Tensor, reduction: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Each class of a row that is no target against each target: those before the first -1. What
    is not above zero, NaN for instance, adds nothing."""
    scores, targets = torch.atleast_2d(x), torch.atleast_2d(target)
    classes = scores.shape[1]
    counts = (targets < 0).cumsum(1) == 0
    known = torch.where(counts, targets, 0)
    numbers = torch.arange(classes)
    is_target = ((known.unsqueeze(-1) == numbers) & counts.unsqueeze(-1)).any(1)
    margins = 1 - scores.gather(1, known).unsqueeze(-1) + scores.unsqueeze(1)
    counted = counts.unsqueeze(-1) & ~is_target.unsqueeze(1) & (margins > 0)
    losses = torch.where(counted, margins, 0).sum((1, 2)) / classes
    mask = is_target.to(x.dtype).reshape(target.shape)
    if reduction == _MEAN:
        return losses.mean(), mask
    if reduction == _SUM:
        return losses.sum(), mask
    return losses.reshape(x.shape[:-1]), mask


@instead(aten.multi_margin_loss.default, "py_kernels", _AUTOGRAD)
@mend(aten.multi_margin_loss.default)
def _multi_margin_loss(
    x: torch.Tensor,
    target: torch.Tensor,
    p: int = 1,
    margin: float = 1,
    weight: torch.Tensor | None = None,
    reduction: int = _MEAN,
) -> torch.Tensor:
    """Each other class of a row against its target. What is not above zero, NaN for instance, adds
    nothing."""
    scores, targets = torch.atleast_2d(x), torch.atleast_1d(target).unsqueeze(1)
    classes = scores.shape[1]
    margins = margin - scores.gather(1, targets) + scores
    margins = torch.where((torch.arange(classes) != targets) & (margins > 0), margins, 0)
    if p == 2:
        margins = margins * margins
    if weight is not None:
        margins = margins * weight[targets]
    losses = margins.sum(1) / classes
    if reduction == _MEAN:
        return losses.mean()
    return losses.sum() if reduction == _SUM else losses.reshape(target.shape)
