"""Reductions of PyTorch: NaN, several dimensions, few elements."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch_comparison import compare  # noqa: E402

import stepwell  # noqa: E402
from stepwell.frontends.torch.graph import to_array  # noqa: E402

nan = torch.nan


class _Called(torch.nn.Module):
    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, x):
        return self.module(x)


def _extremes(x):
    return (
        x.argmax(),
        x.argmin(),
        x.argmax(0),
        x.argmin(-1, keepdim=True),
        *x.max(0),
        *x.min(-1),
        x.aminmax(dim=1),
        torch.nn.functional.max_pool1d(x, 2, return_indices=True),
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_nan_wins_over_all_numbers(dtype):
    """The first NaN, as the first of equal numbers."""
    x = torch.tensor([[1, 2, nan, 2], [nan, 4, nan, 4], [5, 1, 2, 5], [0, -torch.inf, nan, 1]])
    compare(_extremes, x.to(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool])
def test_truth_along_several_dimensions(dtype):
    x = torch.tensor([[[0, 1, 1], [1, 1, 1]], [[0, 0, 0], [0, 0, 1]]]).to(dtype)

    def truths(x):
        return tuple(
            of(x, dim, keepdim=keepdim)
            for of in (torch.all, torch.any)
            for dim in ((0, 1), (-1,), (0, -1), None)
            for keepdim in (False, True)
        )

    compare(truths, x)


def _variances(x):
    return (
        torch.var(x, 1, correction=3),
        torch.var_mean(x, 1, correction=5),
        torch.std_mean(x[:, :1], 1, keepdim=True),
        torch.std(x[0, 0]),
        torch.var(x.new_ones(2, 3), correction=9),
    )


def test_variances_without_degrees_of_freedom():
    compare(_variances, torch.randn(2, 3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_normalizations_are_float32(dtype):
    """Of numbers whose mean is larger than what they vary by; for any number of rows, too."""
    layer = torch.nn.Sequential(torch.nn.LayerNorm(96), torch.nn.Unflatten(1, (8, 12)))
    module = torch.nn.Sequential(layer, torch.nn.GroupNorm(4, 8)).to(dtype)
    x = (torch.randn(6, 96) + 20).to(dtype)
    for shapes in (None, {"x": {0: torch.export.Dim("rows")}}):
        program = torch.export.export(_Called(module), (x,), dynamic_shapes=shapes)
        kernels = stepwell.explain(program, shapes={"x": (6, 96)}).kernels
        assert not any("f64" in kernel.precision for kernel in kernels)
        (found,) = stepwell.compile(program)(to_array(x))
        expected = module.double()(x.double()).detach().numpy()
        module.to(dtype)
        error = np.abs(found.astype(np.float64) - expected).max()
        assert error < 20 * torch.finfo(dtype).eps


def _norms(x):
    return (
        torch.linalg.norm(x),
        torch.linalg.norm(x, "nuc"),
        torch.linalg.norm(x, 2),
        torch.linalg.norm(x, 1, dim=1),
        torch.linalg.vector_norm(x, 3.0, []),
    )


def test_norms():
    compare(_norms, torch.randn(4, 5))
