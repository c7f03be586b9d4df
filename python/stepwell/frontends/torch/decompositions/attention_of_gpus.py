"""The forms that PyTorch gives attention on GPUs (flash attention, memory-efficient attention,
cuDNN's), and their gradients, as those of `attention`. They differ in the places of their operands,
and in what they give beside the output."""

# pyright: reportMissingImports=false
from __future__ import annotations

from typing import Any

import torch

from stepwell.frontends.torch.decompositions.attention import (
    flash_attention,
    flash_attention_backward,
)
from stepwell.frontends.torch.decompositions.registry import mend

aten = torch.ops.aten

_EFFICIENT = aten._scaled_dot_product_efficient_attention.default
_CUDNN = aten._scaled_dot_product_cudnn_attention.default
_EFFICIENT_BACKWARD = aten._scaled_dot_product_efficient_attention_backward.default

_PADDED = 32
"""Memory-efficient attention gives so many logarithms of sums, or a multiple of it."""


def _forward(overload: torch._ops.OpOverload) -> None:
    @mend(overload)
    def rule(*arguments: object, **keywords: object) -> object:
        given = _by_name(overload, arguments, keywords)
        if given["dropout_p"] > 0 or given.get("return_debug_mask"):
            return NotImplemented
        query, key = given["query"], given["key"]
        attended = flash_attention(
            query,
            key,
            given["value"],
            is_causal=given["is_causal"],
            attn_mask=given.get("attn_bias"),
            scale=given["scale"],
        )
        assert isinstance(attended, tuple)
        out, sums = attended
        rows = query.shape[2]
        if overload is _EFFICIENT:
            sums = torch.nn.functional.pad(sums, (0, -rows % _PADDED), value=torch.inf)
        elif overload is _CUDNN:
            sums = sums.unsqueeze(-1)
        if not given.get("compute_log_sumexp", True):
            sums = sums[:, :, :0]
        # What random numbers begin with, and a mask that nobody asked for.
        numbers = [query.new_zeros((), dtype=torch.int64) for _ in range(3)]
        if overload is _EFFICIENT:
            return out, sums, *numbers[:2]
        return out, sums, None, None, rows, key.shape[2], *numbers


def _backward(overload: torch._ops.OpOverload) -> None:
    @mend(overload)
    def rule(*arguments: object, **keywords: object) -> object:
        given = _by_name(overload, arguments, keywords)
        is_efficient = overload is _EFFICIENT_BACKWARD
        if is_efficient and given["grad_input_mask"][3]:  # of the bias
            return NotImplemented
        found = flash_attention_backward(
            given["grad_out_" if is_efficient else "grad_out"],
            given["query"],
            given["key"],
            given["value"],
            given["out"],
            given["logsumexp"],
            given["dropout_p"],
            given["is_causal"],
            attn_mask=given.get("attn_bias"),
            scale=given["scale"],
        )
        return (*found, None) if is_efficient and isinstance(found, tuple) else found


def _by_name(
    overload: torch._ops.OpOverload, arguments: tuple[object, ...], keywords: dict[str, object]
) -> dict[str, Any]:
    """The operands of a call by the names of the operator's declaration, with those left out."""
    declared = overload._schema.arguments
    given = {argument.name: argument.default_value for argument in declared}
    given |= dict(zip(given, arguments, strict=False))
    return given | keywords


for _name in ("flash", "efficient", "cudnn"):
    _forward(getattr(aten, f"_scaled_dot_product_{_name}_attention").default)
    _backward(getattr(aten, f"_scaled_dot_product_{_name}_attention_backward").default)
