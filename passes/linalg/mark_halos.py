"""`mark-halos`: say which part of a padded image is zeros.

A convolution whose image was padded with zeros is marked, where a part of its terms meets zeros
alone that is worth leaving out: those of a dilated filter, or of one over a short axis. Filters are
taken to be finite.

    %p = tensor.pad %x low[0, 8, 8, 0] high[0, 8, 8, 0]              // %x: tensor<1x9x9x64xf32>
    %0 = linalg.generic (conv 3x3, dilation 8) ins(%p, %w)
      ->  {kernel.halo = {low = array<i64: 0, 8, 8, 0>, extent = array<i64: 1, 9, 9, 64>}}
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from stepwell.kernels.cpu import halo
from stepwell.kernels.cpu.contraction_strategy import ContractionShape
from stepwell.kernels.structured import (
    Structured,
    contraction_operands,
    defining_op,
    is_multiply_add,
    shape_of,
)
from stepwell.mlir import ir, nested_operations
from stepwell.passes.base import Pass, State
from stepwell.passes.linalg._grouped_convolution import channels_of
from stepwell.passes.linalg.choose_convolution import pads_with_zero

_LEAST_TERMS = 16
"""Of the dimensions inside of a window: with fewer, looking takes longer than adding zeros."""

_MOST_USED = 0.96


@dataclass(frozen=True)
class MarkHalos(Pass):
    """Look at every convolution."""

    name: ClassVar[str] = "mark-halos"
    anchor: ClassVar[str] = "func.func"

    def run(self, op: ir.Operation, state: State) -> None:
        for inner in nested_operations(op):
            convolution = Structured.of(inner)
            if convolution is not None and is_multiply_add(convolution):
                _mark(convolution)


def _mark(convolution: Structured) -> None:
    op = convolution.op
    operands = contraction_operands(convolution)
    image = convolution.inputs[0]
    pad = defining_op(channels_of(image))
    if operands is None or pad is None or pad.name != "tensor.pad" or not pads_with_zero(pad):
        return
    shape = ContractionShape.of(convolution, operands)
    low, extent = list(pad.attributes["static_low"]), list(shape_of(image))
    spatial = len(low) - 1
    groups = [0] * (len(extent) - len(low))
    extent[:spatial] = shape_of(pad.operands[0])[:spatial]
    halo.mark(op, [*low[:spatial], *groups, low[-1]], extent)
    windows = halo.windows(convolution, shape)
    walked = {window.reduced for window in windows}
    inside = shape.k // shape.extent(tuple(shape.reduced[place] for place in walked))
    if inside < _LEAST_TERMS or halo.used_parts(windows, shape, (1, 1))[0] > _MOST_USED:
        del op.attributes[halo.ATTRIBUTE]
