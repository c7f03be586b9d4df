"""pair-integer-products: products of 32-bit integers whose operands fit 16 bits take those of 16
bits, on CPUs that multiply pairs of them and have no instruction for bytes.

    %a = stablehlo.convert %x : (tensor<8x64xui8>) -> tensor<8x64xi32>
    %b = stablehlo.subtract %a, (dense<100>) : tensor<8x64xi32>
    %z = stablehlo.dot_general %b, %w : (tensor<8x64xi32>, tensor<64x4xi32>) -> tensor<8x4xi32>
      ->
    %s = stablehlo.convert %b : (tensor<8x64xi32>) -> tensor<8x64xi16>
    %z = stablehlo.dot_general %s, %v : (tensor<8x64xi16>, tensor<64x4xi16>) -> tensor<8x4xi32>

So ONNX writes its quantised layers: bytes less a zero point have nine bits. Operands of which that
is known, by their types and by what is added to them, are converted, and sums get an even number of
terms, the last a zero. Everything is exact, modulo 2^32 as it was. Run it behind fold-constants,
and behind narrow-integer-products, which takes weights of small numbers: those stay bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from stepwell import dtypes
from stepwell.dialects import stablehlo as hlo
from stepwell.kernels.cpu.contraction_strategy import SHORTS
from stepwell.mlir import ir
from stepwell.mlir import stablehlo as bindings
from stepwell.passes.base import Pass, State
from stepwell.passes.stablehlo._rules import Rules
from stepwell.passes.stablehlo._values import (
    constant_array,
    integer,
    padded_dimension,
    producer,
    rebuild,
    resource_name,
)
from stepwell.passes.stablehlo.narrow_integer_products import MOST_STEPS, are_small_bytes
from stepwell.targets.nvidia import NvidiaTarget
from stepwell.weights import WeightTable

RULES = Rules()

_SHORT = np.iinfo(np.int16)


@dataclass(frozen=True)
class PairIntegerProducts(Pass):
    """Run on a module; nothing on machines that multiply bytes, or no pairs."""

    name: ClassVar[str] = "pair-integer-products"

    def run(self, op: ir.Operation, state: State) -> None:
        target = state.target
        if not isinstance(target, NvidiaTarget) and target.pair_dot and not target.byte_dot:
            RULES.apply(op, state.weights)


@RULES.on("dot_general")
def dot(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """The last dimension that is contracted is the one of words."""
    numbers = bindings.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
    contracted = numbers.lhs_contracting_dimensions, numbers.rhs_contracting_dimensions
    if not contracted[0]:
        return None
    return _of_pairs(op, [dims[-1] for dims in contracted], weights)


@RULES.on("convolution")
def convolution(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """One without groups: words are of the image's channels."""
    if integer(op, "feature_group_count", 1) != 1 or integer(op, "batch_group_count", 1) != 1:
        return None
    numbers = bindings.ConvDimensionNumbers(op.attributes["dimension_numbers"])
    channels = numbers.input_feature_dimension, numbers.kernel_input_feature_dimension
    return _of_pairs(op, channels, weights)


def _of_pairs(op: ir.Operation, dimensions: Sequence[int], weights: WeightTable) -> ir.Value | None:
    """The product of 16-bit operands; `dimensions` of them are of terms."""
    if str(hlo.element_type(op.results[0])) != "i32":
        return None
    missing = -hlo.shape(op.operands[0])[dimensions[0]] % SHORTS
    if are_small_bytes(op, weights):
        return None
    if not missing and all(str(hlo.element_type(value)) == "i16" for value in op.operands):
        return None
    for value in op.operands:
        limits = _limits(value, weights)
        if limits is None or limits[0] < _SHORT.min or limits[1] > _SHORT.max:
            return None
    operands = [
        padded_dimension(_short(value, weights), dimension, missing)
        for value, dimension in zip(op.operands, dimensions, strict=True)
    ]
    return rebuild(op, operands, hlo.shape(op.results[0]))


def _limits(
    value: ir.Value, weights: WeightTable, steps: int = MOST_STEPS
) -> tuple[int, int] | None:
    """Between which numbers those of `value` are, as `steps` operations say; None for floats."""
    kind = hlo.dtype(value)
    if not dtypes.is_integer(kind):
        return None
    array = constant_array(value, weights)
    if array is not None:
        return (int(array.min()), int(array.max())) if array.size else (0, 0)
    op = producer(value, "convert", "add", "subtract", "transpose", "reshape", "broadcast_in_dim")
    least, most = map(int, dtypes.limits(kind))
    if op is None or not steps:
        return least, most
    found = [_limits(operand, weights, steps - 1) for operand in op.operands]
    known = [limits for limits in found if limits is not None]
    if len(known) < len(found):
        return least, most
    (low, high), *others = known
    for below, above in others:
        if op.name == "stablehlo.add":
            low, high = low + below, high + above
        else:
            low, high = low - above, high - below
    return (low, high) if least <= low and high <= most else (least, most)


def _short(value: ir.Value, weights: WeightTable) -> ir.Value:
    """`value`, which fits, in 16 bits."""
    array = constant_array(value, weights)
    if array is not None:
        return hlo.constant(array.astype(np.int16), weights, resource_name(value))
    return hlo.convert(value, np.int16)
