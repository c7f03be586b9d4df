"""Operators of PyTorch on tensors without dimensions, and on ones without elements."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch_comparison import compare  # noqa: E402

functional = torch.nn.functional


def _along_no_dimension(x):
    return (
        torch.softmax(x, 0),
        torch.log_softmax(x, -1),
        torch.aminmax(x, dim=0, keepdim=True),
        torch.logsumexp(x, 0, keepdim=True),
        (x > 0).all(-1),
        torch.any(x, 0, keepdim=True),
        torch.prod(x, 0, keepdim=True),
        x.argmax(),
        x.argmin(0),
        x.max(0),
        x.min(-1),
        torch.cumsum(x, 0),
        torch.cumsum(x.int(), 0),
        torch.linalg.vector_norm(x, 3, 0, True),
        torch.cosine_similarity(x, x, 0),
        x.scatter_add(0, torch.tensor(0), x),
        x.scatter(0, torch.tensor(0), x * 2),
        x.unfold(0, 1, 1),
        torch.gather(x, 0, torch.tensor([0])),
        torch.gather(x.reshape(1), 0, torch.tensor(0)),
        x.take(torch.tensor(0)),
        x.as_strided([], []),
    )


def test_without_dimensions():
    compare(_along_no_dimension, torch.tensor(2.5))


def _without_elements(x, matrices):
    """The sizes are 0, 3 and 4."""
    return (
        torch.maximum(x, x[:, :1]),
        torch.clamp(x[:, :1], x),
        torch.stack([x, x]),
        x[:, torch.tensor([2, 0])],
        functional.pad(x, (1, 1), mode="reflect"),
        functional.adaptive_avg_pool1d(x, 2),
        functional.group_norm(x[:, :, 0], 1),
        functional.unfold(x.unsqueeze(1), 2),
        torch.gather(x[:, 0], 0, torch.zeros(0, dtype=torch.int64)),
        torch.searchsorted(x[:, 0], x[:, 1], side="right"),
        torch.complex(x, x) * 2j,
        torch.linalg.inv(matrices),
        torch.linalg.lu_solve(*torch.linalg.lu_factor(matrices), matrices),
        x.sum((0, 1)),
        x.prod(),
    )


def test_without_elements():
    compare(_without_elements, torch.zeros(0, 3, 4), torch.zeros(0, 3, 3))


def _sizes_of_nothing(x):
    return (
        *torch.linalg.svd(x),
        torch.linalg.pinv(x),
        torch.linalg.inv_ex(x[:, :, :0]),
        torch.nonzero_static(x, size=2),
        torch.var_mean(x),
        torch.std_mean(x, (0, 1)),
    )


def test_what_tensors_without_elements_come_to():
    compare(_sizes_of_nothing, torch.zeros(2, 0, 3))


def _copies(x):
    return (
        torch.as_strided_copy(x, (2, 2), (1, 4), 1),
        torch.narrow_copy(x, 1, 1, 2),
        torch.permute_copy(x, (1, 0)),
        torch.view_copy(x, (6, 2)),
        *torch.unbind_copy(x),
        torch.expand_copy(x[:1], (3, 4)),
        torch.select_copy(x, 0, 1),
        x.clone().resize_(2, 2),
    )


def test_copies_of_views():
    compare(_copies, torch.randn(3, 4))
