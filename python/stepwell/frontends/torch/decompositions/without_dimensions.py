"""Operators along a dimension, of tensors that have none: the importer counts on one, and does not
even end for some."""

# pyright: reportMissingImports=false
from __future__ import annotations

import functools
from collections.abc import Sequence

import torch
from torch.utils import _pytree

from stepwell.frontends.torch.decompositions.registry import mend

aten = torch.ops.aten

_ALONG_A_DIMENSION = (
    aten._log_softmax.default,
    aten._softmax.default,
    aten.all.dim,
    aten.amax.default,
    aten.amin.default,
    aten.aminmax.default,
    aten.any.dim,
    aten.argmax.default,
    aten.argmin.default,
    aten.cumsum.default,
    aten.logsumexp.default,
    aten.max.dim,
    aten.mean.dim,
    aten.min.dim,
    aten.prod.dim_int,
    aten.sort.default,
    aten.sort.stable,
    aten.sum.dim_IntList,
    aten.topk.default,
    aten.var.correction,
)


def _of_one(overload: torch._ops.OpOverload, x: torch.Tensor, *how: object, **more: object):
    """Of a vector of one element: dimension 0 or -1 of it is meant, or all of them."""
    if x.dim():
        return NotImplemented
    return _pytree.tree_map(lambda y: y.reshape(()), overload(x.reshape(1), *how, **more))


for _overload in _ALONG_A_DIMENSION:
    mend(_overload)(functools.partial(_of_one, _overload))


@mend(aten.linalg_vector_norm.default)
def _norm(
    x: torch.Tensor,
    order: float = 2,
    dim: Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> object:
    """No dimensions mean all of them."""
    if x.dim():
        if dim is None or len(dim):
            return NotImplemented
        return aten.linalg_vector_norm.default(x, order, None, keepdim, dtype=dtype)
    return aten.linalg_vector_norm.default(x.reshape(1), order, [0], dtype=dtype).reshape(())


@mend(aten.gather.default)
def _gather(x: torch.Tensor, dim: int, index: torch.Tensor, *, sparse_grad: bool = False) -> object:
    if x.dim() and index.dim():
        return NotImplemented
    return aten.gather.default(x.reshape(-1), 0, index.reshape(-1)).reshape(index.shape)


def _scatter(
    overload: torch._ops.OpOverload,
    x: torch.Tensor,
    dim: int,
    index: torch.Tensor,
    source: torch.Tensor,
) -> object:
    if x.dim():
        return NotImplemented
    whole = (part.reshape(1) for part in (index, source))
    return overload(x.reshape(1), 0, *whole).reshape(())


for _overload in (aten.scatter_add.default, aten.scatter.src):
    mend(_overload)(functools.partial(_scatter, _overload))


@mend(aten.scatter.value)
def _scatter_value(x: torch.Tensor, dim: int, index: torch.Tensor, value: float) -> object:
    if x.dim():
        return NotImplemented
    return aten.scatter.value(x.reshape(1), 0, index.reshape(-1), value).reshape(())


@mend(aten.index_select.default)
def _index_select(x: torch.Tensor, dim: int, index: torch.Tensor) -> object:
    if x.dim() and index.dim():
        return NotImplemented
    whole = x if x.dim() else x.reshape(1)
    found = aten.index_select.default(whole, dim, index.reshape(-1))
    return found if x.dim() else found.reshape(())


@mend(aten.index_add.default)
def _index_add(
    x: torch.Tensor,
    dim: int,
    index: torch.Tensor,
    source: torch.Tensor,
    *,
    alpha: float = 1,
) -> object:
    if x.dim() and index.dim():
        return NotImplemented
    shape = list(x.shape) or [1]
    shape[dim] = index.numel()
    whole = x.reshape(1) if not x.dim() else x
    found = aten.index_add(whole, dim, index.reshape(-1), source.reshape(shape), alpha=alpha)
    return found.reshape(x.shape)


@mend(aten.unfold.default)
def _unfold(x: torch.Tensor, dimension: int, size: int, step: int) -> object:
    return NotImplemented if x.dim() else x.reshape(1)[:size].clone()
