"""Resizing of images by their nearest elements."""

# pyright: reportMissingImports=false
from __future__ import annotations

import functools
from collections.abc import Sequence

import torch

from stepwell.frontends.torch.decompositions.registry import mend

aten = torch.ops.aten

Sizes = Sequence[int] | None
Scales = Sequence[float | None] | None


def _resize(x: torch.Tensor, size: Sizes, scales: Scales, exact: bool) -> torch.Tensor:
    """One dimension after the other; `exact` takes the element at the centre of the new one."""
    count = x.dim() - 2
    scales = [None] * count if scales is None else scales
    for dim, scale in enumerate(scales, 2):
        old = x.shape[dim]
        new = int(old * scale) if size is None and scale else size[dim - 2]  # pyright: ignore
        if new % old == 0 and (scale is None or scale == new // old):
            spread = x.unsqueeze(dim + 1)
            shape = [*x.shape[: dim + 1], new // old, *x.shape[dim + 1 :]]
            x = spread.expand(shape).flatten(dim, dim + 1)
            continue
        step = 1.0 / scale if scale else old / new
        position = (torch.arange(new, dtype=torch.float32) + (0.5 if exact else 0.0)) * step
        x = x.index_select(dim, position.to(torch.int64).clamp(max=old - 1))
    return x


def _given(x: torch.Tensor, size: Sizes, scales: Scales = None, *, exact: bool) -> torch.Tensor:
    return _resize(x, size, scales, exact)


def _each_given(x: torch.Tensor, size: Sizes, *scales: float | None, exact: bool) -> torch.Tensor:
    return _resize(x, size, scales or None, exact)


for _exact, _operators in (
    (False, (aten.upsample_nearest1d, aten.upsample_nearest2d, aten.upsample_nearest3d)),
    (
        True,
        (
            aten._upsample_nearest_exact1d,
            aten._upsample_nearest_exact2d,
            aten._upsample_nearest_exact3d,
        ),
    ),
):
    for _operator in _operators:
        mend(_operator.vec)(functools.partial(_given, exact=_exact))
        mend(_operator.default)(functools.partial(_each_given, exact=_exact))
