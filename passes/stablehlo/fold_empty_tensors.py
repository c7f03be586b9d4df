"""`fold-empty-tensors`: operations on tensors without elements become constants.

What has no elements is an empty constant; a sum or product over no elements is its initial value,
and so is the padding that windows on no elements have; parts of a concatenation without elements
are left out, and updates without elements change nothing.

    %0 = stablehlo.dot_general %a, %b : (tensor<4x0xf32>, tensor<0x3xf32>) -> tensor<4x3xf32>
      ->  %0 = stablehlo.constant dense<0.0> : tensor<4x3xf32>
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from stepwell import dtypes
from stepwell.dialects import stablehlo as hlo
from stepwell.mlir import ir
from stepwell.passes.base import Pass, State
from stepwell.passes.stablehlo._values import optional_integers, padding

_SUMS = ("stablehlo.dot_general", "stablehlo.convolution")
_CONTROL_FLOW = frozenset(["stablehlo.case", "stablehlo.if", "stablehlo.while"])
_UPDATES = {"stablehlo.dynamic_update_slice": 1, "stablehlo.scatter": 2}
"""Which operand of an update that has one tensor holds the new elements."""


@dataclass(frozen=True)
class FoldEmptyTensors(Pass):
    """Fold in every function, in its loops and branches too."""

    name: ClassVar[str] = "fold-empty-tensors"
    anchor: ClassVar[str] = "func.func"

    def run(self, op: ir.Operation, state: State) -> None:
        for block in op.regions[0].blocks:
            for child in list(block.operations):
                _fold_or_enter(child.operation, state)


def _fold_or_enter(op: ir.Operation, state: State) -> None:
    """Fold `op`, or what stands in its regions if it is a loop or a branch."""
    if len(op.results) == 0 or op.name == "stablehlo.constant":
        return
    with ir.InsertionPoint(op), op.location:
        values = _fold(op, state)
    if values is not None:
        for result, value in zip(op.results, values, strict=True):
            result.replace_all_uses_with(value)
        op.erase()
    elif op.name in _CONTROL_FLOW:
        for region in op.regions:
            for child in list(region.blocks[0].operations):
                _fold_or_enter(child.operation, state)


def _fold(op: ir.Operation, state: State) -> list[ir.Value] | None:
    if all(_is_empty(result) for result in op.results):
        return [_zeros(result, state) for result in op.results]
    if op.name in _SUMS and any(_is_empty(operand) for operand in op.operands):
        return [_zeros(op.results[0], state)]
    if op.name == "stablehlo.reduce" and _is_empty(op.operands[0]):
        count = len(op.results)
        initial = list(op.operands)[count:]
        return [
            hlo.broadcast_in_dim(value, list(result.type.shape), [])
            for value, result in zip(initial, op.results, strict=True)
        ]
    if op.name == "stablehlo.concatenate" and any(_is_empty(operand) for operand in op.operands):
        parts = [operand for operand in op.operands if not _is_empty(operand)]
        axis = ir.IntegerAttr(op.attributes["dimension"]).value
        return [parts[0] if len(parts) == 1 else hlo.concatenate(parts, axis)]
    if op.name in _UPDATES and len(op.results) == 1 and _is_empty(op.operands[_UPDATES[op.name]]):
        return [op.operands[0]]
    if op.name == "stablehlo.reduce_window" and _is_empty(op.operands[0]):
        return _windows_of_nothing(op)
    if op.name == "stablehlo.pad" and _is_empty(op.operands[0]):
        return [hlo.broadcast_in_dim(op.operands[1], list(op.results[0].type.shape), [])]
    return None


def _windows_of_nothing(op: ir.Operation) -> list[ir.Value] | None:
    """Windows on padding alone, which has the initial values: on a tensor of these, without any."""
    count, rank = len(op.results), len(op.operands[0].type.shape)
    shape = ir.RankedTensorType(op.operands[0].type).shape
    dilations = optional_integers(op, "base_dilations", rank, 1)
    sizes = [
        low + high + ((size - 1) * dilation + 1 if size else 0)
        for size, dilation, (low, high) in zip(shape, dilations, padding(op, rank), strict=True)
    ]
    initial = list(op.operands)[count:]
    full = [hlo.broadcast_in_dim(value, sizes, []) for value in initial]
    other = op.clone()
    for number, value in enumerate(full):
        other.operation.operands[number] = value
    for name in ("padding", "base_dilations"):
        if name in other.operation.attributes:
            del other.operation.attributes[name]
    return list(other.operation.results)


def _is_empty(value: ir.Value) -> bool:
    kind = value.type
    return (
        isinstance(kind, ir.RankedTensorType)
        and kind.has_static_shape
        and math.prod(kind.shape) == 0
    )


def _zeros(value: ir.Value, state: State) -> ir.Value:
    kind = ir.RankedTensorType(value.type)
    array = np.zeros(tuple(kind.shape), dtypes.to_numpy(kind.element_type))
    return hlo.constant(array, state.weights, "empty")
