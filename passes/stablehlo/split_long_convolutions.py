"""split-long-convolutions: small convolutions of many channels are cut along them, so that they
fill a GPU.

    %z = stablehlo.convolution(%x, %w) .. [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]
       : (tensor<1x7x7x512xf16>, tensor<3x3x512x512xf16>) -> tensor<1x7x7x512xf32>

becomes

    %0 = stablehlo.reshape %w : ... -> tensor<3x3x8x64x512xf16>
    %1 = stablehlo.transpose %0, dims = [0, 1, 3, 2, 4] : ... -> tensor<3x3x64x8x512xf16>
    %2 = stablehlo.reshape %1 : ... -> tensor<3x3x64x4096xf16>
    %3 = stablehlo.convolution(%x, %2) .. {feature_group_count = 8} : ... -> tensor<1x7x7x4096xf32>
    %4 = stablehlo.reshape %3 : ... -> tensor<1x7x7x8x512xf32>
    %5 = stablehlo.slice %4 [0:1, 0:7, 0:7, 0:1, 0:512] ...       // each group, and their sum
    %z = stablehlo.add ...

What split-long-sums does to matrix products, by the same cost model: the image stays as it is, each
group of channels has a product of its own, and the kernel of whatever follows adds them. Run this
after choose-layout, which puts channels last, and fold-constants behind it: filters are constants,
or an argument with the outputs last, whose groups are read where they lie. With precision "strict"
sums stay in one piece.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from stepwell.dialects import stablehlo as hlo
from stepwell.mlir import ir, nested_operations
from stepwell.mlir import stablehlo as bindings
from stepwell.passes.base import Pass, State
from stepwell.passes.stablehlo._evaluate import is_constant
from stepwell.passes.stablehlo._long_sums import parts_of, sum_of_parts
from stepwell.passes.stablehlo._values import integer, rebuild
from stepwell.targets.nvidia import NvidiaTarget


@dataclass(frozen=True)
class SplitLongConvolutions(Pass):
    """Look at every convolution of the module; nothing on CPUs."""

    name: ClassVar[str] = "split-long-convolutions"

    def run(self, op: ir.Operation, state: State) -> None:
        target = state.target
        if not isinstance(target, NvidiaTarget) or state.precision == "strict":
            return
        found = [inner for inner in nested_operations(op) if inner.name == "stablehlo.convolution"]
        for convolution in found:
            parts = _parts(convolution, target, state)
            if parts > 1:
                with ir.InsertionPoint(convolution), convolution.location:
                    total = _split(convolution, parts)
                convolution.results[0].replace_all_uses_with(total)
                convolution.erase()


def _parts(op: ir.Operation, target: NvidiaTarget, state: State) -> int:
    """Into how many groups the channels of `op` are best cut; 1 leaves it whole."""
    values = (*op.operands, op.results[0])
    if not all(hlo.tensor_type(value).has_static_shape for value in values):
        return 1
    if integer(op, "feature_group_count", 1) != 1 or integer(op, "batch_group_count", 1) != 1:
        return 1
    numbers = bindings.ConvDimensionNumbers(op.attributes["dimension_numbers"])
    image, kernel, result = (hlo.shape(value) for value in values)
    last = len(image) - 1
    if numbers.input_feature_dimension != last or numbers.output_feature_dimension != last:
        return 1
    outputs_last = numbers.kernel_output_feature_dimension == len(kernel) - 1
    is_argument = isinstance(op.operands[1], ir.BlockArgument)
    if not (is_constant(op.operands[1]) or (is_argument and outputs_last)):
        return 1
    taps = math.prod(kernel[d] for d in numbers.kernel_spatial_dimensions)
    rows = math.prod(result[:-1])
    return parts_of(op, rows, result[-1], image[-1], taps, target, state)


def _split(op: ir.Operation, parts: int) -> ir.Value:
    """The sum of the convolutions of `parts` groups of channels."""
    numbers = bindings.ConvDimensionNumbers(op.attributes["dimension_numbers"])
    image, kernel = op.operands
    *points, outputs = hlo.shape(op.results[0])
    summed, kept = numbers.kernel_input_feature_dimension, numbers.kernel_output_feature_dimension
    sizes = list(hlo.shape(kernel))
    channels = sizes[summed] // parts
    wide = [*sizes[:summed], parts, channels, *sizes[summed + 1 :]]
    # Dimensions of the kernel from `summed` on are one further back now, behind the parts.
    order = [d for d in range(len(wide)) if d != summed]
    order.insert(order.index(kept + (kept > summed)), summed)
    sizes[summed], sizes[kept] = channels, parts * outputs
    grouped = hlo.reshape(hlo.transpose(hlo.reshape(kernel, wide), order), sizes)
    count = {"feature_group_count": hlo.i64(parts)}
    sums = rebuild(op, [image, grouped], [*points, parts * outputs], count)
    return sum_of_parts(hlo.reshape(sums, [*points, parts, outputs]), len(points))
