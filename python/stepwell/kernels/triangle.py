"""Arrays that are one number up to a diagonal and another one beyond it, computed from indices.

    t[.., r, k] = near where k <= r + offset, else far

A causal mask is one. The `linalg.generic` that makes it reads nothing and bears `kernel.triangle`:
it is repeated wherever it is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stepwell.kernels.structured import defining_op
from stepwell.mlir import dialect, ir

arith = dialect("arith")
linalg = dialect("linalg")
tensor = dialect("tensor")

TRIANGLE = "kernel.triangle"
"""Marks the operation: [offset, near, far]."""

_LESS_OR_EQUAL, _GREATER = 3, 4


@dataclass(frozen=True)
class Triangle:
    """`near` where column <= row + `offset`, `far` elsewhere: two numbers, or booleans as such."""

    offset: int
    near: float
    far: float

    @staticmethod
    def of(value: ir.Value) -> Triangle | None:
        """What makes `value`, if it is such an operation."""
        op = defining_op(value)
        if op is None or TRIANGLE not in op.attributes:
            return None
        offset, near, far = ir.DenseF64ArrayAttr(op.attributes[TRIANGLE])
        return Triangle(int(offset), near, far)

    def make(self, shape: Sequence[int], element: ir.Type) -> ir.Value:
        """The operation; `shape` ends with rows and columns, elements are floats or booleans."""
        rank = len(shape)
        offset = arith.ConstantOp(ir.IndexType.get(), self.offset).result
        is_float = isinstance(element, ir.FloatType)
        numbers = [arith.ConstantOp(element, n).result for n in (self.near, self.far) if is_float]
        generic = ir.Operation.create(
            "linalg.generic",
            results=[ir.RankedTensorType.get(list(shape), element)],
            operands=[tensor.EmptyOp(list(shape), element).result],
            attributes={
                "indexing_maps": ir.ArrayAttr.get(
                    [ir.AffineMapAttr.get(ir.AffineMap.get_identity(rank))]
                ),
                "iterator_types": ir.ArrayAttr.get(
                    [ir.Attribute.parse("#linalg.iterator_type<parallel>")] * rank
                ),
                "operandSegmentSizes": ir.DenseI32ArrayAttr.get([0, 1]),
                TRIANGLE: ir.DenseF64ArrayAttr.get([self.offset, self.near, self.far]),
            },
            regions=1,
        )
        with ir.InsertionPoint(generic.regions[0].blocks.append(element)):
            row, column = (linalg.IndexOp(rank - 2 + i).result for i in range(2))
            last = arith.AddIOp(row, offset).result
            inverted = not is_float and not self.near
            predicate = _GREATER if inverted else _LESS_OR_EQUAL
            value = arith.CmpIOp(predicate, column, last).result
            linalg.YieldOp([arith.SelectOp(value, *numbers).result if is_float else value])
        return generic.results[0]
