"""narrow-products: on GPUs, products of 16-bit numbers that were converted to f32 take these.

    %a = stablehlo.convert %x : (tensor<8x64xf16>) -> tensor<8x64xf32>
    %b = stablehlo.convert %w : (tensor<64x4xf16>) -> tensor<64x4xf32>
    %z = stablehlo.dot_general %a, %b : (tensor<8x64xf32>, tensor<64x4xf32>) -> tensor<8x4xf32>
      ->
    %z = stablehlo.dot_general %x, %w : (tensor<8x64xf16>, tensor<64x4xf16>) -> tensor<8x4xf32>

The products of such numbers are exact in f32, and tensor cores add them up in it. PyTorch exports
its linear layers of f16 in the first form. Weights stay as narrow as they are, if this comes before
constants are folded. Nothing changes with precision "strict".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from stepwell.dialects import stablehlo as hlo
from stepwell.mlir import ir
from stepwell.passes.base import Pass, State
from stepwell.passes.stablehlo._rules import Rules
from stepwell.passes.stablehlo._values import integers, producer
from stepwell.targets.nvidia import NvidiaTarget
from stepwell.weights import WeightTable

RULES = Rules()

_NARROW = (ir.F16Type, ir.BF16Type)


@dataclass(frozen=True)
class NarrowProducts(Pass):
    """Run on a module; nothing on CPUs."""

    name: ClassVar[str] = "narrow-products"

    def run(self, op: ir.Operation, state: State) -> None:
        if isinstance(state.target, NvidiaTarget) and state.precision != "strict":
            RULES.apply(op, state.weights)


@RULES.on("dot_general", "convolution")
def product_of_converted(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """Both operands come from one type of 16 bits, and the sums are f32."""
    sources = [_before_conversion(operand) for operand in op.operands]
    lhs, rhs = sources
    if lhs is None or rhs is None or hlo.element_type(lhs) != hlo.element_type(rhs):
        return None
    if "algorithm" in op.attributes or not isinstance(hlo.element_type(op.results[0]), ir.F32Type):
        return None
    attributes = {name: op.attributes[name] for name in op.attributes}
    return ir.Operation.create(op.name, [op.results[0].type], [lhs, rhs], attributes).results[0]


def _before_conversion(value: ir.Value) -> ir.Value | None:
    """The 16-bit numbers that were converted to `value`, in f32, seen through the broadcasts to the
    same shape that PyTorch's batches of products have."""
    while (same := producer(value, "broadcast_in_dim")) is not None:
        dimensions = integers(same, "broadcast_dimensions")
        if same.operands[0].type != value.type or dimensions != sorted(dimensions):
            return None
        value = same.operands[0]
    convert = producer(value, "convert")
    if convert is None or not isinstance(hlo.element_type(value), ir.F32Type):
        return None
    source = convert.operands[0]
    return source if isinstance(hlo.element_type(source), _NARROW) else None
