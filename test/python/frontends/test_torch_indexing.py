"""Reading and writing of PyTorch by index."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch_comparison import compare  # noqa: E402

R = torch.randn


def _by_mask(x, rows, mask, each):
    written = x.clone()
    written[rows] = x[0] * 2
    written[mask] = 7
    return (
        written,
        torch.index_put(x, (rows,), each),
        torch.index_put(x, (rows,), each, accumulate=True),
        torch.index_put(x, (mask,), each.reshape(-1)[:5]),
        x[0].masked_scatter(mask, x),
    )


def test_values_put_by_mask():
    mask = torch.tensor([[1, 0, 0], [0, 0, 1], [0, 1, 0], [1, 0, 1]]) > 0

    def written(x, rows, each):
        return _by_mask(x, rows, mask, each)

    compare(written, R(4, 3), torch.tensor([True, False, True, False]), R(2, 3))


def _reduced(x, index):
    return (
        x.scatter(0, index, x * 3, reduce="add"),
        x.scatter(0, index, x * 3, reduce="multiply"),
        x.scatter(1, index, 2.5, reduce="multiply"),
    )


def test_scatter_with_a_reduction():
    compare(_reduced, R(3, 4), torch.tensor([[0, 2, 1], [2, 2, 0]]))


def _places(x, table, ids):
    return (
        torch.searchsorted(x.sort()[0][0], 0.25),
        torch.searchsorted(x.sort()[0][0], 0.25, right=True, out_int32=True),
        torch.nn.functional.embedding(ids, table, scale_grad_by_freq=True),
        x.take(ids),
    )


def test_places():
    compare(_places, R(3, 4), R(6, 2), torch.tensor([[0, 5], [3, 3]]))


def _found(boundaries, rows, values, several):
    return (
        torch.searchsorted(boundaries, values),
        torch.searchsorted(boundaries, values, right=True),
        torch.searchsorted(rows, several, out_int32=True),
        torch.bucketize(values, boundaries),
    )


def test_places_among_many_boundaries():
    """Equal ones, values outside, and NaN among them."""
    boundaries = torch.arange(200).div(3, rounding_mode="floor").float()
    values = torch.cat([torch.arange(-2.0, 70.0, 0.5), torch.tensor([float("nan"), float("inf")])])
    compare(_found, boundaries, R(3, 100).sort(1)[0], values, R(3, 7))


def _bags(table, ids, offsets, weights):
    bag = torch.nn.functional.embedding_bag
    flat = ids.flatten()
    return (
        bag(ids, table),
        bag(ids, table, mode="sum", per_sample_weights=weights),
        bag(ids, table, mode="max"),
        bag(flat, table, offsets),
        bag(flat, table, offsets, mode="sum", padding_idx=3),
        bag(flat, table, torch.cat([offsets, offsets[-1:] * 0 + 12]), include_last_offset=True),
    )


def test_bags():
    """Empty ones among them, at the end, too."""
    ids = torch.tensor([[0, 3, 3, 5], [9, 3, 1, 1], [2, 2, 2, 2]])
    compare(_bags, R(10, 5), ids, torch.tensor([0, 2, 2, 7, 12]), R(3, 4))
