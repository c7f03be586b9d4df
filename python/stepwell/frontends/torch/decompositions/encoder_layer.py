"""What `torch.nn` calls in inference instead of its layers' own code, which is broken down here:
whole encoder layers and attention with its projections."""

# pyright: reportMissingImports=false
from __future__ import annotations

import math

import torch

from stepwell.frontends.torch.decompositions.registry import mend

aten = torch.ops.aten

_OF_ROWS = 0
"""A mask of [queries, keys]; others are of keys alone, [batch, keys], or of all four dimensions."""


@mend(aten._transformer_encoder_layer_fwd.default)
def _encoder_layer(
    x: torch.Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: torch.Tensor,
    qkv_bias: torch.Tensor,
    proj_weight: torch.Tensor,
    proj_bias: torch.Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: torch.Tensor,
    norm_bias_1: torch.Tensor,
    norm_weight_2: torch.Tensor,
    norm_bias_2: torch.Tensor,
    ffn_weight_1: torch.Tensor,
    ffn_bias_1: torch.Tensor,
    ffn_weight_2: torch.Tensor,
    ffn_bias_2: torch.Tensor,
    mask: torch.Tensor | None = None,
    mask_type: int | None = None,
) -> object:
    """Of [batch, rows, embed_dim]."""
    if x.is_nested:
        return NotImplemented

    def attended(y: torch.Tensor) -> torch.Tensor:
        return _attention(
            y, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias, mask, mask_type
        )

    def forwarded(y: torch.Tensor) -> torch.Tensor:
        hidden = torch.nn.functional.linear(y, ffn_weight_1, ffn_bias_1)
        hidden = torch.nn.functional.gelu(hidden) if use_gelu else torch.relu(hidden)
        return torch.nn.functional.linear(hidden, ffn_weight_2, ffn_bias_2)

    def first(y: torch.Tensor) -> torch.Tensor:
        return torch.layer_norm(y, (embed_dim,), norm_weight_1, norm_bias_1, eps)

    def second(y: torch.Tensor) -> torch.Tensor:
        return torch.layer_norm(y, (embed_dim,), norm_weight_2, norm_bias_2, eps)

    if norm_first:
        x = x + attended(first(x))
        return x + forwarded(second(x))
    x = first(x + attended(x))
    return second(x + forwarded(x))


@mend(aten._native_multi_head_attention.default)
def _native_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    embed_dim: int,
    num_head: int,
    qkv_weight: torch.Tensor,
    qkv_bias: torch.Tensor,
    proj_weight: torch.Tensor,
    proj_bias: torch.Tensor,
    mask: torch.Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> object:
    """`torch.nn` calls it for self-attention alone: query, key and value are one."""
    if query.is_nested or need_weights:
        return NotImplemented
    parts = (num_head, qkv_weight, qkv_bias, proj_weight, proj_bias)
    return _attention(query, *parts, mask, mask_type), query.new_empty(0)


def _attention(
    x: torch.Tensor,
    heads: int,
    qkv_weight: torch.Tensor,
    qkv_bias: torch.Tensor,
    proj_weight: torch.Tensor,
    proj_bias: torch.Tensor,
    mask: torch.Tensor | None,
    mask_type: int | None,
) -> torch.Tensor:
    """Of [batch, rows, features]; `mask` is true where a key is not seen."""
    batch, rows, features = x.shape
    joined = torch.nn.functional.linear(x, qkv_weight, qkv_bias)
    query, key, value = (
        part.reshape(batch, rows, heads, -1).transpose(1, 2) for part in joined.split(features, -1)
    )
    bias = None
    if mask is not None:
        if mask.dim() == 2 and mask_type != _OF_ROWS:
            mask = mask.reshape(batch, 1, 1, rows)
        bias = torch.where(mask, -math.inf, 0.0).to(x.dtype) if mask.dtype == torch.bool else mask
    out = torch.nn.functional.scaled_dot_product_attention(query, key, value, bias)
    merged = out.transpose(1, 2).reshape(batch, rows, features)
    return torch.nn.functional.linear(merged, proj_weight, proj_bias)
