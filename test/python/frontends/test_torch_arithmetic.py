"""Functions of elements of PyTorch: what is broadcast, and where functions are hard."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch_comparison import compare  # noqa: E402

R = torch.randn


def _bounded(x, low, high):
    return (
        torch.clamp(x, low, high),
        torch.clamp(low, x),
        torch.clamp(x, max=high),
        torch.clamp_min(low, x),
        torch.clamp_max(high, x),
        torch.clamp(x.int(), high),
        torch.clamp(x * torch.nan, low, high),
    )


def test_bounds_are_broadcast():
    compare(_bounded, R(3, 4), R(4), R(3, 1))


def _of_integers(x):
    row = x[0, 0]
    return (
        torch.addbmm(x[0], x, x, beta=3, alpha=2),
        torch.addmv(row, x[0], x[1, 1], beta=3),
        x << row,
        x >> x[:, :, :1],
        x[:, :1].gcd(row[:0].sum() + x),
        torch.cov(x[0]),
        torch.reciprocal(x),
        torch.erf(x),
        torch.isfinite(x),
        torch.corrcoef(x[0]),
    )


def test_integers():
    compare(_of_integers, torch.tensor([3, 1, 4, 1, 5, 9, 2, 6]).reshape(2, 2, 2))


def _polygamma(x):
    return tuple(torch.polygamma(order, x) for order in range(5))


def test_polygamma_of_all_real_numbers():
    """Near the poles, which negative integers are, PyTorch's own numbers are rounded ones."""
    x = torch.tensor([0.3, 1.5, 7.25, -0.4, -1.5, -3.25, -8.4784, 0.0])
    compare(_polygamma, x.double())


def _angles(x):
    return torch.angle(x), torch.angle(torch.arange(-2, 3)), torch.angle(x.half())


def test_angles_of_real_numbers():
    compare(_angles, torch.tensor([1.0, -2.0, 0.0, torch.nan, torch.inf, -torch.inf]))


def test_wider_complex_numbers():
    compare(lambda x: (x.to(torch.complex128) * 2j, x.double().cdouble().real), R(3))


def _losses(x, y, variance):
    loss = torch.nn.functional.gaussian_nll_loss
    return (
        loss(x, y, variance),
        loss(x, y, variance, full=True, reduction="sum"),
        loss(x, y, variance[:, 0], reduction="none", eps=0.5),
        loss(x, y, 0.7),
    )


def test_gaussian_likelihood():
    compare(_losses, R(3, 4), R(3, 4), torch.rand(3, 4))


def _spectra(x):
    z = torch.fft.rfft2(x)
    return (
        torch.fft.hfft2(z),
        torch.fft.hfftn(z, norm="ortho"),
        torch.fft.ihfft2(x).resolve_conj(),
        torch.fft.ihfftn(x, s=(3, 4), norm="forward").resolve_conj(),
    )


def test_transforms_of_hermitian_signals():
    compare(_spectra, R(4, 6))


def _of_extremes(x):
    rows, columns = x.unsqueeze(1), x
    return (
        torch.isfinite(x),
        torch.fmod(rows, columns),
        torch.remainder(rows, columns),
        torch.fmod(x, torch.inf),
        torch.hypot(rows, columns),
        torch.searchsorted(torch.tensor([-1.0, 0.0, 2.0]), x),
        torch.searchsorted(torch.tensor([-1.0, 0.0, 2.0]), x, right=True),
        torch.median(x.expand(2, -1), 1).indices,
    )


def test_infinite_numbers_and_nan():
    compare(
        _of_extremes, torch.tensor([1.0, -2.5, 0.0, torch.nan, torch.inf, -torch.inf, torch.nan])
    )


def _near_zero(x, y):
    functional = torch.nn.functional
    small = functional.elu(x), functional.selu(x), functional.celu(x, 2.0)
    return *small, torch.logaddexp2(torch.zeros_like(y), y)


def test_results_near_zero():
    """Relative to each of them, within a few roundings of float32."""
    inputs = torch.tensor([-1e-38, -1e-9, -3e-5, 1e-9]), torch.tensor([-120.0, -30.0, -5.0, 2.0])
    torch._dynamo.reset()
    found = torch.compile(_near_zero, backend="stepwell")(*inputs)
    torch.testing.assert_close(found, _near_zero(*inputs), rtol=1e-6, atol=0.0)


def _floors(x, y):
    number = torch.floor_divide(x, 1e30), torch.div(x, -0.1, rounding_mode="floor")
    return torch.floor_divide(x, y), *number, torch.floor_divide(x.half(), y.half())


def test_quotients_that_would_be_rounded_up():
    x = torch.tensor([-1e-30, 1e-30, 1.0, -1.0, 1.0, 5.0, 0.0, torch.inf, 1.0, -1.0, 0.3])
    y = torch.tensor([1e30, -1e30, 0.1, 0.1, 0.0, -2.0, -3.0, 2.0, torch.inf, torch.inf, 0.1])
    compare(_floors, x, y)


def _margins(x, target, targets):
    functional = torch.nn.functional
    weight = torch.tensor([1.0, 2.0, 3.0])
    return (
        functional.multi_margin_loss(x, target, reduction="none"),
        functional.multi_margin_loss(x[:1], target[:1], p=2, weight=weight),
        functional.multilabel_margin_loss(x, targets, reduction="none"),
    )


def test_margins_that_are_not_numbers():
    inf, nan = torch.inf, torch.nan
    x = torch.tensor([[1.0, nan, 0.5], [inf, 1.0, 2.0], [1.0, 2.0, -inf], [0.0, inf, 1.0]])
    targets = torch.tensor([[0, -1, -1], [1, 0, -1], [2, -1, 0], [0, 1, -1]])
    inputs = x, torch.tensor([0, 1, 2, 0]), targets
    torch._dynamo.reset()
    found = torch.compile(_margins, backend="stepwell")(*inputs)
    torch.testing.assert_close(found, _margins(*inputs), equal_nan=True)


def _resized(x):
    resize = torch.nn.functional.interpolate
    return (
        resize(x, size=(6, 7), mode="bilinear"),
        resize(x, scale_factor=(1.5, 0.7), mode="bilinear"),
        resize(x, size=(7, 7), mode="bilinear", align_corners=True),
        resize(x[0], size=6, mode="linear"),
        resize(x.unsqueeze(0), size=(2, 3, 6), mode="trilinear"),
    )


def test_resizing_among_infinite_numbers():
    x = torch.arange(16.0).reshape(1, 1, 4, 4)
    x[0, 0, 1:3, 1:3], x[0, 0, 0, 0], x[0, 0, 3, 3] = torch.inf, torch.nan, -torch.inf
    compare(_resized, x)
