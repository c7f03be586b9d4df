"""What operators of PyTorch round where their numbers are float16 or bfloat16."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch_comparison import compare  # noqa: E402

import stepwell  # noqa: E402
from stepwell.frontends.torch import backend  # noqa: E402
from stepwell.frontends.torch.graph import to_array  # noqa: E402

DTYPES = [torch.float16, torch.bfloat16]
_attention = torch.nn.functional.scaled_dot_product_attention


class _Sampled(torch.nn.Module):
    def forward(self, x, grid):
        return torch.nn.functional.grid_sample(x, grid, align_corners=False)


def _numbers(*shape: int, dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_large_scores_of_attention(dtype):
    """Of up to 50: a bfloat16 of that size is off by up to 0.125, its exponential by 13 %."""
    query = _numbers(2, 3, 5, 8, dtype=dtype) * 6
    keys, values = (_numbers(2, 3, 7, 8, dtype=dtype, seed=n) * 3 for n in (1, 2))
    bias = _numbers(5, 7, dtype=torch.float32, seed=3).to(dtype)

    def attention(query, keys, values):
        whole = _attention(query, keys, values), _attention(query, keys, values, attn_mask=bias)
        return *whole, _attention(query, keys, values, is_causal=True)

    compare(attention, query, keys, values)


@pytest.mark.parametrize("dtype", [*DTYPES, torch.float8_e4m3fn, torch.float8_e5m2])
def test_a_model_takes_tensors_of_its_type(dtype):
    x = _numbers(3, 4, dtype=torch.float32).to(dtype)
    exe = stepwell.compile(torch.nn.Identity(), (x,))
    np.testing.assert_array_equal(exe(x)[0], to_array(x))
    with pytest.raises(stepwell.InputError, match="has dtype float32 and the model takes"):
        exe(x.float())


@pytest.mark.parametrize("masks", [(), (torch.ones(1, 1, 1, 64, dtype=torch.bool),)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_attention_on_gpus_is_a_kernel_of_what_it_is_given(dtype, masks):
    class Attention(torch.nn.Module):
        def forward(self, query, keys, values, *masks):
            return _attention(query, keys, values, *masks)

    operands = (torch.zeros(1, 2, 64, 64, dtype=dtype),) * 3
    exported = torch.export.export(Attention(), (*operands, *masks))
    (kernel,) = stepwell.explain(exported, target="cuda:sm_90a").kernels
    name = {torch.float16: "f16", torch.bfloat16: "bf16"}[dtype]
    assert (kernel.kind, kernel.precision) == ("attention", f"{name} x {name} -> f32")


@pytest.mark.parametrize("dtype", DTYPES)
def test_gradients_of_attention_with_large_scores(dtype):
    """Against those of float32, within the rounding of the results and of their gradients."""
    given = [_numbers(1, 2, 6, 8, dtype=dtype, seed=n) * 4 for n in range(3)]
    found = [value.clone().requires_grad_() for value in given]
    exact = [value.float().requires_grad_() for value in given]
    torch._dynamo.reset()
    torch.compile(_attention, backend="stepwell")(*found).float().square().sum().backward()
    _attention(*exact).square().sum().backward()
    for own, other in zip(found, exact, strict=True):
        error = (own.grad.float() - other.grad).abs().max() / other.grad.abs().max()
        assert error < 8 * torch.finfo(dtype).eps
    assert all(report.compiled for report in backend.reports[-2:])


@pytest.mark.parametrize("dtype", DTYPES)
def test_products_of_a_batch_are_summed_before_they_are_rounded(dtype):
    compare(torch.addbmm, *(_numbers(*n, 4, 4, dtype=dtype, seed=len(n)) for n in ((), (9,), (9,))))


@pytest.mark.parametrize("dtype", DTYPES)
def test_exponential_of_a_matrix(dtype):
    """Against that of float32: PyTorch's own of half precision overflows."""

    class Exponential(torch.nn.Module):
        def forward(self, x):
            return torch.linalg.matrix_exp(x)

    x = _numbers(3, 4, 4, dtype=dtype)
    (found,) = stepwell.compile(Exponential(), (x,))(to_array(x))
    expected = torch.linalg.matrix_exp(x.float()).numpy()
    np.testing.assert_allclose(found.astype(np.float32), expected, rtol=torch.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", DTYPES)
def test_places_in_a_grid(dtype):
    """Between the elements of a dimension of 300, where a bfloat16 is a multiple of 2."""
    x, grid = _numbers(1, 2, 2, 2, 300, dtype=dtype), _numbers(1, 1, 4, 5, 3, dtype=dtype, seed=1)
    (found,) = stepwell.compile(_Sampled(), (x, grid))(to_array(x), to_array(grid))
    expected = _Sampled()(x.float(), grid.float()).numpy()
    tolerance = torch.finfo(dtype).eps  # the results are rounded once, and are below 4
    np.testing.assert_allclose(found.astype(np.float32), expected, tolerance, tolerance)


class _Placed(torch.nn.Module):
    def forward(self, x, grid):
        functional = torch.nn.functional
        bicubic = functional.grid_sample(x, grid, mode="bicubic", align_corners=False)
        return functional.interpolate(x, size=(2, 701), mode="bilinear"), bicubic


@pytest.mark.parametrize("dtype", DTYPES)
def test_places_in_long_rows(dtype):
    """Of 3000 elements, between which half precision has no places."""
    x, grid = _numbers(1, 2, 2, 3000, dtype=dtype), _numbers(1, 4, 5, 2, dtype=dtype, seed=1)
    found = stepwell.compile(_Placed(), (x, grid))(to_array(x), to_array(grid))
    tolerance = torch.finfo(dtype).eps  # rounded once
    for own, other in zip(found, _Placed()(x.float(), grid.float()), strict=True):
        np.testing.assert_allclose(own.astype(np.float32), other.numpy(), tolerance, tolerance)


class _RoundedOnce(torch.nn.Module):
    def forward(self, x):
        functional = torch.nn.functional
        return (
            functional.adaptive_avg_pool3d(x, (5, 2, 3)),
            functional.gelu(x),
            functional.gelu(x, approximate="tanh"),
            torch.linalg.vector_norm(9 * x.flatten(1), 4, 1),
            torch.dist(9 * x, x, 3),
        )


@pytest.mark.parametrize("dtype", DTYPES)
def test_results_that_are_rounded_once(dtype):
    x = _numbers(2, 2, 8, 7, 6, dtype=dtype)
    found = stepwell.compile(_RoundedOnce(), (x,))(to_array(x))
    tolerance = torch.finfo(dtype).eps
    for own, other in zip(found, _RoundedOnce()(x.float()), strict=True):
        np.testing.assert_allclose(own.astype(np.float32), other.numpy(), tolerance, atol=1e-6)
