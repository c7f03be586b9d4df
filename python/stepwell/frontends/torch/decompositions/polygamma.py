"""The digamma function and its derivatives."""

# pyright: reportMissingImports=false
from __future__ import annotations

import math

import torch

from stepwell.frontends.torch.decompositions.registry import itself, mend

aten = torch.ops.aten


@mend(aten.digamma.default)
def _digamma(x: torch.Tensor) -> torch.Tensor:
    """Infinite at zero, of the other sign."""
    found = itself(aten.digamma.default, x)
    assert isinstance(found, torch.Tensor)
    zero = x.to(found.dtype)
    return torch.where(x == 0, -torch.copysign(torch.full_like(zero, math.inf), zero), found)


@mend(aten.polygamma.default)
def _polygamma(order: int, x: torch.Tensor) -> object:
    """The expansion that is compiled is right for positive numbers. Others are reflected: (-1)^n
    psi_n(1 - x) - psi_n(x) is the n-th derivative of pi cot(pi x) (NIST Digital Library of
    Mathematical Functions, 5.15.6)."""
    if order == 0:
        return torch.digamma(x)
    result = x.dtype if x.dtype.is_floating_point else torch.get_default_dtype()
    x = x.to(torch.promote_types(result, torch.float32))
    mirrored = itself(aten.polygamma.default, order, torch.where(x < 0.5, 1 - x, x))
    assert isinstance(mirrored, torch.Tensor)
    angle = (x - x.round()) * math.pi
    cotangent = angle.cos() / angle.sin()
    derivative = torch.zeros_like(x)
    for coefficient in reversed(_derivative_of_cotangent(order)):
        derivative = derivative * cotangent + coefficient
    sign = -1 if order % 2 else 1
    reflected = sign * mirrored - math.pi ** (order + 1) * derivative
    pole = (x <= 0) & (x == x.floor())
    below = torch.where(pole, -sign * math.inf, reflected)
    return torch.where(x < 0.5, below, mirrored).to(result)


def _derivative_of_cotangent(order: int) -> list[float]:
    """As a polynomial in the cotangent, the lowest power first: cot' is -(1 + cot^2)."""
    polynomial = [0.0, 1.0]
    for _ in range(order):
        slope = [power * c for power, c in enumerate(polynomial)][1:]
        polynomial = [-a - b for a, b in zip([*slope, 0, 0], [0, 0, *slope], strict=True)]
    return polynomial
