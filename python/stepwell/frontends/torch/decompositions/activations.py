"""Activations: near zero, of half precision, and what is random in training alone."""

# pyright: reportMissingImports=false
from __future__ import annotations

import torch

from stepwell.frontends.torch.decompositions.registry import mend

aten = torch.ops.aten

Number = int | float


@mend(aten.elu.default)
def _elu(
    x: torch.Tensor, alpha: Number = 1, scale: Number = 1, input_scale: Number = 1
) -> torch.Tensor:
    """By expm1: exp(x) - 1, to which it is lowered, is 0 for small x. Half precision is rounded
    once."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    below = torch.expm1(wide * input_scale) * (alpha * scale)
    return torch.where(wide > 0, wide * scale, below).to(x.dtype)


@mend(aten.gelu.default)
def _gelu(x: torch.Tensor, *, approximate: str = "none") -> object:
    """Half precision is rounded once, not where 1 is added to an error function near -1."""
    if x.dtype not in (torch.float16, torch.bfloat16):
        return NotImplemented
    return torch.nn.functional.gelu(x.float(), approximate=approximate).to(x.dtype)


@mend(aten.rrelu_with_noise_functional.default)
def _rrelu(
    x: torch.Tensor,
    noise: torch.Tensor,
    lower: Number = 0.125,
    upper: Number = 1 / 3,
    training: bool = False,
    generator: torch.Generator | None = None,
) -> object:
    """Outside training, the slope is the mean of the bounds."""
    if training:
        return NotImplemented
    return torch.nn.functional.leaky_relu(x, (lower + upper) / 2), noise


@mend(aten.rrelu_with_noise_backward.default)
def _rrelu_backward(
    gradient: torch.Tensor,
    x: torch.Tensor,
    noise: torch.Tensor,
    lower: Number,
    upper: Number,
    training: bool,
    self_is_result: bool,
) -> torch.Tensor:
    """The importer multiplies by the noise outside training, too."""
    if training and upper - lower > 1e-6:
        return gradient * noise
    return aten.leaky_relu_backward(gradient, x, (lower + upper) / 2, self_is_result)
