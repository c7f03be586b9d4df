"""Functions whose formulas CPUs and GPUs share, on the emulated GPU."""

from __future__ import annotations

import numpy as np
import pytest
from emulator import Emulator
from models import compile_for_gpu, load_on_emulator

import stepwell

NAMES = (
    "chlo.bessel_i1e",
    "chlo.cosh",
    "chlo.erf",
    "chlo.erf_inv",
    "chlo.erfc",
    "chlo.sinh",
    "stablehlo.exponential",
    "stablehlo.exponential_minus_one",
    "stablehlo.tanh",
)
EDGES = [0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 1e-30, 88.9, -88.9, 709.9, -745]


def program(kind: str, count: int) -> str:
    """All functions of one argument."""
    tensor = f"tensor<{count}x{kind}>"
    calls = [f'%{i} = "{name}"(%x) : ({tensor}) -> {tensor}' for i, name in enumerate(NAMES)]
    results = ", ".join(f"%{i}" for i in range(len(NAMES)))
    types = ", ".join([tensor] * len(NAMES))
    body = "\n".join([*calls, f"return {results} : {types}"])
    return f"func.func @main(%x: {tensor}) -> ({types}) {{ {body} }}"


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
def test_as_on_cpus(dtype: type, emulator: Emulator) -> None:
    """Within one unit in the last place: only quotients and roots, which both round correctly, and
    e^x, which CPUs scale by an instruction of their own, are not the same operations."""
    random = np.random.default_rng(0)
    ranges = [random.uniform(-size, size, 300) for size in (1, 6, 30, 100)]
    x = np.concatenate([EDGES, *ranges]).astype(dtype)
    text = program("f32" if dtype is np.float32 else "f64", x.size)
    want = stepwell.compile(text, threads=1)(x)
    got = load_on_emulator(compile_for_gpu(text), emulator)(x)
    for name, on_gpu, on_cpu in zip(NAMES, got, want, strict=True):
        np.testing.assert_array_equal(np.isfinite(on_gpu), np.isfinite(on_cpu), name)
        np.testing.assert_array_equal(np.signbit(on_gpu[:4]), np.signbit(on_cpu[:4]), name)
        known = np.isfinite(on_cpu)
        np.testing.assert_array_max_ulp(on_gpu[known], on_cpu[known], 1)
