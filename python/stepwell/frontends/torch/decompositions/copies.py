"""Operators that return a copy of what a view shows."""

# pyright: reportMissingImports=false
from __future__ import annotations

import functools
from collections.abc import Sequence

import torch
from torch.utils import _pytree

from stepwell.frontends.torch.decompositions.registry import mend

aten = torch.ops.aten


def _copy(view: torch._ops.OpOverload, *arguments: object, **keywords: object) -> object:
    return _pytree.tree_map(torch.clone, view(*arguments, **keywords))


for _overload, _view in (
    (aten.as_strided_copy.default, aten.as_strided.default),
    (aten.detach_copy.default, aten.detach.default),
    (aten.diagonal_copy.default, aten.diagonal.default),
    (aten.expand_copy.default, aten.expand.default),
    (aten.narrow_copy.default, aten.narrow.default),
    (aten.permute_copy.default, aten.permute.default),
    (aten.select_copy.int, aten.select.int),
    (aten.slice_copy.Tensor, aten.slice.Tensor),
    (aten.split_copy.Tensor, aten.split.Tensor),
    (aten.unbind_copy.int, aten.unbind.int),
    (aten.unfold_copy.default, aten.unfold.default),
    (aten.view_as_complex_copy.default, aten.view_as_complex.default),
    (aten.view_as_real_copy.default, aten.view_as_real.default),
    (aten.view_copy.default, aten.view.default),
    (aten.view_copy.dtype, aten.view.dtype),
):
    mend(_overload)(functools.partial(_copy, _view))


@mend(aten.resize.default)
def _resize(x: torch.Tensor, size: Sequence[int], **layout: object) -> object:
    """Elements in their order; there is nothing to compile where some are left as they were in
    memory."""
    count = torch.Size(size).numel()
    if count > x.numel():
        return NotImplemented
    return x.reshape(-1)[:count].reshape(size).clone()
