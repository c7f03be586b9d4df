"""CHLO: which of its operations stay on the way down, and the rest in terms of StableHLO.

    %0 = stablehlo.composite "chlo.erf" %x {decomposition = @chlo.erf.impl, ..}

is how JAX exports such an operation: where it stays, it is `chlo.erf` again. Products of rows with
the matrix of their group (`chlo.ragged_dot`) are grouped where it pays (`ragged.py`), and the
inverse of the error function in f64 gets a Newton step (`inverse_error.py`).
"""

from __future__ import annotations

from stepwell.dialects import inverse_error, ragged
from stepwell.dialects import stablehlo as hlo
from stepwell.mlir import ir, nested_operations, replace_operation, run_upstream

ERROR_FUNCTION = "chlo.erf"
"""Kernels compute it in f32; of f64 it is expanded."""

HYPERBOLIC = ("chlo.cosh", "chlo.sinh")
"""Of complex numbers they stay: as exponentials they would lose what is near zero."""

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
    return name == ERROR_FUNCTION and not isinstance(kind, ir.F64Type)


def _is_double(value: ir.Value) -> bool:
    return isinstance(ir.RankedTensorType(value.type).element_type, ir.F64Type)


def restore_composites(module: ir.Operation) -> None:
    """Make composites the operations that they stand for, where these stay."""
    for op in nested_operations(module):
        if op.name == "stablehlo.composite" and len(op.results) == 1:
            name = ir.StringAttr(op.attributes["name"]).value
            if stays(name, op.results[0]):
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
        elif child.name == inverse_error.INVERSE_ERROR_FUNCTION and _is_double(child.results[0]):
            inverse_error.refine(child)
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
            if target in (ERROR_FUNCTION, *HYPERBOLIC):
                replace_operation(child, target, {})
