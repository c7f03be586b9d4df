"""Cumulative operators of PyTorch against PyTorch itself.

Results are equal but for float products and logarithms of sums: the former are rounded once an
element, the latter, of numbers up to 10, twice.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import stepwell

torch = pytest.importorskip("torch")

EXTREMES = {"cummax": torch.cummax, "cummin": torch.cummin}
FLOATS = (torch.float32, torch.float64, torch.float16)
OTHERS = (torch.int8, torch.int32, torch.int64, torch.uint8, torch.bool)
SHAPES = [((37, 45), 1), ((37, 45), 0), ((3, 40, 5), -2), ((50,), 0), ((), 0), ((0, 3), 0)]


def results(function: Callable[..., object], *inputs: torch.Tensor) -> list[torch.Tensor]:
    """What the compiled function gives."""

    class Module(torch.nn.Module):
        def forward(self, *inputs: torch.Tensor) -> object:
            return function(*inputs)

    executable = stepwell.compile(Module().eval(), inputs, threads=1)
    return [torch.as_tensor(np.asarray(result)) for result in executable(*inputs)]


def inputs(shape: tuple[int, ...], kind: torch.dtype) -> torch.Tensor:
    """Numbers of which several are equal; among floats, NaN and infinities."""
    torch.manual_seed(0)
    x = torch.randint(0, 20, shape)
    if not kind.is_floating_point:
        return x.to(kind)
    x = x.to(kind) - 10
    if x.dim() > 1 and x.numel():
        x.view(-1)[70], x.view(-1)[140] = float("nan"), float("inf")
        x.view(-1)[33], x.view(-1)[141] = float("-inf"), float("nan")
    return x


@pytest.mark.parametrize("kind", [*FLOATS, *OTHERS], ids=str)
@pytest.mark.parametrize("name", EXTREMES)
def test_extremes_and_their_places(name: str, kind: torch.dtype) -> None:
    """The last of equal ones, and the last NaN."""
    tensors = [inputs(shape, kind) for shape, _ in SHAPES]

    def function(*tensors: torch.Tensor) -> list[torch.Tensor]:
        return [
            part
            for x, (_, dim) in zip(tensors, SHAPES, strict=True)
            for part in EXTREMES[name](x, dim)
        ]

    for got, want in zip(results(function, *tensors), function(*tensors), strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.int32, torch.bool], ids=str)
def test_products(kind: torch.dtype) -> None:
    """Of integers, in 64 bits."""
    tensors = [inputs(shape, kind) for shape, _ in SHAPES]
    scaled = [x / 8 if kind.is_floating_point else x for x in tensors]

    def function(*tensors: torch.Tensor) -> list[torch.Tensor]:
        return [torch.cumprod(x, dim) for x, (_, dim) in zip(tensors, SHAPES, strict=True)]

    for got, want in zip(results(function, *scaled), function(*scaled), strict=True):
        torch.testing.assert_close(got, want, rtol=50 * 2**-24, atol=0, equal_nan=True)


def test_products_in_another_type() -> None:
    x = inputs((40, 40), torch.int32)

    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.cumprod(x, 1, dtype=torch.float32)

    torch.testing.assert_close(results(function, x)[0], function(x), rtol=50 * 2**-24, atol=0)


@pytest.mark.parametrize("kind", FLOATS, ids=str)
def test_logarithms_of_sums(kind: torch.dtype) -> None:
    """Within a unit of the result, and a unit of the logarithm; sums in float64 are not made in a
    wider type, so that there each element adds half a unit to the latter."""
    tensors = [inputs(shape, kind) for shape, _ in SHAPES]
    tensors.append(torch.tensor([[float("-inf")] * 40 + [1.0], [1000.0] * 41]).to(kind))
    dims = [dim for _, dim in SHAPES] + [1]

    def function(*tensors: torch.Tensor) -> list[torch.Tensor]:
        return [torch.logcumsumexp(x, dim) for x, dim in zip(tensors, dims, strict=True)]

    unit = torch.finfo(kind).eps
    most = 4 * unit if kind != torch.float64 else 25 * unit
    for got, x, dim in zip(results(function, *tensors), tensors, dims, strict=True):
        wide = x.double().numpy().astype(np.longdouble)
        with np.errstate(invalid="ignore"):
            want = np.logaddexp.accumulate(wide, dim) if wide.ndim and wide.size else wide
        assert got.dtype == kind
        np.testing.assert_allclose(got.double().numpy(), want, rtol=unit, atol=most)
