"""Operators of PyTorch on complex numbers."""

# pyright: reportMissingImports=false
from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch_comparison import compare  # noqa: E402

import stepwell  # noqa: E402


def _numbers(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.complex64, generator=generator)


_EDGES = torch.tensor([0, 1e-3 + 1e-4j, 2, -2, 0.5j, -1.5 - 0.2j, 3 - 2j])


def test_functions():
    def functions(z):
        circular = z.tan(), z.asin(), z.acos(), z.atan()
        hyperbolic = z.sinh(), z.cosh(), z.asinh(), z.acosh(), (z + 3).atanh()
        exponential = z.expm1(), z.log1p(), z.exp2(), z.sigmoid(), z.sinc()
        logarithms = (z + 4).log2(), (z + 4).log10(), (z + 4).rsqrt()
        return *circular, *hyperbolic, *exponential, *logarithms

    compare(functions, _EDGES)


def test_functions_of_two():
    def functions(z, w):
        powers = torch.ldexp(z, torch.tensor([1, -2, 3])), torch.ldexp(z.real, w)
        return *powers, torch.logaddexp(z, w), torch.logaddexp(z + 100, w + 100), z.logcumsumexp(0)

    compare(functions, _numbers(4, 3), _numbers(4, 3, seed=1))


def test_truth():
    def truths(z, w):
        both = torch.logical_and(z, w), torch.logical_or(z, w), torch.logical_xor(z, w)
        compared = z != w, z == 2, z != 0.5j, w.real == 1j, torch.isclose(z, w)
        finite = (z / w).isfinite(), (z / w).isnan(), (1 / w.real + z).isinf()
        return *both, *compared, *finite, z.logical_not(), z.any(), w.all(), z.bool()

    w = torch.where(torch.arange(7) % 2 == 0, _EDGES, 0)
    compare(truths, _EDGES, w)
    nan = torch.tensor([complex("nan"), 1 + 1j])
    compare(lambda z: torch.isclose(z, z, equal_nan=True), nan)


def test_reductions():
    def reductions(z):
        sums = z.sum(1, dtype=torch.complex128), z.real.cumsum(0, dtype=torch.complex64)
        products = z.prod(), z.prod(1), z.prod(0, keepdim=True), z[0, 0].prod(0)
        spread = z.var(), z.std(0), *torch.var_mean(z, 1, keepdim=True)
        norms = z.norm(), z.norm(1, 0), torch.linalg.vector_norm(z, 3, dtype=torch.complex128)
        return *sums, *products, *spread, *norms

    compare(reductions, _numbers(3, 4))


def test_normalization():
    def normalized(z):
        return torch.nn.functional.normalize(z), torch.nn.functional.rms_norm(z, [4])

    compare(normalized, _numbers(3, 4))


@pytest.mark.filterwarnings("ignore:Casting complex values:UserWarning")
def test_conversions():
    def converted(z):
        narrow = z.real.to(torch.bfloat16), z.to(torch.bfloat16), z.to(torch.int32)
        return *narrow, z.double(), z.float(), torch.ones_like(z, dtype=torch.float32)

    compare(converted, _numbers(3, 4))


def test_views():
    def views(z):
        strided = z.as_strided((2, 3), (1, 2), 1), z.as_strided((2,), (5,))
        return *strided, *z.split([1, 2]), *z.chunk(2, 1)

    compare(views, _numbers(3, 4))


def test_elements():
    def elements(z, values):
        masked = z.masked_scatter(z.real > 0, values)
        index = torch.tensor([0, -1, 2])
        return masked, torch.ops.aten._unsafe_index_put(z, [index], values, True)

    compare(elements, _numbers(3, 4), _numbers(3, 4, seed=1))


def test_matrices():
    def matrices(a, b):
        exponential = torch.linalg.matrix_exp(a)
        inverses = torch.linalg.pinv(a[0, :, :2]), torch.linalg.pinv(a @ a.mH, hermitian=True)
        return exponential, *inverses, torch.addbmm(a[0], a, b, beta=2j, alpha=0.5)

    compare(matrices, _numbers(2, 3, 3), _numbers(2, 3, 3, seed=1))


def test_view_outside_of_the_tensor():
    class Outside(torch.nn.Module):
        def forward(self, x):
            return x.as_strided((2, 2), (1, 2), 0)

    memory = torch.arange(20.0)
    with pytest.raises(stepwell.ModelError, match="a view by strides cannot be read"):
        stepwell.compile(Outside(), (memory[10:],))
