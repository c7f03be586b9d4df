"""Products by warpgroups whose blocks share tiles (stream-K), on GPUs of few and of many
multiprocessors: operand types, tails, epilogues, convolutions, repeated launches, and which
products the cost model shares. Integers, whose sums every type holds: results are exact."""

from __future__ import annotations

import jax
import ml_dtypes
import numpy as np
import pytest
from emulator import Emulator
from jax import lax
from models import Compiled, compile_for_gpu, load_on_emulator
from products import BF16, convolution, integers, matrices, product

import stepwell
from stepwell import targets
from stepwell.kernels.cpu.contraction_strategy import ContractionShape
from stepwell.kernels.gpu import mma_tile, wgmma_tile
from stepwell.kernels.gpu.tensor_core import MATRIX_TYPES
from stepwell.kernels.gpu.wgmma_tile import WgmmaTile
from stepwell.launch import LAUNCH, instructions
from stepwell.mlir import ir, new_context
from stepwell.passes.stablehlo import _long_sums
from stepwell.runtime.cuda_executable import CudaExecutable
from stepwell.targets.nvidia import NvidiaTarget

BLOCKS = 8
"""The most blocks that share tiles here."""

E4M3 = ml_dtypes.float8_e4m3fn


@pytest.fixture(autouse=True)
def share(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small problems are faster by warps, and by whole tiles; here they are not."""
    monkeypatch.setattr(mma_tile, "cycles", lambda *_: float("inf"))
    monkeypatch.setattr(_long_sums, "MOST_PARTS", 1)
    use(monkeypatch, 64)


def use(monkeypatch: pytest.MonkeyPatch, columns: int, cluster: int = 1) -> None:
    tile = WgmmaTile(128, columns, stages=3, cluster=cluster, sharing=BLOCKS)
    monkeypatch.setattr(wgmma_tile, "TILES", (tile,))


def compiled_shares(model: object) -> Compiled:
    """`model` with one kernel at least whose blocks share tiles."""
    compiled = compile_for_gpu(str(model), "cuda:sm_90a", precision="tf32")
    program = compiled.artifact.manifest.cuda
    assert program is not None
    assert program.findings == ()
    assert program.zeroed_bytes == 4 * 2 * BLOCKS
    assert any("st.release.gpu" in text for text in compiled.kernels.values())
    return compiled


def check(
    model: object,
    inputs: list[np.ndarray],
    expected: np.ndarray,
    emulator: Emulator,
    *gpus: dict[str, int],
) -> Compiled:
    """Run `model` on each of `gpus`, by what `Emulator.configure` says of it."""
    compiled = compiled_shares(model)
    for gpu in gpus or ({"multiprocessors": 4},):
        for backwards in (False, True):
            emulator.configure(backwards=backwards, **gpu)
            got = load_on_emulator(compiled, emulator)(*inputs)[0]
            np.testing.assert_array_equal(got.astype(expected.dtype), expected, str(gpu))
    return compiled


@pytest.mark.parametrize("columns", [64, 128, 192, 256])
@pytest.mark.parametrize("cluster", [1, 2])
def test_tile(
    columns: int,
    cluster: int,
    emulator: Emulator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Twelve tiles of every width, in batches, with rows, columns and sums that nothing divides; in
    clusters, four of them beyond the rows that there are. Either type and layout comes with every
    width, and with and without clusters."""
    use(monkeypatch, columns, cluster)
    dtype, layout = [(np.float16, "kk"), (BF16, "mn")][(columns // 64 + cluster) % 2]
    check(*matrices(layout, (2, 264, 328, columns + 24), dtype), emulator)


@pytest.mark.parametrize("dtype", [np.float32, np.int8, E4M3], ids=["tf32", "s8", "e4m3"])
def test_other_types(dtype: type, emulator: Emulator) -> None:
    """Operands of 32 and of 8 bits, sums of f32 and of i32."""
    check(*matrices("kk", (2, 264, 656, 80), dtype), emulator)


@pytest.mark.parametrize("tiles", [1, 2, 6, 8, 9])
def test_grid(tiles: int, emulator: Emulator) -> None:
    """Fewer tiles than blocks, of which several then have a part of one, as many, and more; one
    block alone, and no more than can share tiles."""
    gpus = [{"multiprocessors": count} for count in (1, 2, 3, 5, 7, 8, 12)]
    check(*matrices("kn", (1, 128 * tiles, 640, 64), np.float16), emulator, *gpus)


@pytest.mark.parametrize("tiles", [2, 7, 9])
def test_grid_of_clusters(tiles: int, emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same of pairs of blocks, where some multiprocessors may have no place in a pair."""
    use(monkeypatch, 64, cluster=2)
    gpus = [{"multiprocessors": count} for count in (2, 4, 7, 8, 12)]
    gpus.append({"multiprocessors": 8, "pairs": 3})
    check(*matrices("kn", (1, 128 * tiles, 640, 64), np.float16), emulator, *gpus)


@pytest.mark.parametrize("kind", [np.float16, np.float32], ids=["f16", "f32"])
def test_epilogue(kind: type, emulator: Emulator) -> None:
    """Bias, activation, residual and cast come once, when all of a sum is there: by boxes of 16 and
    of 32 bits."""
    x, w = (
        integers(3, 100, 320, seed=1, dtype=np.float16),
        integers(88, 320, seed=2, dtype=np.float16),
    )
    bias, residual = (integers(*s, seed=3, dtype=np.float32) for s in ((88,), (3, 100, 88)))

    def layer(x: jax.Array, w: jax.Array, bias: jax.Array, residual: jax.Array) -> jax.Array:
        sums = lax.dot_general(x, w, (((2,), (1,)), ((), ())), preferred_element_type=np.float32)
        return (jax.nn.relu(sums + bias) * 0.125 + residual).astype(kind)

    inputs = [x, w, bias, residual]
    wide = [v.astype(np.float32) for v in inputs]
    rounded = (np.maximum(wide[0] @ wide[1].T + wide[2], 0) * 0.125 + wide[3]).astype(kind)
    compiled = check(jax.export.export(jax.jit(layer))(*inputs).mlir_module(), inputs, rounded,
                     emulator)  # fmt: skip
    (text,) = compiled.kernels.values()
    assert ("stmatrix" in text) == (kind is np.float16)


def test_several_outputs(emulator: Emulator) -> None:
    """The sums and their squares, which threads write by themselves."""
    x, w = (
        integers(200, 320, seed=1, dtype=np.float16),
        integers(320, 72, seed=2, dtype=np.float16),
    )

    def layer(x: jax.Array, w: jax.Array) -> tuple[jax.Array, jax.Array]:
        sums = jax.numpy.matmul(x, w, preferred_element_type=np.float32)
        return sums, sums * sums

    compiled = compiled_shares(jax.export.export(jax.jit(layer))(x, w).mlir_module())
    assert len(compiled.kernels) == 1
    sums = x.astype(np.float32) @ w.astype(np.float32)
    executable = load_on_emulator(compiled, emulator)
    for backwards in (False, True):
        emulator.configure(backwards=backwards)
        for got, want in zip(executable(x, w), (sums, sums * sums), strict=True):
            np.testing.assert_array_equal(got, want)


def test_halo(emulator: Emulator) -> None:
    """A padded output, whose halo all blocks write beside their tiles."""
    x = integers(2, 16, 16, 192, seed=1, dtype=np.float16)
    w = integers(192, 64, seed=2, dtype=np.float16)
    v = (integers(3, 3, 64, 8, seed=3, dtype=np.int8) % 2).astype(np.float16)
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
    assert len(compiled.kernels) == 2


CONVOLUTIONS = [
    ((2, 14, 14, 64), (3, 3), (1, 1), "SAME"),
    ((3, 15, 13, 128), (3, 3), (2, 2), "SAME"),
    ((3, 150, 64), (5,), (2,), "SAME"),
    ((4, 15, 15, 192), (1, 1), (2, 2), "VALID"),
]
"""Shapes of images, windows, strides and padding."""


@pytest.mark.parametrize(("shape", "window", "strides", "padding"), CONVOLUTIONS)
def test_convolution(
    shape: tuple[int, ...],
    window: tuple[int, ...],
    strides: tuple[int, ...],
    padding: str,
    emulator: Emulator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Shares begin and end within windows, and between channels."""
    case = convolution(shape, window, 72, np.float16, strides=strides, padding=padding)
    for cluster in (1, 2):
        use(monkeypatch, 64, cluster)
        emulator.reset()
        compiled = check(*case, emulator, {"multiprocessors": 6})
        assert any(f"g2s.im2col.{len(shape)}d" in text for text in compiled.kernels.values())


def chain(x: jax.Array, w: jax.Array, v: jax.Array) -> jax.Array:
    """Two products, whose flags lie at the same place."""
    inner = jax.numpy.matmul(x, w, preferred_element_type=np.float32)
    inner = jax.numpy.clip(inner, -4, 4).astype(x.dtype)
    return jax.numpy.matmul(inner, v, preferred_element_type=np.float32)


def run_chain(executable: CudaExecutable, inputs: list[np.ndarray]) -> None:
    wide = [v.astype(np.float32) for v in inputs]
    expected = np.clip(wide[0] @ wide[1], -4, 4) @ wide[2]
    np.testing.assert_array_equal(executable(*inputs)[0], expected)


def test_launches_of_several_kernels(emulator: Emulator) -> None:
    """Other inputs in each call, launched, recorded and replayed: partial sums of the call before
    are not taken for those of this one."""
    shapes = ((200, 320), (320, 320), (320, 72))
    calls = [
        [integers(*shape, seed=10 * call + i, dtype=np.float16) for i, shape in enumerate(shapes)]
        for call in range(5)
    ]
    model = jax.export.export(jax.jit(chain))(*calls[0]).mlir_module()
    compiled = compiled_shares(model)
    program = compiled.artifact.manifest.cuda
    assert program is not None
    launches = [at for operation, at in instructions(program.code) if operation == LAUNCH]
    flags = {program.code[at + 9 + 3 * 4 : at + 9 + 3 * 5] for at in launches}
    assert len(launches) == 2
    assert flags == {(3, 0, 0)}, "both at the start of the arena"
    executable = load_on_emulator(compiled, emulator)
    for inputs in calls:
        run_chain(executable, inputs)


def test_loop(emulator: Emulator) -> None:
    """A product in a loop of the host."""
    x = integers(256, 320, seed=1, dtype=np.float16)
    w = np.eye(320, k=1, dtype=np.float16)

    def shift(x: jax.Array, w: jax.Array, n: jax.Array) -> jax.Array:
        def step(i: jax.Array, x: jax.Array) -> jax.Array:
            return jax.numpy.matmul(x, w, preferred_element_type=np.float32).astype(x.dtype)

        return lax.fori_loop(0, n, step, x)

    n = np.array(3, np.int32)
    compiled = compiled_shares(jax.export.export(jax.jit(shift))(x, w, n).mlir_module())
    executable = load_on_emulator(compiled, emulator)
    for count in (3, 1):
        expected = np.zeros_like(x)
        expected[:, count:] = x[:, :-count]
        np.testing.assert_array_equal(executable(x, w, np.array(count, np.int32))[0], expected)


def test_same_sums_in_every_call(emulator: Emulator) -> None:
    """Partial sums are added in the order of the steps, whoever has his first: floats that round
    come out the same, forwards and backwards."""
    a, b = (
        np.random.default_rng(seed).normal(size=shape).astype(np.float16)
        for seed, shape in enumerate([(128, 2048), (64, 2048)])
    )
    executable = None
    results = []
    compiled = compiled_shares(product(a, b, (((1,), (1,)), ((), ()))))
    for backwards in (False, True):
        emulator.configure(backwards=backwards, multiprocessors=7)
        executable = load_on_emulator(compiled, emulator)
        results += [executable(a, b)[0] for _ in range(3)]
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])
    exact = a.astype(np.float64) @ b.T.astype(np.float64)
    # 2048 products of f16, each sum rounded to f32: far below 1e-3 of numbers of about 45.
    np.testing.assert_allclose(results[0], exact, atol=1e-3)


def shape_of(m: int, n: int, k: int) -> ContractionShape:
    return ContractionShape(0, 1, (0,), (1,), 2, (3,), (1, m, n, k))


SHARED = [
    (1024, 768, 3072),
    (1568, 256, 2304),
    (392, 512, 2048),
    (1568, 512, 4608),
]
WHOLE = [
    (4096, 4096, 4096),
    (1024, 768, 768),
    (1024, 1024, 1024),
    (5120, 5120, 5120),
    (512, 4096, 11008),
]
"""Rows, columns and sums of products that blocks share, and that they don't: BERT's second
feed-forward and three of ResNet-50's convolutions; what fills its rounds, is too short, or does not
fit L2."""


def choices(monkeypatch: pytest.MonkeyPatch) -> NvidiaTarget:
    """The tiles that there are, on a GPU of 132 multiprocessors."""
    monkeypatch.undo()
    target = targets.get("cuda:sm_90a")
    assert isinstance(target, NvidiaTarget)
    return target


@pytest.mark.parametrize("sizes", SHARED + WHOLE)
def test_choice(sizes: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks share tiles where that is estimated to take four fifths of the time at most, and not
    where sums are to stay in one piece."""
    target, kind, shape = choices(monkeypatch), MATRIX_TYPES[0], shape_of(*sizes)
    chosen = wgmma_tile.choose(shape, kind, target)
    whole = wgmma_tile.choose(shape, kind, target, whole_sums=True)
    assert (chosen.sharing, whole.sharing) == (132 if sizes in SHARED else 0, 0)
    if chosen.sharing:
        times = [wgmma_tile.cycles(tile, shape, kind, target) for tile in (chosen, whole)]
        assert times[0] < 0.9 * times[1]
    else:
        assert chosen == whole


@pytest.mark.parametrize("precision", ["default", "strict"])
def test_long_sums_that_stay_whole(precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A product whose sums would be cut into parts is left to blocks that share its tiles; with
    precision "strict" neither is done."""
    choices(monkeypatch)
    x, w = np.zeros((392, 2048), np.float16), np.zeros((2048, 512), np.float16)
    model = product(x, w, (((1,), (0,)), ((), ())))
    options = {} if precision == "default" else {"precision": precision}
    lowered = stepwell.lower(str(model), target="cuda:sm_90a", options=options).step("affine")
    (kernel,) = (
        child.operation
        for child in lowered.module.body.operations
        if "kernel.kind" in child.operation.attributes
    )
    taken = str(ir.TypeAttr(kernel.attributes["function_type"]).value)
    assert ("memref<264xi32>" in taken) == (precision == "default")


def test_strategy_that_cannot_share() -> None:
    """Blocks that are no whole clusters, or of which some would have no step."""
    kind, shape = MATRIX_TYPES[0], shape_of(1024, 64, 1024)
    tile = WgmmaTile(128, 64, 3, cluster=2, sharing=BLOCKS)
    assert wgmma_tile.can_share(tile, shape, kind, BLOCKS)
    assert not wgmma_tile.can_share(tile, shape, kind, BLOCKS + 1)
    assert not wgmma_tile.can_share(tile, shape_of(128, 64, 192), kind, BLOCKS)
    with new_context():
        assert WgmmaTile.from_attribute(tile.to_attribute()) == tile
