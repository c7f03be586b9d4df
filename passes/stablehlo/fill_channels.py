"""fill-channels: convolutions of few channels get whole chunks of 16 bytes of them, on GPUs.

    %z = stablehlo.convolution(%x, %w) .. stride = [2, 2]
       : (tensor<1x224x224x3xf16>, tensor<7x7x3x64xf16>) -> tensor<1x109x109x64xf32>

becomes

    %0 = stablehlo.pad %x, 0                             : ... -> tensor<1x224x224x4xf16>
    %1 = stablehlo.reshape %0                            : ... -> tensor<1x112x2x112x2x4xf16>
    %2 = stablehlo.transpose %1, dims = [0, 1, 3, 2, 4, 5] : ... -> tensor<1x112x112x2x2x4xf16>
    %3 = stablehlo.reshape %2                            : ... -> tensor<1x112x112x16xf16>
    %z = stablehlo.convolution(%3, %4) .. stride = [1, 1]
       : (tensor<1x112x112x16xf16>, tensor<4x4x16x64xf16>) -> tensor<1x109x109x64xf32>

What `cp.async` copies are chunks of 16 bytes along k; three channels are none, and their elements
are read one by one. Channels of zeros are added, and the pixels of a step are channels too: two by
two where windows move by two, of which the row's two, with four channels each, are a chunk. The
image is read where it lies; filters, which are constants, get zeros for what a window does not see.
With precision "strict" no zero meets an element of the image.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from stepwell.attributes import i64_array
from stepwell.dialects import stablehlo as hlo
from stepwell.kernels.gpu.tensor_core import CHUNK_BYTES
from stepwell.mlir import ir, nested_operations
from stepwell.mlir import stablehlo as bindings
from stepwell.passes.base import Pass, State
from stepwell.passes.stablehlo._evaluate import is_constant
from stepwell.passes.stablehlo._product_cycles import matrix_type
from stepwell.passes.stablehlo._values import (
    i64_pairs,
    integer,
    optional_integers,
    padding,
    rebuild,
    reverses_window,
)
from stepwell.targets.nvidia import NvidiaTarget

_MOST_WASTE = 8
"""Tensor cores multiply so many times the elements in less time than single ones take to read."""


@dataclass(frozen=True)
class FillChannels(Pass):
    """Look at every convolution of the module; nothing on CPUs. To be run behind choose-layout."""

    name: ClassVar[str] = "fill-channels"

    def run(self, op: ir.Operation, state: State) -> None:
        target = state.target
        if not isinstance(target, NvidiaTarget) or state.precision == "strict":
            return
        found = [inner for inner in nested_operations(op) if inner.name == "stablehlo.convolution"]
        for convolution in found:
            kind = matrix_type(convolution, target, state.f32_products)
            if kind is not None and _is_plain(convolution):
                _fill(convolution, kind.bytes)


def _is_plain(op: ir.Operation) -> bool:
    """Whether `op` is a convolution of static shapes in NHWC and HWIO, without groups, dilation and
    reversal, whose filters are a constant."""
    values = (*op.operands, op.results[0])
    if not all(hlo.tensor_type(value).has_static_shape for value in values):
        return False
    if integer(op, "feature_group_count", 1) != 1 or integer(op, "batch_group_count", 1) != 1:
        return False
    rank = len(hlo.shape(op.operands[0]))
    dilated = ("lhs_dilation", "rhs_dilation")
    if any(n != 1 for name in dilated for n in optional_integers(op, name, rank - 2, 1)):
        return False
    if reverses_window(op):
        return False
    numbers = bindings.ConvDimensionNumbers(op.attributes["dimension_numbers"])
    inside = list(range(1, rank - 1))
    return (
        is_constant(op.operands[1])
        and (numbers.input_batch_dimension, numbers.input_feature_dimension) == (0, rank - 1)
        and (numbers.output_batch_dimension, numbers.output_feature_dimension) == (0, rank - 1)
        and numbers.kernel_input_feature_dimension == rank - 2
        and numbers.kernel_output_feature_dimension == rank - 1
        and list(numbers.input_spatial_dimensions) == inside
        and list(numbers.output_spatial_dimensions) == inside
        and list(numbers.kernel_spatial_dimensions) == [d - 1 for d in inside]
    )


def _fill(op: ir.Operation, size: int) -> None:
    """Give a convolution of elements of `size` bytes whole chunks, where it has none."""
    image, filters = op.operands
    batch, *extents, channels = hlo.shape(image)
    *window, _, features = hlo.shape(filters)
    results = hlo.shape(op.results[0])[1:-1]
    chunk, rank = CHUNK_BYTES // size, len(window)
    steps = optional_integers(op, "window_strides", rank, 1)
    if channels % chunk == 0 or any(s > w for s, w in zip(steps, window, strict=True)):
        return
    # As many channels as make a chunk of the pixels of a step, those in a row.
    wide = chunk // math.gcd(chunk, steps[-1])
    filled = -(-channels // wide) * wide
    taps = [-(-w // s) for w, s in zip(window, steps, strict=True)]
    deep = filled * math.prod(steps)
    if math.prod(taps) * deep > _MOST_WASTE * math.prod(window) * channels:
        return
    blocks = [result - 1 + tap for result, tap in zip(results, taps, strict=True)]
    low = [before for before, _ in padding(op, rank)]
    high = [b * s - n - before for b, s, n, before in zip(blocks, steps, extents, low, strict=True)]
    with ir.InsertionPoint(op), op.location:
        zero = hlo.full(0, [], hlo.dtype(image))
        image = hlo.pad(image, zero, [0, *low, 0], [0, *high, filled - channels])
        image = hlo.reshape(_by_steps(image, 1, blocks, steps), [batch, *blocks, deep])
        missing = [t * s - w for t, s, w in zip(taps, steps, window, strict=True)]
        none = [0] * (rank + 2)
        filters = hlo.pad(filters, zero, none, [*missing, filled - channels, 0])
        filters = hlo.reshape(_by_steps(filters, 0, taps, steps), [*taps, deep, features])
        made = rebuild(
            op,
            [image, filters],
            hlo.shape(op.results[0]),
            {"window_strides": i64_array([1] * rank), "padding": i64_pairs([(0, 0)] * rank)},
        )
    op.results[0].replace_all_uses_with(made)
    op.erase()


def _by_steps(value: ir.Value, first: int, blocks: list[int], steps: list[int]) -> ir.Value:
    """`value`, whose dimensions from `first` on are blocks of so many steps, with the places within
    blocks behind all blocks, as dimensions of their own."""
    before, behind = hlo.shape(value)[:first], hlo.shape(value)[first + len(blocks) :]
    pairs = [n for pair in zip(blocks, steps, strict=True) for n in pair]
    end = first + 2 * len(blocks)
    order = [*range(first), *range(first, end, 2), *range(first + 1, end, 2)]
    order += range(end, end + len(behind))
    return hlo.transpose(hlo.reshape(value, [*before, *pairs, *behind]), order)
