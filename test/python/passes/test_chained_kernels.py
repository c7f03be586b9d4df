"""Kernels that take turns band by band compute what they compute one after the other."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import stepwell
from stepwell import pipeline
from stepwell.attributes import CHAIN
from stepwell.mlir import ir
from stepwell.passes.base import State
from stepwell.passes.buffers import chain_kernels
from stepwell.passes.buffers.chain_kernels import ChainKernels
from stepwell.targets import host

_CACHE = 48 << 10
"""A small L2, which the images do not fit."""


class _Network:
    """An ONNX model that grows layer by layer from an image."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, np.ndarray] = {}
        self.shape = (8, int(self.random.integers(200, 400)), int(self.random.integers(16, 40)))
        self.input_shape = (1, *self.shape)
        self.last = "x"
        self.kept: dict[tuple[int, ...], str] = {}

    def add(self, kind: str, inputs: list[str], shape: tuple[int, ...], **attributes) -> None:
        """One node, whose result is the next one's image."""
        self.last = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [self.last], **attributes))
        self.shape = shape

    def convolve(self, channels: int, size: int, *, stride: int = 1, depthwise: bool = False):
        """A convolution with bias and Relu."""
        before, height, width = self.shape
        groups = before if depthwise else 1
        channels = before if depthwise else channels
        filters = self.random.standard_normal((channels, before // groups, size, size))
        names = (f"w{len(self.nodes)}", f"b{len(self.nodes)}")
        self.weights[names[0]] = filters.astype("f4") / size
        self.weights[names[1]] = self.random.standard_normal(channels).astype("f4")
        pad = size // 2
        shape = (channels, *((n + 2 * pad - size) // stride + 1 for n in (height, width)))
        self.add(
            "Conv", [self.last, *names], shape, kernel_shape=[size, size], group=groups,
            strides=[stride, stride], pads=[pad] * 4,
        )  # fmt: skip
        self.add("Relu", [self.last], shape)

    def grow(self) -> None:
        """One layer of any kind."""
        kind = self.random.choice(["wide", "narrow", "window", "strided", "apart", "pool", "sum"])
        if kind in ("wide", "narrow"):
            self.convolve(48 if kind == "wide" else 12, 1)
        elif kind in ("window", "strided"):
            self.convolve(24, 3, stride=1 if kind == "window" else 2)
        elif kind == "apart":
            self.convolve(0, 3, stride=int(self.random.integers(1, 3)), depthwise=True)
        elif kind == "pool" and min(self.shape[1:]) > 4:
            shape = (self.shape[0], *((n - 3) // 2 + 1 for n in self.shape[1:]))
            self.add("MaxPool", [self.last], shape, kernel_shape=[3, 3], strides=[2, 2])
        elif self.shape in self.kept:
            self.add("Add", [self.last, self.kept[self.shape]], self.shape)
        self.kept.setdefault(self.shape, self.last)

    def model(self) -> onnx.ModelProto:
        """All of it."""
        graph = helper.make_graph(
            self.nodes,
            "network",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, self.input_shape)],
            [helper.make_tensor_value_info(self.last, TensorProto.FLOAT, (1, *self.shape))],
            [numpy_helper.from_array(array, name) for name, array in self.weights.items()],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture
def small_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile for a machine where chains are worth it for small images."""
    target = dataclasses.replace(host(), l2_bytes=_CACHE)
    monkeypatch.setattr(pipeline, "get", lambda _: target)
    monkeypatch.setattr(chain_kernels, "LEAST_GAIN", 0)


def _compiled(path: Path, threads: int, monkeypatch: pytest.MonkeyPatch, *, chained: bool):
    """The executable of the model at `path`, and how many of its calls are in chains."""
    marked = 0
    run = ChainKernels.run

    def counting(self: ChainKernels, op: ir.Operation, state: State) -> None:
        nonlocal marked
        if chained:
            run(self, op, state)
        marked += str(op).count(CHAIN)

    artifact = path.with_suffix(f".{chained}.stepwell")
    with monkeypatch.context() as patch:
        patch.setattr(ChainKernels, "run", counting)
        pipeline.compile_to_artifact(path, artifact, threads=threads)
    return stepwell.load(artifact, threads=threads), marked


@pytest.mark.parametrize("threads", [1, 2])
def test_random_networks(
    threads: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_cache: None
) -> None:
    in_chains = 0
    for seed in range(5):
        network = _Network(seed)
        for _ in range(9):
            network.grow()
        path = tmp_path / f"{seed}.onnx"
        onnx.save(network.model(), path)
        expected, _ = _compiled(path, threads, monkeypatch, chained=False)
        chained, marked = _compiled(path, threads, monkeypatch, chained=True)
        in_chains += marked
        for number in range(3 * threads):
            random = np.random.default_rng(number)
            image = random.standard_normal(network.input_shape).astype("f4")
            np.testing.assert_array_equal(chained(image)[0], expected(image)[0])
    assert in_chains >= 8, in_chains
