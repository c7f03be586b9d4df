"""Attention, in the form that becomes one kernel: two products and a softmax between them."""

# pyright: reportMissingImports=false
from __future__ import annotations

import math

import torch

from stepwell.frontends.torch.decompositions.registry import mend

aten = torch.ops.aten


@mend(aten.scaled_dot_product_attention.default)
def _scaled_dot_product_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> object:
    """Of [..., Hq, L, E], [..., H, S, E] and [..., H, S, Ev]. With grouped queries, those that
    share their keys are rows of one product, so that no key is copied."""
    if dropout_p > 0 or query.dim() < 3:
        return NotImplemented
    rows, keys = query.shape[-2], key.shape[-2]
    batch, shared = query.shape[:-2], key.shape[:-2]
    if not enable_gqa:
        batch = shared = torch.broadcast_shapes(batch, shared, value.shape[:-2])
    count = math.prod(shared)
    query = query.expand(*batch, *query.shape[-2:]).reshape(count, -1, query.shape[-1])
    key = key.expand(*shared, *key.shape[-2:]).reshape(count, keys, -1)
    value = value.expand(*shared, *value.shape[-2:]).reshape(count, keys, -1)
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = torch.bmm(query, key.transpose(1, 2)).view(*batch, rows, keys) * factor
    if is_causal:
        places = torch.arange(keys, device=query.device)
        seen = places <= torch.arange(rows, device=query.device).unsqueeze(1)
        scores = torch.where(seen, scores, -math.inf)
    weights = _softmax(scores, attn_mask)
    out = torch.bmm(weights.view(count, -1, keys), value).view(*batch, rows, -1)
    return out.transpose(-3, -2).contiguous().transpose(-3, -2)


def _softmax(scores: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """Over the last dimension; zeros for a query that may see no key."""
    if mask is None:
        return torch.softmax(scores, -1)
    scores = torch.where(mask, scores, -math.inf) if mask.dtype == torch.bool else scores + mask
    wide = scores.to(torch.promote_types(scores.dtype, torch.float32))
    unseen = torch.amax(wide, -1, keepdim=True) == -math.inf
    return torch.where(unseen, 0.0, torch.softmax(wide, -1)).to(scores.dtype)
