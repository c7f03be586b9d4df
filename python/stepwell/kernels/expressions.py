"""Expressions of elements: what an element of a value is made of, through structured operations.

Two values are the same where their expressions are equal; a fusion or an emitter that needs a
certain form (a softmax) compares with it.
"""

from __future__ import annotations

from stepwell.kernels.index import Index, apply_map, linearize, reshaped
from stepwell.kernels.rows import loop_point
from stepwell.kernels.structured import (
    RESHAPES,
    Structured,
    defining_op,
    reshape_source,
    shape_of,
)
from stepwell.mlir import ir

_CASTS = ("arith.extf", "arith.truncf")

_MOST_STEPS = 100
"""How far back an element is followed: forms that matter are found much closer to it."""

Expression = tuple
"""An operation's name (or "value", "index"), what else tells it from others, and its operands."""


class Reader:
    """Expressions of elements, read down to arguments, reductions and `leaves`."""

    def __init__(self, leaves: set[ir.Value]) -> None:
        self.leaves = leaves
        self.known: dict[tuple[ir.Value, Index], Expression] = {}
        self._steps = 0

    def operand(self, reduction: Structured, flat: Index) -> Expression:
        """What `reduction` combines: the element `flat` of its operand."""
        point = loop_point(reduction, flat)
        return self.at(reduction.inputs[0], apply_map(reduction.maps[0], point))

    def at(self, value: ir.Value, indices: list[Index]) -> Expression:
        """The element of `value` at `indices`."""
        key = value, linearize(indices, shape_of(value))
        if key not in self.known:
            self._steps += 1
            self.known[key] = self._read(value, indices)
            self._steps -= 1
        return self.known[key]

    def _read(self, value: ir.Value, indices: list[Index]) -> Expression:
        flat = linearize(indices, shape_of(value))
        op = defining_op(value)
        if op is None or value in self.leaves or self._steps > _MOST_STEPS:
            return "value", value, flat
        if op.name in RESHAPES:
            source = reshape_source(op, self.leaves)
            return self.at(source, reshaped(indices, shape_of(value), shape_of(source)))
        number = constant_of(value)
        if number is not None:
            return "arith.constant", number
        structured = Structured.of(op)
        if structured is None or not structured.is_elementwise:
            return "value", value, flat
        *_, last = structured.body.operations
        return self.body(structured, indices)[last.operation.operands[0]]

    def body(self, op: Structured, dims: list[Index]) -> dict[ir.Value, Expression]:
        """The values in the body of `op` at the point `dims` of its loops."""
        known: dict[ir.Value, Expression] = {}
        for number, (value, affine_map) in enumerate(zip(op.inputs, op.maps, strict=False)):
            argument = op.body.arguments[number]
            if any(True for _ in argument.uses):
                known[argument] = self.at(value, apply_map(affine_map, dims))
        for child in op.body.operations:
            inner = child.operation
            operands = [self._scalar(v, known) for v in inner.operands]
            if inner.name == "linalg.yield":
                known[inner.operands[0]] = operands[0]
            elif inner.name in _CASTS:
                known[inner.results[0]] = operands[0]
            elif inner.name == "linalg.index":
                axis = ir.IntegerAttr(inner.attributes["dim"]).value
                known[inner.results[0]] = ("index", dims[axis])
            elif inner.name == "arith.constant":
                known[inner.results[0]] = self._scalar(inner.results[0], {})
            else:
                predicate = inner.attributes.get("predicate", None)
                told = "" if predicate is None else ir.IntegerAttr(predicate).value
                known[inner.results[0]] = (inner.name, told, *operands)
        return known

    def _scalar(self, value: ir.Value, known: dict[ir.Value, Expression]) -> Expression:
        if value in known:
            return known[value]
        number = constant_of(value)
        return ("value", value) if number is None else ("arith.constant", number)


def is_plain(reduction: Structured) -> bool:
    """Whether it combines the elements of one operand as they are."""
    return len(reduction.inputs) == 1 and len(list(reduction.body.operations)) == 2


def _copied(op: ir.Operation | None) -> ir.Value | None:
    """The value whose elements `op` repeats, if it does."""
    if op is not None and op.name == "linalg.fill":
        return op.operands[0]
    structured = Structured.of(op) if op is not None else None
    if structured is None or not structured.is_elementwise:
        return None
    copied = structured.copied_input()
    return None if copied is None else structured.inputs[copied]


def constant_of(value: ir.Value) -> float | None:
    """The number that all elements of `value` are, where that is a constant float."""
    op = defining_op(value)
    while (copied := _copied(op)) is not None:
        value, op = copied, defining_op(copied)
    if op is None or op.name != "arith.constant":
        return None
    attribute = op.attributes["value"]
    if isinstance(value.type, ir.ShapedType):
        dense = ir.DenseElementsAttr(attribute)
        if not dense.is_splat:
            return None
        attribute = dense.get_splat_value()
    return ir.FloatAttr(attribute).value if isinstance(attribute, ir.FloatAttr) else None
