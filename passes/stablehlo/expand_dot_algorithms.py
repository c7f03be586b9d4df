"""expand-dot-algorithms: products that name an algorithm, as conversions and products.

    %z = stablehlo.dot_general %x, %y, .., algorithm = <lhs_precision_type = bf16, ..> : f32
      ->
    %0 = stablehlo.convert %x : (tensor<4x6xf32>) -> tensor<4x6xbf16>
    %1 = stablehlo.convert %0 : (tensor<4x6xbf16>) -> tensor<4x6xf32>
    ...
    %z = stablehlo.dot_general %1, %3 : (tensor<4x6xf32>, tensor<6x4xf32>) -> tensor<4x4xf32>

Operands are rounded to the types that the algorithm names (tf32 by `reduce_precision`) and
multiplied in that of its sums. Several products of parts of the operands stand for more digits than
one has, of which f32 has as many: these are products of the operands as they are. So are those of
integers, to which no algorithm applies.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

import ml_dtypes
import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.mlir import ir
from stepwell.passes.base import Pass, State
from stepwell.passes.stablehlo._rules import Rules
from stepwell.weights import WeightTable

RULES = Rules()

_FIELD = re.compile(r"(\w+) = (\w+)")
_SUMS = {
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f16": np.float16,
    "f32": np.float32,
    "f64": np.float64,
}
"""The types in which the algorithms that StableHLO knows add up."""


@dataclass(frozen=True)
class ExpandDotAlgorithms(Pass):
    """Rewrite every dot_general that has an algorithm."""

    name: ClassVar[str] = "expand-dot-algorithms"

    def run(self, op: ir.Operation, state: State) -> None:
        RULES.apply(op, state.weights)


@RULES.on("dot_general")
def with_algorithm(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """Round the operands, multiply, convert the result."""
    if "algorithm" not in op.attributes:
        return None
    kept = {name: op.attributes[name] for name in op.attributes if name != "algorithm"}
    if hlo.dtype(op.results[0]).kind in "iub":
        return ir.Operation.create(op.name, [op.results[0].type], list(op.operands), kept).results[
            0
        ]
    fields = dict(_FIELD.findall(str(op.attributes["algorithm"])))
    sums = _SUMS[fields["accumulation_type"]]
    sides = zip(op.operands, ("lhs", "rhs"), strict=True)
    in_parts = int(fields["num_primitive_operations"]) > 1
    operands = [
        hlo.convert(value if in_parts else _rounded(value, fields[f"{side}_precision_type"]), sums)
        for value, side in sides
    ]
    shape = list(hlo.shape(op.results[0]))
    kind = ir.RankedTensorType.get(shape, hlo.element_type(operands[0]))
    product = ir.Operation.create(op.name, [kind], operands, kept).results[0]
    return hlo.convert(product, hlo.dtype(op.results[0]))


def _rounded(value: ir.Value, name: str) -> ir.Value:
    """`value` as the type `name` holds it."""
    if name == "tf32":
        if hlo.dtype(value).itemsize <= 2:
            return value
        bits = ir.IntegerType.get_signless(32)
        attributes = {
            "exponent_bits": ir.IntegerAttr.get(bits, 8),
            "mantissa_bits": ir.IntegerAttr.get(bits, 10),
        }
        return ir.Operation.create(
            "stablehlo.reduce_precision", [value.type], [value], attributes
        ).results[0]
    element = ir.Type.parse(name)
    if element == hlo.element_type(value):
        return value
    kind = ir.RankedTensorType.get(list(hlo.shape(value)), element)
    return ir.Operation.create("stablehlo.convert", [kind], [value]).results[0]
