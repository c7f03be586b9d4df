"""Remainders of floats as arithmetic on vectors or scalars: exact, as IEEE's and C's fmod are."""

from __future__ import annotations

import math as _math

from stepwell.kernels.vector_math import any_lane, constant, like
from stepwell.mlir import dialect, ir

arith = dialect("arith")
math = dialect("math")

_OLT = 4
_LARGEST_QUOTIENT = {"f32": 2.0**22, "f64": 2.0**51}


def remainder(x: ir.Value, y: ir.Value) -> ir.Value:
    """x - n y with n = x / y rounded towards zero, of f32 or f64; the sign is that of x.

    While n has fewer digits than the mantissa, n y is taken from x without rounding. The rounded
    quotient can only be too large, by one, and then the difference is negative. A vector of which
    one quotient is larger, or not a number, or one y infinite, is left to the C library."""
    kind = x.type
    element = str(kind.element_type if isinstance(kind, ir.VectorType) else kind)
    size, step = math.AbsFOp(x).result, math.AbsFOp(y).result
    quotient = math.TruncOp(arith.DivFOp(size, step).result).result
    is_small = _is_below(quotient, _LARGEST_QUOTIENT[element])
    usable = arith.AndIOp(is_small, _is_below(step, _math.inf)).result
    yes = constant(like(kind, ir.IntegerType.get_signless(1)), 1)
    leaves = any_lane(arith.XOrIOp(usable, yes).result)
    branch = ir.Operation.create("scf.if", results=[kind], operands=[leaves], regions=2)
    with ir.InsertionPoint(branch.regions[0].blocks.append()):
        ir.Operation.create("scf.yield", operands=[arith.RemFOp(x, y).result])
    with ir.InsertionPoint(branch.regions[1].blocks.append()):
        rest = math.FmaOp(arith.NegFOp(quotient).result, step, size).result
        raised = arith.AddFOp(rest, step).result
        rest = arith.SelectOp(_is_below(rest, 0.0), raised, rest).result
        ir.Operation.create("scf.yield", operands=[math.CopySignOp(rest, x).result])
    return branch.results[0]


def _is_below(x: ir.Value, bound: float) -> ir.Value:
    return arith.CmpFOp(_OLT, x, constant(x.type, bound)).result
