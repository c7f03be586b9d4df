"""round-products: with precision "bf16", products of f32 by weights take their operands as bf16.

    %z = stablehlo.dot_general %x, %w : (tensor<8x64xf32>, tensor<64x4xf32>) -> tensor<8x4xf32>
      ->
    %a = stablehlo.convert %x : (tensor<8x64xf32>) -> tensor<8x64xbf16>
    %b = stablehlo.convert %w : (tensor<64x4xf32>) -> tensor<64x4xbf16>
    %z = stablehlo.dot_general %a, %b : (tensor<8x64xbf16>, tensor<64x4xbf16>) -> tensor<8x4xf32>

So do, with the default precision, products whose model lets them be rounded as far
(`stepwell.roundable`). Sums stay f32, and so does everything else. Weights are rounded when they
are folded: run this before constants are, and after batch normalisations and scales went into them.
On GPUs all products are rounded, those of two activations as well; on CPUs those by constants that
their instruction for pairs of bf16 takes: sums have an even number of terms. Convolutions of
windows are left there to `round-convolutions`, since Winograd's algorithm in f32 may be faster.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from stepwell import dtypes
from stepwell.dialects import stablehlo as hlo
from stepwell.dialects.narrow_weights import ROUNDABLE
from stepwell.kernels.cpu.dot_products import BFLOATS
from stepwell.mlir import ir
from stepwell.mlir import stablehlo as bindings
from stepwell.passes.base import Pass, State
from stepwell.passes.stablehlo._rules import Rules
from stepwell.passes.stablehlo._values import integer, producer
from stepwell.targets.nvidia import NvidiaTarget
from stepwell.weights import WeightTable

RULES, CPU_RULES, MARKED_RULES, MARKED_CPU_RULES = Rules(), Rules(), Rules(), Rules()


@dataclass(frozen=True)
class RoundProducts(Pass):
    """Run on a module; nothing where bf16 is not multiplied."""

    name: ClassVar[str] = "round-products"

    def run(self, op: ir.Operation, state: State) -> None:
        if state.precision == "strict":
            return
        on_gpu, all_products = isinstance(state.target, NvidiaTarget), state.precision == "bf16"
        if on_gpu:
            (RULES if all_products else MARKED_RULES).apply(op, state.weights)
        elif state.target.bfloat_dot:
            (CPU_RULES if all_products else MARKED_CPU_RULES).apply(op, state.weights)
        elif all_products:
            state.remarks.append(f"{state.target.name} does not multiply bf16: products stay f32")


@RULES.on("dot_general", "convolution")
def rounded_product(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """Both operands and the result are f32, and the model asks for no algorithm."""
    values = [*op.operands, op.results[0]]
    if "algorithm" in op.attributes:
        return None
    if not all(isinstance(hlo.element_type(value), ir.F32Type) for value in values):
        return None
    operands = [hlo.convert(value, dtypes.BFLOAT16) for value in op.operands]
    attributes = {name: op.attributes[name] for name in op.attributes if name != ROUNDABLE}
    return ir.Operation.create(op.name, [op.results[0].type], operands, attributes).results[0]


@CPU_RULES.on("dot_general")
def rounded_product_by_weights(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """One operand is a constant, and sums have an even number of terms."""
    numbers = bindings.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
    sizes = hlo.shape(op.operands[0])
    terms = math.prod(sizes[d] for d in numbers.lhs_contracting_dimensions)
    constants = [producer(value, "constant") is not None for value in op.operands]
    return rounded_product(op, weights) if any(constants) and terms % BFLOATS == 0 else None


@MARKED_RULES.on("dot_general")
def marked_product(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """The model allows it."""
    return rounded_product(op, weights) if ROUNDABLE in op.attributes else None


@MARKED_CPU_RULES.on("dot_general")
def marked_product_by_weights(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """The model allows it, and CPUs have an instruction for it."""
    return rounded_product_by_weights(op, weights) if ROUNDABLE in op.attributes else None


@CPU_RULES.on("convolution")
def rounded_convolution(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """The filters are a constant of one tap for all channels together, which are of an even
    number."""
    filters = op.operands[1]
    numbers = bindings.ConvDimensionNumbers(op.attributes["dimension_numbers"])
    sizes = hlo.shape(filters)
    taps = math.prod(sizes[d] for d in numbers.kernel_spatial_dimensions)
    odd = sizes[numbers.kernel_input_feature_dimension] % BFLOATS
    if taps > 1 or odd or integer(op, "feature_group_count") > 1:
        return None
    return rounded_product(op, weights) if producer(filters, "constant") is not None else None
