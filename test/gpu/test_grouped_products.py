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

from stepwell.kernels.gpu import mma_tile, wgmma_tile
from stepwell.kernels.gpu.wgmma_tile import WgmmaTile

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
    _, (x, w), expected = convolution(
        (2, 9, 11, 3 * channels), (3, 3), 96, dtype, padding="SAME", groups=3
    )
    total = np.int32 if dtype is np.int8 else np.float32

    def convolve(x: jax.Array) -> jax.Array:
        return lax.conv_general_dilated(
            x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"),
            feature_group_count=3, preferred_element_type=total,
        )  # fmt: skip

    constant = jax.export.export(jax.jit(convolve))(x).mlir_module()
    compiled = check((constant, [x], expected.astype(total)), emulator)
    assert kernels_with(compiled, "g2s.im2col.4d") == 1
    assert compiled.artifact.manifest.weights_bytes == w.nbytes


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
