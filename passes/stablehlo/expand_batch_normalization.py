"""expand-batch-normalization: `batch_norm_inference` as arithmetic on per-channel vectors.

    %y = "stablehlo.batch_norm_inference"(%x, %scale, %offset, %mean, %variance)
           {epsilon = 1.0e-05, feature_index = 1}

becomes, with all but the last three ops on vectors of one element a channel,

    %factor = %scale * rsqrt(%variance + epsilon)
    %shift = %offset - %mean * %factor
    %y = %x * broadcast(%factor) + broadcast(%shift)

fold-constants then computes the vectors, and fold-scale-into-contraction puts the factor into the
weights of a convolution before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from stepwell.dialects import stablehlo as hlo
from stepwell.mlir import ir
from stepwell.passes.base import Pass, State
from stepwell.passes.stablehlo._rules import Rules
from stepwell.passes.stablehlo._values import integer
from stepwell.weights import WeightTable

RULES = Rules()


@RULES.on("batch_norm_inference")
def inference(op: ir.Operation, weights: WeightTable) -> ir.Value:
    """offset + (x - mean) * scale / sqrt(variance + epsilon)."""
    operand, scale, offset, mean, variance = op.operands
    epsilon = ir.FloatAttr(op.attributes["epsilon"]).value
    stable = hlo.add(variance, hlo.full_like(variance, epsilon))
    factor = hlo.multiply(scale, hlo.rsqrt(stable))
    shift = hlo.subtract(offset, hlo.multiply(mean, factor))
    shape, dimension = hlo.shape(operand), [integer(op, "feature_index")]
    scaled = hlo.multiply(operand, hlo.broadcast_in_dim(factor, shape, dimension))
    return hlo.add(scaled, hlo.broadcast_in_dim(shift, shape, dimension))


@dataclass(frozen=True)
class ExpandBatchNormalization(Pass):
    """Write batch_norm_inference as arithmetic on per-channel vectors."""

    name: ClassVar[str] = "expand-batch-normalization"

    def run(self, op: ir.Operation, state: State) -> None:
        """Rewrite every batch_norm_inference inside `op`."""
        RULES.apply(op, state.weights)
