"""CHLO: which of its operations stay on the way down, and the rest in terms of StableHLO.

    %0 = stablehlo.composite "chlo.erf" %x {decomposition = @chlo.erf.impl, ..}

is how JAX exports such an operation: where it stays, it is `chlo.erf` again.
"""

from __future__ import annotations

from stepwell.mlir import ir, nested_operations, replace_operation, run_upstream

ERROR_FUNCTION = "chlo.erf"
"""Kernels compute it in f32; of f64 it is expanded."""

HYPERBOLIC = ("chlo.cosh", "chlo.sinh")
"""Of complex numbers they stay: as exponentials they would lose what is near zero."""


def stays(name: str, value: ir.Value) -> bool:
    """Whether an operation `name` stays, `value` being its result."""
    kind = ir.RankedTensorType(value.type).element_type
    if isinstance(kind, ir.ComplexType):
        return name in HYPERBOLIC
    return name == ERROR_FUNCTION and not isinstance(kind, ir.F64Type)


def restore_composites(module: ir.Operation) -> None:
    """Make composites the operations that they stand for, where these stay."""
    for op in nested_operations(module):
        if op.name == "stablehlo.composite" and len(op.results) == 1:
            name = ir.StringAttr(op.attributes["name"]).value
            if stays(name, op.results[0]):
                replace_operation(op, name, {})


def legalize(op: ir.Operation) -> None:
    """Expand everything inside `op` but what stays: that is custom calls while upstream's pass,
    which knows no exceptions, runs."""
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
