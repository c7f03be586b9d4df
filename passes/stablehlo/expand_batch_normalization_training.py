"""`expand-batch-normalization-training`: batch_norm_training and batch_norm_grad as arithmetic.

    %y, %mean, %variance = "stablehlo.batch_norm_training"(%x, %scale, %offset)
                             {epsilon = 1.0e-05, feature_index = 3}

becomes sums over all dimensions but the channels', and elementwise operations:

    %mean = reduce_add(%x) / n,  %d = %x - %mean,  %variance = reduce_add(%d * %d) / n
    %y = %scale * %d * rsqrt(%variance + epsilon) + %offset

The formulas are those of the specification (https://openxla.org/stablehlo/spec#batch_norm_grad).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.mlir import ir
from stepwell.passes.base import Pass, State
from stepwell.passes.linalg._loops import Rewrite, rewrite_operations
from stepwell.passes.stablehlo._values import integer


@dataclass(frozen=True)
class ExpandBatchNormalizationTraining(Pass):
    """Write batch_norm_training and batch_norm_grad as reductions and elementwise operations."""

    name: ClassVar[str] = "expand-batch-normalization-training"
    anchor: ClassVar[str] = "func.func"

    def run(self, op: ir.Operation, state: State) -> None:
        rewrite_operations(op, _REWRITES, wrap=False)


class _Channels:
    """Sums over and broadcasts along the channels of one operation."""

    def __init__(self, op: ir.Operation) -> None:
        self.shape = hlo.shape(op.operands[0])
        self.channel = integer(op, "feature_index")
        self.others = [d for d in range(len(self.shape)) if d != self.channel]
        self.epsilon = ir.FloatAttr(op.attributes["epsilon"]).value
        self.count = prod(self.shape[d] for d in self.others)

    def mean(self, value: ir.Value) -> ir.Value:
        """The mean of each channel."""
        zero = hlo.full(0.0, (), np.dtype(hlo.dtype(value)))
        total = hlo.reduce(value, zero, self.others, "add")
        return hlo.divide(total, hlo.full_like(total, self.count))

    def spread(self, vector: ir.Value) -> ir.Value:
        """A vector of one element a channel in the operand's shape."""
        return hlo.broadcast_in_dim(vector, self.shape, [self.channel])

    def factor(self, variance: ir.Value) -> ir.Value:
        """1 / sqrt(variance + epsilon)."""
        return hlo.rsqrt(hlo.add(variance, hlo.full_like(variance, self.epsilon)))


def _training(op: ir.Operation) -> Sequence[ir.Value]:
    operand, scale, offset = op.operands
    channels = _Channels(op)
    mean = channels.mean(operand)
    centred = hlo.subtract(operand, channels.spread(mean))
    variance = channels.mean(hlo.multiply(centred, centred))
    factor = hlo.multiply(scale, channels.factor(variance))
    scaled = hlo.multiply(centred, channels.spread(factor))
    return [hlo.add(scaled, channels.spread(offset)), mean, variance]


def _grad(op: ir.Operation) -> Sequence[ir.Value]:
    operand, scale, mean, variance, grad = op.operands
    channels = _Channels(op)
    factor = channels.factor(variance)
    normal = hlo.multiply(hlo.subtract(operand, channels.spread(mean)), channels.spread(factor))
    of_offset = channels.mean(grad)
    of_scale = channels.mean(hlo.multiply(grad, normal))
    # The gradient less its projections on the constant and on the normalised operand.
    rest = hlo.subtract(
        hlo.subtract(grad, channels.spread(of_offset)),
        hlo.multiply(normal, channels.spread(of_scale)),
    )
    of_operand = hlo.multiply(rest, channels.spread(hlo.multiply(scale, factor)))
    size = hlo.full_like(of_scale, channels.count)
    return [of_operand, hlo.multiply(of_scale, size), hlo.multiply(of_offset, size)]


_REWRITES: dict[str, Rewrite] = {
    "stablehlo.batch_norm_training": _training,
    "stablehlo.batch_norm_grad": _grad,
}
