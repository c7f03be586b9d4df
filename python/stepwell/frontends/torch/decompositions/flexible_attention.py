"""Attention whose scores and masks are functions of positions: `flex_attention`.

    scores[b, h, q, k] = score_mod(Q[b, h, q] . K[b, h, k] * scale, b, h, q, k)

and minus infinity where not mask_mod(b, h, q, k).
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex
from torch._higher_order_ops.flex_attention import flex_attention
from torch._subclasses.functional_tensor import FunctionalTensorMode

from stepwell.frontends.torch.decompositions.attention import softmax
from stepwell.frontends.torch.decompositions.rules import instead
from stepwell.frontends.torch.memory_order import inverse, memory_order

Function = Callable[..., torch.Tensor]
Buffers = tuple[torch.Tensor, ...]


@instead(flex_attention, "python_key_table", FunctionalTensorMode)
def _flex_attention(
    mode: FunctionalTensorMode,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    score_mod: Function,
    block_mask: tuple,
    scale: float,
    kernel_options: Mapping[str, Any],
    score_buffers: Buffers = (),
    mask_buffers: Buffers = (),
) -> object:
    """Of [B, Hq, L, E], [B or 1, H, S, E] and [B or 1, H, S, Ev]: the result, and the logarithms to
    base 2 of sums of weights and of the largest weights, [B, Hq, L]. Blocks of `block_mask` are not
    skipped; its last item is `mask_mod`."""
    batch, heads, rows, features = query.shape
    groups, keys = key.shape[1:3]
    wide = torch.float64 if query.dtype == torch.float64 else torch.float32
    with mode, TransformGetItemToIndex():
        # Queries that share their keys are rows of one product.
        shared = query.reshape(batch, groups, -1, features)
        products = shared.to(wide) @ key.to(wide).transpose(-2, -1) * scale
        scores = products.reshape(batch, heads, rows, keys)
        places = [torch.arange(size) for size in scores.shape]
        scores = _at_places(score_mod, [True], score_buffers)(scores, *places, *score_buffers)
        mask = _at_places(block_mask[-1], [], mask_buffers)(*places, *mask_buffers)
        weights = softmax(scores, mask).to(query.dtype).reshape(batch, groups, -1, keys)
        out = (weights @ value.to(query.dtype)).reshape(batch, heads, rows, -1)
        seen = torch.where(mask, scores, -math.inf)
        sums = torch.logsumexp(seen, -1) / math.log(2)
        return _laid_out_like(query, out), sums, torch.amax(seen, -1) / math.log(2)


def _at_places(function: Function, of_scores: Sequence[bool], buffers: Buffers) -> Function:
    """`function` of scalars, as one of four vectors of positions."""
    others = (None,) * len(buffers)
    for place in reversed(range(4)):
        positions = [0 if place == other else None for other in range(4)]
        dims = (*(0 for _ in of_scores), *positions, *others)
        function = torch.vmap(function, dims)
    return function


def _laid_out_like(query: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """With the dimensions in memory in the order that those of `query` have."""
    order = memory_order(query.stride())
    return out.permute(order).contiguous().permute(inverse(order))
