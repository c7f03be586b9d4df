"""The forms that PyTorch gives attention on GPUs (flash attention, memory-efficient attention,
cuDNN's), and their gradients, as those of `attention`."""

# pyright: reportMissingImports=false
from __future__ import annotations

from collections.abc import Sequence

import torch

from stepwell.frontends.torch.decompositions.attention import (
    flash_attention,
    flash_attention_backward,
)
from stepwell.frontends.torch.decompositions.registry import mend

aten = torch.ops.aten

_PADDED = 32
"""Memory-efficient attention gives so many logarithms of sums, or a multiple of it."""


@mend(aten._scaled_dot_product_flash_attention.default)
def _flash(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> object:
    if dropout_p > 0 or return_debug_mask:
        return NotImplemented
    out, sums = _attended(query, key, value, is_causal, scale)
    return out, sums, None, None, query.shape[2], key.shape[2], *_no_numbers(query, 3)


@mend(aten._scaled_dot_product_efficient_attention.default)
def _efficient(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_bias: torch.Tensor | None,
    compute_log_sumexp: bool,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
) -> object:
    if dropout_p > 0:
        return NotImplemented
    out, sums = _attended(query, key, value, is_causal, scale, attn_bias)
    beyond = -query.shape[2] % _PADDED
    sums = torch.nn.functional.pad(sums, (0, beyond), value=torch.inf)
    sums = sums if compute_log_sumexp else sums[..., :0]
    return out, sums, *_no_numbers(query, 2)


@mend(aten._scaled_dot_product_cudnn_attention.default)
def _cudnn(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_bias: torch.Tensor | None,
    compute_log_sumexp: bool,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> object:
    if dropout_p > 0 or return_debug_mask:
        return NotImplemented
    out, sums = _attended(query, key, value, is_causal, scale, attn_bias)
    sums = sums.unsqueeze(-1) if compute_log_sumexp else sums[..., :0]
    return out, sums, None, None, query.shape[2], key.shape[2], *_no_numbers(query, 3)


@mend(aten._scaled_dot_product_flash_attention_backward.default)
def _flash_backward(
    grad_out: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    out: torch.Tensor,
    logsumexp: torch.Tensor,
    cum_seq_q: torch.Tensor | None,
    cum_seq_k: torch.Tensor | None,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    *_: object,
    scale: float | None = None,
) -> object:
    operands = grad_out, query, key, value, out, logsumexp
    return flash_attention_backward(*operands, dropout_p, is_causal, scale=scale)


@mend(aten._scaled_dot_product_efficient_attention_backward.default)
def _efficient_backward(
    grad_out: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_bias: torch.Tensor | None,
    out: torch.Tensor,
    logsumexp: torch.Tensor,
    philox_seed: torch.Tensor,
    philox_offset: torch.Tensor,
    dropout_p: float,
    grad_input_mask: Sequence[bool],
    is_causal: bool = False,
    *,
    scale: float | None = None,
) -> object:
    if grad_input_mask[3]:
        return NotImplemented
    operands = grad_out, query, key, value, out, logsumexp
    found = flash_attention_backward(
        *operands, dropout_p, is_causal, attn_mask=attn_bias, scale=scale
    )
    return (*found, None) if isinstance(found, tuple) else found


@mend(aten._scaled_dot_product_cudnn_attention_backward.default)
def _cudnn_backward(
    grad_out: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    out: torch.Tensor,
    logsumexp: torch.Tensor,
    philox_seed: torch.Tensor,
    philox_offset: torch.Tensor,
    attn_bias: torch.Tensor | None,
    cum_seq_q: torch.Tensor | None,
    cum_seq_k: torch.Tensor | None,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    *,
    scale: float | None = None,
) -> object:
    operands = grad_out, query, key, value, out, logsumexp
    return flash_attention_backward(
        *operands, dropout_p, is_causal, attn_mask=attn_bias, scale=scale
    )


def _attended(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    is_causal: bool,
    scale: float | None,
    bias: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The output without dropout, and the logarithms of sums."""
    found = flash_attention(query, key, value, is_causal=is_causal, attn_mask=bias, scale=scale)
    assert isinstance(found, tuple)
    return found


def _no_numbers(like: torch.Tensor, count: int) -> list[torch.Tensor]:
    """In the places of what random numbers begin with, and of a mask that nobody asked for."""
    return [like.new_zeros((), dtype=torch.int64) for _ in range(count)]
