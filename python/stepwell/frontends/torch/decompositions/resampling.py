"""Resizing of images by their nearest elements, between two of them, and by all that a new one
covers."""

# pyright: reportMissingImports=false
from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import torch
from torch._prims_common import suggest_memory_format

from stepwell.frontends.torch.decompositions.registry import MENDS, mend
from stepwell.frontends.torch.decompositions.rules import instead

aten = torch.ops.aten

Sizes = Sequence[int] | None
Scales = Sequence[float | None] | None
Taps = list[tuple[torch.Tensor, torch.Tensor]]
"""Places of old elements, one for each new one, and their weights."""


def _resize(x: torch.Tensor, size: Sizes, scales: Scales, exact: bool) -> torch.Tensor:
    """One dimension after the other; `exact` takes the element at the centre of the new one."""
    count = x.dim() - 2
    scales = [None] * count if scales is None else scales
    for dim, scale in enumerate(scales, 2):
        old = x.shape[dim]
        new = int(old * scale) if size is None and scale else size[dim - 2]  # pyright: ignore
        if scale and float(scale).is_integer() and new == old * scale:
            spread = x.unsqueeze(dim + 1)
            shape = [*x.shape[: dim + 1], new // old, *x.shape[dim + 1 :]]
            x = spread.expand(shape).flatten(dim, dim + 1)
            continue
        step = 1.0 / scale if scale else x.new_full((), old, dtype=torch.float32) / new
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


def _step(old: int, new: int, align_corners: bool, given: float | None) -> float:
    """How far new elements are apart, counted in old ones."""
    if align_corners:
        return (old - 1) / (new - 1) if new > 1 else 0.0
    return 1 / given if given else old / new


def _keys(x: torch.Tensor, a: float) -> torch.Tensor:
    """Keys' kernel at distances (R. Keys, Cubic convolution interpolation, 1981)."""
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return torch.where(x < 1, near, torch.where(x < 2, far, torch.zeros_like(x)))


def _between(
    x: torch.Tensor, size: Sequence[int], align_corners: bool, *scales: float | None
) -> object:
    """Each new element from the old ones on both sides of it, one dimension after the other: parts
    of both, as their difference is NaN where both are infinite. Half precision has no places
    between the elements of long dimensions, and is rounded once."""

    def taps(number: torch.Tensor, old: int, step: float) -> Taps:
        place = number * step if align_corners else ((number + 0.5) * step - 0.5).clamp(min=0.0)
        low = place.to(torch.int64)
        part = (place - low).clamp(0.0, 1.0)
        return [(low, 1 - part), ((low + 1).clamp(max=old - 1), part)]

    return _weighed(x, size, align_corners, scales, taps)


def _between_four(
    x: torch.Tensor, size: Sequence[int], align_corners: bool, *scales: float | None
) -> object:
    """Each new element from four old ones along each dimension, weighed by Keys' kernel of
    a = -0.75."""

    def taps(number: torch.Tensor, old: int, step: float) -> Taps:
        place = number * step if align_corners else (number + 0.5) * step - 0.5
        low = place.floor()
        part = place - low
        weights = [_keys(part + 1, -0.75), _keys(part, -0.75)]
        weights += [_keys(1 - part, -0.75), _keys(2 - part, -0.75)]
        places = [(low.to(torch.int64) + k).clamp(0, old - 1) for k in (-1, 0, 1, 2)]
        return list(zip(places, weights, strict=True))

    return _weighed(x, size, align_corners, scales, taps)


def _weighed(
    x: torch.Tensor,
    size: Sequence[int],
    align_corners: bool,
    scales: Sequence[float | None],
    taps: Callable[[torch.Tensor, int, float], Taps],
) -> object:
    """Sums of old elements with weights, along the last dimension first. `taps` gives the places
    and weights of the new elements with some numbers, `step` old ones apart."""
    if not x.dtype.is_floating_point:
        return NotImplemented
    wide = torch.promote_types(x.dtype, torch.float32)
    result = x.to(wide)
    given = list(scales) or [None] * len(size)
    for dim in reversed(range(2, x.dim())):
        new, old = size[dim - 2], x.shape[dim]
        step = _step(old, new, align_corners, given[dim - 2])
        own = (-1, *[1] * (x.dim() - dim - 1))
        found = [
            result.index_select(dim, place) * weight.view(own)
            for place, weight in taps(torch.arange(new).to(wide), old, step)
        ]
        result = sum(found[1:], found[0])
    return result.to(x.dtype).contiguous(memory_format=suggest_memory_format(x))


def _between_given(x: torch.Tensor, size: Sizes, align_corners: bool, scales: Scales) -> object:
    return _between(x, _new_size(x, size, scales), align_corners, *(scales or ()))


def _between_four_given(
    x: torch.Tensor, size: Sizes, align_corners: bool, scales: Scales
) -> object:
    return _between_four(x, _new_size(x, size, scales), align_corners, *(scales or ()))


def _new_size(x: torch.Tensor, size: Sizes, scales: Scales) -> Sequence[int]:
    if size is not None:
        return size
    assert scales is not None
    return [int(n * s) for n, s in zip(x.shape[2:], scales, strict=True) if s is not None]


_KEYS = torch._C.DispatchKey.Autograd, torch._C.DispatchKey.CompositeImplicitAutograd

for _operator in (aten.upsample_linear1d, aten.upsample_bilinear2d, aten.upsample_trilinear3d):
    mend(_operator.vec)(_between_given)
    mend(_operator.default)(_between)
    for _key in _KEYS:
        instead(_operator.vec, "py_kernels", _key)(MENDS[_operator.vec])
mend(aten.upsample_bicubic2d.vec)(_between_four_given)
mend(aten.upsample_bicubic2d.default)(_between_four)
for _key in _KEYS:
    instead(aten.upsample_bicubic2d.vec, "py_kernels", _key)(MENDS[aten.upsample_bicubic2d.vec])
for _operator in (aten.upsample_bilinear2d.default, aten.upsample_bicubic2d.default):
    instead(_operator, "py_kernels", _KEYS[0])(MENDS[_operator])


_DENSE = 8
"""A product takes a weight in less than this part of the time of a sum's."""


def _linear(x: torch.Tensor) -> torch.Tensor:
    return (1 - x.abs()).clamp(min=0)


def _cubic(x: torch.Tensor) -> torch.Tensor:
    return _keys(x.abs(), -0.5)


def _covering_weights(
    old: int,
    new: int,
    align_corners: bool,
    given: float | None,
    kernel: Callable[[torch.Tensor], torch.Tensor],
    radius: int,
    taps: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """[new, old]: the weights of the old elements in a new one, or [new, taps]: of the first ones
    that have any; and their places. Where it shrinks, `kernel` is as much wider."""
    step = _step(old, new, align_corners, given)
    wide = max(step, 1.0)
    centre = ((torch.arange(new, dtype=torch.float64) + 0.5) * step).unsqueeze(1)
    first = (centre - radius * wide + 0.5).to(torch.int64).clamp(min=0)
    last = (centre + radius * wide + 0.5).to(torch.int64).clamp(max=old)
    place = torch.arange(old) if taps is None else first + torch.arange(taps)
    weights = kernel((place - centre + 0.5) / wide)
    weights = torch.where((place >= first) & (place < last), weights, 0.0)
    return place.clamp(max=old - 1), weights / weights.sum(1, keepdim=True)


def _covering(
    x: torch.Tensor,
    size: Sequence[int],
    align_corners: bool,
    *scales: float | None,
    kernel: Callable[[torch.Tensor], torch.Tensor],
    radius: int,
) -> object:
    """One dimension after the other, rows before what lies in them: a sum over the elements that
    are covered, a product with all weights where these are not many less. Integers, which PyTorch
    rounds in between, are left to it; half precision is rounded once."""
    if not x.dtype.is_floating_point:
        return NotImplemented
    dtype = x.dtype
    x = x.to(torch.promote_types(dtype, torch.float32))
    for dim, (new, given) in enumerate(zip(size, scales or [None] * len(size), strict=True), 2):
        old = x.shape[dim]
        taps = 2 * math.ceil(radius * max(_step(old, new, align_corners, given), 1.0)) + 1
        how = align_corners, given, kernel, radius
        if taps * _DENSE > old:
            _, weights = _covering_weights(old, new, *how)
            x = (x.transpose(dim, -1) @ weights.to(x.dtype).T).transpose(dim, -1)
            continue
        places, weights = _covering_weights(old, new, *how, taps)
        own = (-1, *[1] * (x.dim() - dim - 1))
        found = [
            x.index_select(dim, places[:, tap]) * weights[:, tap].to(x.dtype).view(own)
            for tap in range(taps)
        ]
        x = sum(found[1:], found[0])
    return x.to(dtype)


def _covering_backward(
    gradient: torch.Tensor,
    size: Sequence[int],
    old_size: Sequence[int],
    align_corners: bool,
    *scales: float | None,
    kernel: Callable[[torch.Tensor], torch.Tensor],
    radius: int,
) -> torch.Tensor:
    """The product with the same weights, transposed."""
    for dim, given in enumerate(scales or [None] * len(size), 2):
        old, new = old_size[dim], size[dim - 2]
        _, weights = _covering_weights(old, new, align_corners, given, kernel, radius)
        moved = gradient.transpose(dim, -1) @ weights.to(gradient.dtype)
        gradient = moved.transpose(dim, -1)
    return gradient


def _covering_given(
    x: torch.Tensor, size: Sizes, align_corners: bool, scales: Scales, **how: object
) -> object:
    size = _new_size(x, size, scales)
    return _covering(x, size, align_corners, *(scales or ()), **how)  # pyright: ignore


for _operator, _backward, _kernel, _radius in (
    (aten._upsample_bilinear2d_aa, aten._upsample_bilinear2d_aa_backward, _linear, 1),
    (aten._upsample_bicubic2d_aa, aten._upsample_bicubic2d_aa_backward, _cubic, 2),
):
    _how = {"kernel": _kernel, "radius": _radius}
    mend(_operator.vec)(functools.partial(_covering_given, **_how))
    mend(_operator.default)(functools.partial(_covering, **_how))
    mend(_backward.default)(functools.partial(_covering_backward, **_how))
