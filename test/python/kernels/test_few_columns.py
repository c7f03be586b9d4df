"""Products and convolutions of few columns, whose vectors lie along the terms of their sums."""

from __future__ import annotations

import re

import numpy as np
import pytest
from onnx import ModelProto, numpy_helper, parser

import stepwell

TOLERANCE = 1e-6
"""Relative L2 error: sums of up to 500 terms in float32, and a sigmoid."""


def _layer(text: str, weights: dict[str, np.ndarray]) -> ModelProto:
    model = parser.parse_model(f"""<ir_version: 8, opset_import: ["": 18]> g {text}""")
    model.graph.initializer.extend(numpy_helper.from_array(w, n) for n, w in weights.items())
    model.graph.output[0].type.tensor_type.ClearField("shape")
    return model


def _check(model: ModelProto, x: np.ndarray, wanted: np.ndarray) -> None:
    for threads in (1, 2):
        lowered = stepwell.lower(model, threads=threads)
        lowered.step("linalg")
        assert re.search(r"terms = (8|16) : i64", str(lowered))
        (result,) = lowered.compile()(x)
        assert np.linalg.norm(result - wanted) <= TOLERANCE * np.linalg.norm(wanted)


@pytest.mark.parametrize("columns", range(2, 9))
@pytest.mark.parametrize("rows", [2, 7, 130])
def test_products(rows: int, columns: int) -> None:
    random = np.random.default_rng(columns)
    x = random.standard_normal((rows, 512)).astype(np.float32)
    w, b = random.standard_normal((512, columns)), random.standard_normal(columns)
    weights = {"w": w.astype(np.float32), "b": b.astype(np.float32)}
    model = _layer(f"(float[{rows}, 512] x) => (float[] y) {{ y = Gemm(x, w, b) }}", weights)
    wanted = x.astype(np.float64) @ weights["w"].astype(np.float64) + weights["b"]
    _check(model, x, wanted)


@pytest.mark.parametrize("columns", [1, 2, 3, 5])
@pytest.mark.parametrize("terms", [32, 24])
@pytest.mark.parametrize("groups", [1, 2])
def test_windows(columns: int, terms: int, groups: int) -> None:
    """Also of eight terms a vector, where there are no sixteen, and with an activation."""
    random = np.random.default_rng(columns)
    x = random.standard_normal((2, groups * terms, 9, 11)).astype(np.float32)
    w = random.standard_normal((groups * columns, terms, 3, 3)).astype(np.float32)
    model = _layer(
        f"(float[2, {groups * terms}, 9, 11] x) => (float[] y)"
        f"{{ c = Conv <pads = [1, 1, 1, 1], group = {groups}>(x, w) y = Sigmoid(c) }}",
        {"w": w},
    )
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    apart = windows.reshape(2, groups, terms, 9, 11, 3, 3)
    filters = w.reshape(groups, columns, terms, 3, 3).astype(np.float64)
    sums = np.einsum("bgihwkl,goikl->bgohw", apart, filters).reshape(2, -1, 9, 11)
    _check(model, x, 1 / (1 + np.exp(-sums)))


def test_numbers_of_64_bits() -> None:
    """Vectors of eight, where there are such."""
    random = np.random.default_rng(0)
    x, w = random.standard_normal((40, 96)), random.standard_normal((96, 3))
    model = _layer("(double[40, 96] x) => (double[] y) { y = MatMul(x, w) }", {"w": w})
    _check(model, x, x @ w)
