"""fold-constants: evaluate ops whose operands are all constants, with numpy.

    %w = stablehlo.constant dense_resource<w> : tensor<8x4xf32>
    %s = stablehlo.constant dense<2.0> : tensor<8x4xf32>
    %p = stablehlo.multiply %w, %s : tensor<8x4xf32>
    %t = stablehlo.transpose %p, dims = [1, 0] : (tensor<8x4xf32>) -> tensor<4x8xf32>

becomes

    %t = stablehlo.constant dense_resource<w_1> : tensor<4x8xf32>

Results stay views until something that cannot be folded needs them, so a chain of transposes and
reshapes costs one copy. Constants do not grow: a result that repeats its data becomes a broadcast
of what is distinct in it, an iota of more than `limit` elements stays one, and a constant is padded
to `PADDED_ELEMENTS` at most. What would grow is computed when the model runs, as before, but is
known here, to `GROWN_ELEMENTS` of all such: the product of a table of sines with weights is no
larger than these. In a model without inputs, where everything is constant, arithmetic on
floats stays: it is to be run, by the kernels that any other model has.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from stepwell import dtypes
from stepwell.dialects import stablehlo as hlo
from stepwell.errors import LoweringError
from stepwell.mlir import ir
from stepwell.passes.base import Pass, State
from stepwell.passes.stablehlo._evaluate import EVALUATORS, ROUNDED
from stepwell.passes.stablehlo._values import (
    broadcast_constant,
    compact,
    distinct,
    producer,
    readable,
    resource_name,
)
from stepwell.weights import INLINE_ELEMENTS, WeightTable

PADDED_ELEMENTS = 1 << 20
"""A padded constant (filters of groups that were joined) may be as large."""

GROWN_ELEMENTS = 1 << 22
"""Elements of all results together that are known though they are no constants."""


@dataclass(frozen=True)
class FoldConstants(Pass):
    """Evaluate ops whose operands are all constants."""

    name: ClassVar[str] = "fold-constants"

    limit: int = 4096
    """Results of up to this many elements may be larger than what they are computed from."""

    def run(self, op: ir.Operation, state: State) -> None:
        """Fold everything inside `op`, one walk down and one back up."""
        known = _Known(state.weights, self.limit)
        with np.errstate(all="ignore"):
            for inner in _ops(op):
                if not (_is_float_arithmetic(inner) and _is_of_closed_model(inner)):
                    known.visit(inner)
        known.write_back()


def _is_float_arithmetic(op: ir.Operation) -> bool:
    if op.name not in ROUNDED:
        return False
    kind = hlo.element_type(op.results[0])
    return not isinstance(kind, ir.IntegerType)


def _is_of_closed_model(op: ir.Operation) -> bool:
    """Whether `op` stands in a model's host function, and that has no inputs."""
    while op.name != "func.func" and op.parent is not None:
        op = op.parent.operation
    inputs = "stepwell.inputs"
    return inputs in op.attributes and not len(ir.ArrayAttr(op.attributes[inputs]))


def _ops(op: ir.Operation) -> Iterator[ir.Operation]:
    """All ops inside `op` in program order, a region's body before what follows it."""
    for region in op.regions:
        for block in region.blocks:
            for child in block.operations:
                yield child.operation
                yield from _ops(child.operation)


class _Known:
    """Values whose data is known, in program order."""

    def __init__(self, weights: WeightTable, limit: int) -> None:
        self.weights = weights
        self.limit = limit
        self.arrays: dict[ir.Value, np.ndarray] = {}
        self.names: dict[ir.Value, str] = {}
        self.sizes: dict[ir.Value, int] = {}
        self.grown = 0
        self.folded: list[ir.Operation] = []

    def visit(self, op: ir.Operation) -> None:
        """Enter the result of `op` if it can be computed; fold it unless it grows, beyond what the
        constants hold that it comes from."""
        evaluate = EVALUATORS.get(op.name)
        if evaluate is None or len(op.results) != 1:
            return
        arrays = [self._operand(value) for value in op.operands]
        operands = [array for array in arrays if array is not None]
        if len(operands) < len(arrays):
            return
        result = op.results[0]
        kind = ir.RankedTensorType(result.type)
        try:
            dtype = dtypes.to_numpy(kind.element_type)
        except LoweringError:
            return
        array = evaluate(op, operands) if kind.has_static_shape else None
        if array is None:
            return
        limit = PADDED_ELEMENTS if op.name == "stablehlo.pad" else self.limit
        size, sources = distinct(array), sum(self.sizes[value] for value in op.operands)
        grows = size > max(limit, sources)
        if grows:
            self.grown += array.size
            if self.grown > GROWN_ELEMENTS:
                return
        self.arrays[result] = array.astype(dtype, copy=False)
        self.sizes[result] = sources if grows else size
        names = [self.names[value] for value in op.operands if value in self.names]
        self.names[result] = next((name for name in names if name != "weight"), "weight")
        if not grows:
            self.folded.append(op)

    def _operand(self, value: ir.Value) -> np.ndarray | None:
        if value in self.arrays:
            return self.arrays[value]
        if not isinstance(value, ir.OpResult) or value.owner.operation.name != "stablehlo.constant":
            return None
        array = readable(value.owner.operation.attributes["value"], self.weights)
        if array is None:
            return None
        self.arrays[value] = array
        self.sizes[value] = distinct(array)
        self.names[value] = resource_name(value)
        return array

    def write_back(self) -> None:
        """Replace what other ops need by constants, and erase the rest."""
        folded = {op.results[0] for op in self.folded}
        kept: set[ir.Value] = set()
        for op in reversed(self.folded):
            result = op.results[0]
            users = [use.owner.operation for use in result.uses]
            if any(not _within(user, folded) or _within(user, kept) for user in users):
                if self._is_final(op):
                    kept.add(result)
                    continue
                with ir.InsertionPoint(op), op.location:
                    constant = self._constant(result)
                result.replace_all_uses_with(constant)
            op.erase()
        for value in [value for value in reversed(self.arrays) if value not in folded]:
            if next(iter(value.uses), None) is None:
                value.owner.operation.erase()

    def _is_thin(self, result: ir.Value) -> bool:
        """Whether the data holds no repetition worth speaking of."""
        array = self.arrays[result]
        return distinct(array) in (1, array.size) or array.size <= INLINE_ELEMENTS

    def _is_final(self, op: ir.Operation) -> bool:
        """Whether `op` is the form that repeated data has anyway."""
        if self._is_thin(op.results[0]):
            return False
        return op.name == "stablehlo.iota" or (
            op.name == "stablehlo.broadcast_in_dim"
            and producer(op.operands[0], "constant") is not None
            and 1 not in hlo.shape(op.operands[0])
        )

    def _constant(self, result: ir.Value) -> ir.Value:
        array, name = self.arrays[result], self.names[result]
        if self._is_thin(result) and distinct(array) != 1:
            # A view is copied here, once; the table would look at it before and copy it twice.
            return hlo.constant(np.ascontiguousarray(array), self.weights, name)
        return broadcast_constant(compact(array)[0], array.shape, self.weights, name)


def _within(op: ir.Operation, values: set[ir.Value]) -> bool:
    return len(op.results) == 1 and op.results[0] in values
