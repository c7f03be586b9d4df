"""Precision "bf16": tensor cores multiply f32 rounded to bf16. Small integers are exact."""

from __future__ import annotations

import numpy as np
import pytest
from emulator import Emulator
from models import compile_for_gpu, load_on_emulator
from products import convolution, matrices

CASES = [
    matrices("kn", (2, 64, 96, 48), np.float32),
    convolution((2, 9, 9, 32), (3, 3), 48, np.float32),
]


@pytest.mark.parametrize("case", CASES, ids=["product", "convolution"])
def test_products_of_f32(case: tuple, emulator: Emulator) -> None:
    model, inputs, expected = case
    compiled = compile_for_gpu(str(model), "cuda:sm_80", precision="bf16")
    assert any(".mma." in text and ".bf16" in text for text in compiled.kernels.values())
    np.testing.assert_array_equal(load_on_emulator(compiled, emulator)(*inputs)[0], expected)
