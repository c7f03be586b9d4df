"""legalize-collectives: ops that speak to other devices or a partitioner, on the one device left.

    %0 = "stablehlo.all_reduce"(%x) ({ add }) {replica_groups = dense<0> : tensor<1x1xi64>}
    %1 = stablehlo.custom_call @Sharding(%0)
    %2 = stablehlo.partition_id

becomes

    %x, %x, and stablehlo.constant dense<0> : tensor<ui32>

A group of one gathers, reduces, permutes and broadcasts to what it has; the numbers of the replica
and the partition are 0; annotations of sharding and placement say nothing. A collective of several
devices is refused. The size of a static dimension is a constant, an assertion about shapes has been
checked when they were refined.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.errors import LoweringError
from stepwell.kernels.structured import source_name
from stepwell.mlir import ir, nested_operations
from stepwell.passes.base import Pass, State

_ANNOTATIONS = frozenset(
    [
        "LayoutConstraint",
        "SPMDFullToShardShape",
        "SPMDShardToFullShape",
        "Sharding",
        "annotate_device_placement",
        "shape_assertion",
        "xla.sdy.FuncResultSharding",
        "xla.sdy.ShardingGroup",
    ]
)
"""Custom calls that give back their operands, or nothing."""

Values = Sequence[ir.Value] | None
"""What replaces the results of an op; None leaves it."""


@dataclass(frozen=True)
class LegalizeCollectives(Pass):
    """Rewrite every collective and annotation inside a function."""

    name: ClassVar[str] = "legalize-collectives"
    anchor: ClassVar[str] = "func.func"

    def run(self, op: ir.Operation, state: State) -> None:
        """Raises LoweringError that names a collective of several devices."""
        found = [inner for inner in nested_operations(op) if inner.name in _REWRITES]
        for inner in found:
            with ir.InsertionPoint(inner), inner.location:
                values = _REWRITES[inner.name](inner)
            if values is None:
                continue
            for result, value in zip(inner.results, values, strict=True):
                result.replace_all_uses_with(value)
            inner.erase()


def _alone(op: ir.Operation) -> Values:
    groups = ir.RankedTensorType(op.attributes["replica_groups"].type)
    if list(groups.shape) not in ([1, 1], [0, 0], [0, 1], [1, 0]):
        raise LoweringError(
            f"{source_name(op)}: {op.name} of several devices "
            f"(replica_groups {op.attributes['replica_groups']}); a model runs on one"
        )
    return list(op.operands)


def _permute(op: ir.Operation) -> Values:
    """The device receives from itself, or from nobody, which is zeros."""
    pairs = np.array(ir.DenseElementsAttr(op.attributes["source_target_pairs"])).reshape(-1, 2)
    operand = op.operands[0]
    if [0, 0] in pairs.tolist():
        return [operand]
    if isinstance(hlo.element_type(operand), ir.ComplexType):
        return [hlo.subtract(operand, operand)]
    return [hlo.full_like(operand, 0)]


def _number(op: ir.Operation) -> Values:
    return [hlo.full(0, [], np.uint32)]


def _size(op: ir.Operation) -> Values:
    dimension = ir.IntegerAttr(op.attributes["dimension"]).value
    kind = ir.RankedTensorType(op.operands[0].type)
    if kind.is_dynamic_dim(dimension):
        return None
    return [hlo.full(kind.shape[dimension], [], np.int32)]


def _custom_call(op: ir.Operation) -> Values:
    """Raises LoweringError where a device has a part of a tensor only."""
    target = ir.StringAttr(op.attributes["call_target_name"]).value
    if target not in _ANNOTATIONS:
        return None
    for operand, result in zip(op.operands, op.results, strict=False):
        if operand.type != result.type:
            raise LoweringError(
                f"{source_name(op)}: {target} makes {result.type} of {operand.type}, a part for "
                "each of several devices; a model runs on one"
            )
    return list(op.operands) if len(op.results) else []


_REWRITES: dict[str, Callable[[ir.Operation], Values]] = {
    "stablehlo.all_gather": _alone,
    "stablehlo.all_reduce": _alone,
    "stablehlo.all_to_all": _alone,
    "stablehlo.collective_broadcast": _alone,
    "stablehlo.collective_permute": _permute,
    "stablehlo.collective_reduce": _alone,
    "stablehlo.cross-replica-sum": _alone,
    "stablehlo.custom_call": _custom_call,
    "stablehlo.get_dimension_size": _size,
    "stablehlo.partition_id": _number,
    "stablehlo.reduce_scatter": _alone,
    "stablehlo.replica_id": _number,
}
