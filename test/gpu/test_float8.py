"""Products of floats of 8 bits on tensor cores, by warps and by warpgroups. Integers, whose
products and sums every type holds: results are exact."""

from __future__ import annotations

import re

import jax
import ml_dtypes
import numpy as np
import pytest
from emulator import Emulator
from jax import lax
from models import ON_GPU, compile_for_gpu, load_on_emulator, needs_ptxas
from products import integers, matrices, product
from test_lint import assembled

import stepwell
from stepwell.inspection.gpu_lint import lint
from stepwell.kernels.gpu import mma_tile, wgmma_tile
from stepwell.kernels.gpu.tensor_core import MATRIX_TYPES
from stepwell.targets.nvidia import TARGETS, NvidiaTarget

E4M3, E5M2 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2
BF16 = ml_dtypes.bfloat16
KINDS = {"e4m3": E4M3, "e5m2": E5M2}
WARPS, WARPGROUPS = r"mma\.sync\.\S+\.f32\.{0}\.{0}\.f32", r"wgmma\S+\.f32\.{0}\.{0} "


def check(
    model: object, inputs: list[np.ndarray], expected: np.ndarray, emulator: Emulator,
    instruction: str, target: str = "cuda:sm_89", **options: object,
) -> None:  # fmt: skip
    compiled = compile_for_gpu(str(model), target, **options)
    assert any(re.search(instruction, text) for text in compiled.kernels.values())
    executable = load_on_emulator(compiled, emulator)
    for backwards in (False, True):
        emulator.configure(backwards=backwards)
        got = executable(*inputs)[0]
        np.testing.assert_array_equal(got.astype(np.float64), expected)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layout", ["kk", "kn", "mk", "mn"])
@pytest.mark.parametrize("sizes", [(2, 72, 96, 80), (1, 37, 51, 45)], ids=["chunks", "odd"])
def test_layout(kind: str, layout: str, sizes: tuple[int, ...], emulator: Emulator) -> None:
    """Operands that lie along k, or along rows and columns; whole chunks, and not."""
    check(*matrices(layout, sizes, KINDS[kind]), emulator, WARPS.format(kind))


def mixed(sizes: tuple[int, ...], left: str, right: str) -> tuple[object, list, np.ndarray]:
    """A product of operands of two types, both along k."""
    batch, m, k, n = sizes
    a, b = (
        integers(batch, m, k, seed=1, dtype=KINDS[left]),
        integers(batch, n, k, seed=2, dtype=KINDS[right]),
    )
    expected = np.einsum("bmk,bnk->bmn", a.astype(np.float64), b.astype(np.float64))
    return product(a, b, (((2,), (2,)), ((0,), (0,)))), [a, b], expected


@pytest.mark.parametrize(("left", "right"), [("e4m3", "e5m2"), ("e5m2", "e4m3")])
@pytest.mark.parametrize("target", ["cuda:sm_89", "cuda:sm_90a"])
def test_mixed(
    left: str, right: str, target: str, emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights of more, and gradients of fewer bits of fraction: by warps and by warpgroups."""
    if target == "cuda:sm_90a":
        monkeypatch.setattr(mma_tile, "cycles", lambda *_: float("inf"))
    words = r"wgmma\S+" if target == "cuda:sm_90a" else r"mma\.sync\.\S+"
    case = mixed((2, 151, 208, 73), left, right)
    check(*case, emulator, rf"{words}\.f32\.{left}\.{right}\b", target)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sizes", [(1, 128, 256, 64), (2, 151, 208, 73)], ids=["whole", "odd"])
def test_warpgroups(
    kind: str, sizes: tuple[int, ...], emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Operands along k, of which the GPU copies boxes by itself."""
    monkeypatch.setattr(mma_tile, "cycles", lambda *_: float("inf"))
    case = matrices("kk", sizes, KINDS[kind])
    check(*case, emulator, WARPGROUPS.format(kind), "cuda:sm_90a")


@pytest.mark.parametrize("kind", KINDS)
def test_constant_weights(kind: str, emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights that do not lie along k are transposed for good."""
    monkeypatch.setattr(mma_tile, "cycles", lambda *_: float("inf"))
    x, w = (
        integers(72, 144, seed=1, dtype=KINDS[kind]),
        integers(144, 80, seed=2, dtype=KINDS[kind]),
    )

    def product(x: jax.Array) -> jax.Array:
        return lax.dot(x, w, preferred_element_type=np.float32)

    expected = x.astype(np.float64) @ w.astype(np.float64)
    model = jax.export.export(jax.jit(product))(x).mlir_module()
    check(model, [x], expected, emulator, WARPGROUPS.format(kind), "cuda:sm_90a")


@pytest.mark.parametrize("kind", KINDS)
def test_every_code(kind: str, emulator: Emulator) -> None:
    """A product with the identity gives every code's number, NaNs and infinities too."""
    a = np.tile(np.arange(256, dtype=np.uint8), (16, 1)).T.reshape(256, 16).view(KINDS[kind])
    a = np.where(np.arange(16) == 3, a, 0).astype(KINDS[kind])
    a = np.pad(a, ((0, 0), (0, 16)))
    b = np.zeros((32, 8), KINDS[kind])
    b[3] = 1

    def model(a: jax.Array, b: jax.Array) -> jax.Array:
        return lax.dot(a, b, preferred_element_type=np.float32)

    text = str(jax.export.export(jax.jit(model))(a, b).mlir_module())
    expected = np.tile(a[:, 3:4].astype(np.float64), (1, 8))
    check(text, [a, b], expected, emulator, WARPS.format(kind))


def layer(x: jax.Array, w: jax.Array, scale: jax.Array) -> jax.Array:
    """Operands widened to the type of the result, and scaled."""
    left = x.astype(scale.dtype) * scale
    return jax.nn.relu(lax.dot(left, 0.5 * w.astype(scale.dtype)))


WIDENED = {
    "bf16": (BF16, "cuda:sm_89", {}, True),
    "f32": (np.float32, "cuda:sm_89", {}, False),
    "f32 as tf32": (np.float32, "cuda:sm_89", {"precision": "tf32"}, True),
    "strict": (BF16, "cuda:sm_89", {"precision": "strict"}, False),
    "older": (BF16, "cuda:sm_80", {}, False),
    "older PTX": (BF16, "cuda:sm_89+ptx83", {}, False),
}


@pytest.mark.parametrize("case", WIDENED)
def test_widened(case: str, emulator: Emulator) -> None:
    """Operands that are widened and scaled first are multiplied as they were, where that is as
    exact."""
    dtype, target, options, narrow = WIDENED[case]
    inputs = [integers(40, 64, seed=1, dtype=E4M3), integers(64, 48, seed=2, dtype=E4M3)]
    inputs.append(np.full((), 0.25, dtype))
    model = str(jax.export.export(jax.jit(layer))(*inputs).mlir_module())
    wide = [x.astype(np.float64) for x in inputs]
    product = wide[0] @ wide[1] * 0.125
    expected = np.maximum(product, 0).astype(dtype).astype(np.float64)
    found = any(
        re.search(WARPS.format("e4m3"), text)
        for text in compile_for_gpu(model, target, **options).kernels.values()
    )
    assert found == narrow
    check(model, inputs, expected, emulator, "", target, **options)


def test_weights_and_rounding(emulator: Emulator) -> None:
    """Constant weights stay bytes; a result of 8 bits is rounded from f32."""
    x, w = integers(24, 64, seed=1, dtype=E4M3), integers(64, 16, seed=2, dtype=E4M3)

    def model(x: jax.Array) -> jax.Array:
        return lax.dot(x, w, preferred_element_type=np.float32).astype(E4M3)

    text = jax.export.export(jax.jit(model))(x).mlir_module()
    expected = (x.astype(np.float32) @ w.astype(np.float32)).astype(E4M3).astype(np.float64)
    check(text, [x], expected, emulator, WARPS.format("e4m3"))
    compiled = compile_for_gpu(str(text), "cuda:sm_89")
    assert compiled.artifact.weights.nbytes == w.size


def test_attention_is_made_of_products(emulator: Emulator) -> None:
    """Scores and weighed values of 8 bits, with a softmax between, are three kernels, in a loop."""
    arrays = [np.random.default_rng(i).normal(size=(2, 40, 32)).astype(E4M3) for i in range(3)]

    def model(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
        def step(q: jax.Array, _: None) -> tuple[jax.Array, None]:
            scores = jax.numpy.einsum("bmd,bnd->bmn", q, k, preferred_element_type=np.float32)
            weights = jax.nn.softmax(scores * 0.2).astype(E4M3)
            sums = jax.numpy.einsum("bmn,bnd->bmd", weights, v, preferred_element_type=np.float32)
            return sums.astype(E4M3), None

        return lax.scan(step, q, None, length=2)[0]

    compiled = compile_for_gpu(str(jax.export.export(jax.jit(model))(*arrays).mlir_module()))
    found = [t for t in compiled.kernels.values() if re.search(WARPS.format("e4m3"), t)]
    assert len(found) == 2
    got = load_on_emulator(compiled, emulator)(*arrays)[0].astype(np.float64)
    expected = np.asarray(model(*(jax.numpy.asarray(a) for a in arrays))).astype(np.float64)
    # Sums in another order may round weights to the neighbouring number of 4 bits.
    np.testing.assert_allclose(got, expected, rtol=0.15, atol=0.02)


FAULTS = {
    "products of another type": (r"e4m3\.e4m3", "e5m2.e5m2"),
    "no wait": (r"\n.*call void @llvm\.nvvm\.cp\.async\.wait\.group\(i32 \d+\).*", ""),
}


@pytest.mark.skipif(ON_GPU, reason="faults are planted in what the emulator runs")
@pytest.mark.parametrize("fault", FAULTS)
def test_planted_fault(fault: str, emulator: Emulator) -> None:
    """What the tests above would see if it were wrong."""
    model, inputs, expected = matrices("kk", (1, 64, 128, 64), E4M3)
    made = compile_for_gpu(str(model), "cuda:sm_89")
    ((symbol, text),) = made.kernels.items()
    changed = re.sub(*FAULTS[fault], text)
    assert changed != text
    made.kernels[symbol] = changed
    assert not np.array_equal(load_on_emulator(made, emulator)(*inputs)[0], expected)


@pytest.mark.skipif(needs_ptxas(), reason="there is no ptxas here (pip install stepwell[cuda])")
@pytest.mark.parametrize("target", TARGETS[2:], ids=lambda target: target.cpu)
def test_instructions(target: NvidiaTarget) -> None:
    """Nothing is spilled; copies are of 16 bytes, products those of tensor cores."""

    def products(*arrays: jax.Array) -> list[jax.Array]:
        dims = (((1,), (1,)), ((), ()))
        return [
            lax.dot_general(*arrays[i : i + 2], dims, preferred_element_type=np.float32)
            for i in range(0, len(arrays), 2)
        ]

    shapes = [(4096, 1024), (1536, 1024)] * 2
    arrays = [np.zeros(s, k) for s, k in zip(shapes, (E4M3, E4M3, E5M2, E5M2), strict=True)]
    module = str(jax.export.export(jax.jit(products))(*arrays).mlir_module())
    lowered = stepwell.lower(module, target=target.name, options={"use_cache": False})
    by_warps = {"LDGSTS": 4, "LDSM": 4, "STG.E.128": 4}
    kernels = assembled(
        lowered.step("affine"), target,
        {"mma.sync": by_warps, "wgmma": {"QGMMA": 4, "UTMALDG": 2, "UTMASTG": 1}},
    )  # fmt: skip
    assert len(kernels) == 2
    for kernel in kernels:
        assert ("wgmma" in kernel.ptx) == wgmma_tile.takes(MATRIX_TYPES[-1], target)
        assert kernel.expected
        assert lint(kernel, target) == []
