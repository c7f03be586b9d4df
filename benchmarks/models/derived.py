"""Models that are made of another one of the benchmark: the same inputs, and references that come
from onnxruntime without any optimisation."""

from __future__ import annotations

import onnx

from benchmarks.models import catalog
from benchmarks.models.catalog import ModelFiles
from benchmarks.models.light import run_plainly
from benchmarks.models.work import weights_bytes


def source_of(files: ModelFiles, suffix: str) -> ModelFiles:
    """The model, made if it is missing, whose name is that of `files` without `suffix`."""
    source = catalog.files(files.name.removesuffix(suffix))
    catalog.ensure_made([source.name])
    return source


def write(files: ModelFiles, source: ModelFiles, model: onnx.ModelProto) -> None:
    """Write `model`, made of `source`, its inputs and its references."""
    onnx.save(model, files.path)
    inputs = source.read_inputs()
    files.write_data(
        inputs,
        run_plainly(model, None, inputs),
        gflop=source.read_facts()["gflop"],
        weights_bytes=weights_bytes(model),
    )
