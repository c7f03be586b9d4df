"""Gradients of single operators through `torch.compile`, against PyTorch's own."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from stepwell.frontends.torch import backend  # noqa: E402

F = torch.nn.functional
R = torch.randn


@pytest.fixture(autouse=True)
def _fresh():
    torch.manual_seed(0)
    torch._dynamo.reset()
    backend.reports.clear()


def _gradients(function, inputs):
    """Of a sum of all results, weighted at random, with respect to the floating inputs."""
    inputs = [x.clone().requires_grad_(x.is_floating_point()) for x in inputs]
    results = function(*inputs)
    results = [results] if isinstance(results, torch.Tensor) else results
    generator = torch.Generator().manual_seed(1)
    total = torch.zeros(())
    for result in results:
        real = torch.view_as_real(result.resolve_conj()) if result.is_complex() else result
        total = total + (real * torch.randn(real.shape, generator=generator)).sum()
    total.backward()
    return [result.detach() for result in results], [x.grad for x in inputs]


def _compare(function, *inputs, whole=True, tolerance=1e-5):
    """In float32, whose sums of a few dozen numbers are rounded in another order."""
    expected = _gradients(function, inputs)
    found = _gradients(torch.compile(function, backend="stepwell", fullgraph=True), inputs)
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)
    assert [report.graph for report in backend.reports] == ["forward", "backward"]
    assert not whole or all(report.compiled for report in backend.reports)


def _windows(x, y):
    return (
        F.avg_pool2d(x, (2,), (1,), (1,)),
        F.interpolate(y, (4, 6), mode="bilinear", antialias=True),
        F.interpolate(y, (7, 2), mode="bicubic", antialias=True, align_corners=True),
    )


def test_windows_and_resizing():
    _compare(_windows, R(2, 4, 4), R(1, 1, 5, 4))


@pytest.mark.parametrize("bounds", [(), (0.1, 0.5)])
def test_leaky_units_outside_training(bounds):
    """Their slope is random in training alone."""
    _compare(lambda x: F.rrelu(x, *bounds) + F.rrelu(x * 2, *bounds, training=False), R(3, 4))


def test_adaptive_pools_of_volumes():
    """Their gradients alone, which take the places of the largest."""
    x = R(2, 5, 4, 6)
    _, places = F.adaptive_max_pool3d(x, (3, 4, 2), return_indices=True)

    def gradients(gradient, x, places):
        return (
            torch.ops.aten._adaptive_avg_pool3d_backward(gradient, x),
            torch.ops.aten.adaptive_max_pool3d_backward(gradient, x, places),
        )

    inputs = R(2, 3, 4, 2), x, places
    found = torch.compile(gradients, backend="stepwell")(*inputs)
    torch.testing.assert_close(found, gradients(*inputs))
    assert backend.reports[0].compiled


def _transposed_with_room(x, weight):
    """`output_padding` is larger than the stride, so that nothing has given to the last columns."""
    return F.conv_transpose2d(
        x, weight, stride=(3, 2), padding=(1, 2), output_padding=(2, 3), groups=2, dilation=4
    )


def test_transposed_convolution_with_more_room_than_its_stride():
    _compare(_transposed_with_room, R(2, 2, 4, 4), R(2, 2, 3, 5))


def _determinants(a, b):
    """Of matrices by rows, by columns, and computed ones."""
    sign, logarithm = torch.linalg.slogdet(a)
    return torch.linalg.det(a), torch.linalg.det(b.mT), torch.linalg.det(a @ b), logarithm + sign


def test_determinants():
    _compare(_determinants, R(3, 4, 4), R(3, 4, 4), tolerance=1e-4)


def _solutions(a, b):
    positive = a @ a.mT + 4 * torch.eye(4)
    return (
        torch.linalg.cholesky(positive),
        torch.linalg.inv(positive),
        torch.linalg.solve(positive, b),
        torch.linalg.lu_factor(positive)[0],
        torch.linalg.matrix_power(positive, -2),
        torch.linalg.tensorinv(positive.reshape(2, 2, 2, 2)),
    )


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_factorisations_and_solutions():
    """PyTorch's checks for errors of LAPACK are effects, and run in PyTorch; nothing else does."""
    _compare(_solutions, R(4, 4), R(4, 3), whole=False, tolerance=1e-4)
    assert {name for report in backend.reports for name in report.operators} == {"with_effects"}


_BAGS = {
    "sum": {"per_sample_weights": True},
    "mean": {"padding_idx": 2},
    "max": {"padding_idx": 2},
}


@pytest.mark.parametrize("mode", _BAGS)
def test_bags_of_embeddings(mode):
    how = dict(_BAGS[mode])
    weighted = how.pop("per_sample_weights", False)
    indices = torch.tensor([1, 2, 4, 1, 2, 4, 3, 1])
    offsets = torch.tensor([0, 3, 3, 7])

    def bags(table, weights):
        given = weights if weighted else None
        found = F.embedding_bag(indices, table, offsets, mode=mode, per_sample_weights=given, **how)
        return found, 2 * weights

    _compare(bags, R(6, 3), R(8))


@pytest.mark.parametrize(("padding", "align_corners"), [("zeros", True), ("reflection", False)])
def test_bicubic_sampling_at_points(padding, align_corners):
    def sampled(x, grid):
        how = {"mode": "bicubic", "padding_mode": padding, "align_corners": align_corners}
        return F.grid_sample(x, grid, **how)

    _compare(sampled, R(2, 3, 5, 3), R(2, 4, 7, 2), tolerance=1e-4)


def _by_index(x, source, scalar):
    mask = x.detach() > 0
    rows, columns = torch.tensor([0, 2]), torch.tensor([[3, 1], [3, 0]])
    zero, first = torch.tensor(0), torch.tensor([0])
    return (
        x.masked_scatter(mask, source),
        x[:, rows, :, columns],
        scalar.index_add(0, zero, source[0], alpha=2),
        x.index_add(1, zero, x[:, :1]),
        scalar.index_copy(0, first, source[:1]),
        scalar.scatter(0, zero, source[1]),
        scalar.scatter_reduce(0, zero, source[2], "mean", include_self=False),
        torch.sgn(x),
    )


def test_reading_and_writing_by_index():
    _compare(_by_index, R(2, 3, 2, 4), R(60), R(()))


def test_sizes_that_depend_on_data():
    """What has them runs in PyTorch."""
    mask = torch.tensor([True, False, True, True])
    _compare(lambda x: x.cos()[mask] * 2, R(4, 3), whole=False)


def _of_batches(x, y, w, scale, shift):
    norm = torch.ops.aten._batch_norm_with_update_functional
    mean, variance = torch.zeros(3), torch.ones(3)
    return (
        norm(x, scale, shift, mean, variance, 0.1, 1e-5)[0],
        F.bilinear(x[:0], x[:0], w).sum() + F.bilinear(x, x, w),
        F.pdist(y, 2.0),
        F.pdist(y, 1.0),
    )


def test_batches():
    _compare(_of_batches, R(5, 3), R(3, 4), R(2, 3, 3), R(3), R(3), tolerance=1e-4)


def test_conjugates_in_spectra():
    _compare(lambda x: (torch.fft.ihfft(x, 10, 1), torch.fft.rfft(x).conj()), R(3, 6))
