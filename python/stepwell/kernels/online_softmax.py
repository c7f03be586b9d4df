"""Recognising a softmax that can be taken in one walk over its row, a piece at a time.

Of scores x, the weights exp(x - max x) / sum exp(x - max x) need two reductions of a whole row.
With the maximum m and the sum l of what was seen, a new piece of the row changes both:

    m' = max(m, max x)      l' = l exp(m - m') + sum exp(x - m')

and what was summed with the old weights is multiplied by exp(m - m'), too (M. Milakov and N.
Gimelshein, "Online normalizer calculation for softmax", 2018). That holds of this form only, so
values are compared as expressions of their elements.
"""

from __future__ import annotations

from dataclasses import dataclass

from stepwell.kernels.index import (
    Index,
    Variable,
    apply_map,
    delinearize,
    linearize,
    reshaped,
)
from stepwell.kernels.reduction import Combiner
from stepwell.kernels.rows import loop_point
from stepwell.kernels.structured import RESHAPES, Structured, defining_op, elements, shape_of
from stepwell.mlir import ir

_CASTS = ("arith.extf", "arith.truncf")
_UNORDERED = (13, 14)
"""Predicates of `arith.cmpf` that hold of a number and itself only where that is a NaN."""

Expression = tuple
"""An operation's name (or "value", "index"), what else tells it from others, and its operands."""


@dataclass(frozen=True)
class OnlineSoftmax:
    """The softmax of an attention. `maximum` reads the scores as they are after scale and mask,
    `total` is the sum of the exponentials; where `guarded`, weights that are no numbers are 0."""

    maximum: Structured
    total: Structured
    guarded: bool

    @staticmethod
    def of(reductions: list[Structured], weights: ir.Value) -> OnlineSoftmax | None:
        """The softmax that makes `weights` by `reductions`; None when that is something else."""
        if len(reductions) != 2 or not all(map(_is_plain, reductions)):
            return None
        maximum, total = reductions
        names = [Combiner.of(reduction).op_name for reduction in reductions]
        low, zero = (constant_of(reduction.outputs[0]) for reduction in reductions)
        if names != ["arith.maximumf", "arith.addf"] or low is None or zero != 0:
            return None
        if low > _least_finite(maximum):
            return None
        rows = elements(maximum.op.results[0])
        length = elements(weights) // rows
        row = Index.of(Variable("row", 0, rows - 1))
        column = Index.of(Variable("column", 0, length - 1))
        reader = _Reader({r.op.results[0] for r in reductions}, row * length + column)
        scores, exponential = (reader.operand(r) for r in reductions)
        top, sum_ = (("value", r.op.results[0], row) for r in reductions)
        if exponential != ("math.exp", "", ("arith.subf", "", scores, top)):
            return None
        weight = reader.at(weights, delinearize(reader.flat, shape_of(weights)))
        plain = _quotients(exponential, sum_)
        guarded = [
            ("arith.select", "", ("arith.cmpf", predicate, weight, weight), _ZERO, weight)
            for weight in plain
            for predicate in _UNORDERED
        ]
        if weight not in (*plain, *guarded):
            return None
        return OnlineSoftmax(maximum, total, weight in guarded)


_ZERO = ("arith.constant", 0.0)
_ONE = ("arith.constant", 1.0)


def _quotients(numerator: Expression, denominator: Expression) -> list[Expression]:
    inverse = ("arith.divf", "", _ONE, denominator)
    return [
        ("arith.divf", "", numerator, denominator),
        ("arith.mulf", "", numerator, inverse),
        ("arith.mulf", "", inverse, numerator),
    ]


class _Reader:
    """Expressions of elements; the main point is the element `flat` of all scores."""

    def __init__(self, leaves: set[ir.Value], flat: Index) -> None:
        self.leaves = leaves
        self.flat = flat
        self.known: dict[tuple[ir.Value, Index], Expression] = {}

    def operand(self, reduction: Structured) -> Expression:
        """What `reduction` combines."""
        point = loop_point(reduction, self.flat)
        return self.at(reduction.inputs[0], apply_map(reduction.maps[0], point))

    def at(self, value: ir.Value, indices: list[Index]) -> Expression:
        """The element of `value` at `indices`."""
        key = value, linearize(indices, shape_of(value))
        if key not in self.known:
            self.known[key] = self._read(value, indices)
        return self.known[key]

    def _read(self, value: ir.Value, indices: list[Index]) -> Expression:
        flat = linearize(indices, shape_of(value))
        op = defining_op(value)
        if op is None or value in self.leaves:
            return "value", value, flat
        if op.name in RESHAPES:
            source = op.operands[0]
            return self.at(source, reshaped(indices, shape_of(value), shape_of(source)))
        number = constant_of(value)
        if number is not None:
            return "arith.constant", number
        structured = Structured.of(op)
        if structured is None or not structured.is_elementwise:
            return "value", value, flat
        return self._body(structured, indices)

    def _body(self, op: Structured, dims: list[Index]) -> Expression:
        known: dict[ir.Value, Expression] = {}
        for number, (value, affine_map) in enumerate(zip(op.inputs, op.maps, strict=False)):
            argument = op.body.arguments[number]
            if any(True for _ in argument.uses):
                known[argument] = self.at(value, apply_map(affine_map, dims))
        for child in op.body.operations:
            inner = child.operation
            operands = [self._scalar(v, known) for v in inner.operands]
            if inner.name == "linalg.yield":
                return operands[0]
            if inner.name in _CASTS:
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
        raise AssertionError("a body ends with what it yields")

    def _scalar(self, value: ir.Value, known: dict[ir.Value, Expression]) -> Expression:
        if value in known:
            return known[value]
        number = constant_of(value)
        return ("value", value) if number is None else ("arith.constant", number)


def _is_plain(reduction: Structured) -> bool:
    """Whether it combines the elements of one operand as they are."""
    return len(reduction.inputs) == 1 and len(list(reduction.body.operations)) == 2


def constant_of(value: ir.Value) -> float | None:
    """The number that all elements of `value` are, where that is a constant float."""
    op = defining_op(value)
    if op is not None and op.name == "linalg.fill":
        return constant_of(op.operands[0])
    structured = Structured.of(op) if op is not None else None
    if structured is not None and structured.is_elementwise:
        copied = structured.copied_input()
        return None if copied is None else constant_of(structured.inputs[copied])
    if op is None or op.name != "arith.constant":
        return None
    attribute = op.attributes["value"]
    if isinstance(value.type, ir.ShapedType):
        dense = ir.DenseElementsAttr(attribute)
        if not dense.is_splat:
            return None
        attribute = dense.get_splat_value()
    return ir.FloatAttr(attribute).value if isinstance(attribute, ir.FloatAttr) else None


def _least_finite(reduction: Structured) -> float:
    """The least number of the reduction's type that is finite."""
    kind = str(reduction.op.results[0].type.element_type)
    return {"f16": -65504.0, "bf16": -3.38e38, "f32": -3.4e38}.get(kind, float("-inf"))
