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
    share their keys are rows of one product, so that no key is copied. Scores of half precision are
    float32 up to their softmax, as PyTorch has them."""
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
    scores = torch.bmm(_wide(query), _wide(key.transpose(1, 2)))
    scores = scores.view(*batch, rows, keys) * factor
    if is_causal:
        scores = _causal(scores)
    weights = softmax(scores, attn_mask).to(value.dtype)
    out = torch.bmm(weights.view(count, -1, keys), value).view(*batch, rows, -1)
    return out.transpose(-3, -2).contiguous().transpose(-3, -2)


@mend(aten._scaled_dot_product_flash_attention_for_cpu.default)
def flash_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: torch.Tensor | None = None,
    scale: float | None = None,
) -> object:
    """Of [batch, heads, rows, features], and the logarithms of the sums that weights are divided
    by, [batch, heads, rows], for the gradient of PyTorch; that below does not need them."""
    if dropout_p > 0:
        return NotImplemented
    out = _scaled_dot_product_attention(
        query, key, value, attn_mask, 0.0, is_causal, scale=scale, enable_gqa=True
    )
    scores = _scores(query, _for_all_heads(key, query), is_causal, attn_mask, scale)
    sums = torch.logsumexp(scores, -1)
    return out, sums.transpose(1, 2).contiguous().transpose(1, 2)


@mend(aten._scaled_dot_product_flash_attention_for_cpu_backward.default)
def flash_attention_backward(
    grad_out: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    out: torch.Tensor,
    logsumexp: torch.Tensor,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: torch.Tensor | None = None,
    scale: float | None = None,
) -> object:
    """Weights W are computed again. With S = Q K' and O = W V, dV = W' dO and
    dS = W (dO V' - sum(dO O)), dQ = dS K, dK = dS' Q (T. Dao et al., FlashAttention, 2022,
    appendix B)."""
    if dropout_p > 0:
        return NotImplemented
    factor, dtype = 1 / math.sqrt(query.shape[-1]) if scale is None else scale, query.dtype
    keys, values = _wide(_for_all_heads(key, query)), _wide(_for_all_heads(value, query))
    query, grad_out = _wide(query), _wide(grad_out)
    weights = softmax(_scores(query, keys, is_causal, None, scale), attn_mask)
    of_weights = grad_out @ values.transpose(-2, -1)
    of_scores = weights * (of_weights - (grad_out * out).sum(-1, keepdim=True))
    gradients = (
        of_scores @ keys * factor,
        _sum_of_groups(of_scores.transpose(-2, -1) @ query, key) * factor,
        _sum_of_groups(weights.transpose(-2, -1) @ grad_out, value),
    )
    return tuple(gradient.to(dtype) for gradient in gradients)


def _scores(
    query: torch.Tensor,
    key: torch.Tensor,
    is_causal: bool,
    mask: torch.Tensor | None,
    scale: float | None,
) -> torch.Tensor:
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = _wide(query) @ _wide(key.transpose(-2, -1)) * factor
    if is_causal:
        scores = _causal(scores)
    if mask is not None and mask.dtype == torch.bool:
        return torch.where(mask, scores, -math.inf)
    return scores if mask is None else scores + mask


def _wide(x: torch.Tensor) -> torch.Tensor:
    """In float32 at least."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _causal(scores: torch.Tensor) -> torch.Tensor:
    rows, keys = scores.shape[-2:]
    places = torch.arange(keys, device=scores.device)
    seen = places <= torch.arange(rows, device=scores.device).unsqueeze(1)
    return torch.where(seen, scores, -math.inf)


def _for_all_heads(x: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
    """Keys or values of [batch, groups, keys, features] for each head of `query`."""
    heads, groups = query.shape[1], x.shape[1]
    if heads == groups:
        return x
    return x.unsqueeze(2).expand(-1, -1, heads // groups, -1, -1).flatten(1, 2)


def _sum_of_groups(x: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """The inverse of `_for_all_heads` for gradients."""
    if x.shape[1] == like.shape[1]:
        return x
    return x.unflatten(1, (like.shape[1], -1)).sum(2)


def softmax(scores: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """Over the last dimension; zeros for a query that may see no key."""
    if mask is None:
        return torch.softmax(scores, -1)
    scores = torch.where(mask, scores, -math.inf) if mask.dtype == torch.bool else scores + mask
    wide = scores.to(torch.promote_types(scores.dtype, torch.float32))
    unseen = torch.amax(wide, -1, keepdim=True) == -math.inf
    return torch.where(unseen, 0.0, torch.softmax(wide, -1)).to(scores.dtype)
