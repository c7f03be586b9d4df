"""Which operators of PyTorch are broken down into which others before they are imported.

The importer counts on a table of its own; the files here have the operators for which it lacks
something: a lowering, or a right one. Each function stands for its operator, with its arguments.
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import functools

import torch
from torch._decomp import get_decompositions

from stepwell.frontends.torch.decompositions import (
    activations,
    adaptive_pooling,
    arithmetic,
    attention,
    attention_of_gpus,
    complex_functions,
    complex_numbers,
    convolutions,
    copies,
    counting,
    distances,
    dropping,
    embedding,
    encoder_layer,
    filling,
    flexible_attention,
    fourier,
    grid_sampling,
    grouping,
    indexing,
    linear_algebra,
    losses,
    normalizing,
    ordering,
    padding,
    polygamma,
    pooling,
    pooling_gradients,
    quantized_programs,
    quantizing,
    recurrent,
    resampling,
    scanning,
    special,
    variances,
    views,
    whole_numbers,
    without_dimensions,
)
from stepwell.frontends.torch.decompositions.registry import MENDS, Decomposition, first_of
from stepwell.mlir import torch_decompositions

aten = torch.ops.aten

_FURTHER = (
    aten.upsample_linear1d,
    aten.upsample_bilinear2d,
    aten.upsample_trilinear3d,
    aten.upsample_bicubic2d,
    aten.huber_loss,
    aten.im2col,
    aten.col2im,
    aten._batch_norm_with_update_functional,
    aten.batch_norm_backward,
)
"""Operators that PyTorch itself knows how to break down, and the importer's table has not."""


def decompositions() -> dict[torch._ops.OperatorBase, Decomposition]:
    """The table; what imported libraries have added to PyTorch is in it."""
    return {
        **_of_torch(),
        **arithmetic.of_inductor(),
        **grouping.of_transformers(),
        **quantized_programs.of_quantizer(),
    }


@functools.cache
def _of_torch() -> dict[torch._ops.OperatorBase, Decomposition]:
    known = {**torch_decompositions(), **get_decompositions(_FURTHER)}
    for overload, mended in MENDS.items():
        known[overload] = first_of(mended, known[overload]) if overload in known else mended
    return known


__all__ = [
    "activations",
    "adaptive_pooling",
    "arithmetic",
    "attention",
    "attention_of_gpus",
    "complex_functions",
    "complex_numbers",
    "convolutions",
    "copies",
    "counting",
    "decompositions",
    "distances",
    "dropping",
    "embedding",
    "encoder_layer",
    "filling",
    "flexible_attention",
    "fourier",
    "grid_sampling",
    "grouping",
    "indexing",
    "linear_algebra",
    "losses",
    "normalizing",
    "ordering",
    "padding",
    "polygamma",
    "pooling",
    "pooling_gradients",
    "quantized_programs",
    "quantizing",
    "recurrent",
    "resampling",
    "scanning",
    "special",
    "variances",
    "views",
    "whole_numbers",
    "without_dimensions",
]
