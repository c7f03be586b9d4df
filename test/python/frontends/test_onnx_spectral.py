"""DFT of lengths that take every way down, against numpy's transforms in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

import stepwell


def _dft(x: np.ndarray, length: int | None, axis: int, **attributes: Any) -> np.ndarray:
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    constants = [numpy_helper.from_array(np.array(axis, np.int64), "axis")]
    if length is not None:
        constants.append(numpy_helper.from_array(np.array(length, np.int64), "length"))
    names = ["x", "" if length is None else "length", "axis"]
    graph = helper.make_graph(
        [helper.make_node("DFT", names, ["y"], **attributes)],
        "dft",
        [helper.make_tensor_value_info("x", kind, x.shape)],
        [helper.make_tensor_value_info("y", kind, None)],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
    return stepwell.compile(model, threads=1)(x)[0]


def _signal(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).uniform(-1, 1, shape).astype(np.float32)


def _pairs(z: np.ndarray) -> np.ndarray:
    return np.stack([np.real(z), np.imag(z)], axis=-1)


def _complex(x: np.ndarray) -> np.ndarray:
    wide = x.astype(np.float64)
    return wide[..., 0] if x.shape[-1] == 1 else wide[..., 0] + 1j * wide[..., 1]


def _close(result: np.ndarray, expected: np.ndarray) -> None:
    """Rounding of float32 grows with the size of the sums: relative to the largest element."""
    assert result.shape == expected.shape
    np.testing.assert_allclose(result, expected, rtol=0, atol=2e-6 * np.abs(expected).max())


@pytest.mark.parametrize(("length", "parts"), [(1, 2), (7, 1), (1024, 1), (1021, 2), (1500, 2)])
def test_forward_and_inverse(length: int, parts: int) -> None:
    x = _signal(3, length, parts)
    _close(_dft(x, None, 1), _pairs(np.fft.fft(_complex(x), axis=1)))
    _close(_dft(x, None, 1, inverse=1), _pairs(np.fft.ifft(_complex(x), axis=1)))


@pytest.mark.parametrize("length", [9, 16, 1026])
def test_half_spectra(length: int) -> None:
    x = _signal(2, length, 3, 1)
    _close(_dft(x, None, 1, onesided=1), _pairs(np.fft.rfft(x[..., 0], axis=1)))
    half = _signal(2, length // 2 + 1, 3, 2)
    expected = np.fft.irfft(_complex(half), n=length, axis=1)[..., None]
    _close(_dft(half, length, 1, inverse=1, onesided=1), expected)


@pytest.mark.parametrize("length", [5, 20])
def test_crops_and_fills_with_zeros(length: int) -> None:
    x = _signal(11, 4, 2)
    _close(_dft(x, length, -3), _pairs(np.fft.fft(_complex(x), n=length, axis=0)))
