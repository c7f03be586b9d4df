"""expand-arg-reductions: where the largest or smallest element stands, by two plain reductions.

    %max, %place = stablehlo.reduce(%x init: -inf), (%iota init: 0) ... dimensions = [1]   // argmax

becomes, for CPUs, whose kernels walk rows by vectors for reductions of one operand alone,

    %max = stablehlo.reduce(%x init: -inf) applies stablehlo.maximum across dimensions = [1]
    %hit = %x == %max, or %x is NaN
    %place = stablehlo.reduce(select(%hit, %iota, size)) applies stablehlo.minimum ...

JAX and PyTorch write the body of the first in ways of their own, so it is known by what it does:
its operations only compare and choose, and it is tried on elements in every order. Of equals the
first has to win, and NaN over numbers.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.mlir import ir, nested_operations
from stepwell.passes.base import Pass, State
from stepwell.passes.stablehlo._evaluate import EVALUATORS
from stepwell.passes.stablehlo._values import integer, integers, producer, splat
from stepwell.targets.nvidia import NvidiaTarget

_ORDERING = frozenset(
    f"stablehlo.{name}"
    for name in ("and", "compare", "maximum", "minimum", "not", "or", "select", "xor")
)
"""What such a body is made of: its results depend on nothing but the order of its arguments."""

_LARGEST_SIZE = (1 << 31) - 1


@dataclass(frozen=True)
class ExpandArgReductions(Pass):
    """Look at every reduction of two operands."""

    name: ClassVar[str] = "expand-arg-reductions"

    def run(self, op: ir.Operation, state: State) -> None:
        if isinstance(state.target, NvidiaTarget):
            return
        for reduction in nested_operations(op):
            if reduction.name != "stablehlo.reduce" or len(reduction.results) != 2:
                continue
            combine = _combine(reduction)
            if combine is None:
                continue
            with ir.InsertionPoint(reduction), reduction.location:
                made = _expand(reduction, combine)
            for result, value in zip(reduction.results, made, strict=True):
                result.replace_all_uses_with(value)
            reduction.erase()


def _expand(op: ir.Operation, combine: str) -> list[ir.Value]:
    values, places, start, _ = op.operands
    (axis,) = integers(op, "dimensions")
    shape = hlo.shape(values)
    extremum = hlo.reduce(values, start, [axis], combine)
    kept = [d for d in range(len(shape)) if d != axis]
    hit = hlo.compare(values, hlo.broadcast_in_dim(extremum, shape, kept), "EQ")
    if isinstance(hlo.element_type(values), ir.FloatType):
        hit = hlo.or_(hit, hlo.compare(values, values, "NE"))
    counted = np.dtype(np.int32)
    missing = hlo.full(shape[axis], shape, counted)
    candidates = hlo.select(hit, hlo.iota(shape, axis, counted), missing)
    none = hlo.full(hlo.identity("minimum", counted), (), counted)
    place = hlo.reduce(candidates, none, [axis], "minimum")
    return [extremum, hlo.convert(place, hlo.dtype(places))]


def _combine(op: ir.Operation) -> str | None:
    """ "maximum" or "minimum" where the second operand counts along the one dimension, and the body
    finds the first of the largest or smallest."""
    values, places, start, first = op.operands
    dimensions = integers(op, "dimensions")
    counted = producer(places, "iota")
    if counted is None or [integer(counted, "iota_dimension")] != dimensions:
        return None
    kind = hlo.dtype(values)
    static = hlo.tensor_type(values).has_static_shape
    if not static or not 0 < hlo.shape(values)[dimensions[0]] < _LARGEST_SIZE:
        return None
    if kind.kind not in "fiuV" or splat(first) != 0:
        return None
    for combine in ("maximum", "minimum"):
        if splat(start) == hlo.identity(combine, kind) and _finds(op.regions[0].blocks[0], combine):
            return combine
    return None


def _finds(body: ir.Block, combine: str) -> bool:
    """Whether `body` gives the extremum of two elements and its place."""
    *steps, end = (child.operation for child in body.operations)
    if any(step.name not in _ORDERING for step in steps):
        return False
    kind = hlo.dtype(body.arguments[0])
    samples = [1, 2] if kind.kind in "iu" else [1.0, 2.0, np.nan]
    for left, right, swapped in itertools.product(samples, samples, (False, True)):
        wins = _wins(left, right, combine)
        if wins is None and swapped:  # the first is the first
            continue
        chosen = 0 if wins is None or wins else 1
        elements, places = (left, right), (1, 0) if swapped else (0, 1)
        arguments = (elements[0], places[0], elements[1], places[1])
        found = _run(body, steps, end, arguments)
        wanted = (elements[chosen], places[chosen])
        if found is None or not np.array_equal(found, wanted, equal_nan=True):
            return False
    return True


def _wins(left: float, right: float, combine: str) -> bool | None:
    """Whether the left one is chosen; None for equals."""
    if np.isnan(left) or np.isnan(right):
        return None if np.isnan(left) and np.isnan(right) else bool(np.isnan(left))
    if left == right:
        return None
    return (left > right) == (combine == "maximum")


def _run(
    body: ir.Block, steps: list[ir.Operation], end: ir.Operation, arguments: tuple[float, ...]
) -> list[float] | None:
    known = {
        argument: np.array(number, hlo.dtype(argument))
        for argument, number in zip(body.arguments, arguments, strict=True)
    }
    for step in steps:
        if any(operand not in known for operand in step.operands):
            return None
        result = EVALUATORS[step.name](step, [known[operand] for operand in step.operands])
        if result is None:
            return None
        known[step.results[0]] = result
    return [float(known[value]) for value in end.operands]
