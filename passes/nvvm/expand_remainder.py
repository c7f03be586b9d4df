"""`expand-remainder`: remainders of floats, exactly, by halving.

PTX has no remainder, and LLVM writes x - trunc(x / y) * y, which is wrong where the quotient is
rounded to an integer. Here y is doubled up to x and halved back, and taken away wherever it fits:
every step is exact (P. Sterbenz, "Floating-Point Computation", 1974, for the difference of numbers
within a factor of two).

    %r = arith.remf %x, %y : f32   ->   two scf.while loops
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from stepwell.mlir import dialect, ir, nested_operations
from stepwell.passes.base import Pass, State

arith = dialect("arith")
vector = dialect("vector")

_INFINITY = {"f32": "0x7F800000", "f64": "0x7FF0000000000000"}
_NAN = {"f32": "0x7FC00000", "f64": "0x7FF8000000000000"}

_TEXT = """
func.func @remainder(%x: {kind}, %y: {kind}) -> {kind} {{
  %zero = arith.constant 0.0 : {kind}
  %half = arith.constant 0.5 : {kind}
  %one = arith.constant 1.0 : {kind}
  %infinity = arith.constant {infinity} : {kind}
  %nan = arith.constant {nan} : {kind}
  %size = math.absf %x : {kind}
  %step = math.absf %y : {kind}
  %finite = arith.cmpf olt, %size, %infinity : {kind}
  %bounded = arith.cmpf olt, %step, %infinity : {kind}
  %nonzero = arith.cmpf ogt, %step, %zero : {kind}
  %usable = arith.andi %bounded, %nonzero : i1
  %valid = arith.andi %finite, %usable : i1
  %start = arith.select %valid, %size, %zero : {kind}
  %least = arith.select %valid, %step, %one : {kind}
  %limit = arith.mulf %start, %half : {kind}
  %most = scf.while (%t = %least) : ({kind}) -> {kind} {{
    %more = arith.cmpf ole, %t, %limit : {kind}
    scf.condition(%more) %t : {kind}
  }} do {{
  ^bb0(%t: {kind}):
    %twice = arith.addf %t, %t : {kind}
    scf.yield %twice : {kind}
  }}
  %rest:2 = scf.while (%r = %start, %t = %most) : ({kind}, {kind}) -> ({kind}, {kind}) {{
    %more = arith.cmpf oge, %t, %least : {kind}
    scf.condition(%more) %r, %t : {kind}, {kind}
  }} do {{
  ^bb0(%r: {kind}, %t: {kind}):
    %less = arith.subf %r, %t : {kind}
    %fits = arith.cmpf oge, %r, %t : {kind}
    %following = arith.select %fits, %less, %r : {kind}
    %halved = arith.mulf %t, %half : {kind}
    scf.yield %following, %halved : {kind}, {kind}
  }}
  %signed = math.copysign %rest#0, %x : {kind}
  %unbounded = arith.cmpf oeq, %step, %infinity : {kind}
  %kept = arith.andi %finite, %unbounded : i1
  %other = arith.select %kept, %x, %nan : {kind}
  %result = arith.select %valid, %signed, %other : {kind}
  return %result : {kind}
}}
"""


@dataclass(frozen=True)
class ExpandRemainder(Pass):
    """Expand every `arith.remf` of f16, f32 and f64; vectors lane by lane."""

    name: ClassVar[str] = "expand-remainder"

    def run(self, op: ir.Operation, state: State) -> None:
        found = [inner for inner in nested_operations(op) if inner.name == "arith.remf"]
        for remainder in found:
            x, y = remainder.operands
            with ir.InsertionPoint(remainder), remainder.location:
                value = _of_vectors(x, y) if isinstance(x.type, ir.VectorType) else _of(x, y)
            remainder.results[0].replace_all_uses_with(value)
            remainder.erase()


def _of_vectors(x: ir.Value, y: ir.Value) -> ir.Value:
    kind = ir.VectorType(x.type)
    parts = [
        _of(*(vector.ExtractOp(v, [], [lane]).result for v in (x, y)))
        for lane in range(kind.shape[0])
    ]
    return vector.FromElementsOp(kind, parts).result


def _of(x: ir.Value, y: ir.Value) -> ir.Value:
    """The remainder of scalars, written at the current insertion point."""
    kind = x.type
    if str(kind) == "f16":
        single = ir.F32Type.get()
        wide = [arith.ExtFOp(single, value).result for value in (x, y)]
        return arith.TruncFOp(kind, _of(*wide)).result
    name = str(kind)
    text = _TEXT.format(kind=name, infinity=_INFINITY[name], nan=_NAN[name])
    module = ir.Module.parse(text)  # its operations live as long as it does
    block = module.body.operations[0].operation.regions[0].blocks[0]
    for argument, value in zip(block.arguments, (x, y), strict=True):
        argument.replace_all_uses_with(value)
    *operations, end = [child.operation for child in block.operations]
    result = end.operands[0]
    point = ir.InsertionPoint.current
    for operation in operations:
        operation.detach_from_parent()
        point.insert(operation)
    end.erase()
    return result
