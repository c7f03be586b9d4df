"""Other runtimes under one interface, for `stepwell bench --against`."""

# pyright: reportMissingImports=false
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from stepwell.errors import UsageError

Arrays = dict[str, np.ndarray]
Call = Callable[[], object]
"""Runs a model once on inputs that were bound before."""


def onnxruntime(model: Path, feed: Arrays, threads: int) -> Call:
    """The CPU provider with all graph optimisations."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = 3
    session = ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, feed)


def openvino(model: Path, feed: Arrays, threads: int) -> Call:
    """The CPU plugin, in fp32, tuned for latency."""
    import openvino as ov

    core = ov.Core()
    settings = {
        "INFERENCE_NUM_THREADS": threads,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
    }
    network = core.read_model(str(model))
    network.reshape({name: list(array.shape) for name, array in feed.items()})
    request = core.compile_model(network, "CPU", settings).create_infer_request()
    tensors = {name: ov.Tensor(array, shared_memory=True) for name, array in feed.items()}
    return lambda: request.infer(tensors)


def torch(model: Path, feed: Arrays, threads: int) -> Call:
    """`torch.compile` of a torch.export program (.pt2)."""
    import torch

    torch.set_num_threads(threads)
    module = torch.compile(torch.export.load(model).module())
    tensors = [torch.from_numpy(array) for array in feed.values()]

    def call() -> object:
        with torch.inference_mode():
            return module(*tensors)

    return call


_PEERS = {
    "onnxruntime": (onnxruntime, ".onnx"),
    "openvino": (openvino, ".onnx"),
    "torch": (torch, ".pt2"),
}
"""Each peer and the models it reads."""


def prepare(name: str, model: Path, feed: Arrays, threads: int) -> Call:
    """Peer `name` with `model` loaded; raises UsageError when it is unknown, not installed, or does
    not read such a model."""
    if name not in _PEERS:
        raise UsageError(f"there is no peer {name}; there are: {', '.join(_PEERS)}")
    make, suffix = _PEERS[name]
    if model.suffix != suffix:
        raise UsageError(f"{name} reads {suffix} files, and the model is {model.name}")
    try:
        return make(model, feed, threads)
    except ImportError as error:
        raise UsageError(
            f"{name} is not installed ({error}); pip install 'stepwell[bench]'"
        ) from error
