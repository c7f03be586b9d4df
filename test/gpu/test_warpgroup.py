"""Contractions by warpgroups of sm_90a: every tile, operand type and layout, with rows, columns and
sums that nothing divides. Integers, whose products and sums every type holds: results are exact."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from emulator import Emulator
from jax import lax
from models import Compiled, compile_for_gpu, load_on_emulator
from products import BF16, SUMS, convolution, integers, matrices, product

from stepwell import targets
from stepwell.kernels.cpu.contraction_strategy import ContractionShape
from stepwell.kernels.gpu import mma_tile, wgmma_tile
from stepwell.kernels.gpu.tensor_core import MATRIX_TYPES
from stepwell.kernels.gpu.wgmma_tile import WgmmaTile
from stepwell.launch import LAUNCH, instructions
from stepwell.runtime.device_arrays import DeviceArray
from stepwell.targets.nvidia import NvidiaTarget


@pytest.fixture(autouse=True)
def prefer_warpgroups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small problems are faster by warps; here they are not."""
    monkeypatch.setattr(mma_tile, "cycles", lambda *_: float("inf"))


def check(
    model: object, inputs: list[np.ndarray], expected: np.ndarray, emulator: Emulator
) -> Compiled:
    compiled = compile_for_gpu(str(model), "cuda:sm_90a", precision="tf32")
    program = compiled.artifact.manifest.cuda
    assert program is not None
    assert program.findings == ()
    executable = load_on_emulator(compiled, emulator)
    assert any("wgmma.mma_async" in text for text in compiled.kernels.values())
    for backwards in (False, True):
        emulator.configure(backwards=backwards)
        for _ in range(1 if backwards else 3):  # launched, recorded, and launched as a graph
            got = executable(*inputs)[0]
            np.testing.assert_array_equal(got.astype(expected.dtype), expected)
    return compiled


@pytest.mark.parametrize("dtype", [np.float16, BF16], ids=["f16", "bf16"])
@pytest.mark.parametrize("layout", ["kk", "kn", "mk", "mn"])
@pytest.mark.parametrize("sizes", [(1, 128, 128, 64), (2, 152, 200, 72)], ids=["whole", "odd"])
def test_layout(dtype: type, layout: str, sizes: tuple[int, ...], emulator: Emulator) -> None:
    check(*matrices(layout, sizes, dtype), emulator)


@pytest.mark.parametrize("dtype", [np.float32, np.int8], ids=["tf32", "s8"])
@pytest.mark.parametrize("sizes", [(1, 128, 128, 64), (2, 151, 208, 73)], ids=["whole", "odd"])
def test_along_k(dtype: type, sizes: tuple[int, ...], emulator: Emulator) -> None:
    """Operands of 32 and of 8 bits lie along k."""
    check(*matrices("kk", sizes, dtype), emulator)


def test_rounding_to_tf32(emulator: Emulator) -> None:
    """Copies round f32 to the nearest number of 10 bits of fraction: no sum is off by more than a
    half of the last bit of both operands, and sums of positive numbers are not all too small."""
    rng = np.random.default_rng(0)
    a, b = (rng.uniform(1, 2, shape).astype(np.float32) for shape in ((128, 256), (64, 256)))
    model = product(a, b, (((1,), (1,)), ((), ())))
    executable = load_on_emulator(compile_for_gpu(str(model), precision="tf32"), emulator)
    exact = a.astype(np.float64) @ b.T.astype(np.float64)
    error = executable(a, b)[0] / exact - 1
    assert np.abs(error).max() < 2**-10
    assert np.abs(error.mean()) < 2**-14


@pytest.mark.parametrize("tile", wgmma_tile.TILES, ids=lambda tile: f"{tile.rows}x{tile.columns}")
@pytest.mark.parametrize("layout", ["kk", "kn"])
def test_tile(
    tile: WgmmaTile, layout: str, emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every tile, in more blocks than one, with sums that go round its ring more than once."""
    monkeypatch.setattr(wgmma_tile, "TILES", (tile,))
    steps = 2 * tile.stages + 1
    sizes = (1, tile.rows + 8, 64 * steps - 24, tile.columns + 24)
    compiled = check(*matrices(layout, sizes, BF16), emulator)
    program = compiled.artifact.manifest.cuda
    assert program is not None
    assert program.code[2:5] == (4, tile.threads, tile.shared_bytes)


def blocks_of(compiled: Compiled) -> list[tuple[int, ...]]:
    """Tiles, and blocks a multiprocessor, of every kernel of warpgroups."""
    program = compiled.artifact.manifest.cuda
    assert program is not None
    launches = [at for operation, at in instructions(program.code) if operation == LAUNCH]
    return [(program.code[at + 2], program.code[at + 5]) for at in launches]


@pytest.mark.parametrize("tile", [WgmmaTile(128, 64, stages=3), WgmmaTile(128, 128, stages=4)])
@pytest.mark.parametrize("k", [64, 200, 448], ids=["one-step", "fewer-steps", "more-steps"])
def test_more_tiles_than_blocks(
    tile: WgmmaTile, k: int, emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The four multiprocessors of the emulated GPU walk 18 tiles: the ring's stages and phases go
    on from tile to tile."""
    monkeypatch.setattr(wgmma_tile, "TILES", (tile,))
    sizes = (2, 2 * tile.rows + 8, k, 2 * tile.columns + 24)
    compiled = check(*matrices("kn", sizes, np.float16), emulator)
    assert blocks_of(compiled) == [(18, 1)]


@pytest.mark.parametrize("dtype", [np.float16, BF16, np.float32], ids=["f16", "bf16", "f32"])
@pytest.mark.parametrize("columns", [64, 192])
def test_boxes_of_outputs(
    dtype: type, columns: int, emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outputs of 16 and of 32 bits, by even and odd numbers of slabs, with rows and columns that
    nothing divides, in batches, through an epilogue that reads an array."""
    monkeypatch.setattr(wgmma_tile, "TILES", (WgmmaTile(128, columns, stages=3),))
    shapes = [(3, 200, 64), (3, columns + 24, 64), (3, 200, columns + 24)]
    x, w = (integers(*s, seed=i, dtype=np.float16) for i, s in enumerate(shapes[:2]))
    y = integers(*shapes[2], seed=3, dtype=np.float32)

    def layer(x: jax.Array, w: jax.Array, y: jax.Array) -> jax.Array:
        dims = (((2,), (2,)), ((0,), (0,)))
        sums = lax.dot_general(x, w, dims, preferred_element_type=np.float32)
        return (jax.numpy.clip(sums, -99, 99) + y).astype(dtype)

    sums = np.einsum("bmk,bnk->bmn", *(a.astype(np.float32) for a in (x, w)))
    expected = np.clip(sums, -99, 99) + y
    compiled = check(jax.export.export(jax.jit(layer))(x, w, y).mlir_module(), [x, w, y], expected,
                     emulator)  # fmt: skip
    (text,) = compiled.kernels.values()
    assert "bulk.tensor.s2g" in text
    assert ("stmatrix" in text) == (dtype is not np.float32)


@pytest.mark.parametrize("layout", ["kk", "kn", "mn"])
@pytest.mark.parametrize("columns", [64, 192, 256])
def test_clusters(
    layout: str, columns: int, emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pairs of blocks that walk pairs of tiles, and each copy half of what both need."""
    monkeypatch.setattr(wgmma_tile, "TILES", (WgmmaTile(128, columns, stages=3, cluster=2),))
    compiled = check(*matrices(layout, (2, 248, 264, 2 * columns + 24), BF16), emulator)
    assert blocks_of(compiled) == [(12, 1)]
    (text,) = compiled.kernels.values()
    assert '"nvvm.cluster_dim"="2,1,1"' in text


@pytest.mark.parametrize("layout", ["kk", "mn"])
def test_odd_tiles_in_clusters(
    layout: str, emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three tiles below one another: the second block of the last pair copies for the first."""
    monkeypatch.setattr(wgmma_tile, "TILES", (WgmmaTile(128, 128, stages=3, cluster=2),))
    compiled = check(*matrices(layout, (2, 312, 200, 152), BF16), emulator)
    assert blocks_of(compiled) == [(16, 1)]


def test_convolution_in_clusters(emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows of images beside weights that two blocks share."""
    monkeypatch.setattr(wgmma_tile, "TILES", (WgmmaTile(128, 128, stages=3, cluster=2),))
    for images, blocks in ((3, 8), (2, 8)):  # four tiles below one another, and three
        emulator.reset()
        case = convolution((images, 15, 15, 64), (3, 3), 136, np.float16)
        assert blocks_of(check(*case, emulator)) == [(blocks, 1)]


@pytest.mark.parametrize(
    ("sizes", "cluster"),
    [
        ((4096, 4096, 4096), 2),
        ((384, 4096, 8192), 2),
        ((128, 4096, 4096), 1),
        ((384, 4096, 11264), 1),
    ],
)
def test_choice_of_clusters(sizes: tuple[int, ...], cluster: int) -> None:
    """Products that wait for L2, with tiles below one another, unless one more takes a round."""
    m, k, n = sizes
    shape = ContractionShape(0, 1, (0,), (1,), 2, (3,), (1, m, n, k))
    target = targets.get("cuda:sm_90a")
    assert isinstance(target, NvidiaTarget)
    assert wgmma_tile.choose(shape, MATRIX_TYPES[0], target).cluster == cluster


def test_halo_of_more_tiles_than_blocks(
    emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A padded output, whose halo all blocks write beside their tiles."""
    monkeypatch.setattr(wgmma_tile, "TILES", (WgmmaTile(128, 64, stages=3),))
    x = integers(2, 20, 20, 64, seed=1, dtype=np.float16)
    w, v = integers(64, 64, seed=2, dtype=np.float16), integers(3, 3, 64, 8, seed=3, dtype=np.int8)
    v = (v % 2).astype(np.float16)
    names = ("NHWC", "HWIO", "NHWC")

    def layers(x: jax.Array, w: jax.Array, v: jax.Array) -> jax.Array:
        dims = (((3,), (0,)), ((), ()))
        inner = lax.dot_general(x, w, dims, preferred_element_type=np.float32)
        inner = jax.numpy.clip(inner, -2, 2).astype(x.dtype)
        return lax.conv_general_dilated(
            inner, v, (1, 1), "SAME", dimension_numbers=names, preferred_element_type=np.float32
        )

    expected = np.asarray(layers(*(a.astype(np.float32) for a in (x, w, v))))
    compiled = check(jax.export.export(jax.jit(layers))(x, w, v).mlir_module(), [x, w, v], expected,
                     emulator)  # fmt: skip
    assert (7, 1) in blocks_of(compiled)


CONVOLUTIONS = [
    ((2, 14, 14, 64), (3, 3), (1, 1), (1, 1), "SAME"),
    ((3, 15, 13, 128), (3, 3), (2, 2), (1, 1), "SAME"),
    ((2, 16, 20, 64), (5, 3), (2, 1), (1, 2), "SAME"),
    ((1, 20, 20, 64), (2, 2), (3, 2), (2, 3), "VALID"),
    ((2, 15, 15, 192), (1, 1), (2, 2), (1, 1), "VALID"),
    ((3, 150, 64), (5,), (2,), (3,), "SAME"),
    ((2, 6, 7, 9, 64), (3, 2, 3), (1, 2, 1), (2, 1, 1), "SAME"),
    ((2, 14, 14, 88), (3, 3), (1, 1), (1, 1), "SAME"),
    ((2, 15, 13, 24), (3, 3), (2, 2), (1, 1), "SAME"),
]
"""Shapes of images, windows, strides, dilations and padding; the last are of channels that are no
whole lines of 128 bytes."""


@pytest.mark.parametrize(("shape", "window", "strides", "dilation", "padding"), CONVOLUTIONS)
def test_convolution(
    shape: tuple[int, ...],
    window: tuple[int, ...],
    strides: tuple[int, ...],
    dilation: tuple[int, ...],
    padding: str,
    emulator: Emulator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tiles of rows that go on in the next line and in the next image, in blocks that walk."""
    monkeypatch.setattr(wgmma_tile, "TILES", (WgmmaTile(128, 64, stages=4),))
    options = {"strides": strides, "dilation": dilation, "padding": padding}
    compiled = check(*convolution(shape, window, 72, np.float16, **options), emulator)
    assert any(f"g2s.im2col.{len(shape)}d" in text for text in compiled.kernels.values())


@pytest.mark.parametrize(
    ("channels", "strides", "dilation"),
    [(44, (1, 1), (1, 1)), (64, (1, 9), (1, 1)), (64, (1, 1), (256, 1))],
    ids=["parts-of-chunks", "far-steps", "far-window"],
)
def test_convolution_that_is_no_window(
    channels: int, strides: tuple[int, int], dilation: tuple[int, int]
) -> None:
    """What the maps of images cannot say is multiplied by warps."""
    options = {"strides": strides, "dilation": dilation}
    model, *_ = convolution((1, 300, 20, channels), (2, 2), 64, np.float16, **options)
    compiled = compile_for_gpu(str(model))
    assert any("mma.m16n8k16" in text for text in compiled.kernels.values())
    assert not any("im2col" in text for text in compiled.kernels.values())


@pytest.mark.parametrize("dtype", [np.float32, np.int8], ids=["tf32", "s8"])
def test_constant_weights(dtype: type, emulator: Emulator) -> None:
    """Weights of 32 and of 8 bits that do not lie along k, and are transposed for good: one that
    two products share, and a convolution's."""
    x, w = integers(152, 144, seed=1, dtype=dtype), integers(144, 144, seed=2, dtype=dtype)
    total = SUMS[dtype]

    def products(x: jax.Array) -> jax.Array:
        first = jax.numpy.matmul(x, w, preferred_element_type=total)
        inner = jax.numpy.clip(first, -4, 4).astype(dtype)
        return jax.numpy.matmul(inner, w, preferred_element_type=total)

    inner = np.clip(x.astype(np.float64) @ w, -4, 4)
    compiled = check(
        jax.export.export(jax.jit(products))(x).mlir_module(), [x], inner @ w, emulator
    )
    assert all("wgmma" in text for text in compiled.kernels.values())

    image, window = (integers(*s, seed=3, dtype=dtype) for s in ((2, 9, 9, 128), (3, 3, 128, 40)))

    def convolve(x: jax.Array) -> jax.Array:
        return lax.conv_general_dilated(
            x, window.astype(x.dtype), (2, 1), "VALID",
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
            preferred_element_type=total if x.dtype == dtype else np.float32,
        )  # fmt: skip

    expected = np.asarray(convolve(image.astype(np.float32)))
    compiled = check(jax.export.export(jax.jit(convolve))(image).mlir_module(), [image], expected,
                     emulator)  # fmt: skip
    assert any("g2s.im2col.4d" in text for text in compiled.kernels.values())


def test_inputs_that_move(emulator: Emulator) -> None:
    """Arrays on the GPU are multiplied where they lie, which may be elsewhere in each call."""
    model, (a, b), expected = matrices("kk", (1, 72, 64, 40), np.float16)
    executable = load_on_emulator(compile_for_gpu(str(model)), emulator)
    tensors = [[DeviceArray.copy_of(factor * v) for v in (a, b)] for factor in (1, 2)]
    for _ in range(3):
        for factor, (left, right) in zip((1, 4), tensors, strict=True):
            np.testing.assert_array_equal(executable(left, right)[0], factor * expected)
        np.testing.assert_array_equal(executable(a, b)[0], expected)


@pytest.mark.parametrize("n", [96, 60])
def test_epilogue(n: int, emulator: Emulator) -> None:
    """Bias, activation, residual and cast on the sums, by vectors and by elements; rows are two
    dimensions."""
    x, w = integers(3, 72, 64, seed=1, dtype=np.float16), integers(n, 64, seed=2, dtype=np.float16)
    bias, residual = (integers(*s, seed=3, dtype=np.float32) for s in ((n,), (3, 72, n)))

    def layer(x: jax.Array, w: jax.Array, bias: jax.Array, residual: jax.Array) -> jax.Array:
        dims = (((2,), (1,)), ((), ()))
        sums = lax.dot_general(x, w, dims, preferred_element_type=np.float32)
        return (jax.nn.relu(sums + bias) * 0.125 + residual).astype(np.float16)

    inputs = [x, w, bias, residual]
    wide = [v.astype(np.float32) for v in inputs]
    rounded = (np.maximum(wide[0] @ wide[1].T + wide[2], 0) * 0.125 + wide[3]).astype(np.float16)
    compiled = check(jax.export.export(jax.jit(layer))(*inputs).mlir_module(), inputs, rounded,
                     emulator)  # fmt: skip
    assert len(compiled.kernels) == 1


@pytest.mark.parametrize("shape", [(136, 96), (1, 136, 96), (2, 68, 96)], ids=str)
@pytest.mark.parametrize("dtype", [np.float16, BF16], ids=["f16", "bf16"])
def test_residual_of_16_bits(dtype: type, shape: tuple[int, ...], emulator: Emulator) -> None:
    """A residual of the outputs' type is converted in the epilogue, also where it has the rows in
    other dimensions than the product."""
    x, w = integers(136, 64, seed=1, dtype=dtype), integers(64, 96, seed=2, dtype=dtype)
    residual = integers(*shape, seed=3, dtype=dtype)

    def layer(x: jax.Array, w: jax.Array, residual: jax.Array) -> jax.Array:
        sums = jax.numpy.matmul(x, w, preferred_element_type=np.float32)
        return (jax.numpy.clip(sums, -99, 99).reshape(shape) + residual).astype(dtype)

    wide = [v.astype(np.float32) for v in (x, w, residual)]
    expected = np.clip(wide[0] @ wide[1], -99, 99).reshape(shape) + wide[2]
    inputs = [x, w, residual]
    compiled = check(jax.export.export(jax.jit(layer))(*inputs).mlir_module(), inputs, expected,
                     emulator)  # fmt: skip
    (text,) = compiled.kernels.values()
    assert "stmatrix" in text


def test_parts_of_an_input(emulator: Emulator) -> None:
    """Operands that lie somewhere in one array, a batch of heads: attention's first product."""
    x = integers(2, 72, 3, 2, 64, seed=1, dtype=np.float16)

    def scores(x: jax.Array) -> jax.Array:
        return jax.numpy.einsum(
            "bqhd,bkhd->bhqk", x[:, :, 0], x[:, :, 1], preferred_element_type=np.float32
        )

    expected = np.asarray(scores(x.astype(np.float32)))
    check(jax.export.export(jax.jit(scores))(x).mlir_module(), [x], expected, emulator)
