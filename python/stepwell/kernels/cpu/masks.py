"""What lanes of vectors of flags are set."""

from __future__ import annotations

import functools

from stepwell.kernels.cpu.selection_keys import splat
from stepwell.mlir import dialect, ir

arith = dialect("arith")
math = dialect("math")
vector = dialect("vector")

WORD = 64
"""Flags that `bits_of` takes at least, as bits of a word."""


def any_lane(flags: ir.Value) -> ir.Value:
    """Whether any lane of a vector of flags is set."""
    kind = ir.IntegerType.get_signless(1)
    return vector.ReductionOp(kind, vector.CombiningKind.OR, flags).result


def bits_of(parts: list[ir.Value]) -> ir.Value:
    """Vectors of flags, one after the other, as bits of a word, the first one lowest."""
    lanes = parts[0].type.shape[0]
    word = ir.IntegerType.get_signless(max(WORD, lanes))
    shifted = []
    for number, flags in enumerate(parts):
        mask = ir.VectorType.get([1], ir.IntegerType.get_signless(lanes))
        bits = vector.ExtractOp(vector.BitCastOp(mask, flags).result, [], [0]).result
        bits = bits if bits.type == word else arith.ExtUIOp(word, bits).result
        shifted.append(arith.ShLIOp(bits, splat(word, number * lanes)).result)
    return functools.reduce(lambda a, b: arith.OrIOp(a, b).result, shifted)


def lowest_bit(bits: ir.Value) -> ir.Value:
    """The number of the lowest bit that is set, as an index."""
    number = math.CountTrailingZerosOp(bits).result
    return arith.IndexCastUIOp(ir.IndexType.get(), number).result
