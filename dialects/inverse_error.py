"""The inverse of the error function in f64, by one Newton step after upstream's polynomial.

    y0 = chlo.erf_inv(x)                                      // 13 ulp off at worst
    y = y0 - (erf(y0) - x) / (2 / sqrt(pi) exp(-y0^2))        // where |x| < 1/2
    y = y0 + (erfc(|y0|) - (1 - |x|)) / ..                    // further out, with the sign of x

erf loses near one what erfc keeps; 1 - |x| is exact there. The two residuals are of one formula,
so each element takes the one that is good for it.
"""

from __future__ import annotations

import math

from stepwell.dialects import stablehlo as hlo
from stepwell.mlir import ir

INVERSE_ERROR_FUNCTION = "chlo.erf_inv"


def refine(op: ir.Operation) -> None:
    """Put a Newton step between `op`, a `chlo.erf_inv` of f64, and those that read it."""
    x, first = op.operands[0], op.results[0]
    readers = [(use.owner, use.operand_number) for use in first.uses]
    with ir.InsertionPoint.after(op), op.location:
        better = _newton(x, first)
    for reader, number in readers:
        reader.operation.operands[number] = better


def _newton(x: ir.Value, first: ir.Value) -> ir.Value:
    one, half = _like(x, 1.0), _like(x, 0.5)
    size, root = hlo.abs(x), hlo.abs(first)
    near = hlo.subtract(_chlo("erf", root), size)
    far = hlo.subtract(hlo.subtract(one, size), _chlo("erfc", root))
    residual = hlo.select(hlo.compare(size, half, "LT"), near, far)
    slope = hlo.exponential(hlo.negate(hlo.multiply(root, root)))
    slope = hlo.multiply(_like(x, 2 / math.sqrt(math.pi)), slope)
    moved = hlo.subtract(root, hlo.divide(residual, slope))
    signed = hlo.select(hlo.compare(x, _like(x, 0.0), "LT"), hlo.negate(moved), moved)
    # Of one and beyond, of zeros and of NaN the polynomial has the value, and the step has not.
    inside = hlo.and_(hlo.compare(size, one, "LT"), hlo.compare(size, _like(x, 0.0), "GT"))
    return hlo.select(inside, signed, first)


def _chlo(name: str, operand: ir.Value) -> ir.Value:
    return ir.Operation.create(f"chlo.{name}", results=[operand.type], operands=[operand]).result


def _like(operand: ir.Value, value: float) -> ir.Value:
    """A constant of the sizes of `operand`, which need not be known."""
    attributes = {"value": ir.FloatAttr.get(ir.F64Type.get(), value)}
    return ir.Operation.create(
        "chlo.constant_like", results=[operand.type], operands=[operand], attributes=attributes
    ).result
