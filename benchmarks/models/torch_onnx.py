"""torch models written as ONNX, with reference outputs computed in float64."""

# pyright: reportMissingImports=false
from __future__ import annotations

import warnings

import numpy as np
import onnx
import torch

from benchmarks.models import torch_models
from benchmarks.models.catalog import ModelFiles
from benchmarks.models.work import gflop, weights_bytes

_OPSET = 18


def make(files: ModelFiles) -> None:
    """Write the model, its inputs and its references."""
    model = torch_models.build(files.name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model.module,
            model.inputs,
            str(files.path),
            dynamo=True,
            opset_version=_OPSET,
            input_names=list(model.names),
            external_data=False,
            verbose=False,
        )
    exported = onnx.load(files.path)
    files.write_data(
        {name: value.numpy() for name, value in zip(model.names, model.inputs, strict=True)},
        _float64_outputs(model),
        gflop=gflop(exported),
        weights_bytes=weights_bytes(exported),
    )


def _float64_outputs(model: torch_models.TorchModel) -> list[np.ndarray]:
    module = model.module.double()
    inputs = [x.double() if x.is_floating_point() else x for x in model.inputs]
    with torch.no_grad():
        outputs = module(*inputs)
    return [x.numpy() for x in (outputs if isinstance(outputs, tuple) else (outputs,))]
