"""Products of f32 as three of tf32: errors like those of sums of f32, infinities and NaNs like
theirs, by warps and by warpgroups; where they are not taken."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest
from emulator import Emulator
from jax import lax
from models import compile_for_gpu, load_on_emulator
from products import convolution, product

from stepwell.kernels.gpu import mma_tile, split_f32, wgmma_tile
from stepwell.kernels.gpu.wgmma_tile import WgmmaTile
from stepwell.targets.nvidia import TARGETS

ALONG_K = (((1,), (1,)), ((), ()))
ERROR = 4e-7
"""Of a sum of f32, relative to the sum of the magnitudes; one product of tf32 is off by 2e-4."""


@pytest.fixture(params=["warps", "warpgroups"])
def target(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What multiplies, made to take small problems, too."""
    if request.param == "warps":
        return "cuda:sm_80"
    monkeypatch.setattr(mma_tile, "cycles", lambda *_: float("inf"))
    return "cuda:sm_90a"


def multiplied(a: np.ndarray, b: np.ndarray, target: str, emulator: Emulator) -> np.ndarray:
    """The product of `a` and `b`, both along k, on tensor cores."""
    compiled = compile_for_gpu(str(product(a, b, ALONG_K)), target)
    program = compiled.artifact.manifest.cuda
    assert program is not None
    assert program.findings == ()
    word = ".mma." if target == "cuda:sm_80" else "wgmma.mma_async"
    assert any(word in text for text in compiled.kernels.values())
    return load_on_emulator(compiled, emulator)(a, b)[0]


def error(got: np.ndarray, a: np.ndarray, b: np.ndarray) -> float:
    """The greatest one of an element, relative to the sum of its products' magnitudes."""
    exact, size = (f(a.astype(np.float64)) @ f(b.T.astype(np.float64)) for f in (np.copy, np.abs))
    return float((np.abs(got - exact) / np.maximum(size, np.finfo(np.float32).tiny)).max())


@pytest.mark.parametrize("kind", ["normal", "positive", "scaled"])
@pytest.mark.parametrize("sizes", [(128, 96, 128), (135, 70, 200)], ids=["whole", "odd"])
def test_error(kind: str, sizes: tuple[int, int, int], target: str, emulator: Emulator) -> None:
    """Numbers of both signs, of one, and of rows and columns 40 orders of magnitude apart."""
    m, k, n = sizes
    k += -k % 4
    rng = np.random.default_rng(0)
    draw = rng.random if kind == "positive" else rng.standard_normal
    a, b = (draw((rows, k)).astype(np.float32) for rows in (m, n))
    if kind == "scaled":
        a *= 10.0 ** rng.integers(-20, 18, (m, 1))
        b *= 10.0 ** rng.integers(-17, 20, (n, 1))
    assert error(multiplied(a, b, target, emulator), a, b) < ERROR


def test_specials(target: str, emulator: Emulator) -> None:
    """Infinities and NaNs of operands, and sums beyond the largest number, are those of f32; other
    rows and columns do not see them."""
    rng = np.random.default_rng(1)
    a, b = (rng.integers(1, 9, shape).astype(np.float32) for shape in ((128, 64), (64, 64)))
    a[3, 5], a[4, 63], a[5, 0], a[9] = np.inf, -np.inf, np.nan, 3e38
    b[2, 7], b[11, 5], b[12] = np.inf, 0, 1 + 2.0**-12
    a[20, 7] = 0
    with np.errstate(invalid="ignore", over="ignore"):
        expected = (a[:, None].astype(np.float64) * b[None]).sum(-1).astype(np.float32)
    np.testing.assert_array_equal(multiplied(a, b, target, emulator), expected)


@pytest.mark.parametrize("tile", wgmma_tile.SPLIT_TILES, ids=lambda t: f"{t.columns}-{t.cluster}")
@pytest.mark.parametrize("sharing", [0, 4])
def test_tile(
    tile: WgmmaTile, sharing: int, emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every tile, in more blocks than one, with sums that go round its ring more than once, walked
    by the emulated GPU's four multiprocessors or shared by them."""
    monkeypatch.setattr(mma_tile, "cycles", lambda *_: float("inf"))
    shared = dataclasses.replace(tile, sharing=sharing)
    monkeypatch.setattr(wgmma_tile, "choose", lambda *_, **__: shared)
    rng = np.random.default_rng(2)
    k = 32 * (2 * tile.stages + 1) - 12
    shapes = (2 * tile.rows * tile.cluster + 8, k), (2 * tile.columns + 24, k)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in shapes)
    for backwards in (False, True):
        emulator.configure(backwards=backwards)
        assert error(multiplied(a, b, "cuda:sm_90a", emulator), a, b) < ERROR


@pytest.mark.parametrize("channels", [32, 24])
def test_convolution(channels: int, target: str, emulator: Emulator) -> None:
    """Windows of images, with channels that are whole lines and that are not."""
    model, (x, w), _ = convolution((2, 9, 9, channels), (3, 3), 40, np.float32, padding="SAME")
    rng = np.random.default_rng(3)
    x, w = (rng.standard_normal(v.shape).astype(np.float32) for v in (x, w))
    compiled = compile_for_gpu(str(model), target)
    got = load_on_emulator(compiled, emulator)(x, w)[0]
    with jax.enable_x64(True):
        exact, size = (
            np.asarray(
                lax.conv_general_dilated(
                    f(x.astype(np.float64)), f(w.astype(np.float64)), (1, 1), "SAME",
                    dimension_numbers=("NHWC", "HWIO", "NHWC"),
                )
            )
            for f in (np.copy, np.abs)
        )  # fmt: skip
    assert (np.abs(got - exact) / size).max() < ERROR


@pytest.mark.parametrize("target", [t for t in TARGETS if not t.splits_f32], ids=lambda t: t.cpu)
def test_gpus_whose_tensor_cores_are_as_fast_as_multiply_adds(target) -> None:
    a, b = (np.zeros((128, 128), np.float32) for _ in range(2))
    compiled = compile_for_gpu(str(product(a, b, ALONG_K)), target.name)
    assert not any("mma" in text for text in compiled.kernels.values())


def test_precision_strict() -> None:
    """Products of f32 stay products of f32."""
    a, b = (np.zeros((128, 128), np.float32) for _ in range(2))
    compiled = compile_for_gpu(str(product(a, b, ALONG_K)), "cuda:sm_90a", precision="strict")
    assert not any("mma" in text for text in compiled.kernels.values())


def test_planted_fault(target: str, emulator: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the tests above would see if parts were wrong, or were added where they are infinite."""
    rng = np.random.default_rng(4)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((128, 96), (64, 96)))
    with monkeypatch.context() as patch:
        patch.setattr(split_f32, "low_part", lambda numbers: numbers)
        assert error(multiplied(a, b, target, emulator), a, b) > 10 * ERROR
    a[0, 0], b[:, 0] = np.inf, 1
    monkeypatch.setattr(split_f32, "finite_or_zero", lambda numbers: numbers)
    assert np.isnan(multiplied(a, b, target, emulator)[0]).all()
