"""Models of torch of whose matrices of weights only the largest tenth is not zero. References come
from onnxruntime without any optimisation."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import numpy_helper

from benchmarks.models import catalog, derived
from benchmarks.models.catalog import ModelFiles

_KEPT = 0.1
"""The part of a matrix that is kept."""

_MOST_COLUMNS = 1 << 14
"""Of a matrix that is pruned: layers that give words keep theirs, as they do in practice."""


def make(files: ModelFiles) -> None:
    """Write the model, its inputs and its references."""
    source = derived.source_of(files, catalog.PRUNED)
    model = onnx.load(source.path)
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type in ("MatMul", "Gemm") and node.input[1] in tensors:
            tensor = tensors[node.input[1]]
            if max(tensor.dims) <= _MOST_COLUMNS:
                tensor.CopyFrom(numpy_helper.from_array(_pruned(tensor), tensor.name))
    derived.write(files, source, model)


def _pruned(tensor: onnx.TensorProto) -> np.ndarray:
    """The matrix with zeros for all but its largest numbers."""
    matrix = numpy_helper.to_array(tensor)
    least = np.quantile(np.abs(matrix), 1 - _KEPT)
    return np.where(np.abs(matrix) < least, np.float32(0), matrix)
