"""Operators that count elements."""

# pyright: reportMissingImports=false
from __future__ import annotations

import torch

from stepwell.frontends.torch.decompositions.registry import mend

aten = torch.ops.aten


@mend(aten.histc.default)
def _histc(x: torch.Tensor, bins: int = 100, min: float = 0, max: float = 0) -> torch.Tensor:
    """Bins of equal width; what lies outside is not counted, the upper end is in the last bin. Ends
    that are equal stand for those of the data, and if these are equal, for one less and more."""
    flat = x.reshape(-1)
    low, high = torch.full((), min, dtype=x.dtype), torch.full((), max, dtype=x.dtype)
    if min == max and flat.shape[0]:
        low, high = flat.amin(), flat.amax()
    one = (low == high).to(x.dtype)
    low, high = low - one, high + one
    place = ((flat - low) * bins / (high - low)).to(torch.int64).clamp(max=bins - 1)
    counted = ((flat >= low) & (flat <= high)).unsqueeze(0)
    hits = (place.unsqueeze(0) == torch.arange(bins).unsqueeze(1)) & counted
    return hits.sum(1).to(x.dtype)
