"""Models of torch with the weights of their matrix products in 4 bits, a scale for 32 of a column,
by onnxruntime's own quantizer. References come from onnxruntime without any optimisation, in
float32."""

# pyright: reportMissingImports=false
from __future__ import annotations

import logging
from typing import cast

import onnx
from onnxruntime.quantization import matmul_nbits_quantizer as quantizer
from onnxruntime.quantization.onnx_model import ONNXModel

from benchmarks.models import catalog, derived
from benchmarks.models.catalog import ModelFiles

_BLOCK = 32

_FLOAT32 = 1
"""The accuracy level at which activations stay float32."""


def make(files: ModelFiles) -> None:
    """Write the model, its inputs and its references."""
    source = derived.source_of(files, catalog.QUANTIZED)
    logging.getLogger(quantizer.__name__).setLevel(logging.WARNING)
    config = quantizer.DefaultWeightOnlyQuantConfig(
        block_size=_BLOCK, is_symmetric=True, accuracy_level=_FLOAT32
    )
    made = quantizer.MatMulNBitsQuantizer(onnx.load(source.path), algo_config=config)
    made.process()
    model = cast(ONNXModel, made.model).model
    derived.write(files, source, model)
