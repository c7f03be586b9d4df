"""The lint of GPU kernels: clean on what the compiler writes, and it sees planted faults."""

from __future__ import annotations

import dataclasses
import re

import jax
import ml_dtypes
import models
import numpy as np
import pytest
from emulator import Emulator

import stepwell
from stepwell import cuda_assembly, ptxas, targets
from stepwell.assembly import kernel_units
from stepwell.inspection.gpu_lint import Kernel, block_registers, lint
from stepwell.kernels.gpu import mma_tile, wgmma_tile
from stepwell.mlir import ir, new_context
from stepwell.passes.stablehlo import _long_sums
from stepwell.ptx import kernel_llvm, ptx, undefined_functions
from stepwell.targets.nvidia import TARGETS, NvidiaTarget

SM_86, SM_90 = (next(t for t in TARGETS if t.cpu == cpu) for cpu in ("sm_86", "sm_90a"))

needs_ptxas = pytest.mark.skipif(
    models.needs_ptxas(), reason="there is no ptxas here (pip install stepwell[cuda])"
)


def every_family(
    x: jax.Array, w: jax.Array, image: jax.Array, kernel: jax.Array
) -> tuple[jax.Array, ...]:
    """An elementwise, a row, a contraction, a convolution and a pooling kernel."""
    convolved = jax.lax.conv_general_dilated(
        image, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    pooled = jax.lax.reduce_window(image, -np.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    return jax.numpy.tanh(x) * 2, jax.nn.softmax(x), x @ w, convolved, pooled


@pytest.fixture(scope="module")
def lowered() -> stepwell.lowering.Lowered:
    shapes = ((64, 1024), (1024, 64), (1, 16, 16, 8), (3, 3, 8, 16))
    arrays = [np.zeros(shape, np.float32) for shape in shapes]
    module = str(jax.export.export(jax.jit(every_family))(*arrays).mlir_module())
    return stepwell.lower(module, target="cuda:sm_90a").step("affine")


_HEADER = re.compile(r"^\.(?:version|target|address_size) .*\n", re.MULTILINE)
_SECTION = re.compile(r"^//-+ \.text\.(\w+) -+$(.*?)(?=^//--|\Z)", re.MULTILINE | re.DOTALL)


def assembled(
    lowered: stepwell.lowering.Lowered,
    target: NvidiaTarget,
    expected: dict[str, dict[str, int]] | None = None,
) -> list[Kernel]:
    """All kernels of a module, assembled for `target`; with what the SASS of those is expected to
    have whose PTX has a word of `expected`.

    They are assembled and disassembled as one module, since to start nvdisasm takes most of a
    second; each has the log of all.
    """
    units = kernel_units(lowered._walk, lowered._options).values()
    texts = []
    for unit in units:
        with new_context(), ir.Location.unknown():
            llvm = kernel_llvm(cuda_assembly.lower_unit(unit, target), target)
            texts.append(ptx(llvm, target))
    made = ptxas.assemble(one_module(texts), target)
    sections = dict(_SECTION.findall(ptxas.sass(made.cubin)))
    kernels = []
    for unit, text in zip(units, texts, strict=True):
        launch = cuda_assembly.Launch.of(unit)
        counts = {
            name: least
            for word, wanted in (expected or {}).items()
            if word in text
            for name, least in wanted.items()
        }
        sass = sections[unit.symbol]
        kernels.append(
            Kernel(unit.symbol, text, launch.threads, made.log, sass, launch.shared_bytes, counts)
        )
    return kernels


def one_module(texts: list[str]) -> str:
    """Modules in PTX of one kernel each as one module, in which dynamic shared memory is declared
    once."""
    declared: set[str] = set()
    lines = _HEADER.findall(texts[0])
    for text in texts:
        for line in _HEADER.sub("", text).splitlines(keepends=True):
            if line.startswith(".extern"):
                if line in declared:
                    continue
                declared.add(line)
            lines.append(line)
    return "".join(lines)


@needs_ptxas
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.cpu)
def test_kernels_are_clean(target: NvidiaTarget, lowered: stepwell.lowering.Lowered) -> None:
    kernels = assembled(lowered, target)
    assert len(kernels) >= 5
    for kernel in kernels:
        assert f".target {target.cpu}" in kernel.ptx
        assert lint(kernel, target) == []


@needs_ptxas
def test_elementwise_kernels_access_16_bytes(lowered: stepwell.lowering.Lowered) -> None:
    target = targets.get("cuda:sm_90a")
    assert isinstance(target, NvidiaTarget)
    wide = [k for k in assembled(lowered, target) if "LDG.E.128" in k.sass]
    assert any("STG.E.128" in kernel.sass for kernel in wide)


@needs_ptxas
@pytest.mark.parametrize("target", [SM_86, SM_90], ids=lambda target: target.cpu)
def test_rows_are_read_once(target: NvidiaTarget) -> None:
    """Softmax of rows of a warp, a block, and several blocks, and a norm with all that it takes: no
    vector is read again but what is more than a block holds where there are no clusters."""

    def softmax(x: jax.Array) -> jax.Array:
        return jax.nn.softmax(x.astype(np.float32)).astype(x.dtype)

    def norm(x: jax.Array, residual: jax.Array, scale: jax.Array, shift: jax.Array) -> jax.Array:
        x = (x + residual).astype(np.float32)
        mean = x.mean(-1, keepdims=True)
        inverse = jax.lax.rsqrt(jax.numpy.square(x - mean).mean(-1, keepdims=True) + 1e-5)
        return ((x - mean) * inverse * scale + shift).astype(residual.dtype)

    vectors = {768: (6, 3), 4096: (8, 4), 32768: (8, 4)}
    for length, counts in vectors.items():
        scale = np.zeros(length, np.float32)
        for dtype, count in zip((np.float32, np.float16), counts, strict=True):
            x = np.zeros((2048, length), dtype)
            of_norm = 2 + 2 * scale.itemsize // x.itemsize
            for function, arrays, read in (
                (softmax, [x], 1),
                (norm, [x, x, scale, scale], of_norm),
            ):
                module = jax.export.export(jax.jit(function), platforms=["cpu"])(*arrays)
                lowered = stepwell.lower(str(module.mlir_module()), target=target.name)
                (kernel,) = assembled(lowered.step("affine"), target)
                assert lint(kernel, target) == []
                assert ("BAR.SYNC" in kernel.sass or "CGABAR" in kernel.sass) == (length > 768)
                if length == 32768 and target.cluster_blocks == 1:
                    continue
                assert kernel.sass.count("LDG.E.128") == kernel.sass.count("LDG") == count * read
                assert kernel.sass.count("STG.E.128") == kernel.sass.count("STG") == count
                exponentials = count * 16 // x.itemsize if function is softmax else 0
                assert kernel.sass.count("MUFU.EX2") == exponentials


def tensor_core_products(
    half: tuple[jax.Array, ...],
    single: tuple[jax.Array, ...],
    bytes: tuple[jax.Array, ...],
    images: tuple[jax.Array, ...],
) -> tuple[jax.Array, ...]:
    """A layer with its epilogue, a batch, products of f32 and of 8-bit integers, a convolution."""
    x, w, bias, residual = half
    layer = jax.nn.gelu(jax.numpy.matmul(x, w, preferred_element_type=np.float32) + bias)
    batch = jax.numpy.einsum("bmk,bnk->bmn", x, x, preferred_element_type=np.float32)
    product = jax.lax.dot_general(*bytes, (((1,), (1,)), ((), ())), preferred_element_type=np.int32)
    convolved = jax.lax.conv_general_dilated(
        *images, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    return (layer + residual).astype(x.dtype), batch, single[0] @ single[1], product, convolved


@needs_ptxas
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.cpu)
def test_tensor_core_kernels(target: NvidiaTarget) -> None:
    """No spills and no serialisation; asynchronous copies, fragments by matrices, and outputs 16
    bytes at a time, whatever the epilogue."""

    def zeros(kind: type, *shapes: tuple[int, ...]) -> tuple[np.ndarray, ...]:
        return tuple(np.zeros(shape, kind) for shape in shapes)

    inputs = (
        (
            *zeros(np.float16, (4, 512, 768), (768, 3072)),
            *zeros(np.float32, (3072,), (4, 512, 3072)),
        ),
        zeros(np.float32, (512, 256), (256, 512)),
        zeros(np.int8, (512, 256), (512, 256)),
        zeros(ml_dtypes.bfloat16, (1, 28, 28, 64), (3, 3, 64, 128)),
    )
    module = str(jax.export.export(jax.jit(tensor_core_products))(*inputs).mlir_module())
    options = {"precision": "tf32", "use_cache": False}
    lowered = stepwell.lower(module, target=target.name, options=options).step("affine")
    copies = {"LDGSTS": 4, "LDSM": 4, "STG.E.128": 4}
    groups = {"UTMALDG": 2, "UTMASTG": 1}
    kernels = assembled(
        lowered, target, {"mma.sync": copies, "wgmma": groups, ".col.f32.f16": {"HMMA": 8},
                          ".col.f32.bf16": {"HMMA": 8}, ".col.f32.tf32": {"HMMA": 8},
                          "satfinite.s32.s8": {"IMMA": 8}},
    )  # fmt: skip
    assert sum("mma" in kernel.ptx for kernel in kernels) == 5
    assert any("wgmma" in kernel.ptx for kernel in kernels) == (target.cpu == "sm_90a")
    for kernel in kernels:
        assert lint(kernel, target) == []


@needs_ptxas
@pytest.mark.parametrize("name", ["sm_80", "sm_90a", "sm_100a", "sm_120"])
def test_gathered_operands(name: str) -> None:
    """Rows that are no whole chunks of 16 bytes are gathered by way of registers, which hold what a
    step needs of them: few keys at a time, and one step of a product (ptxas would unroll eight)."""
    target = next(target for target in TARGETS if target.cpu == name)

    def layers(x: jax.Array, w: jax.Array, queries: jax.Array, keys: jax.Array) -> tuple:
        product = jax.numpy.matmul(x, w, preferred_element_type=np.float32)
        wide = np.float32
        scores = jax.numpy.einsum("bmd,bnd->bmn", queries, keys, preferred_element_type=wide)
        weights = jax.nn.softmax(scores).astype(np.float16)
        return product, jax.numpy.matmul(weights, keys, preferred_element_type=wide)

    shapes = ((256, 256), (256, 165), (8, 12, 114), (8, 113, 114))
    arrays = [np.zeros(shape, np.float16) for shape in shapes]
    module = str(jax.export.export(jax.jit(layers))(*arrays).mlir_module())
    options = {"use_cache": False}
    lowered = stepwell.lower(module, target=target.name, options=options).step("affine")
    kernels = assembled(lowered, target, {".col.f32.f16": {"HMMA": 8}})
    assert len(kernels) == 2
    for kernel in kernels:
        assert lint(kernel, target) == []
    assert min(kernel.sass.count("HMMA") for kernel in kernels) <= 2 * 16


def forms_in_steps(
    x: jax.Array, image: jax.Array, gradient: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """What has few results or changes single elements, in steps that fill a grid."""

    def pool(image: jax.Array) -> jax.Array:
        sizes = (1, 3, 3, 1), (1, 2, 2, 1), "SAME"
        return jax.lax.reduce_window(image, -np.inf, jax.lax.max, *sizes)

    return x.argmax(-1), (x * x).sum(), jax.vjp(pool, image)[1](gradient)[0]


@needs_ptxas
@pytest.mark.parametrize("name", ["sm_80", "sm_90a", "sm_100a", "sm_120"])
def test_forms_in_steps(name: str) -> None:
    """Argmax over a vocabulary, a sum of all elements, the gradient of a pool: whatever reads long
    arrays reads 16 bytes at a time."""
    target = next(target for target in TARGETS if target.cpu == name)
    shapes = ((2, 51200), (2, 28, 28, 64), (2, 14, 14, 64))
    arrays = [np.zeros(shape, np.float32) for shape in shapes]
    module = str(jax.export.export(jax.jit(forms_in_steps))(*arrays).mlir_module())
    options = {"use_cache": False}
    lowered = stepwell.lower(module, target=target.name, options=options).step("affine")
    assert not lowered.remarks
    kernels = assembled(lowered, target)
    for kernel in kernels:
        assert lint(kernel, target) == []
    loads = [(k.sass.count("LDG"), k.sass.count("LDG.E.128")) for k in kernels]
    assert sum(every == wide for every, wide in loads) >= 8
    assert all(every == wide or every <= 2 for every, wide in loads), "all but the last steps"


SHARING = [dataclasses.replace(tile, sharing=SM_90.multiprocessors) for tile in wgmma_tile.TILES]
"""Tiles that blocks share."""

WARPGROUP_CASES = [
    *((tile, np.float16, "kn") for tile in wgmma_tile.TILES),
    *((wgmma_tile.TILES[0], ml_dtypes.bfloat16, layout) for layout in ("kk", "mk", "mn")),
    *((wgmma_tile.TILES[0], dtype, "kk") for dtype in (np.float32, np.int8)),
    *((tile, np.float16, ("kk", "mn")[number % 2]) for number, tile in enumerate(SHARING)),
    *((SHARING[1], dtype, "kk") for dtype in (np.float32, np.int8)),
]
"""Tiles, operand types, and what is contiguous in lhs and rhs."""


FLAGS = {"LDG.E.STRONG.GPU": 1, "STG.E.STRONG.GPU": 2, "MEMBAR.ALL.GPU": 1}
"""Instructions by which blocks wait for each other."""


@needs_ptxas
@pytest.mark.parametrize(("tile", "dtype", "layout"), WARPGROUP_CASES)
def test_warpgroup_kernels(
    tile: wgmma_tile.WgmmaTile, dtype: type, layout: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Products by warpgroups, with an epilogue: bulk copies, products that do not wait for each
    other, registers that add up; outputs are seen by the engine that copies them."""
    monkeypatch.setattr(mma_tile, "cycles", lambda *_: float("inf"))
    monkeypatch.setattr(wgmma_tile, "TILES", (tile,))
    monkeypatch.setattr(_long_sums, "MOST_PARTS", 1)
    total = np.int32 if dtype is np.int8 else np.float32
    left, right = int(layout[0] == "k"), int(layout[1] == "k")

    def layer(x: jax.Array, w: jax.Array, bias: jax.Array) -> jax.Array:
        dims = (((left,), (right,)), ((), ()))
        return jax.nn.relu(jax.lax.dot_general(x, w, dims, preferred_element_type=total) + bias)

    inputs = (
        np.zeros((1024, 4096) if left else (4096, 1024), dtype),
        np.zeros((1536, 4096) if right else (4096, 1536), dtype),
        np.zeros(1536, total),
    )
    module = str(jax.export.export(jax.jit(layer))(*inputs).mlir_module())
    options = {"precision": "tf32", "use_cache": False}
    lowered = stepwell.lower(module, target=SM_90.name, options=options).step("affine")
    multiply = "IGMMA" if dtype is np.int8 else "HGMMA"
    expected = {"wgmma": {multiply: 4, "UTMALDG": 2, "USETMAXREG": 2, "UTMASTG": 1}}
    if tile.sharing:
        handed = tile.columns // 2 // 4
        expected["wgmma"] |= {**FLAGS, "STG.E.128": handed, "LDG.E.128": handed}
    (kernel,) = assembled(lowered, SM_90, expected)
    assert kernel.expected
    assert lint(kernel, SM_90) == []
    assert kernel.sass.count("WARPGROUP.ARRIVE") == 1
    assert ("MULTICAST" in kernel.sass) == (tile.cluster > 1)
    stored, shown = "cp.async.bulk.tensor.2d.global.shared::cta", "fence.proxy.async.shared::cta"
    assert kernel.ptx.count(stored) == kernel.ptx.count(shown) == tile.columns * 4 // 128


@needs_ptxas
@pytest.mark.parametrize("name", ["sm_80", "sm_90a", "sm_100a", "sm_120"])
def test_matrices_of_groups(name: str) -> None:
    """They are copied to shared memory from where they lie, by the instructions that copy others;
    no kernel writes copies of them."""
    target = next(target for target in TARGETS if target.cpu == name)
    inputs = (
        np.zeros((4096, 1024), np.float16),
        np.zeros((8, 1024, 2048), np.float16),
        np.zeros(8, np.int32),
    )
    function = jax.jit(jax.lax.ragged_dot)
    module = str(jax.export.export(function, platforms=["cpu"])(*inputs).mlir_module())
    options = {"use_cache": False}
    lowered = stepwell.lower(module, target=target.name, options=options).step("affine")
    assert not lowered.remarks
    assert "memref<40x1024x2048xf16>" not in str(lowered)
    copies = {"LDGSTS": 4, "LDSM": 4, "STG.E.128": 4, "HMMA": 8}
    groups = {"UTMALDG": 2, "UTMASTG": 1, "HGMMA": 4}
    kernels = assembled(lowered, target, {"mma.sync": copies, "wgmma": groups})
    (product,) = (kernel for kernel in kernels if kernel.expected)
    assert ("wgmma" in product.ptx) == (name == "sm_90a")
    for kernel in kernels:
        assert lint(kernel, target) == []


@needs_ptxas
@pytest.mark.parametrize(
    ("tile", "dtype"),
    [
        *((tile, np.float16) for tile in wgmma_tile.TILES),
        (wgmma_tile.TILES[0], ml_dtypes.bfloat16),
    ],
)
def test_matrices_of_outputs(
    tile: wgmma_tile.WgmmaTile, dtype: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outputs of 16 bits, through an epilogue that reads an array, with rows that no tile divides:
    16 columns of a warp's rows at once, and nothing of the outputs by other ways."""
    monkeypatch.setattr(mma_tile, "cycles", lambda *_: float("inf"))
    monkeypatch.setattr(wgmma_tile, "TILES", (tile,))

    def layer(x: jax.Array, w: jax.Array, y: jax.Array) -> jax.Array:
        sums = jax.numpy.matmul(x, w, preferred_element_type=np.float32)
        return (jax.nn.relu(sums) + y).astype(dtype)

    x, w = (np.zeros(shape, dtype) for shape in ((4100, 512), (512, 1536)))
    inputs = (x, w, np.zeros((4100, 1536), np.float32))
    module = str(jax.export.export(jax.jit(layer))(*inputs).mlir_module())
    options = {"use_cache": False}
    lowered = stepwell.lower(module, target=SM_90.name, options=options).step("affine")
    expected = {"wgmma": {"HGMMA": 4, "STSM.16.M88.4": tile.columns // 16, "UTMASTG": 1}}
    (kernel,) = assembled(lowered, SM_90, expected)
    assert kernel.expected
    assert lint(kernel, SM_90) == []
    assert "STG" not in kernel.sass.replace("UTMASTG", "")
    assert "STS." not in kernel.sass
    shown, slabs = "fence.proxy.async.shared::cta", tile.columns * 2 // 128
    assert kernel.ptx.count(shown) == kernel.sass.count("UTMASTG") == slabs


CONVOLUTIONS = {
    "1-D": ((8, 1500, 512), (3,), 1, ("NWC", "WIO", "NWC"), 1),
    "2-D": ((32, 28, 28, 128), (3, 3), 1, ("NHWC", "HWIO", "NHWC"), 1),
    "2-D by strides": ((32, 28, 28, 128), (3, 3), 2, ("NHWC", "HWIO", "NHWC"), 1),
    "2-D of groups": ((32, 28, 28, 696), (3, 3), 1, ("NHWC", "HWIO", "NHWC"), 3),
    "3-D": ((2, 16, 28, 28, 64), (3, 3, 3), 1, ("NDHWC", "DHWIO", "NDHWC"), 1),
}
"""Images, windows, strides, layouts and groups: of Whisper, of ResNet-50 in batches of 32, of
RegNetY-32GF, of videos."""


@needs_ptxas
@pytest.mark.parametrize("case", CONVOLUTIONS)
@pytest.mark.parametrize("tile", [None, SHARING[0], SHARING[1]], ids=["chosen", "shared", "pairs"])
def test_convolutions_by_warpgroups(
    case: str, tile: wgmma_tile.WgmmaTile | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copies of what windows see, chosen by the cost model, and in tiles that blocks share."""
    if tile is not None:
        monkeypatch.setattr(mma_tile, "cycles", lambda *_: float("inf"))
        monkeypatch.setattr(wgmma_tile, "TILES", (tile,))
    shape, window, stride, names, groups = CONVOLUTIONS[case]
    channels, strides = shape[-1], (stride,) * len(window)
    arrays = (shape, (*window, channels // groups, channels), (channels,))
    inputs = [np.zeros(sizes, np.float16) for sizes in arrays]

    def layer(x: jax.Array, w: jax.Array, bias: jax.Array) -> jax.Array:
        return jax.nn.relu(
            bias
            + jax.lax.conv_general_dilated(
                x, w, strides, "SAME", dimension_numbers=names, feature_group_count=groups
            )
        )

    module = str(jax.export.export(jax.jit(layer))(*inputs).mlir_module())
    options = {"use_cache": False}
    lowered = stepwell.lower(module, target=SM_90.name, options=options).step("affine")
    expected = {
        "wgmma": {"HGMMA": 4, f"UTMALDG.{len(shape)}D.IM2COL": 1, "USETMAXREG": 2, "UTMASTG": 1,
                  "STSM": 4, **(FLAGS if tile is not None else {})}
    }  # fmt: skip
    kernels = assembled(lowered, SM_90, expected)
    assert any(kernel.expected for kernel in kernels)
    for kernel in kernels:
        assert lint(kernel, SM_90) == []


GROUPED = {
    "resnext-f16": (np.float16, (32, 28, 28, 256), (3, 3), 32, 1, True),
    "resnext-bf16": (ml_dtypes.bfloat16, (32, 56, 56, 128), (3, 3), 32, 2, True),
    "resnext-tf32": (np.float32, (32, 28, 28, 256), (3, 3), 32, 1, True),
    "regnet-f16": (np.float16, (32, 14, 14, 896), (3, 3), 16, 1, False),
    "wav2vec2-f16": (np.float16, (8, 499, 768), (128,), 16, 1, False),
}
"""Of ResNeXt-50 32x4d, RegNetY-8GF and wav2vec2: types, images, windows, groups and strides, and
whether warpgroups multiply them on sm_90a."""


@needs_ptxas
@pytest.mark.parametrize("case", GROUPED)
@pytest.mark.parametrize("name", ["sm_80", "sm_90a", "sm_100a", "sm_120"])
def test_grouped_convolutions(name: str, case: str) -> None:
    """All groups in one kernel of tensor cores with asynchronous copies, and the epilogue in it."""
    target = next(target for target in TARGETS if target.cpu == name)
    dtype, shape, window, groups, stride, by_groups = GROUPED[case]
    channels, layout = shape[-1], {3: ("NWC", "WIO", "NWC"), 4: ("NHWC", "HWIO", "NHWC")}
    sizes = (*window, channels // groups, channels)
    filters = np.random.default_rng(0).standard_normal(sizes).astype(dtype)

    def layer(x: jax.Array, bias: jax.Array) -> jax.Array:
        sums = jax.lax.conv_general_dilated(
            x, filters, (stride,) * len(window), "SAME", dimension_numbers=layout[len(shape)],
            feature_group_count=groups, preferred_element_type=np.float32,
        )  # fmt: skip
        return jax.nn.relu(sums + bias).astype(dtype)

    inputs = (np.zeros(shape, dtype), np.zeros(channels, np.float32))
    module = str(jax.export.export(jax.jit(layer))(*inputs).mlir_module())
    options = {"precision": "tf32", "use_cache": False}
    lowered = stepwell.lower(module, target=target.name, options=options).step("affine")
    assert not lowered.remarks
    warps = {"HMMA": 8, "LDGSTS": 4, "LDSM": 4, "STG.E.128": 4}
    warpgroups = {"HGMMA": 4, f"UTMALDG.{len(shape)}D.IM2COL": 1, "UTMASTG": 1}
    kernels = assembled(lowered, target, {"mma.sync": warps, "wgmma": warpgroups})
    (product,) = (kernel for kernel in kernels if kernel.expected)
    assert ("wgmma" in product.ptx) == (by_groups and name == "sm_90a")
    for kernel in kernels:
        assert lint(kernel, target) == []


def layer_of_bert(x: jax.Array, w: jax.Array, bias: jax.Array, y: jax.Array) -> jax.Array:
    """The second feed-forward product of a layer, with its residual."""
    sums = jax.numpy.matmul(x, w, preferred_element_type=np.float32)
    return (sums + bias).astype(x.dtype) + y


@needs_ptxas
@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_products_that_blocks_share(dtype: type) -> None:
    """Chosen by the cost model: outputs as boxes of matrices, and partial sums 16 bytes at a
    time."""
    shapes = ((8, 128, 3072), (3072, 768), (768,), (8, 128, 768))
    inputs = [np.zeros(shape, dtype) for shape in shapes]
    module = str(jax.export.export(jax.jit(layer_of_bert))(*inputs).mlir_module())
    lowered = stepwell.lower(module, target=SM_90.name, options={"use_cache": False})
    expected = {"wgmma": {"HGMMA": 4, "UTMALDG": 2, "UTMASTG": 1, "STSM": 4, "STG.E.128": 16,
                          "LDG.E.128": 16, **FLAGS}}  # fmt: skip
    kernels = assembled(lowered.step("affine"), SM_90, expected)
    assert any(kernel.expected for kernel in kernels)
    for kernel in kernels:
        assert lint(kernel, SM_90) == []


WIDE_OUTPUTS = """
func.func @main(%x: tensor<4096x3072xf32>, %w: tensor<768x3072xf32>, %bias: tensor<4096x768xf32>,
                %y: tensor<4096x768xf32>) -> (tensor<4096x768xf32>, tensor<4096x768xf64>) {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [1]
      : (tensor<4096x3072xf32>, tensor<768x3072xf32>) -> tensor<4096x768xf32>
  %1 = stablehlo.add %0, %bias : tensor<4096x768xf32>
  %2 = stablehlo.add %1, %y : tensor<4096x768xf32>
  %3 = stablehlo.convert %2 : (tensor<4096x768xf32>) -> tensor<4096x768xf64>
  return %2, %3 : tensor<4096x768xf32>, tensor<4096x768xf64>
}
"""


@needs_ptxas
def test_wide_outputs_of_warpgroups() -> None:
    """Numbers of 64 bits beside the sums, before a layer norm: no spills."""
    options = {"precision": "tf32", "use_cache": False}
    lowered = stepwell.lower(WIDE_OUTPUTS, target=SM_90.name, options=options).step("affine")
    (kernel,) = assembled(lowered, SM_90, {"wgmma": {"HGMMA": 4}})
    assert kernel.expected
    assert lint(kernel, SM_90) == []


LOG = """ptxas info    : Compiling entry function 'k' for 'sm_90a'
ptxas info    : Function properties for k
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 168 registers, used 1 barriers, 1024 bytes smem
"""
GOOD = Kernel("k", "setmaxnreg.dec.sync.aligned.u32 \t40;\nsetmaxnreg.inc.sync.aligned.u32 \t232;"
              "\nbar.sync \t%r1, 128;\nbar.sync \t0;",
              384, LOG, "HGMMA.64x128x16", expected={"HGMMA": 1})  # fmt: skip


def test_clean_kernel() -> None:
    assert lint(GOOD, SM_90) == []


@pytest.mark.parametrize(
    ("fault", "target", "sentence"),
    [
        ({"ptx": ".extern .func llvm.nvvm.unknown\n(\n);"}, SM_90,
         "k calls llvm.nvvm.unknown, which nothing defines"),
        ({"ptx": ".extern .func  (.param .b32 r) fmodf\n(\n);"}, SM_90, "k calls fmodf"),
        ({"log": LOG.replace("0 bytes spill stores", "8 bytes spill stores")}, SM_90,
         "k spills registers: 8 bytes stored and 0 loaded"),
        ({"log": LOG.replace("0 bytes stack", "32 bytes stack")}, SM_90, "stack of 32 bytes"),
        ({"log": LOG.replace("1024 bytes smem", "50000 bytes smem")}, SM_90,
         "k declares 50000 bytes of shared memory"),
        ({"dynamic_shared_bytes": 147456}, SM_86,
         "k needs 148480 bytes of shared memory, and a block of sm_86 has at most 101376"),
        ({"threads": 512}, SM_90, "k needs 168 registers for each of 512 threads"),
        ({"log": LOG + "ptxas info : (C7510) Potential Performance Loss: wgmma"}, SM_90, "C7510"),
        ({"ptx": GOOD.ptx.replace("232", "240")}, SM_90, "it would wait for ever"),
        ({"ptx": "bar.sync \t%r1, 512;"}, SM_90, "waits at a barrier for 512 threads"),
        ({"ptx": "barrier.cta.sync.aligned 3, 100;"}, SM_90, "waits at a barrier for 100 threads"),
        ({"sass": "HMMA.16816.F32"}, SM_90, "k has 0 HGMMA in its SASS; expected 1 or more"),
        ({"sass": "HGMMA.64x8x16 STL.64"}, SM_90, "k reads or writes local memory"),
    ],
)  # fmt: skip
def test_faults_are_sentences(fault: dict, target: NvidiaTarget, sentence: str) -> None:
    found = lint(dataclasses.replace(GOOD, **fault), target)
    assert any(sentence in finding for finding in found), found


def test_registers_are_given_in_pieces() -> None:
    assert block_registers(168, 384) == 168 * 384
    assert block_registers(33, 32) == 5 * 256


def test_externs() -> None:
    assert undefined_functions(".extern .shared .align 16 .b8 s[];\n.visible .entry k()") == []


@needs_ptxas
def test_report_of_a_compilation(emulator: Emulator) -> None:
    """The artifact says what is wrong with its kernels: nothing."""
    x = np.zeros((4, 1000), np.float32)
    module = str(jax.export.export(jax.jit(jax.nn.softmax))(x).mlir_module())
    program = models.compile_for_gpu(module).artifact.manifest.cuda
    assert program is not None
    assert program.findings == ()
    assert all(image.cubin is not None for image in program.images)
