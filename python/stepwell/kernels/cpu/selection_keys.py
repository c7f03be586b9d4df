"""The order of a selection as that of signed integers: what comes first has the greatest key."""

from __future__ import annotations

from stepwell.kernels.selection import NUMBER, SIGNED, UNSIGNED, Selection
from stepwell.mlir import dialect, ir

arith = dialect("arith")

_INFINITY = {"f16": 0x7C00, "bf16": 0x7F80, "f32": 0x7F800000, "f64": 0x7FF0000000000000}
"""The bits of infinity; those of NaNs are greater."""


def key(value: ir.Value, selection: Selection) -> ir.Value:
    """The key of an element, or of all lanes of a vector."""
    element = value.type.element_type if isinstance(value.type, ir.VectorType) else value.type
    bits = _as_integer(value, element)
    greatest = (1 << (element.width - 1)) - 1
    if selection.order == UNSIGNED:
        bits = arith.XOrIOp(bits, splat(bits.type, -greatest - 1)).result
    elif selection.order == NUMBER:
        bits = _as_number(bits, greatest, _INFINITY[str(element)])
    elif selection.order != SIGNED:
        sign = arith.ShRSIOp(bits, splat(bits.type, element.width - 1)).result
        turned = arith.AndIOp(sign, splat(bits.type, greatest)).result
        bits = arith.XOrIOp(bits, turned).result
    return bits if selection.descends else arith.XOrIOp(bits, splat(bits.type, -1)).result


def _as_integer(value: ir.Value, element: ir.Type) -> ir.Value:
    if isinstance(element, ir.IntegerType):
        return value
    kind: ir.Type = ir.IntegerType.get_signless(element.width)
    if isinstance(value.type, ir.VectorType):
        kind = ir.VectorType.get(value.type.shape, kind)
    return arith.BitcastOp(kind, value).result


def _as_number(bits: ir.Value, greatest: int, infinity: int) -> ir.Value:
    """Sign and magnitude as an integer, so that both zeros are 0; of NaNs the greatest one."""
    magnitude = arith.AndIOp(bits, splat(bits.type, greatest)).result
    zero = splat(bits.type, 0)
    is_negative = compare("slt", bits, zero)
    number = arith.SelectOp(is_negative, arith.SubIOp(zero, magnitude).result, magnitude).result
    is_nan = compare("sgt", magnitude, splat(bits.type, infinity))
    return arith.SelectOp(is_nan, splat(bits.type, greatest), number).result


def splat(kind: ir.Type, number: int) -> ir.Value:
    """An integer, in all lanes of a vector."""
    if not isinstance(kind, ir.VectorType):
        return arith.ConstantOp(kind, number).result
    scalar = ir.IntegerAttr.get(kind.element_type, number)
    return arith.ConstantOp(kind, ir.DenseElementsAttr.get_splat(kind, scalar)).result


def compare(predicate: str, lhs: ir.Value, rhs: ir.Value) -> ir.Value:
    """Comparison of integers."""
    return arith.CmpIOp(getattr(arith.CmpIPredicate, predicate), lhs, rhs).result


def choose(condition: ir.Value, on_true: ir.Value, on_false: ir.Value) -> ir.Value:
    """One of two values, lane by lane."""
    return arith.SelectOp(condition, on_true, on_false).result
