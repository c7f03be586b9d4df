"""Pools, windows, frames and transposed convolutions of PyTorch."""

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
        functional.adaptive_avg_pool2d(x[0], (3, 4)),
        functional.adaptive_avg_pool2d(x[0], (5, 3)),
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


def _windows(x):
    return (
        x.unfold(-1, 8, 4),
        x.unfold(-1, 6, 9),
        x.unfold(-1, 3, 1),
        x.unfold(0, 2, 1),
        x.as_strided((3, 5, 8), (41, 8, 1)),
        x.as_strided((3, 5, 8), (41, 8, 1), 1),
        x[0].as_strided((4, 11), (10, 1)),
        x.as_strided((4, 41), (20, 1)),
        x.as_strided((30,), (1,)),
        x[1:].as_strided((2, 4, 8), (41, 8, 1)),
        x[1:].as_strided((2, 4, 8), (41, 8, 1), 0),
    )


def test_windows_that_overlap():
    compare(_windows, R(3, 41))


@pytest.mark.parametrize(("size", "hop"), [(400, 160), (64, 16), (50, 7)])
def test_frames_of_a_signal(size, hop):
    window = torch.hann_window(size)

    def spectrum(x):
        frames = torch.stft(x, size, hop, window=window, return_complex=True)
        return torch.view_as_real(frames)

    compare(spectrum, R(2, 1000))


@pytest.mark.parametrize(
    ("size", "kernel", "dilation", "padding", "stride"),
    [
        ((9, 11), (3, 2), (1, 1), (0, 1), (1, 1)),
        ((12, 10), (3, 3), (2, 1), (1, 2), (2, 3)),
        ((8, 8), (2, 2), (1, 1), (0, 0), (2, 2)),
        ((1, 90), (1, 70), (1, 1), (0, 0), (1, 5)),
    ],
)
def test_blocks_put_together(size, kernel, dilation, padding, stride):
    how = {"dilation": dilation, "padding": padding, "stride": stride}

    def apart_and_together(x):
        blocks = functional.unfold(x, kernel, **how)
        return (
            blocks,
            functional.fold(blocks * 2, size, kernel, **how),
            functional.fold(blocks[0] * 2, size, kernel, **how),
        )

    compare(apart_and_together, R(2, 3, *size))
