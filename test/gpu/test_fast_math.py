"""Functions as one instruction of a GPU, where precision "fast" allows it."""

from __future__ import annotations

from collections.abc import Callable

import jax
import ml_dtypes
import numpy as np
import pytest
from emulator import Emulator
from jax import numpy as jnp
from models import compile_for_gpu, load_on_emulator, needs_ptxas
from test_lint import assembled

import stepwell
from stepwell.inspection.gpu_lint import lint
from stepwell.kernels.gpu.approximate_math import FAST_MATH
from stepwell.targets.nvidia import TARGETS, NvidiaTarget

X = np.concatenate([np.linspace(-20, 20, 1003), [0, -0.0, np.inf, -np.inf, np.nan]])
POSITIVE = np.concatenate([np.geomspace(1e-6, 1e6, 1003), [0, np.inf, np.nan]])

FUNCTIONS: dict[str, tuple[Callable, np.ndarray, str, str]] = {
    "exp": (jnp.exp, X, "ex2.approx", "MUFU.EX2"),
    "log": (jnp.log, POSITIVE, "lg2.approx", "MUFU.LG2"),
    "tanh": (jnp.tanh, X, "tanh.approx", "MUFU.TANH"),
    "rsqrt": (jax.lax.rsqrt, POSITIVE, "rsqrt.approx", "MUFU.RSQ"),
}
TOLERANCES = {"exp": 2**-22 + 20 * 2**-24, "log": 2**-21, "tanh": 2**-11, "rsqrt": 2**-22}
"""What kernels/gpu/approximate_math.py states."""

ROUNDING = {np.float32: 2**-23, np.float16: 2**-11, ml_dtypes.bfloat16: 2**-8}


def exported(function: Callable, *arrays: np.ndarray) -> str:
    return str(jax.export.export(jax.jit(function))(*arrays).mlir_module())


@pytest.mark.parametrize("dtype", ROUNDING, ids=lambda dtype: np.dtype(dtype).name)
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("count", [1, 1024], ids=["some", "vectors"])
def test_function(name: str, dtype: type, count: int, emulator: Emulator) -> None:
    """Within the stated errors, and exact at zeros, infinities and NaNs."""
    function, values, instruction, _ = FUNCTIONS[name]
    with np.errstate(over="ignore"):
        x = np.resize(values, max(values.size, count)).astype(dtype)
    made = compile_for_gpu(exported(function, x), precision="fast")
    assert all(instruction in text for text in made.kernels.values())
    got = load_on_emulator(made, emulator)(x)[0].astype(np.float64)
    with np.errstate(all="ignore"):
        wide = x.astype(np.float64)
        exact = 1 / np.sqrt(wide) if name == "rsqrt" else getattr(np, name)(wide)
        exact = exact.astype(dtype).astype(np.float64) if dtype is np.float16 else exact
    tolerance = TOLERANCES[name] + ROUNDING[dtype]
    least = TOLERANCES["log"] if name == "log" else 2.0**-126
    least = 2**-24 if dtype is np.float16 else least  # halves below 2^-14 have fewer bits
    np.testing.assert_allclose(got, exact, rtol=tolerance, atol=least)


def test_what_is_exact() -> None:
    """f64, and all of the other precisions."""
    x = np.zeros(1000, np.float32)
    for precision in ("default", "tf32", "strict"):
        made = compile_for_gpu(exported(jnp.tanh, x), precision=precision)
        assert not any("approx" in text for text in made.kernels.values())
    with jax.enable_x64(True):
        made = compile_for_gpu(exported(jnp.tanh, x.astype(np.float64)), precision="fast")
    assert not any("approx" in text for text in made.kernels.values())


def test_products_are_of_tf32() -> None:
    x = np.zeros((256, 256), np.float32)
    made = compile_for_gpu(exported(lambda x: x @ x, x), "cuda:sm_80", precision="fast")
    assert any("tf32" in text for text in made.kernels.values())


def test_processors_compute_as_ever() -> None:
    x = np.linspace(-3, 3, 100, dtype=np.float32)
    fast, plain = (
        stepwell.compile(exported(jnp.tanh, x), options={"precision": precision})(x)[0]
        for precision in ("fast", "default")
    )
    np.testing.assert_array_equal(fast, plain)


@pytest.mark.skipif(needs_ptxas(), reason="there is no ptxas here (pip install stepwell[cuda])")
def test_instructions() -> None:
    def several(x: jax.Array, y: jax.Array) -> list[jax.Array]:
        functions = [function for function, *_ in FUNCTIONS.values()]
        return [*(function(x) for function in functions), jax.nn.softmax(y), jax.nn.sigmoid(y)]

    arrays = [np.zeros(1 << 16, np.float32), np.zeros((64, 1000), np.float16)]
    options = {"precision": "fast"}
    lowered = stepwell.lower(exported(several, *arrays), target="cuda:sm_90a", options=options)
    lowered.step("affine")
    assert FAST_MATH in str(lowered)
    for target in TARGETS:
        assert isinstance(target, NvidiaTarget)
        kernels = assembled(lowered, target)
        for kernel in kernels:
            assert lint(kernel, target) == []
        for *_, instruction in FUNCTIONS.values():
            assert any(instruction in kernel.sass for kernel in kernels)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_quotients(dtype: type, emulator: Emulator) -> None:
    """Within 2 ulp of f32, but exact with precision "strict", and where they become integers."""
    rng = np.random.default_rng(0)
    x, y = (rng.lognormal(sigma=2, size=4096).astype(dtype) for _ in range(2))
    exact = x.astype(np.float64) / y.astype(np.float64)

    def quotients(x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
        return x / y, jnp.floor((y / x).astype(np.float32))

    for precision, ulps in (("default", 2.0), ("strict", 0.0)):
        compiled = compile_for_gpu(exported(quotients, x, y), precision=precision)
        quotient, whole = load_on_emulator(compiled, emulator)(x, y)
        rounded = exact.astype(dtype)
        spacing = np.spacing(exact.astype(np.float32)).astype(np.float64)
        apart = np.abs(quotient.astype(np.float64) - exact)
        limit = np.abs(rounded.astype(np.float64) - exact) + ulps * spacing
        assert (apart <= limit).all()
        inverse = (y.astype(np.float64) / x.astype(np.float64)).astype(dtype)
        np.testing.assert_array_equal(whole, np.floor(inverse.astype(np.float32)))
    kernels = compile_for_gpu(exported(quotients, x, y)).kernels.values()
    assert any("llvm.nvvm.div.full" in text for text in kernels)
