"""Products of groups of rows, each with a matrix of its own: mixtures of experts.

Rows of one group stand together, and `ends` has where each group ends. They are dealt to blocks of
equal size, the last block of a group being filled up, so that all blocks are one batched product:
T. Gale et al., MegaBlocks: Efficient Sparse Training with Mixture-of-Experts, 2022.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import torch

from stepwell.frontends.torch.decompositions.registry import Decomposition, mend

aten = torch.ops.aten

_LARGEST_BLOCK = 64


@mend(aten._grouped_mm.default)
def _grouped_mm(
    x: torch.Tensor,
    y: torch.Tensor,
    offs: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> object:
    if bias is not None:
        return NotImplemented
    if offs is None:
        product = torch.bmm(x, y)
    elif x.dim() == y.dim() == 2:
        product = _products_of_columns(x, y, offs)
    elif x.dim() == 2:
        product = _products_of_rows(x, y, offs)
    else:
        product = _products_of_rows(y.mT, x.mT, offs).mT
    return product.to(out_dtype or x.dtype)


def _products_of_rows(x: torch.Tensor, matrices: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    """[rows, k] and [groups, k, n] to [rows, n]; rows behind the last group are zero."""
    (rows, _), (groups, _, columns) = x.shape, matrices.shape
    size = _block_size(rows, groups)
    blocks = min(rows, rows // size + groups)
    starts = torch.cat([torch.zeros_like(ends[:1]), ends[:-1]])
    last_blocks = torch.cumsum((ends - starts + size - 1) // size, 0)
    first_blocks = torch.cat([torch.zeros_like(last_blocks[:1]), last_blocks[:-1]])

    block = torch.arange(blocks)
    group = _group_of(block, last_blocks)
    first = starts[group] + (block - first_blocks[group]) * size
    taken = (first.unsqueeze(1) + torch.arange(size)).clamp(max=rows - 1)
    products = torch.bmm(x[taken], matrices[group]).reshape(blocks * size, columns)

    row = torch.arange(rows)
    group = _group_of(row, ends)
    place = (first_blocks[group] * size + row - starts[group]).clamp(max=blocks * size - 1)
    return torch.where((row < ends[-1]).unsqueeze(1), products[place], 0.0).to(x.dtype)


def _block_size(rows: int, groups: int) -> int:
    """A power of two, about as many rows as an average group has."""
    size = 1
    while size < _LARGEST_BLOCK and size * groups < rows:
        size *= 2
    return size


def _group_of(position: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    """Of those behind the last group, the last."""
    before = (ends <= position.unsqueeze(1)).sum(1)
    return before.clamp(max=ends.shape[0] - 1)


def _products_of_columns(x: torch.Tensor, y: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    """[m, rows] and [rows, n], whose products are summed a group, to [groups, m, n]."""
    row = torch.arange(y.shape[0])
    starts = torch.cat([torch.zeros_like(ends[:1]), ends[:-1]])
    inside = (row >= starts.unsqueeze(1)) & (row < ends.unsqueeze(1))
    return torch.where(inside.unsqueeze(1), x.unsqueeze(0), 0.0).to(x.dtype) @ y


def of_transformers() -> dict[torch._ops.OperatorBase, Decomposition]:
    """The operators that `transformers`, when it is imported, adds for other types than bf16."""

    def backward(
        x: torch.Tensor, matrices: torch.Tensor, ends: torch.Tensor, gradient: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        of_x = _products_of_rows(gradient, matrices.mT, ends)
        return of_x, _products_of_columns(x.mT, gradient, ends)

    own = {"grouped_mm_fallback": _products_of_rows, "grouped_mm_fallback_backward": backward}
    known = torch.ops.transformers
    return {getattr(known, name).default: own[name] for name in own if hasattr(known, name)}
