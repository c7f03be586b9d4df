"""widen-accumulation: sums of f16 or bf16 numbers and products are computed in f32.

    %z = stablehlo.dot_general %x, %y : (tensor<4x64xbf16>, tensor<64x8xbf16>) -> tensor<4x8xbf16>

becomes

    %0 = stablehlo.convert %x : (tensor<4x64xbf16>) -> tensor<4x64xf32>
    %1 = stablehlo.convert %y : (tensor<64x8xbf16>) -> tensor<64x8xf32>
    %2 = stablehlo.dot_general %0, %1 : (tensor<4x64xf32>, tensor<64x8xf32>) -> tensor<4x8xf32>
    %z = stablehlo.convert %2 : (tensor<4x8xf32>) -> tensor<4x8xbf16>

for dot_general, convolution, and reduce that adds: one rounding for each result instead of one for
each term, and kernels of f32, which are what is fast on CPUs. On GPUs dot_general and convolution
keep their operands, and only their result becomes f32: matrix instructions accumulate 16-bit
products so. Depthwise convolutions become f32 there too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.mlir import ir
from stepwell.mlir import stablehlo as bindings
from stepwell.passes.base import Pass, State
from stepwell.passes.stablehlo._rules import Rules
from stepwell.passes.stablehlo._values import integer, integers
from stepwell.weights import WeightTable

RULES, GPU_RULES = Rules(), Rules()

_NARROW = (ir.F16Type, ir.BF16Type)


def _is_narrow(value: ir.Value) -> bool:
    return isinstance(hlo.element_type(value), _NARROW)


def _wide(value: ir.Value) -> ir.Value:
    return hlo.convert(value, np.float32)


@RULES.on("dot_general", "convolution")
def contraction(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """Operands and result become f32; a result that is f64 is left to its own arithmetic."""
    values = [*op.operands, op.results[0]]
    if not any(map(_is_narrow, values)):
        return None
    if any(isinstance(hlo.element_type(value), ir.F64Type) for value in values):
        return None
    return _accumulate(op, [_wide(operand) for operand in op.operands])


@GPU_RULES.on("dot_general", "convolution")
def product(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """A result of 16 bits becomes f32; the operands stay, but for depthwise convolutions, which
    tensor cores do not take."""
    if _is_depthwise(op):
        return contraction(op, weights) if any(map(_is_narrow, op.operands)) else None
    return _accumulate(op, list(op.operands)) if _is_narrow(op.results[0]) else None


def _is_depthwise(op: ir.Operation) -> bool:
    """Whether each group of a convolution has one input channel."""
    if op.name != "stablehlo.convolution" or integer(op, "feature_group_count") == 1:
        return False
    numbers = bindings.ConvDimensionNumbers(op.attributes["dimension_numbers"])
    return hlo.shape(op.operands[1])[numbers.kernel_input_feature_dimension] == 1


def _accumulate(op: ir.Operation, operands: list[ir.Value]) -> ir.Value:
    """The contraction of `operands` in f32, rounded to the type that `op` has."""
    kept = [name for name in op.attributes if name != "algorithm"]
    shape = list(hlo.shape(op.results[0]))
    result = ir.Operation.create(
        op.name,
        [ir.RankedTensorType.get(shape, ir.F32Type.get())],
        operands,
        {name: op.attributes[name] for name in kept},
    ).results[0]
    return hlo.convert(result, hlo.dtype(op.results[0]))


@RULES.on("reduce")
@GPU_RULES.on("reduce")
def sums(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """The operand, the initial value and the result of a sum become f32. Windows are short: their
    sums stay as they are, and as other systems round them."""
    body = [child.operation.name for child in op.regions[0].blocks[0].operations]
    if not _is_narrow(op.results[0]) or body[0] != "stablehlo.add" or len(body) != 2:
        return None
    operand, initial = map(_wide, op.operands)
    total = hlo.reduce(operand, initial, integers(op, "dimensions"), "add")
    return hlo.convert(total, hlo.dtype(op.results[0]))


@dataclass(frozen=True)
class WidenAccumulation(Pass):
    """Apply the rules of the target's machine."""

    name: ClassVar[str] = "widen-accumulation"

    def run(self, op: ir.Operation, state: State) -> None:
        rules = GPU_RULES if state.target.triple.startswith("nvptx") else RULES
        rules.apply(op, state.weights)
