"""Grouped convolutions on tensor cores. Integers, whose products and sums every type holds: results
are exact; with infinities, what precision "strict" keeps apart."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from emulator import Emulator
from jax import lax
from models import Compiled, compile_for_gpu, load_on_emulator
from products import BF16, convolution

import stepwell
from stepwell.kernels.gpu import mma_tile, wgmma_tile
from stepwell.kernels.gpu.wgmma_tile import WgmmaTile
from stepwell.passes.stablehlo import _joined_groups

HALVES = pytest.mark.parametrize("dtype", [np.float16, BF16], ids=["f16", "bf16"])


@pytest.fixture
def prefer_warpgroups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small problems are faster by warps; here they are not."""
    monkeypatch.setattr(mma_tile, "cycles", lambda *_: float("inf"))


def check(
    case: tuple[object, list[np.ndarray], np.ndarray],
    emulator: Emulator,
    target: str = "cuda:sm_90a",
) -> Compiled:
    """Compile a case of `products.convolution` and compare: its one contraction is exact."""
    model, inputs, expected = case
    compiled = compile_for_gpu(str(model), target, precision="tf32")
    program = compiled.artifact.manifest.cuda
    assert program is not None
    assert program.findings == ()
    executable = load_on_emulator(compiled, emulator)
    for backwards in (False, True):
        emulator.configure(backwards=backwards)
        for _ in range(2):
            np.testing.assert_array_equal(executable(*inputs)[0], expected)
    return compiled


def with_constant_filters(
    case: tuple[object, list[np.ndarray], np.ndarray], groups: int, strides: tuple[int, ...],
    dilation: tuple[int, ...],
) -> tuple[object, list[np.ndarray], np.ndarray]:  # fmt: skip
    """A padded convolution of images as in `case`, of filters that are constants."""
    _, (x, w), expected = case
    total = np.int32 if x.dtype == np.int8 else np.float32

    def convolve(x: jax.Array) -> jax.Array:
        return lax.conv_general_dilated(
            x, w, strides, "SAME", rhs_dilation=dilation, feature_group_count=groups,
            dimension_numbers=("NHWC", "HWIO", "NHWC"), preferred_element_type=total,
        )  # fmt: skip

    return jax.export.export(jax.jit(convolve))(x).mlir_module(), [x], expected.astype(total)


def kernels_with(compiled: Compiled, word: str) -> int:
    return sum(word in text for text in compiled.kernels.values())


WINDOWS = [
    ((2, 9, 11, 192), (3, 3), 3, 192, (1, 1), (1, 1), "SAME"),
    ((3, 15, 13, 128), (3, 3), 2, 144, (2, 2), (1, 1), "SAME"),
    ((2, 14, 14, 144), (3, 3), 3, 96, (1, 2), (1, 1), "SAME"),
    ((1, 20, 20, 224), (3, 2), 2, 80, (1, 1), (3, 2), "VALID"),
    ((2, 100, 192), (9,), 4, 192, (1,), (1,), "SAME"),
    ((2, 5, 6, 7, 96), (2, 3, 2), 2, 96, (1, 2, 1), (1, 1, 2), "SAME"),
]
"""Images, windows, groups, outputs, strides, dilation and padding: channels of a group that are
whole lines of 128 bytes, parts of one, and some more than one."""


@pytest.mark.usefixtures("prefer_warpgroups")
@pytest.mark.parametrize("cluster", [1, 2])
@pytest.mark.parametrize(
    ("shape", "window", "groups", "outputs", "strides", "dilation", "padding"), WINDOWS
)
def test_windows_of_groups(
    shape: tuple[int, ...],
    window: tuple[int, ...],
    groups: int,
    outputs: int,
    strides: tuple[int, ...],
    dilation: tuple[int, ...],
    padding: str,
    cluster: int,
    emulator: Emulator,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Boxes that begin at a group's channels; all groups in one kernel, whose blocks walk tiles."""
    monkeypatch.setattr(wgmma_tile, "TILES", (WgmmaTile(128, 64, stages=4, cluster=cluster),))
    case = convolution(shape, window, outputs, np.float16, strides=strides, dilation=dilation,
                       padding=padding, groups=groups)  # fmt: skip
    compiled = check(case, emulator)
    assert kernels_with(compiled, f"g2s.im2col.{len(shape)}d") == 1
    assert kernels_with(compiled, "wgmma.mma_async") == 1


@pytest.mark.usefixtures("prefer_warpgroups")
@pytest.mark.parametrize(("dtype", "channels"), [(np.float32, 48), (np.int8, 144)])
def test_constant_filters(dtype: type, channels: int, emulator: Emulator) -> None:
    """Filters of 32 and of 8 bits are stored along k, group by group; their channels are parts of
    lines."""
    case = convolution((2, 9, 11, 3 * channels), (3, 3), 96, dtype, padding="SAME", groups=3)
    compiled = check(with_constant_filters(case, 3, (1, 1), (1, 1)), emulator)
    assert kernels_with(compiled, "g2s.im2col.4d") == 1
    assert compiled.artifact.manifest.weights_bytes == case[1][1].nbytes


@pytest.mark.usefixtures("prefer_warpgroups")
@HALVES
def test_infinities_of_other_groups(dtype: type, emulator: Emulator) -> None:
    """With precision "strict", no zero meets an infinite channel of another group: not in a line
    that goes on with them (groups of 48), which warps multiply then, nor where lines are whole."""
    for channels, word in ((48, "mma.m16n8k16"), (64, "wgmma.mma_async")):
        emulator.reset()
        model, (x, w), _ = convolution((2, 12, 12, 2 * channels), (3, 3), 32, dtype, groups=2)
        x[..., channels] = np.inf
        w[..., 16:] = np.abs(w[..., 16:]) + dtype(1)
        wide = [v.astype(np.float32) for v in (x, w)]
        expected = np.asarray(
            lax.conv_general_dilated(
                *wide, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC"),
                feature_group_count=2,
            )
        )  # fmt: skip
        assert np.isfinite(expected[..., :16]).all()
        assert np.isinf(expected[..., 16:]).all()
        compiled = compile_for_gpu(str(model), "cuda:sm_90a", precision="strict")
        assert kernels_with(compiled, word) == 1
        got = load_on_emulator(compiled, emulator)(x, w)[0]
        np.testing.assert_array_equal(got, expected)


NARROW = [
    ((2, 9, 11, 64), 64, 16, (1, 1), (1, 1)),
    ((2, 12, 13, 64), 128, 8, (2, 2), (1, 1)),
    ((1, 13, 17, 96), 96, 12, (1, 2), (2, 1)),
    ((2, 9, 11, 80), 40, 10, (1, 1), (1, 1)),
    ((2, 9, 11, 72), 72, 6, (2, 1), (1, 1)),
]
"""Images, outputs, groups (of 4 to 12 channels), strides and dilation."""

NARROW_TYPES = [np.float16, BF16, np.float32, np.int8]


@pytest.mark.parametrize(
    ("number", "dtype"),
    [
        pytest.param(i, dtype, id=f"{i}-{np.dtype(dtype)}")
        for i in range(len(NARROW))
        for dtype in NARROW_TYPES
    ],
)
def test_narrow_groups(number: int, dtype: type, emulator: Emulator) -> None:
    """As many as the cost model joins. Constant filters are joined for good, and tensor cores
    multiply all groups in one kernel; others, of every second type, are joined in each call, or
    not."""
    given = (number + NARROW_TYPES.index(dtype)) % 2
    shape, outputs, groups, strides, dilation = NARROW[number]
    case = convolution(shape, (3, 3), outputs, dtype, strides=strides, dilation=dilation,
                       padding="SAME", groups=groups)  # fmt: skip
    if not given:
        case = with_constant_filters(case, groups, strides, dilation)
    compiled = check(case, emulator, "cuda:sm_80")
    if not given:
        assert kernels_with(compiled, ".mma.") == 1


@pytest.mark.parametrize("target", ["cuda:sm_80", "cuda:sm_90a"])
@pytest.mark.parametrize("count", [1, 2, 4, 8, 16])
def test_every_count(
    count: int, target: str, emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many are joined, sums are the same."""
    monkeypatch.setattr(_joined_groups, "count_of", lambda *_, **__: count)
    if target == "cuda:sm_90a" and count > 1:
        monkeypatch.setattr(mma_tile, "cycles", lambda *_: float("inf"))
    shape, groups, strides = (2, 15, 13, 128), 16, (1, 2)
    case = convolution(shape, (3, 3), 128, BF16, strides=strides, padding="SAME", groups=groups)
    compiled = check(with_constant_filters(case, groups, strides, (1, 1)), emulator, target)
    word = "wgmma" if target == "cuda:sm_90a" and count > 1 else ".mma."
    assert kernels_with(compiled, word) == 1


@HALVES
def test_infinities_of_narrow_groups(dtype: type, emulator: Emulator) -> None:
    """With precision "strict" they are not joined."""
    case = convolution((1, 9, 9, 32), (3, 3), 32, dtype, padding="SAME", groups=8)
    model, (x, w), _ = case
    x[..., 5] = np.inf
    w[:] = np.abs(w) + dtype(1)
    compiled = compile_for_gpu(str(model), "cuda:sm_90a", precision="strict")
    got = load_on_emulator(compiled, emulator)(x, w)[0]
    assert np.isinf(got[..., 4:8]).all()
    assert np.isfinite(got[..., :4]).all()
    assert np.isfinite(got[..., 8:]).all()


@pytest.mark.parametrize("target", ["cuda:sm_80", "cuda:sm_90a"])
def test_block_of_resnext(target: str, emulator: Emulator) -> None:
    """A block of ResNeXt (32 groups of 4 channels, by strides of 2, with its shortcut) beside the
    CPU. Sums are f32 in another order; a layer's outputs are rounded to f16, which may go the other
    way by 2^-11, and three layers do so."""
    rng = np.random.default_rng(0)

    def weights(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) / np.sqrt(np.prod(shape[:-1]))).astype(np.float16)

    narrow, grouped, wide, shortcut = (
        weights(*shape)
        for shape in ((1, 1, 64, 128), (3, 3, 4, 128), (1, 1, 128, 256), (1, 1, 64, 256))
    )
    bias = rng.standard_normal(128).astype(np.float32)

    def layer(x: jax.Array, w: np.ndarray, stride: int = 1, groups: int = 1) -> jax.Array:
        return lax.conv_general_dilated(
            x, w, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"),
            feature_group_count=groups, preferred_element_type=np.float32,
        )  # fmt: skip

    def block(x: jax.Array) -> jax.Array:
        y = jax.nn.relu(layer(x, narrow) + bias).astype(np.float16)
        y = jax.nn.relu(layer(y, grouped, 2, 32) + bias).astype(np.float16)
        return jax.nn.relu(layer(y, wide) + layer(x, shortcut, 2)).astype(np.float16)

    x = rng.standard_normal((2, 14, 14, 64)).astype(np.float16)
    model = str(jax.export.export(jax.jit(block))(x).mlir_module())
    compiled = compile_for_gpu(model, target)
    assert not compiled.remarks
    assert kernels_with(compiled, "mma") == 4
    (expected,) = stepwell.compile(model)(x)
    executable = load_on_emulator(compiled, emulator)
    for backwards in (False, True):
        emulator.configure(backwards=backwards)
        (got,) = executable(x)
        np.testing.assert_allclose(
            got.astype(np.float64), expected.astype(np.float64), rtol=3 * 2**-11, atol=3 * 2**-10
        )
