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
products so. Depthwise convolutions become f32 there too. CPUs that multiply bf16 keep operands of
bf16, where the terms fill words of two and no other dimension is shared, as it is in attention, but
for matrices that a gather takes (those of groups); those of convolutions of one tap: for windows,
Winograd's algorithm in f32 is faster.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.kernels.cpu.dot_products import BFLOATS
from stepwell.mlir import ir
from stepwell.mlir import stablehlo as bindings
from stepwell.passes.base import Pass, State
from stepwell.passes.stablehlo._rules import Rules
from stepwell.passes.stablehlo._values import integer, integers, is_depthwise, producer
from stepwell.weights import WeightTable

RULES, GPU_RULES, BFLOAT_RULES = Rules(), Rules(), Rules()

_NARROW = (ir.F16Type, ir.BF16Type)


def _is_narrow(value: ir.Value) -> bool:
    return isinstance(hlo.element_type(value), _NARROW)


def _wide(value: ir.Value) -> ir.Value:
    """`value` in f32. What a gather reads several times, as tiles of rows do with the matrices of
    their groups, becomes f32 in front of it."""
    taken = producer(value, "gather")
    if taken is None or math.prod(hlo.shape(taken.operands[0])) > math.prod(hlo.shape(value)):
        return hlo.convert(value, np.float32)
    return ir.Operation.create(
        taken.name,
        [ir.RankedTensorType.get(list(hlo.shape(value)), ir.F32Type.get())],
        [hlo.convert(taken.operands[0], np.float32), *list(taken.operands)[1:]],
        {name: taken.attributes[name] for name in taken.attributes},
    ).results[0]


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
    if is_depthwise(op):
        return contraction(op, weights) if any(map(_is_narrow, op.operands)) else None
    return _accumulate(op, list(op.operands)) if _is_narrow(op.results[0]) else None


@BFLOAT_RULES.on("dot_general", "convolution")
def bfloat_product(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """Operands of bf16 stay where the CPU multiplies them; a result of bf16 becomes f32."""
    if not _fills_words(op):
        return contraction(op, weights)
    return _accumulate(op, list(op.operands)) if _is_narrow(op.results[0]) else None


_LEAST_COLUMNS = 16
"""Of a product whose operands are worth bringing into words."""


def _fills_words(op: ir.Operation) -> bool:
    """Whether `op` has words of terms of bf16."""
    kinds = [str(hlo.element_type(value)) for value in (*op.operands, op.results[0])]
    if kinds[:2] != ["bf16", "bf16"] or kinds[2] not in ("bf16", "f32"):
        return False
    shape = hlo.shape(op.operands[0])
    if op.name == "stablehlo.convolution":
        groups = [integer(op, name, 1) for name in ("feature_group_count", "batch_group_count")]
        numbers = bindings.ConvDimensionNumbers(op.attributes["dimension_numbers"])
        columns = hlo.shape(op.results[0])[numbers.output_feature_dimension]
        terms = shape[numbers.input_feature_dimension]
        taps = [hlo.shape(op.operands[1])[d] for d in numbers.kernel_spatial_dimensions]
        pointwise = groups == [1, 1] and math.prod(taps) == 1
        return pointwise and columns >= _LEAST_COLUMNS and terms % BFLOATS == 0
    numbers = bindings.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
    contracted = list(numbers.lhs_contracting_dimensions)
    batch = list(numbers.rhs_batching_dimensions)
    taken = batch == [0] and producer(op.operands[1], "gather") is not None
    if len(contracted) != 1 or (batch and not taken):
        return False
    columns = math.prod(hlo.shape(op.results[0])[len(shape) - 1 :])
    return columns >= _LEAST_COLUMNS and shape[contracted[0]] % BFLOATS == 0


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
@BFLOAT_RULES.on("reduce")
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
        on_cpu = BFLOAT_RULES if state.target.bfloat_dot else RULES
        rules = GPU_RULES if state.target.triple.startswith("nvptx") else on_cpu
        rules.apply(op, state.weights)
