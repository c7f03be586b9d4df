"""Products of rows with the matrix of their group on the emulator: every matrix is read where it
lies. Sums of small integers, which every type holds: results are exact."""

from __future__ import annotations

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from emulator import Emulator
from jax import lax
from models import Compiled, compile_for_gpu, load_on_emulator

from stepwell.kernels.gpu import mma_tile

SIZES = [100, 3, 0, 64, 129, 1, 200, 5]
"""Of groups: fewer rows than there are, one without any, and more than a tile has."""

TILES, ROWS = 24, 32
"""Tiles that 512 rows in these groups become, and the rows of one."""


@dataclass(frozen=True)
class Case:
    """Matrices of `depth` x `width` on a target, and an instruction that multiplies them there."""

    target: str
    dtype: type
    depth: int
    width: int
    instruction: str
    options: dict[str, str] = field(default_factory=dict)


TF32 = {"precision": "tf32"}
CASES = {
    "mma-f16": Case("cuda:sm_80", np.float16, 64, 128, "llvm.nvvm.mma.m16n8k16"),
    "mma-bf16": Case("cuda:sm_80", ml_dtypes.bfloat16, 32, 64, "llvm.nvvm.mma.m16n8k16"),
    "mma-odd": Case("cuda:sm_80", np.float16, 30, 50, "llvm.nvvm.mma.m16n8k16"),
    "mma-tf32": Case("cuda:sm_80", np.float32, 64, 64, "llvm.nvvm.mma.m16n8k8", TF32),
    "mma-s8": Case("cuda:sm_80", np.int8, 64, 64, "llvm.nvvm.mma.m16n8k32"),
    "mma-f32": Case("cuda:sm_80", np.float32, 32, 64, "llvm.nvvm.mma.m16n8k8"),
    "f32": Case("cuda:sm_86", np.float32, 32, 64, "fmul"),
    "f32-odd": Case("cuda:sm_86", np.float32, 30, 50, "fmul"),
    "f32-narrow": Case("cuda:sm_80", np.float32, 64, 3, "fmul"),
    "wgmma-f16": Case("cuda:sm_90a", np.float16, 128, 128, "wgmma.mma_async"),
    "wgmma-bf16": Case("cuda:sm_90a", ml_dtypes.bfloat16, 72, 264, "wgmma.mma_async"),
}


def matrices(case: Case) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(1)
    x = random.integers(-3, 4, (512, case.depth)).astype(case.dtype)
    w = random.integers(-3, 4, (len(SIZES), case.depth, case.width)).astype(case.dtype)
    return x, w, np.array(SIZES, np.int32)


def product(x: jax.Array, w: jax.Array, sizes: jax.Array) -> jax.Array:
    total = np.int32 if x.dtype == np.int8 else None
    return lax.ragged_dot(x, w, sizes, preferred_element_type=total)


def bytes_of_product(compiled: Compiled) -> int:
    """What the kernel that multiplies reads and writes."""
    kernels = compiled.artifact.manifest.kernels
    (found,) = (kernel for kernel in kernels if kernel.strategy == "contraction")
    return found.bytes


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("constant", [False, True])
def test_grouped(
    name: str, constant: bool, emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every kernel on a whole grid; the matrices are read from where they are."""
    case = CASES[name]
    if case.instruction.startswith("wgmma"):
        monkeypatch.setattr(mma_tile, "cycles", lambda *_: float("inf"))
    x, w, sizes = matrices(case)
    inputs = (x, sizes) if constant else (x, w, sizes)

    def grouped(*inputs: jax.Array) -> jax.Array:
        return product(inputs[0], jnp.asarray(w) if constant else inputs[1], inputs[-1])

    module = jax.export.export(jax.jit(grouped), platforms=["cpu"])(*inputs)
    compiled = compile_for_gpu(str(module.mlir_module()), case.target, **case.options)
    assert not compiled.remarks
    assert any(case.instruction in text for text in compiled.kernels.values())
    want = np.asarray(jax.jit(product)(x, w, sizes))
    rows = TILES * ROWS * (case.depth * x.itemsize + case.width * want.itemsize)
    assert bytes_of_product(compiled) == rows + TILES * sizes.itemsize + w.nbytes
    (got,) = load_on_emulator(compiled, emulator)(*inputs)
    np.testing.assert_array_equal(np.asarray(got, np.float32), np.asarray(want, np.float32))


@pytest.mark.parametrize("target", ["cuda:sm_80", "cuda:sm_90a"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_matrices_by_number(
    target: str, dtype: type, emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a batch of two dimensions, cut in blocks, with numbers out of range, which mean the first
    or the last matrix; more rows than a tile has."""
    monkeypatch.setattr(mma_tile, "cycles", lambda *_: float("inf"))
    random = np.random.default_rng(3)
    x = random.integers(-3, 4, (2, 3, 136, 128)).astype(dtype)
    w = random.integers(-3, 4, (4, 128, 72)).astype(dtype)
    numbers = np.array([[3, 0, -5], [2, 9, 2]], np.int32)

    def product(x: jax.Array, w: jax.Array, numbers: jax.Array) -> jax.Array:
        taken = w.at[numbers].get(mode="clip").reshape(2, 3, 2, 64, 72)
        rows = x.reshape(2, 3, 136, 2, 64)
        return jnp.einsum("abmck,abckn->abcmn", rows, taken, preferred_element_type=np.float32)

    module = jax.export.export(jax.jit(product), platforms=["cpu"])(x, w, numbers)
    compiled = compile_for_gpu(str(module.mlir_module()), target)
    assert not compiled.remarks
    by_groups = any("wgmma.mma_async" in text for text in compiled.kernels.values())
    assert by_groups == (target == "cuda:sm_90a" and dtype is np.float16)
    outputs = 4 * 2 * 3 * 2 * 136 * 72
    assert bytes_of_product(compiled) == x.nbytes + w.nbytes + numbers.nbytes + outputs
    (got,) = load_on_emulator(compiled, emulator)(x, w, numbers)
    np.testing.assert_array_equal(got, np.asarray(jax.jit(product)(x, w, numbers)))
