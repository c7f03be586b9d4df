"""What is known of elements of tensors when a model is compiled: masks that are constants, or are
computed from constants and indices, evaluated by numpy.

An element is a known number, or moderate (a finite number below 1e30, as the products are that a
mask is put on), or unknown. A known operand may decide what an unknown one cannot: `unknown and
false` is false.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from stepwell import dtypes
from stepwell.errors import LoweringError
from stepwell.kernels.evaluate import slice_source
from stepwell.kernels.index import Index, Variable, apply_map, reshaped
from stepwell.kernels.structured import RESHAPES, Structured, defining_op, element_type, shape_of
from stepwell.mlir import ir
from stepwell.passes.linalg.hoist_constants import weight_name
from stepwell.weights import WeightTable

UNKNOWN, MODERATE, KNOWN = 0, 1, 2

LEAST = -1e38
"""A number below is -inf, or the least of its type with some moderate number added: as a score it
has no weight beside moderate ones."""

_MODERATE = 1e30

_MOST_STEPS = 100
"""How far back an element is followed: masks are made in fewer operations."""


@dataclass(frozen=True)
class Elements:
    """What is known of some elements: UNKNOWN, MODERATE or KNOWN, then with `data`. The shapes are
    broadcast to each other."""

    data: np.ndarray
    what: np.ndarray

    @property
    def known(self) -> np.ndarray:
        return self.what == KNOWN

    @property
    def moderate(self) -> np.ndarray:
        """Whether they are, be they known or not."""
        return (self.what == MODERATE) | (self.known & (np.abs(self.data) < _MODERATE))


def _elements(data: object, what: object) -> Elements:
    return Elements(np.asarray(data), np.asarray(what, np.int8))


_NOTHING = _elements(0, UNKNOWN)

_BINARY: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "arith.addf": np.add, "arith.addi": np.add, "arith.subf": np.subtract,
    "arith.subi": np.subtract, "arith.mulf": np.multiply, "arith.muli": np.multiply,
    "arith.divf": np.divide, "arith.maximumf": np.maximum, "arith.minimumf": np.minimum,
    "arith.maxsi": np.maximum, "arith.minsi": np.minimum, "arith.andi": np.bitwise_and,
    "arith.ori": np.bitwise_or, "arith.xori": np.bitwise_xor,
}  # fmt: skip
_UNARY: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "arith.negf": np.negative, "math.absf": np.abs, "math.tanh": np.tanh,
    **dict.fromkeys(("arith.extf", "arith.truncf", "arith.sitofp", "arith.trunci",
                     "arith.index_cast"), lambda x: x),
}  # fmt: skip
_KEEP_MODERATE = frozenset(
    ["arith.addf", "arith.subf", "arith.mulf", "arith.negf", "arith.extf", "arith.truncf",
     "math.tanh"]
)  # fmt: skip
_COMPARE_INTEGERS = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)
_COMPARE_FLOATS = {1: operator.eq, 2: operator.gt, 3: operator.ge, 4: operator.lt, 5: operator.le,
                   13: operator.ne}  # fmt: skip


class KnownValues:
    """Elements of values at indices, for all numbers that `places` gives the variables, in arrays
    that broadcast; the elements of `moderate` are taken to be so."""

    def __init__(
        self, weights: WeightTable, moderate: set[ir.Value], places: dict[Variable, np.ndarray]
    ) -> None:
        self.weights = weights
        self.moderate = moderate
        self.places = places
        self._seen: dict[tuple[ir.Value, tuple[Index, ...]], Elements] = {}
        self._steps = 0

    def at(self, value: ir.Value, indices: list[Index]) -> Elements:
        """What is known of `value` at `indices`."""
        key = value, tuple(indices)
        if key not in self._seen:
            self._steps += 1
            with np.errstate(all="ignore"):
                self._seen[key] = self._at(value, indices)
            self._steps -= 1
        return self._seen[key]

    def _at(self, value: ir.Value, indices: list[Index]) -> Elements:
        if value in self.moderate:
            return _elements(0, MODERATE)
        if self._steps > _MOST_STEPS:
            return _NOTHING
        op = defining_op(value)
        if op is None:
            weight = self._weight(value)
            return _NOTHING if weight is None else self._pick(weight, map(self._numbers, indices))
        if op.name in RESHAPES:
            source = op.operands[0]
            return self.at(source, reshaped(indices, shape_of(value), shape_of(source)))
        if op.name == "tensor.extract_slice":
            if any(offset < 0 for offset in op.attributes["static_offsets"]):
                return _NOTHING
            return self.at(op.operands[0], slice_source(op, indices))
        if op.name == "arith.constant":
            return _constant(op)
        if op.name == "linalg.fill":
            return self.at(op.operands[0], [])
        structured = Structured.of(op)
        if structured is None or not structured.is_elementwise:
            return _NOTHING
        return self._body(structured, indices)

    def _weight(self, value: ir.Value) -> np.ndarray | None:
        """The data of an argument that is a constant of the model."""
        block = ir.BlockArgument(value).owner
        function = block.owner.operation
        if function.name != "func.func":
            return None
        name = weight_name(function, ir.BlockArgument(value).arg_number)
        return self.weights[name] if name is not None and name in self.weights else None

    def _pick(self, weight: np.ndarray, places: object) -> Elements:
        if dtypes.is_small(weight.dtype):
            return _NOTHING
        return _elements(weight[tuple(places)], KNOWN)  # pyright: ignore[reportArgumentType]

    def _numbers(self, index: Index) -> np.ndarray:
        total = np.full((1,) * 3, index.constant, np.int64)
        for atom, factor in index.terms:
            if isinstance(atom, Variable):
                part = self.places[atom]
            elif atom.remainder:
                part = self._numbers(atom.dividend) % atom.divisor
            else:
                part = self._numbers(atom.dividend) // atom.divisor
            total = total + part * factor
        return total

    def _body(self, op: Structured, dims: list[Index]) -> Elements:
        known: dict[ir.Value, Elements] = {}
        symbolic: dict[ir.Value, Index] = {}
        for number, (value, affine_map) in enumerate(zip(op.inputs, op.maps, strict=False)):
            argument = op.body.arguments[number]
            if any(True for _ in argument.uses):
                known[argument] = self.at(value, apply_map(affine_map, dims))

        def operand(value: ir.Value) -> Elements:
            return known[value] if value in known else self._captured(value)

        for child in op.body.operations:
            inner = child.operation
            if inner.name == "linalg.yield":
                return operand(inner.operands[0])
            result = inner.results[0]
            if inner.name == "linalg.index":
                symbolic[result] = dims[ir.IntegerAttr(inner.attributes["dim"]).value]
                known[result] = _elements(self._numbers(symbolic[result]), KNOWN)
            elif inner.name == "tensor.extract":
                source, *places = inner.operands
                if all(place in symbolic for place in places):
                    known[result] = self.at(source, [symbolic[place] for place in places])
                else:
                    known[result] = self._gather(source, [operand(place) for place in places])
            else:
                known[result] = _computed(inner, [operand(v) for v in inner.operands])
        return _NOTHING

    def _captured(self, value: ir.Value) -> Elements:
        """A scalar from outside of a body."""
        op = defining_op(value)
        return _constant(op) if op is not None and op.name == "arith.constant" else _NOTHING

    def _gather(self, source: ir.Value, places: list[Elements]) -> Elements:
        weight = self._weight(source) if defining_op(source) is None else None
        if weight is None or not all(np.all(place.known) for place in places):
            return _NOTHING
        numbers = [place.data for place in places]
        inside = (
            np.all((0 <= n) & (n < size)) for n, size in zip(numbers, weight.shape, strict=True)
        )
        return self._pick(weight, numbers) if all(inside) else _NOTHING


def _constant(op: ir.Operation) -> Elements:
    """A scalar or all elements of an array that are the same."""
    attribute = op.attributes["value"]
    if isinstance(op.results[0].type, ir.ShapedType):
        if not isinstance(attribute, ir.DenseElementsAttr) or not attribute.is_splat:
            return _NOTHING
        attribute = attribute.get_splat_value()
    kind = _dtype(op.results[0])
    if isinstance(attribute, ir.FloatAttr) and kind is not None:
        return _elements(np.asarray(attribute.value, kind), KNOWN)
    if isinstance(attribute, ir.IntegerAttr) and kind is not None:
        return _elements(np.asarray(attribute.value).astype(kind), KNOWN)
    return _NOTHING


def _dtype(value: ir.Value) -> np.dtype | None:
    """The type that numpy computes elements of `value` in."""
    name = str(element_type(value))
    if name == "index":
        return np.dtype(np.int64)
    try:
        found = dtypes.to_numpy_by_name(name)
    except LoweringError:
        return None
    return None if dtypes.is_small(found) or found.kind == "c" else found


def _computed(op: ir.Operation, operands: list[Elements]) -> Elements:
    """The result of an operation of a body."""
    kind = _dtype(op.results[0])
    if kind is None:
        return _NOTHING
    found = _decided(op.name, operands, kind)
    if found is not None:
        return found
    data = _data(op, [operand.data for operand in operands])
    if data is None:
        return _NOTHING
    known = np.logical_and.reduce(np.broadcast_arrays(*(o.known for o in operands)))
    moderate = np.logical_and.reduce(np.broadcast_arrays(*(o.moderate for o in operands)))
    if op.name not in _KEEP_MODERATE:
        moderate = np.asarray(False)
    found = _elements(
        data.astype(kind), np.where(known, KNOWN, np.where(moderate, MODERATE, UNKNOWN))
    )
    return _absorbed(found, operands, kind) if op.name == "arith.addf" else found


def _decided(name: str, operands: list[Elements], kind: np.dtype) -> Elements | None:
    """What one operand decides: a condition that is known, a false in a conjunction."""
    if name == "arith.select":
        condition, yes, no = operands
        chosen = condition.data.astype(bool)
        same = np.where(yes.known & no.known & (yes.data == no.data), KNOWN, UNKNOWN)
        either = np.where(yes.moderate & no.moderate & (same != KNOWN), MODERATE, same)
        what = np.where(condition.known, np.where(chosen, yes.what, no.what), either)
        return _elements(np.where(chosen, yes.data, no.data), what)
    if name in ("arith.andi", "arith.ori") and kind == np.bool_:
        one, other = operands
        absorbing = name == "arith.ori"
        decided = (one.known & (one.data == absorbing)) | (other.known & (other.data == absorbing))
        both = one.known & other.known
        data = np.where(decided, absorbing, not absorbing)
        return _elements(data, np.where(decided | both, KNOWN, UNKNOWN))
    return None


def _absorbed(total: Elements, operands: list[Elements], kind: np.dtype) -> Elements:
    """A sum to which one operand adds -inf, or the least number to a moderate one."""
    data, what = total.data, total.what
    for one, other in (operands, operands[::-1]):
        low = one.known & (one.data < LEAST) & ~other.known
        low = low & (np.isneginf(one.data.astype(np.float64)) | other.moderate)
        data, what = np.where(low, one.data.astype(kind), data), np.where(low, KNOWN, what)
    return _elements(data, what)


def _data(op: ir.Operation, data: list[np.ndarray]) -> np.ndarray | None:
    """The result where all operands are known; None for an operation that is not in the tables."""
    if op.name in _BINARY:
        return _BINARY[op.name](*data)
    if op.name in _UNARY:
        return _UNARY[op.name](*data)
    if op.name in ("arith.extsi", "arith.extui"):
        truth = data[0].dtype == np.bool_
        if truth:
            return data[0].astype(np.int64) * (-1 if op.name == "arith.extsi" else 1)
        return data[0] if op.name == "arith.extsi" else None
    if op.name == "arith.cmpi":
        predicate = ir.IntegerAttr(op.attributes["predicate"]).value
        if predicate >= len(_COMPARE_INTEGERS) or data[0].dtype == np.bool_:
            return None
        return _COMPARE_INTEGERS[predicate](*data)
    if op.name == "arith.cmpf":
        predicate = ir.IntegerAttr(op.attributes["predicate"]).value
        compare = _COMPARE_FLOATS.get(predicate)
        return None if compare is None else compare(*data)
    return None
