"""Quotients and remainders of vectors of integers, which no processor divides at once."""

from __future__ import annotations

from stepwell.kernels.vector_math import like
from stepwell.mlir import dialect, ir

arith = dialect("arith")

DIVISIONS = ("arith.divsi", "arith.divui", "arith.remsi", "arith.remui")


def divides(op: ir.Operation) -> bool:
    """Whether `divided` takes an operation: it divides vectors of up to 32 bits an element. LLVM
    multiplies by the inverse of a constant instead."""
    if op.name not in DIVISIONS or not isinstance(op.results[0].type, ir.VectorType):
        return False
    element = op.results[0].type.element_type
    divisor = op.operands[1].owner
    is_constant = isinstance(divisor, ir.Operation | ir.OpView) and divisor.name == "arith.constant"
    return isinstance(element, ir.IntegerType) and 8 <= element.width <= 32 and not is_constant


def divided(op: ir.Operation) -> ir.Value:
    """The result of such an operation. It is exact: a quotient of n bits that is no integer is at
    least 2^-(n+1) of itself below the next one, which is more than floats are rounded by."""
    x, y = op.operands
    kind, signed = x.type, op.name.endswith("si")
    float_kind = like(kind, ir.F32Type.get() if kind.element_type.width <= 16 else ir.F64Type.get())
    to_float = arith.SIToFPOp if signed else arith.UIToFPOp
    to_integer = arith.FPToSIOp if signed else arith.FPToUIOp
    quotient = arith.DivFOp(to_float(float_kind, x).result, to_float(float_kind, y).result).result
    whole = to_integer(kind, quotient).result
    if op.name.startswith("arith.div"):
        return whole
    return arith.SubIOp(x, arith.MulIOp(whole, y).result).result
