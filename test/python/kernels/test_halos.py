"""Convolutions that leave out the terms which meet the zeros around an image."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
import pytest

import stepwell
from stepwell.kernels.cpu.halo import Window
from stepwell.kernels.index import Index

TOLERANCE = 1e-5
"""Relative L2 error of sums of up to 4,608 terms in float32."""


@pytest.mark.parametrize("dilation", [1, 2, 3, 7, 12])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize(("low", "high"), [(0, 0), (1, 1), (6, 7), (12, 12), (30, 0)])
def test_bounds_are_the_terms_inside(dilation: int, stride: int, low: int, high: int) -> None:
    extent, terms = 9, 3
    rows = (low + extent + high - dilation * (terms - 1) - 1) // stride + 1
    window = Window(0, 0, terms, stride, dilation, low, extent)
    for first in range(rows):
        for last in range(first, min(first + 4, rows)):
            start, stop = window.bounds(Index((), first), Index((), last))
            read = {
                term
                for term in range(terms)
                for row in (first, last)
                if low <= row * stride + term * dilation < low + extent
            }
            assert read <= set(range(start.constant, stop.constant))
            if first == last:
                inside = range(max(start.constant, 0), min(stop.constant, terms))
                assert read == set(inside)


@pytest.mark.parametrize(
    ("channels", "dilation", "size"), [((512, 64), 12, 16), ((512, 96), 18, 20), ((64, 40), 15, 16)]
)
def test_packed_weights(channels: tuple[int, int], dilation: int, size: int) -> None:
    """Tiles one after the other, and (with 512 channels) around chains of a sum."""
    random = np.random.default_rng(0)
    inputs, outputs = channels
    filters = (random.standard_normal((outputs, inputs, 3, 3)) / 48).astype(np.float32)
    image = random.standard_normal((1, inputs, size, size)).astype(np.float32)
    lowered = stepwell.lower(_convolution(filters, dilation, size))
    lowered.step("linalg")
    assert "kernel.halo" in str(lowered)
    (result,) = lowered.compile()(image)
    padded = np.pad(image[0].astype(np.float64), ((0, 0), (dilation,) * 2, (dilation,) * 2))
    wanted = np.zeros((outputs, size, size))
    for i, j in np.ndindex(3, 3):
        part = padded[:, i * dilation : i * dilation + size, j * dilation : j * dilation + size]
        wanted += np.einsum("oi,ihw->ohw", filters[:, :, i, j], part, optimize=True)
    assert np.linalg.norm(result[0] - wanted) <= TOLERANCE * np.linalg.norm(wanted)


def _convolution(filters: np.ndarray, dilation: int, size: int) -> onnx.ModelProto:
    node = onnx.helper.make_node(
        "Conv", ["x", "w"], ["y"], pads=[dilation] * 4, dilations=[dilation] * 2
    )
    x, y = (
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, channels, size, size])
        for name, channels in (("x", filters.shape[1]), ("y", filters.shape[0]))
    )
    weights = [onnx.numpy_helper.from_array(filters, "w")]
    return onnx.helper.make_model(onnx.helper.make_graph([node], "layer", [x], [y], weights))
