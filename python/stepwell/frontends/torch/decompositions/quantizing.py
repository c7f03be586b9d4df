"""Quantisation that is only simulated, and products of unsigned bytes by signed ones."""

# pyright: reportMissingImports=false
from __future__ import annotations

import torch

from stepwell.frontends.torch.decompositions.registry import mend

aten = torch.ops.aten


@mend(aten.fake_quantize_per_channel_affine_cachemask.default)
def _fake_quantize_per_channel(
    x: torch.Tensor, scale: torch.Tensor, zero_point: torch.Tensor, axis: int, low: int, high: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The rounded numbers, and which were inside of the range."""
    shape = [-1 if d == axis % x.dim() else 1 for d in range(x.dim())]
    scale, zero = scale.reshape(shape), zero_point.reshape(shape).to(x.dtype)
    whole = (x * (1 / scale)).round() + zero
    inside = (whole >= low) & (whole <= high)
    return (whole.clamp(low, high) - zero) * scale, inside


@mend(aten._int_mm.default)
def _product_of_bytes(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """In int32. On processors with VNNI, `torchao` multiplies bytes with and without sign, which
    the importer's lowering does not know; `narrow-integer-products` finds the bytes again."""
    if x.dtype == y.dtype:
        return NotImplemented
    return torch.mm(x.to(torch.int32), y.to(torch.int32))
