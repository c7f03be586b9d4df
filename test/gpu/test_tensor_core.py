"""Contractions on tensor cores: every tile, operand type and layout, with rows, columns and sums
that nothing divides. Integers, whose products and sums every type holds: results are exact."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from emulator import Emulator
from models import Compiled, compile_for_gpu, load_on_emulator, needs_ptxas
from products import BF16, SUMS, convolution, integers, matrices, product

import stepwell
from stepwell import cuda_assembly, ptxas, targets
from stepwell.assembly import kernel_units
from stepwell.inspection.gpu_lint import Kernel, lint
from stepwell.kernels.gpu import mma_tile
from stepwell.kernels.gpu.mma_tile import MmaTile
from stepwell.mlir import ir, new_context
from stepwell.passes.stablehlo import _long_sums
from stepwell.ptx import kernel_llvm, ptx
from stepwell.targets.nvidia import STATIC_SHARED_BYTES, NvidiaTarget


def check(model: object, inputs: list[np.ndarray], expected: np.ndarray, emulator: Emulator,
          target: str = "cuda:sm_80") -> Compiled:  # fmt: skip
    compiled = compile_for_gpu(str(model), target, precision="tf32")
    executable = load_on_emulator(compiled, emulator)
    assert any(".mma." in text for text in compiled.kernels.values())
    for backwards in (False, True):
        emulator.configure(backwards=backwards)
        np.testing.assert_array_equal(executable(*inputs)[0].astype(expected.dtype), expected)
    return compiled


@pytest.mark.parametrize("dtype", SUMS, ids=lambda dtype: np.dtype(dtype).name)
@pytest.mark.parametrize("layout", ["kk", "kn", "mk", "mn"])
@pytest.mark.parametrize("sizes", [(2, 72, 96, 80), (1, 37, 51, 45)], ids=["chunks", "odd"])
def test_layout(dtype: type, layout: str, sizes: tuple[int, ...], emulator: Emulator) -> None:
    """Operands that lie along k, or along rows and columns; whole chunks, and not."""
    check(*matrices(layout, sizes, dtype), emulator)


@pytest.mark.parametrize("tile", mma_tile.TILES, ids=lambda tile: f"{tile.rows}x{tile.columns}")
@pytest.mark.parametrize("layout", ["kk", "kn"])
def test_tile(
    tile: MmaTile, layout: str, emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every tile, in more blocks than one, with sums that go round its ring."""
    monkeypatch.setattr(mma_tile, "TILES", (tile,))
    m, k, n = tile.rows + 13, 232, tile.columns + 24
    a, b = integers(m, k, seed=1, dtype=BF16), integers(k, n, seed=2, dtype=BF16)
    expected = a.astype(np.float64) @ b.astype(np.float64)
    right = 0
    if layout == "kk":
        b, right = b.T.copy(), 1
    compiled = check(product(a, b, (((1,), (right,)), ((), ()))), [a, b], expected, emulator)
    program = compiled.artifact.manifest.cuda
    assert program is not None
    assert program.code[2:4] == (4, tile.threads)


@pytest.mark.skipif(needs_ptxas(), reason="there is no ptxas (pip install stepwell[cuda])")
@pytest.mark.parametrize("tile", mma_tile.TILES, ids=lambda tile: f"{tile.rows}x{tile.columns}")
def test_tile_fits(tile: mma_tile.MmaTile, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each fits a block of the GPU with the least shared memory, which the launch asks for where it
    is more than a kernel may declare, and spills nothing."""
    monkeypatch.setattr(mma_tile, "TILES", (tile,))
    monkeypatch.setattr(_long_sums, "MOST_PARTS", 1)
    target = targets.get("cuda:sm_86")
    assert isinstance(target, NvidiaTarget)

    def layer(x: jax.Array, w: jax.Array, bias: jax.Array) -> jax.Array:
        sums = jax.numpy.matmul(x, w, preferred_element_type=np.float32)
        return jax.nn.gelu(sums + bias).astype(np.float16)

    shapes = ((np.float16, (256, 512)), (np.float16, (512, 384)), (np.float32, (384,)))
    inputs = [np.zeros(shape, kind) for kind, shape in shapes]
    module = str(jax.export.export(jax.jit(layer))(*inputs).mlir_module())
    lowered = stepwell.lower(module, target=target.name).step("affine")
    (unit,) = kernel_units(lowered._walk, lowered._options).values()
    with new_context(), ir.Location.unknown():
        text = ptx(kernel_llvm(cuda_assembly.lower_unit(unit, target), target), target)
    launch = cuda_assembly.Launch.of(unit)
    log = ptxas.assemble(text, target).log
    kernel = Kernel(unit.symbol, text, launch.threads, log, "", launch.shared_bytes)
    assert lint(kernel, target) == []
    assert "mma.sync" in text
    asked = tile.shared_bytes if tile.shared_bytes > STATIC_SHARED_BYTES else 0
    assert launch.shared_bytes == asked


@pytest.mark.parametrize("dtype", [np.float16, BF16, np.float32])
@pytest.mark.parametrize("n", [64, 60])
def test_epilogue(dtype: type, n: int, emulator: Emulator) -> None:
    """Bias, activation, residual and cast on the sums, by vectors and by elements."""
    x, w = integers(2, 40, 64, seed=1, dtype=dtype), integers(64, n, seed=2, dtype=dtype)
    bias, residual = (integers(*shape, seed=3, dtype=np.float32) for shape in ((n,), (2, 40, n)))

    def layer(x: jax.Array, w: jax.Array, bias: jax.Array, residual: jax.Array) -> jax.Array:
        sums = jax.numpy.matmul(x, w, preferred_element_type=np.float32)
        return (jax.nn.relu(sums + bias) * 0.125 + residual).astype(dtype)

    inputs = [x, w, bias, residual]
    wide = [v.astype(np.float32) for v in inputs]
    rounded = (np.maximum(wide[0] @ wide[1] + wide[2], 0) * 0.125 + wide[3]).astype(dtype)
    model = jax.export.export(jax.jit(layer))(*inputs).mlir_module()
    compiled = check(model, inputs, rounded, emulator)
    assert len(compiled.kernels) == 1


@pytest.mark.parametrize("dtype", [np.float16, BF16])
def test_converted_operands(dtype: type, emulator: Emulator) -> None:
    """Numbers of 16 bits that are converted to be multiplied, as PyTorch's linear layers are, go to
    tensor cores as they were; weights are stored so."""
    x, w = integers(40, 64, seed=1, dtype=dtype), integers(64, 48, seed=2, dtype=dtype)

    def layer(x: jax.Array) -> jax.Array:
        return x.astype(np.float32) @ jax.numpy.asarray(w).astype(np.float32)

    model = jax.export.export(jax.jit(layer))(x).mlir_module()
    compiled = check(model, [x], x.astype(np.float64) @ w.astype(np.float64), emulator)
    assert len(compiled.kernels) == 1
    assert compiled.artifact.manifest.weights_bytes == w.nbytes


@pytest.mark.parametrize("target", ["cuda:sm_80", "cuda:sm_90a"])
@pytest.mark.parametrize("dtype", [np.float16, np.int8])
def test_split_sums(dtype: type, target: str, emulator: Emulator) -> None:
    """A small product with long sums: its parts in one kernel, their sums and what follows in
    another."""
    x, w = integers(24, 5760, seed=1, dtype=dtype), integers(5760, 40, seed=2, dtype=dtype)
    bias = integers(40, seed=3, dtype=SUMS[dtype])

    def layer(x: jax.Array, w: jax.Array, bias: jax.Array) -> jax.Array:
        return jax.nn.relu(jax.numpy.matmul(x, w, preferred_element_type=SUMS[dtype]) + bias)

    inputs = [x, w, bias]
    wide = [v.astype(np.float64) for v in inputs]
    expected = np.maximum(wide[0] @ wide[1] + wide[2], 0)
    model = jax.export.export(jax.jit(layer))(*inputs).mlir_module()
    compiled = check(model, inputs, expected, emulator, target)
    assert len(compiled.kernels) == 2


@pytest.mark.parametrize(
    ("dtype", "given"), [(np.float16, False), (np.float16, True), (np.int8, False)]
)
def test_split_channels(dtype: type, given: bool, emulator: Emulator) -> None:
    """A small convolution of many channels: groups of them in one kernel, their sums and what
    follows in another. Filters that are an argument are not copied."""
    x, w = integers(1, 5, 5, 512, seed=1, dtype=dtype), integers(3, 3, 512, 40, seed=2, dtype=dtype)
    bias = integers(40, seed=3, dtype=SUMS[dtype])

    def layer(x: jax.Array, w: jax.Array) -> jax.Array:
        names = ("NHWC", "HWIO", "NHWC")
        return jax.nn.relu(bias + jax.lax.conv_general_dilated(
            x, w, (2, 1), "VALID", dimension_numbers=names,
            preferred_element_type=SUMS[dtype],
        ))  # fmt: skip

    sums = np.zeros((1, 2, 3, 40))
    for i, j in np.ndindex(3, 3):
        window = x[:, i : i + 3 : 2, j : j + 3].astype(np.float64)
        sums += window @ w[i, j].astype(np.float64)
    function = layer if given else lambda x: layer(x, jax.numpy.asarray(w))
    inputs = [x, w] if given else [x]
    model = jax.export.export(jax.jit(function))(*inputs).mlir_module()
    compiled = check(model, inputs, np.maximum(sums + bias, 0), emulator, "cuda:sm_90a")
    assert len(compiled.kernels) == 2


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("channels", [16, 6])
def test_convolution(dtype: type, channels: int, emulator: Emulator) -> None:
    """Implicit products: chunks of channels, and single ones; padding, strides."""
    shape, strides = (2, 9, 11, channels), (2, 1)
    case = convolution(shape, (3, 3), 24, dtype, strides=strides, padding="SAME")
    check(*case, emulator)


@pytest.mark.parametrize(("channels", "outputs", "groups"), [(48, 48, 3), (64, 40, 4), (64, 64, 8)])
@pytest.mark.parametrize("target", ["cuda:sm_80", "cuda:sm_90a"])
def test_grouped_convolution(
    channels: int, outputs: int, groups: int, target: str, emulator: Emulator
) -> None:
    """All groups in one kernel (test_grouped_products has what is joined)."""
    shape = (2, 9, 11, channels)
    case = convolution(shape, (3, 3), outputs, np.float16, padding="SAME", groups=groups)
    compiled = check(*case, emulator, target)
    assert sum(".mma." in text for text in compiled.kernels.values()) == 1
