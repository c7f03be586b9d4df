"""Pools and transposed convolutions of PyTorch."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch_comparison import compare  # noqa: E402

functional = torch.nn.functional
R = torch.randn


def _means(x):
    flat = x[:, :, 0]
    return (
        functional.avg_pool2d(flat, 2, divisor_override=-2),
        functional.avg_pool2d(flat, 3, 2, 1, True, True, 4),
        functional.avg_pool3d(x, (2, 3, 4), (1, 2, 2), (0, 1, 2), True),
        functional.avg_pool3d(x, 2, 1, 1, True, False),
        functional.avg_pool3d(x, 2, 1, 1, False, True, 5),
        functional.avg_pool3d(x, 2, 2, 1, False, False),
    )


def test_means():
    compare(_means, R(1, 2, 4, 5, 6))


def test_means_of_integers():
    def means(x):
        return (
            functional.avg_pool2d(x, 2),
            functional.avg_pool2d(x, 3, 2, 1, True, False),
            functional.avg_pool2d(x, 2, 1, divisor_override=3),
        )

    compare(means, torch.arange(-13, 12).reshape(1, 5, 5))


def _adaptive(x):
    return (
        functional.adaptive_avg_pool3d(x, (3, 5, 2)),
        functional.adaptive_avg_pool3d(x, (2, 1, 4)),
        functional.interpolate(x, (3, 3, 3), mode="area"),
        functional.adaptive_max_pool3d(x, (3, 2, 4), return_indices=True),
        functional.adaptive_max_pool3d(x[0], (2, 5, 1), return_indices=True),
        functional.adaptive_max_pool2d(x[0], (3, 4), return_indices=True),
    )


def test_as_many_windows_as_asked_for():
    compare(_adaptive, R(2, 2, 4, 5, 6))


def _largest(x):
    return (
        functional.max_pool3d(x, 3, 2, ceil_mode=True, return_indices=True),
        functional.max_pool3d(x, 2, 2, 1, dilation=2, ceil_mode=True),
    )


def test_windows_of_volumes_beyond_the_end():
    compare(_largest, R(1, 2, 4, 5, 6))


@pytest.mark.parametrize(
    ("dilation", "padding", "more"),
    [((4, 4), (1, 2), (2, 3)), ((2, 1), (0, 0), (1, 1)), ((1, 2), (3, 1), (0, 1))],
)
def test_transposed_convolutions_with_holes(dilation, padding, more):
    def convolved(x, weight, bias):
        return functional.conv_transpose2d(x, weight, bias, (3, 2), padding, more, 2, dilation)

    compare(convolved, R(2, 2, 4, 4), R(2, 2, 4, 5), R(4))
