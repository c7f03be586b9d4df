"""How Winograd convolutions are cut into tasks: by what the threads need, and no further."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
import pytest

import stepwell
from stepwell.kernels.cpu import winograd_strategy
from stepwell.kernels.cpu.winograd_shape import ConvolutionShape, Side
from stepwell.kernels.cpu.winograd_strategy import (
    WinogradStrategy,
    blocking,
    choose,
)
from stepwell.mlir import ir, new_context
from stepwell.passes.linalg.choose_convolution import ChooseConvolution
from stepwell.targets import Target, get
from stepwell.targets.x86_64 import MICROARCHITECTURES

TOLERANCE = 1e-5
"""Relative L2 error: sums of 576 terms in float32 by Winograd's algorithm."""


def _shape(batch: int, size: int, channels: int) -> ConvolutionShape:
    """A 3x3 convolution of as many channels as there were."""
    sides = Side(1, size, 1, 4, 3), Side(2, size, 2, 5, 3)
    return ConvolutionShape((0,), sides, 3, (), 6, (batch, size, size, channels, 3, 3, channels))


def _strategy(batch: int, size: int, channels: int, target: str, threads: int) -> WinogradStrategy:
    shape = _shape(batch, size, channels)
    strategy = choose(shape, get(target), threads, math.inf)
    assert strategy is not None
    return strategy


def _groups(strategy: WinogradStrategy, channels: int, lanes: int) -> int:
    return -(-channels // (strategy.panels * strategy.vectors * lanes))


@pytest.mark.parametrize("target", ["x86_64-v3", "x86_64-v4"])
@pytest.mark.parametrize(("size", "channels"), [(56, 64), (28, 128), (14, 256), (7, 512)])
def test_one_thread_transforms_once(target: str, size: int, channels: int) -> None:
    strategy = _strategy(1, size, channels, target, 1)
    assert _groups(strategy, channels, get(target).vector_lanes) == 1


@pytest.mark.parametrize("target", ["x86_64-v3", "x86_64-v4"])
def test_few_tiles_are_shared_by_their_panels(target: str) -> None:
    strategy = _strategy(1, 14, 256, target, 2)
    assert _groups(strategy, 256, get(target).vector_lanes) == 2


@pytest.mark.parametrize("tile", [2, 4])
@pytest.mark.parametrize(("batch", "size", "channels"), [(64, 14, 256), (1, 64, 256), (8, 7, 2048)])
def test_scratch_fits_a_stack(tile: int, batch: int, size: int, channels: int) -> None:
    shape = _shape(batch, size, channels)
    strategy = blocking(tile, shape, get("x86_64-v3"), 2)
    assert shape.positions(tile) * strategy.block * channels * 4 <= 3 << 20


@pytest.mark.parametrize(
    ("field", "number", "sentence"),
    [
        ("rows", 0, "rows is 0, which should be positive"),
        ("vectors", -1, "vectors is -1, which should be positive"),
        ("block", 0, "block is 0, which should be positive"),
        ("panels", 0, "panels is 0, which should be positive"),
        ("panels", 99, "panels is 99, of 2"),
        ("vectors", 3, "4 vectors of outputs are no panels of 3"),
        ("run", 2, "run is 2, and there are 1 tiles that slide over an image"),
    ],
)
def test_a_record_that_cannot_be_names_its_field(field: str, number: int, sentence: str) -> None:
    shape, target = _shape(1, 14, 64), get("x86_64-v4")
    strategy = WinogradStrategy(tile=4, block=16, rows=8, vectors=2, panels=1)
    assert winograd_strategy.problem(strategy, 4, shape, target) == ""
    wrong = dataclasses.replace(strategy, **{field: number})
    assert winograd_strategy.problem(wrong, 4, shape, target) == sentence


def test_few_tiles_transform_filters_where_memory_is_slow() -> None:
    """The processor multiplies 7x7 images sooner than it reads transformed filters; where there
    are more tiles, or memory is faster, these are transformed at compile time."""
    plain = get("x86_64-v4")
    slow = dataclasses.replace(plain, l2_bytes=2 << 20, **MICROARCHITECTURES["emeraldrapids"])  # pyright: ignore[reportArgumentType]

    def chosen(size: int, channels: int, target: Target) -> WinogradStrategy:
        strategy = choose(_shape(1, size, channels), target, 1, math.inf)
        assert strategy is not None
        return strategy

    assert chosen(7, 512, slow) == WinogradStrategy(4, 4, 4, 1, 32, plain=1)
    assert not chosen(28, 128, slow).plain
    assert not chosen(7, 512, plain).plain


def test_uneven_groups_match(monkeypatch: pytest.MonkeyPatch) -> None:
    """Panels that the threads cannot share evenly, and more threads than panels."""
    monkeypatch.setattr(ChooseConvolution, "_tile", lambda *_: 4)
    random = np.random.default_rng(0)
    filters = (random.standard_normal((208, 64, 3, 3)) / 24).astype(np.float32)
    image = random.standard_normal((1, 64, 14, 14)).astype(np.float32)
    padded = np.pad(image[0].astype(np.float64), ((0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))
    wanted = np.einsum("oikl,ihwkl->ohw", filters, windows)
    for threads in (1, 2, 3, 16):
        lowered = stepwell.lower(_convolution(filters), threads=threads)
        lowered.step("linalg")
        assert "tile = 4" in str(lowered)
        (result,) = lowered.compile()(image)
        assert np.linalg.norm(result[0] - wanted) <= TOLERANCE * np.linalg.norm(wanted)


@pytest.mark.parametrize(
    ("size", "window", "strides", "dilation", "groups"),
    [
        ((13, 18), (3, 3), (1, 1), 2, 1),
        ((21, 10), (3, 3), (1, 1), 3, 1),
        ((5, 14, 9), (3, 3, 3), (1, 1, 1), 1, 1),
        ((5, 14, 9), (3, 3, 3), (2, 1, 1), 1, 1),
        ((4, 9, 17), (2, 3, 3), (1, 1, 1), 2, 1),
        ((13, 18), (3, 3), (1, 1), 1, 3),
        ((13, 18), (3, 3), (1, 1), 2, 2),
        ((13, 18), (3, 3), (2, 2), 1, 1),
        ((14, 9), (3, 3), (2, 2), 1, 2),
        ((5, 14, 9), (3, 3, 3), (1, 2, 2), 1, 1),
        ((13, 18), (5, 5), (1, 1), 1, 1),
        ((13, 18), (5, 5), (2, 2), 1, 2),
        ((13, 18), (5, 3), (1, 1), 2, 1),
        ((13, 18), (2, 2), (1, 1), 1, 1),
        ((13, 18), (2, 2), (1, 1), 3, 1),
        ((14, 9), (4, 4), (2, 2), 1, 1),
        ((14, 9), (3, 4), (2, 2), 1, 1),
        ((14, 9), (4, 5), (2, 2), 1, 2),
        ((13, 18), (1, 4), (1, 1), 1, 1),
        ((13, 18), (3, 1), (1, 1), 1, 1),
        ((13, 18), (1, 3), (2, 2), 1, 1),
        ((13, 18), (1, 5), (1, 1), 1, 3),
        ((2, 13, 9), (5, 5, 5), (1, 1, 1), 1, 1),
        ((7, 5, 9), (3, 1, 1), (1, 1, 1), 1, 1),
        ((29,), (3,), (1,), 1, 1),
        ((29,), (3,), (2,), 1, 1),
        ((29,), (5,), (1,), 3, 2),
        ((29,), (5,), (2,), 1, 1),
    ],
)
@pytest.mark.parametrize("tile", [2, 4])
def test_forms_match(
    monkeypatch: pytest.MonkeyPatch,
    tile: int,
    size: tuple[int, ...],
    window: tuple[int, ...],
    strides: tuple[int, ...],
    dilation: int,
    groups: int,
) -> None:
    """Dilated and grouped filters, and those of other sizes and numbers of dimensions; a batch of
    two, channels are whole vectors of every target."""
    _check_form(monkeypatch, tile, size, window, strides, dilation, groups, (32, 48))


@pytest.mark.parametrize("tile", [2, 4])
@pytest.mark.parametrize(
    ("size", "window", "dilation", "groups"),
    [
        ((29,), (11,), 1, 1),
        ((40,), (9,), 2, 2),
        ((13, 18), (7, 7), 1, 1),
        ((13, 18), (1, 15), 1, 1),
        ((13, 18), (9, 3), 1, 3),
        ((3, 8, 9), (3, 7, 7), 1, 1),
    ],
)
def test_long_filters_match(
    monkeypatch: pytest.MonkeyPatch,
    tile: int,
    size: tuple[int, ...],
    window: tuple[int, ...],
    dilation: int,
    groups: int,
) -> None:
    """As several short ones, the last of which is filled up with zeros."""
    strides = (1,) * len(size)
    _check_form(monkeypatch, tile, size, window, strides, dilation, groups, (32, 48))


@pytest.mark.parametrize("run", [2, 3, 6])
@pytest.mark.parametrize(
    ("size", "window", "strides", "groups"),
    [
        ((6, 9, 10), (3, 3, 3), (1, 1, 1), 1),
        ((12, 9, 10), (3, 3, 3), (2, 1, 1), 2),
        ((6, 10, 9), (6, 3, 3), (1, 1, 1), 1),
        ((6, 10, 9), (2, 5, 5), (1, 1, 1), 1),
    ],
)
def test_neighbours_that_share_slices_match(
    monkeypatch: pytest.MonkeyPatch,
    run: int,
    size: tuple[int, ...],
    window: tuple[int, ...],
    strides: tuple[int, ...],
    groups: int,
) -> None:
    """Of the depth of a volume; in blocks of some runs, the last of which is not full."""

    def shared(tile: int, _shape: ConvolutionShape, target: Target, _threads: int) -> object:
        return WinogradStrategy(tile, 4, 2, 48 // target.vector_lanes, 1, run=run)

    monkeypatch.setattr(winograd_strategy, "blocking", shared)
    _check_form(monkeypatch, 2, size, window, strides, 1, groups, (32, 48))


@pytest.mark.parametrize(
    ("size", "window", "strides", "dilation", "groups"),
    [
        ((13, 18), (7, 1), (1, 1), 1, 1),
        ((13, 18), (1, 7), (2, 1), 2, 1),
        ((29,), (7,), (1,), 1, 3),
    ],
)
def test_rows_of_seven_terms_match(
    monkeypatch: pytest.MonkeyPatch,
    size: tuple[int, ...],
    window: tuple[int, ...],
    strides: tuple[int, ...],
    dilation: int,
    groups: int,
) -> None:
    _check_form(monkeypatch, 2, size, window, strides, dilation, groups, (32, 48))


@pytest.mark.parametrize(
    ("size", "window", "dilation", "groups", "channels"),
    [
        ((13, 18), (3, 3), 1, 1, (32, 48)),
        ((7, 7), (3, 3), 1, 1, (512, 32)),
        ((13, 18), (3, 3), 2, 1, (26, 26)),
        ((5, 14, 9), (3, 3, 3), 1, 1, (17, 40)),
        ((13, 18), (3, 3), 1, 3, (26, 32)),
    ],
)
@pytest.mark.parametrize("tile", [2, 4])
def test_filters_that_are_transformed_in_registers_match(
    monkeypatch: pytest.MonkeyPatch,
    tile: int,
    size: tuple[int, ...],
    window: tuple[int, ...],
    dilation: int,
    groups: int,
    channels: tuple[int, int],
) -> None:
    """Also with several register tiles, and channels that are no whole vectors."""

    def plain(tile: int, shape: ConvolutionShape, target: Target, _threads: int) -> object:
        panels = -(-shape.columns // target.vector_lanes)
        block = 3 * math.ceil(math.prod(shape.grid(tile)) / 3)
        return WinogradStrategy(tile, block, 3, 1, panels, plain=1)

    monkeypatch.setattr(winograd_strategy, "blocking", plain)
    strides = (1,) * len(size)
    _check_form(monkeypatch, tile, size, window, strides, dilation, groups, channels)


@pytest.mark.parametrize("strides", [(1, 1), (2, 2)])
@pytest.mark.parametrize("channels", [(17, 16), (26, 26), (40, 104), (52, 67), (24, 31)])
def test_any_channels_match(
    monkeypatch: pytest.MonkeyPatch, channels: tuple[int, int], strides: tuple[int, int]
) -> None:
    """Channels that are no whole vectors, in one panel and in several."""
    _check_form(monkeypatch, 4, (13, 18), (3, 3), strides, 1, 1, channels)


def test_channels_of_groups_match(monkeypatch: pytest.MonkeyPatch) -> None:
    """Vectors of inputs that overlap stay within their group."""
    _check_form(monkeypatch, 4, (13, 18), (3, 3), (1, 1), 1, 3, (26, 32))


def _check_form(
    monkeypatch: pytest.MonkeyPatch,
    tile: int,
    size: tuple[int, ...],
    window: tuple[int, ...],
    strides: tuple[int, ...],
    dilation: int,
    groups: int,
    channels: tuple[int, int],
) -> None:
    """Compare with a sum in float64; `channels` are those of a group, in and out."""
    random = np.random.default_rng(0)
    rank, (inputs, outputs) = len(size), channels
    filters = random.standard_normal((groups * outputs, inputs, *window)).astype(np.float32)
    image = random.standard_normal((2, groups * inputs, *size)).astype(np.float32)
    reach = [dilation * (k - 1) for k in window]
    pads = [(r // 2, r - r // 2) for r in reach]
    padded = np.pad(image.astype(np.float64), [(0, 0), (0, 0), *pads])
    counts = [(n - 1) // s + 1 for n, s in zip(size, strides, strict=True)]
    wanted = np.zeros((2, groups, outputs, *counts))
    for term in np.ndindex(*window):
        part = padded[
            :,
            :,
            *(
                slice(t * dilation, t * dilation + n, s)
                for t, n, s in zip(term, size, strides, strict=True)
            ),
        ]
        taps = filters[:, :, *term].astype(np.float64).reshape(groups, outputs, inputs)
        apart = part.reshape(2, groups, inputs, *counts)
        wanted += np.einsum("goi,bgi...->bgo...", taps, apart)
    wanted = wanted.reshape(2, -1, *counts)
    node = onnx.helper.make_node(
        "Conv", ["x", "w"], ["y"], strides=strides, dilations=[dilation] * rank, group=groups,
        pads=[low for low, _ in pads] + [high for _, high in pads],
    )  # fmt: skip
    monkeypatch.setattr(ChooseConvolution, "_tile", lambda *_: tile)
    lowered = stepwell.lower(_model(node, filters, image.shape, wanted.shape))
    lowered.step("linalg")
    assert f"kernel.winograd = {tile}" in str(lowered)
    (result,) = lowered.compile()(image)
    assert np.linalg.norm(result - wanted) <= TOLERANCE * np.linalg.norm(wanted)


def _convolution(filters: np.ndarray) -> onnx.ModelProto:
    node = onnx.helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])
    outputs, inputs, *_ = filters.shape
    return _model(node, filters, (1, inputs, 14, 14), (1, outputs, 14, 14))


def _model(
    node: onnx.NodeProto, filters: np.ndarray, image: tuple[int, ...], result: tuple[int, ...]
) -> onnx.ModelProto:
    x, y = (
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        for name, shape in (("x", image), ("y", result))
    )
    weights = [onnx.numpy_helper.from_array(filters, "w")]
    return onnx.helper.make_model(onnx.helper.make_graph([node], "layer", [x], [y], weights))


def test_attribute_may_lack_what_has_a_default() -> None:
    strategy = WinogradStrategy(4, 128, 6, 2, 1, plain=1)
    text = "{tile = 4, block = 128, rows = 6, vectors = 2, panels = 1}"
    with new_context():
        assert WinogradStrategy.from_attribute(strategy.to_attribute()) == strategy
        earlier = WinogradStrategy.from_attribute(ir.Attribute.parse(text))
    assert earlier == dataclasses.replace(strategy, plain=0)
