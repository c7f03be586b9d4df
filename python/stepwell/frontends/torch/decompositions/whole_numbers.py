"""Divisors and multiples of integers."""

# pyright: reportMissingImports=false
from __future__ import annotations

import torch
from torch._higher_order_ops import while_loop

from stepwell.frontends.torch.decompositions.registry import mend

aten = torch.ops.aten


@mend(aten.gcd.default)
def _gcd(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Euclid's rule, as a loop that ends when all remainders are zero."""
    dtype = torch.promote_types(x.dtype, y.dtype)
    x, y = torch.broadcast_tensors(x.to(dtype).abs(), y.to(dtype).abs())
    if not x.numel():
        return x.clone()

    def goes_on(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return (b != 0).any()

    def step(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        rest = torch.fmod(a, torch.where(b == 0, torch.ones_like(b), b))
        return torch.where(b == 0, a, b), torch.where(b == 0, torch.zeros_like(b), rest)

    # What a loop carries lies in one order, which operands need not.
    carried = tuple(v.clone(memory_format=torch.contiguous_format) for v in (x, y))
    found, _ = while_loop(goes_on, step, carried)
    return found


@mend(aten.lcm.default)
def _lcm(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    shared = torch.gcd(x, y)
    parts = torch.div(x, torch.where(shared == 0, 1, shared), rounding_mode="trunc")
    return (parts * y).abs()
