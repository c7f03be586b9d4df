"""CHLO: which of its operations stay on the way down, and the rest in terms of StableHLO.

    %0 = stablehlo.composite "chlo.erf" %x {decomposition = @chlo.erf.impl, ..}

is how JAX exports such an operation: where it stays, it is `chlo.erf` again. Functions of real
numbers that lose digits as upstream writes them have formulas of their own (`DOUBLE_FUNCTIONS`,
`SINGLE_FUNCTIONS`), and products of rows with the matrix of their group (`chlo.ragged_dot`) are
grouped where it pays (`ragged.py`).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable

import numpy as np

from stepwell.dialects import (
    bessel,
    formulas,
    gamma_functions,
    hyperbolic,
    inverse_error,
    ragged,
)
from stepwell.dialects import stablehlo as hlo
from stepwell.dialects.formulas import Elements
from stepwell.mlir import ir, nested_operations, replace_operation, run_upstream

ERROR_FUNCTIONS = ("chlo.erf", "chlo.erfc")
"""Kernels compute them."""

HYPERBOLIC = ("chlo.cosh", "chlo.sinh")
"""Of complex numbers they stay: as exponentials they would lose what is near zero."""

DOUBLE_FUNCTIONS: dict[str, Callable[..., Elements]] = {
    "chlo.bessel_i1e": bessel.i1e,
    "chlo.cosh": hyperbolic.cosh,
    "chlo.digamma": gamma_functions.digamma,
    "chlo.erf_inv": inverse_error.erf_inv,
    "chlo.lgamma": gamma_functions.lgamma,
    "chlo.polygamma": gamma_functions.polygamma,
    "chlo.sinh": hyperbolic.sinh,
}
"""Those of f64."""

SINGLE_FUNCTIONS: dict[str, Callable[..., Elements]] = {
    "chlo.bessel_i1e": bessel.i1e_of_single,
    "chlo.cosh": hyperbolic.cosh,
    "chlo.erf_inv": inverse_error.erf_inv_of_single,
    "chlo.sinh": hyperbolic.sinh,
}
"""Those of f32, through which those of narrower floats go."""

WIDENED_FUNCTIONS = {**DOUBLE_FUNCTIONS, "chlo.zeta": functools.partial(formulas.chlo, "zeta")}
"""Those in f64 of f32 and narrower floats that have none in f32."""

_INVERSE_FUNCTIONS = ("acos", "acosh", "asin", "asinh", "atan", "atanh")
WIDENED_INVERSES = frozenset(
    [*itertools.product(_INVERSE_FUNCTIONS, ("f16", "bf16", "complex<f32>")), ("acosh", "f32")]
)
"""Functions and types that go through f64. Upstream's of f16 and bf16 round more than once, and
those of complex<f32> lose digits where squares of the parts are below the least float; the
roundings of acosh of f32 add up to 3.1 ulp."""

BROADCAST_SELECT = "chlo.broadcast_select"
"""Upstream leaves its shapes to the dialect `shape`."""

RAGGED = "chlo.ragged_dot"
_ROWS_IN_GROUPS = ([], [], [1], [1], [0], [0])
"""The dimension numbers, as composites have them, of rows [m, k] and matrices [g, k, n]: batching
and contracting ones, which are ragged, which are groups."""

_NUMBERS = (
    "#chlo.ragged_dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1], "
    "lhs_ragged_dimensions = [0], rhs_group_dimensions = [0]>"
)


def stays(name: str, value: ir.Value) -> bool:
    """Whether an operation `name` stays, `value` being its result."""
    kind = ir.RankedTensorType(value.type).element_type
    if isinstance(kind, ir.ComplexType):
        return name in HYPERBOLIC
    return name in ERROR_FUNCTIONS


def _formula(name: str, value: ir.Value) -> Callable[..., Elements] | None:
    """The formula for an operation `name` whose result is `value`, if there is one."""
    kind = str(ir.RankedTensorType(value.type).element_type)
    if kind == "f64":
        return DOUBLE_FUNCTIONS.get(name)
    if kind == "f32" and name in SINGLE_FUNCTIONS:
        return SINGLE_FUNCTIONS[name]
    if kind in ("f16", "bf16") and name in SINGLE_FUNCTIONS:
        return formulas.computed_in(np.float32, SINGLE_FUNCTIONS[name])
    if kind in ("f32", "f16", "bf16") and name in WIDENED_FUNCTIONS:
        return formulas.computed_in(np.float64, WIDENED_FUNCTIONS[name])
    _, _, function = name.partition(".")
    if (function, kind) in WIDENED_INVERSES:
        wide = np.complex128 if kind == "complex<f32>" else np.float64
        return formulas.computed_in(wide, functools.partial(formulas.chlo, function))
    return None


def restore_composites(module: ir.Operation) -> None:
    """Make composites the operations that they stand for, where these stay or have formulas."""
    for op in nested_operations(module):
        if op.name == "stablehlo.composite" and len(op.results) == 1:
            name = ir.StringAttr(op.attributes["name"]).value
            if stays(name, op.results[0]) or _formula(name, op.results[0]):
                replace_operation(op, name, {})
            elif name == RAGGED and _composite_numbers(op) == _ROWS_IN_GROUPS:
                _group(op)


def _composite_numbers(op: ir.Operation) -> tuple[list[int], ...]:
    """The dimension numbers that a composite was given."""
    attributes = ir.DictAttr(op.attributes["composite_attributes"])
    if "ragged_dot_dimension_numbers" not in attributes:
        return ()
    numbers = ir.ArrayAttr(attributes["ragged_dot_dimension_numbers"])
    return tuple(list(ir.DenseIntElementsAttr(entry)) for entry in numbers)


def _group(op: ir.Operation) -> None:
    """Put a grouped product in the place of a ragged one, where it pays."""
    x, w, sizes = op.operands
    shapes = [hlo.tensor_type(value) for value in op.operands]
    if not all(kind.has_static_shape for kind in shapes):
        return
    tile = ragged.tile_of(hlo.shape(x)[0], hlo.shape(w)[0])
    if tile is None:
        return
    with ir.InsertionPoint(op), op.location:
        made = ragged.ragged_dot(x, w, sizes, 1, tile, hlo.dtype(op.results[0]))
    op.results[0].replace_all_uses_with(made)
    op.erase()


def _write_out(op: ir.Operation, formula: Callable[..., Elements]) -> None:
    """Put `formula` of the operands in the place of `op`."""
    with ir.InsertionPoint(op), op.location:
        made = formula(*(Elements(operand) for operand in op.operands)).value
    op.results[0].replace_all_uses_with(made)
    op.erase()


def _select(op: ir.Operation) -> None:
    """Put a select of operands that all have the shape of the result in the place of `op`."""
    sizes = hlo.shape(op.results[0])
    rank = len(sizes)
    with ir.InsertionPoint(op), op.location:
        predicate, on_true, on_false = (
            hlo.broadcast_in_dim(value, sizes, range(rank - len(hlo.shape(value)), rank))
            for value in op.operands
        )
        made = hlo.select(predicate, on_true, on_false)
    op.results[0].replace_all_uses_with(made)
    op.erase()


def legalize(op: ir.Operation) -> None:
    """Expand everything inside `op` but what stays: that is custom calls while upstream's pass,
    which knows no exceptions, runs."""
    for child in nested_operations(op):
        numbers = "ragged_dot_dimension_numbers"
        if child.name == RAGGED and str(child.attributes[numbers]) == _NUMBERS:
            _group(child)
        elif child.name == BROADCAST_SELECT:
            _select(child)
        elif child.name.startswith("chlo."):
            formula = _formula(child.name, child.results[0])
            if formula is not None:
                _write_out(child, formula)
    found = [child for child in nested_operations(op) if child.name.startswith("chlo.")]
    kept = [child for child in found if stays(child.name, child.results[0])]
    if len(kept) == len(found):
        return
    for child in kept:
        target = ir.StringAttr.get(child.name)
        replace_operation(child, "stablehlo.custom_call", {"call_target_name": target})
    nested = "chlo-legalize-to-stablehlo"
    run_upstream(op, nested if op.name == "func.func" else f"func.func({nested})")
    for child in nested_operations(op):
        if child.name == "stablehlo.custom_call":
            target = ir.StringAttr(child.attributes["call_target_name"]).value
            if target in (*ERROR_FUNCTIONS, *HYPERBOLIC):
                replace_operation(child, target, {})
