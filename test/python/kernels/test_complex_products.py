"""Products of complex numbers: of the two real products in each part, one is rounded by itself and
the other fused with it, as in XLA's code for CPUs; those of short sums are both rounded."""

from __future__ import annotations

import numpy as np
import pytest

import stepwell

KINDS = {"f32": np.complex64, "f64": np.complex128}


def complex_normal(shape: tuple[int, ...], kind: type, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(kind)


def fused(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """a * b + c, rounded once but for a rounding to more bits before it."""
    wide = np.float64 if a.dtype == np.float32 else np.longdouble
    return (a.astype(wide) * b + c).astype(a.dtype)


def product(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """x * y."""
    result = np.empty(np.broadcast_shapes(x.shape, y.shape), x.dtype)
    result.real = fused(x.real, y.real, -(x.imag * y.imag))
    result.imag = fused(x.imag, y.real, x.real * y.imag)
    return result


def rounded_product(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """x * y with five roundings; numpy itself may fuse some."""
    result = np.empty(np.broadcast_shapes(x.shape, y.shape), x.dtype)
    result.real = x.real * y.real - x.imag * y.imag
    result.imag = x.real * y.imag + x.imag * y.real
    return result


@pytest.mark.parametrize("part", KINDS)
def test_multiply(part: str) -> None:
    text = f"""func.func @main(%x: tensor<20x33xcomplex<{part}>>, %y: tensor<20x33xcomplex<{part}>>)
        -> tensor<20x33xcomplex<{part}>> {{
      %0 = stablehlo.multiply %x, %y : tensor<20x33xcomplex<{part}>>
      return %0 : tensor<20x33xcomplex<{part}>>
    }}"""
    x, y = (complex_normal((20, 33), KINDS[part], seed) for seed in range(2))
    executable = stepwell.compile(text, threads=1)
    np.testing.assert_array_equal(executable(x, y)[0], product(x, y))


@pytest.mark.parametrize("part", KINDS)
def test_short_contraction_adds_in_order(part: str) -> None:
    text = f"""func.func @main(%x: tensor<7x3x4xcomplex<{part}>>, %y: tensor<4x7x5xcomplex<{part}>>)
        -> tensor<7x3x5xcomplex<{part}>> {{
      %0 = stablehlo.dot_general %x, %y, batching_dims = [0] x [1], contracting_dims = [2] x [0]
        : (tensor<7x3x4xcomplex<{part}>>, tensor<4x7x5xcomplex<{part}>>)
        -> tensor<7x3x5xcomplex<{part}>>
      return %0 : tensor<7x3x5xcomplex<{part}>>
    }}"""
    x = complex_normal((7, 3, 4), KINDS[part], 0)
    y = complex_normal((4, 7, 5), KINDS[part], 1)
    expected = np.zeros((7, 3, 5), KINDS[part])
    for k in range(4):
        expected = expected + rounded_product(x[:, :, k, None], y[k][:, None, :])
    np.testing.assert_array_equal(stepwell.compile(text, threads=1)(x, y)[0], expected)


@pytest.mark.parametrize(
    "op",
    [
        "dot_general %x, %w, contracting_dims = [1] x [0]",
        "convolution(%x, %w) dim_numbers = [b, f]x[i, o]->[b, f], window = {} "
        "{batch_group_count = 1 : i64, feature_group_count = 1 : i64}",
    ],
    ids=["dot_general", "convolution"],
)
def test_complex_results_of_real_operands(op: str) -> None:
    """As jax.numpy.einsum has the product of two of its operands, where a third one is complex."""
    text = f"""func.func @main(%x: tensor<5x3xf64>, %w: tensor<3x4xf64>)
        -> tensor<5x4xcomplex<f64>> {{
      %0 = stablehlo.{op}
        : (tensor<5x3xf64>, tensor<3x4xf64>) -> tensor<5x4xcomplex<f64>>
      return %0 : tensor<5x4xcomplex<f64>>
    }}"""
    x, w = (complex_normal(shape, np.complex128, 0).real.copy() for shape in ((5, 3), (3, 4)))
    (found,) = stepwell.compile(text, threads=1)(x, w)
    # Sums of three products, added in any order.
    np.testing.assert_allclose(found, (x @ w).astype(np.complex128), rtol=1e-14, atol=1e-14)
