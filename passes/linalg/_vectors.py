"""Vectors of floats read from, computed with and written to tensors, written from Python."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from stepwell.mlir import dialect, ir

arith = dialect("arith")
math = dialect("math")
vector = dialect("vector")


def read(source: ir.Value, position: Sequence[ir.Value], lanes: int) -> ir.Value:
    """`lanes` neighbours of the last dimension of `source`, from `position` on; all are inside."""
    element = ir.RankedTensorType(source.type).element_type
    padding = arith.ConstantOp(element, 0.0).result
    kind = ir.VectorType.get([lanes], element)
    return vector.TransferReadOp(
        kind, source, list(position), _last(len(position)), padding, [True]
    ).result


def write(value: ir.Value, target: ir.Value, position: Sequence[ir.Value]) -> ir.Value:
    """`target` with a vector written along its last dimension, from `position` on."""
    return vector.TransferWriteOp(
        target.type, value, target, list(position), _last(len(position)), [True]
    ).result


def _last(rank: int) -> ir.AffineMap:
    return ir.AffineMap.get_minor_identity(rank, 1)


def full(value: float, like: ir.Value) -> ir.Value:
    """A vector of one number, of the type of `like`."""
    kind = ir.VectorType(like.type)
    splat = ir.DenseElementsAttr.get_splat(kind, ir.FloatAttr.get(kind.element_type, value))
    return arith.ConstantOp(kind, splat).result


def broadcast(scalar: ir.Value, lanes: int) -> ir.Value:
    """A vector with `scalar` in every lane."""
    return vector.BroadcastOp(ir.VectorType.get([lanes], scalar.type), scalar).result


def without_first(x: ir.Value, count: ir.Value) -> ir.Value:
    """x with zeros in its first `count` lanes, an index."""
    kind = ir.VectorType(x.type)
    lanes = ir.VectorType.get(kind.shape, ir.IntegerType.get_signless(32))
    numbers = np.arange(kind.shape[0], dtype=np.int32)
    numbers = arith.ConstantOp(lanes, ir.DenseElementsAttr.get(numbers, type=lanes)).result
    bound = arith.IndexCastOp(lanes.element_type, count).result
    bound = vector.BroadcastOp(lanes, bound).result
    kept = arith.CmpIOp(arith.CmpIPredicate.sge, numbers, bound).result
    return arith.SelectOp(kept, x, full(0.0, x)).result


def add(x: ir.Value, y: ir.Value) -> ir.Value:
    """x + y."""
    return arith.AddFOp(x, y).result


def subtract(x: ir.Value, y: ir.Value) -> ir.Value:
    """x - y."""
    return arith.SubFOp(x, y).result


def multiply(x: ir.Value, y: ir.Value) -> ir.Value:
    """x * y."""
    return arith.MulFOp(x, y).result


def fma(x: ir.Value, y: ir.Value, z: ir.Value) -> ir.Value:
    """x * y + z, rounded once."""
    return math.FmaOp(x, y, z).result


def negate(x: ir.Value) -> ir.Value:
    """-x."""
    return arith.NegFOp(x).result


def scaled(x: ir.Value, factor: float) -> ir.Value:
    """x times a constant."""
    return x if factor == 1 else multiply(x, full(factor, x))


def shuffle(x: ir.Value, y: ir.Value, lanes: Iterable[int]) -> ir.Value:
    """Lanes of x (from 0 on) and y (from the size of x on)."""
    return vector.ShuffleOp(x, y, list(lanes)).result


def backwards(x: ir.Value) -> ir.Value:
    """The lanes of x in reversed order."""
    return shuffle(x, x, reversed(range(ir.VectorType(x.type).shape[0])))


def even_and_odd(x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """The even and the odd lanes of a vector."""
    size = ir.VectorType(x.type).shape[0]
    return shuffle(x, x, range(0, size, 2)), shuffle(x, x, range(1, size, 2))


def interleaved(x: ir.Value, y: ir.Value) -> ir.Value:
    """Lanes of x and y by turns."""
    size = ir.VectorType(x.type).shape[0]
    return shuffle(x, y, [lane + side for lane in range(size) for side in (0, size)])


def transposed(rows: Sequence[ir.Value]) -> list[ir.Value]:
    """The columns of as many rows as they have lanes, a power of two: for each bit, the lanes whose
    numbers have it and the rows whose numbers do not are exchanged."""
    result, count = list(rows), len(rows)
    lanes = range(count)
    for step in (1 << bit for bit in range(count.bit_length() - 1)):
        for i in lanes:
            if i & step:
                continue
            low, high = result[i], result[i + step]
            result[i] = shuffle(low, high, [k - step + count if k & step else k for k in lanes])
            result[i + step] = shuffle(
                low, high, [k + count if k & step else k + step for k in lanes]
            )
    return result
