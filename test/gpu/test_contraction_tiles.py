"""Every tile of the contraction kernel without tensor cores, with rows, columns and sums that no
tile divides: exact on integers, forwards and backwards."""

from __future__ import annotations

import jax
import models
import numpy as np
import pytest
from emulator import Emulator
from models import compile_for_gpu, load_on_emulator

import stepwell
from stepwell import cuda_assembly, ptxas, targets
from stepwell.assembly import kernel_units
from stepwell.kernels.gpu.simt_tile import FLAT, LARGE, MEDIUM, NARROW, THIN, SimtTile
from stepwell.mlir import ir, new_context
from stepwell.ptx import kernel_llvm, ptx
from stepwell.targets.nvidia import NvidiaTarget

SHAPES = {
    "large": (LARGE, (128, 100, 18, 121)),
    "large-whole": (LARGE, (128, 128, 16, 128)),
    "medium": (MEDIUM, (2, 70, 18, 66)),
    "narrow": (NARROW, (1, 130, 33, 24)),
    "thin": (THIN, (2, 270, 33, 7)),
    "thin-whole": (THIN, (1, 512, 32, 8)),
    "flat": (FLAT, (3, 5, 40, 130)),
    "one-row": (FLAT, (1, 1, 77, 200)),
}
"""The tile that is chosen, and batch, m, k and n."""


def integers(*shape: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float32)


def product(a: np.ndarray, b: np.ndarray) -> str:
    return str(jax.export.export(jax.jit(lambda a, b: a @ b))(a, b).mlir_module())


@pytest.mark.parametrize("name", SHAPES)
def test_tile(name: str, emulator: Emulator) -> None:
    tile, (batch, m, k, n) = SHAPES[name]
    a, b = integers(batch, m, k, seed=1), integers(batch, k, n, seed=2)
    compiled = compile_for_gpu(product(a, b), precision="strict")
    blocks = batch * -(-m // tile.rows) * -(-n // tile.columns)
    program = compiled.artifact.manifest.cuda
    assert program is not None
    assert program.code[2:4] == (blocks, tile.threads)
    executable = load_on_emulator(compiled, emulator)
    for backwards in (False, True):
        emulator.configure(backwards=backwards)
        np.testing.assert_array_equal(executable(a, b)[0], a @ b)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize(("m", "n"), [(8, 32), (24, 40), (5, 17)])
def test_results_of_another_shape(m: int, n: int, dtype: type, emulator: Emulator) -> None:
    """Images of one pixel, channels first: what follows the sums has them at several places, which
    are those of the sums though the last tile reaches beyond rows and columns."""
    filters = integers(n, 16, 2, 2, seed=1).astype(dtype)

    def layer(x: jax.Array) -> jax.Array:
        sums = jax.lax.conv_general_dilated(
            x, filters, (1, 1), "VALID", preferred_element_type=np.float32
        )
        size = abs(sums)
        return jax.numpy.where(sums < 0, size, 1) / (1 + size)

    x = integers(m, 16, 2, 2, seed=2).astype(dtype)
    model = str(jax.export.export(jax.jit(layer))(x).mlir_module())
    models.assert_same_as_cpu(model, [x], emulator, rtol=1e-6, atol=0)
    assert not compile_for_gpu(model).remarks


@pytest.mark.parametrize("tile", [LARGE, MEDIUM, NARROW, THIN, FLAT])
def test_tiles_fit(tile: SimtTile) -> None:
    assert tile.threads % 32 == 0
    assert tile.columns % tile.thread_columns == 0
    assert tile.rows % tile.thread_rows == 0


@pytest.mark.skipif(models.needs_ptxas(), reason="there is no ptxas (pip install stepwell[cuda])")
@pytest.mark.parametrize("name", ["cuda:sm_80", "cuda:sm_90a", "cuda:sm_100a", "cuda:sm_120"])
def test_inner_loop(name: str) -> None:
    """The large tile: 16 steps of 64 multiply-adds from 4 wide loads, all in registers, at most
    128 of them so that two blocks share a multiprocessor."""
    target = targets.get(name)
    assert isinstance(target, NvidiaTarget)
    a, b = np.zeros((2048, 512), np.float32), np.zeros((512, 2048), np.float32)
    options = {"precision": "strict"}
    lowered = stepwell.lower(product(a, b), target=name, options=options).step("affine")
    (unit,) = kernel_units(lowered._walk, lowered._options).values()
    with new_context(), ir.Location.unknown():
        text = ptx(kernel_llvm(cuda_assembly.lower_unit(unit, target), target), target)
    made = ptxas.assemble(text, target)
    usage = made.usage()[unit.symbol]
    assert usage.registers <= 128
    assert usage.spill_loads == usage.spill_stores == usage.stack == 0
    sass = ptxas.sass(made.cubin)
    # sm_100 adds two products at a time (FFMA2).
    assert sass.count("FFMA") + sass.count("FFMA2") == 16 * 64
    assert sass.count("LDS.128") == 16 * 4
    assert sass.count("LDG.E.128") >= 4
    assert sass.count("STG.E.128") == 16


@pytest.mark.skipif(models.needs_ptxas(), reason="there is no ptxas (pip install stepwell[cuda])")
@pytest.mark.parametrize("name", ["cuda:sm_86", "cuda:sm_120"])
def test_narrow_groups(name: str) -> None:
    """A convolution of 32 groups of 4 channels, joined to fill the thin tile: 16 steps of 16
    multiply-adds from 2 wide loads, in registers."""
    target = targets.get(name)
    assert isinstance(target, NvidiaTarget)
    filters = np.random.default_rng(0).standard_normal((3, 3, 4, 128)).astype(np.float32)

    def convolve(x: jax.Array) -> jax.Array:
        return jax.lax.conv_general_dilated(
            x, filters, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"),
            feature_group_count=32,
        )  # fmt: skip

    x = np.zeros((32, 58, 58, 128), np.float32)
    lowered = stepwell.lower(
        str(jax.export.export(jax.jit(convolve))(x).mlir_module()), target=name
    )
    (unit,) = kernel_units(lowered.step("affine")._walk, lowered._options).values()
    launch = cuda_assembly.Launch.of(unit)
    assert launch.blocks == 32 * 56 * 56 // THIN.rows * (128 // THIN.columns)
    with new_context(), ir.Location.unknown():
        text = ptx(kernel_llvm(cuda_assembly.lower_unit(unit, target), target), target)
    made = ptxas.assemble(text, target)
    usage = made.usage()[unit.symbol]
    assert usage.spill_loads == usage.spill_stores == usage.stack == 0
    sass = ptxas.sass(made.cubin)
    assert sass.count("FFMA") + sass.count("FFMA2") == 16 * 16
    assert sass.count("LDS.128") == 16 * 2
    assert sass.count("LDG.E.128") >= 4
    assert sass.count("STG.E.128") == 4


@pytest.mark.parametrize(("m", "k", "n"), [(24, 5760, 40), (1, 3072, 132)])
def test_split_sums(m: int, k: int, n: int, emulator: Emulator) -> None:
    """A small product with long sums: its parts in one kernel, their sums and what follows in
    another."""
    a, b, bias = integers(m, k, seed=1), integers(k, n, seed=2), integers(n, seed=3)
    layer = jax.jit(lambda a, b, bias: jax.nn.relu(a @ b + bias))
    compiled = compile_for_gpu(str(jax.export.export(layer)(a, b, bias).mlir_module()))
    assert len(compiled.kernels) == 2
    (result,) = load_on_emulator(compiled, emulator)(a, b, bias)
    np.testing.assert_array_equal(result, np.maximum(a @ b + bias, 0))


@pytest.mark.parametrize("given", [False, True])
def test_split_channels(given: bool, emulator: Emulator) -> None:
    """A small convolution of many channels: groups of them in one kernel, their sums and what
    follows in another. Filters that are an argument are not copied."""
    x, w, bias = (
        integers(1, 5, 5, 512, seed=1),
        integers(3, 3, 512, 40, seed=2),
        integers(40, seed=3),
    )

    def layer(x: jax.Array, w: jax.Array) -> jax.Array:
        names = ("NHWC", "HWIO", "NHWC")
        sums = jax.lax.conv_general_dilated(x, w, (2, 1), "VALID", dimension_numbers=names)
        return jax.nn.relu(sums + bias)

    function = layer if given else lambda x: layer(x, jax.numpy.asarray(w))
    inputs = [x, w] if given else [x]
    compiled = compile_for_gpu(str(jax.export.export(jax.jit(function))(*inputs).mlir_module()))
    assert len(compiled.kernels) == 2
    (result,) = load_on_emulator(compiled, emulator)(*inputs)
    sums = np.zeros((1, 2, 3, 40), np.float32)
    for i, j in np.ndindex(3, 3):
        sums += x[:, i : i + 3 : 2, j : j + 3] @ w[i, j]
    np.testing.assert_array_equal(result, np.maximum(sums + bias, 0))
