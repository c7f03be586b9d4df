"""Positions at which a vector of booleans is true, in order: a sort that needs one pass.

    %keys = stablehlo.select %mask, %iota, %length
    %r = "stablehlo.sort"(%keys) ({less})

gives these positions, then the length for each of the others:

    %count = scf.for %i { %r[%count] = %i; %count += %mask[%i] }
    scf.for %i = %count to %length { %r[%i] = %length }

What was written last at a place stands there. Where it was at a position that is false, the next
one goes to the same place: there is no branch to mispredict.
"""

from __future__ import annotations

from collections.abc import Sequence

from stepwell.dialects import stablehlo as hlo
from stepwell.mlir import dialect, ir
from stepwell.passes.linalg import _loops as loops
from stepwell.passes.linalg._loops import Values
from stepwell.passes.linalg._radix_sort import Key
from stepwell.passes.linalg._selection import is_positions
from stepwell.passes.stablehlo._values import producer, splat
from stepwell.weights import WeightTable

arith = dialect("arith")


def is_compaction(op: ir.Operation, weights: WeightTable) -> bool:
    """Whether `op` is such a sort."""
    return _mask(op, weights) is not None


def compacted(op: ir.Operation, weights: WeightTable) -> Values | None:
    """The result of such a sort; None for others."""
    mask = _mask(op, weights)
    if mask is None:
        return None
    (length,) = loops.shape_of(mask)
    element = loops.element_of(op.operands[0])
    zero, one, end = (loops.index(value) for value in (0, 1, length))

    def position(number: ir.Value, carried: Values) -> Sequence[ir.Value]:
        count, result = carried
        written = loops.insert(arith.IndexCastOp(element, number).result, result, [count])
        is_true = arith.IndexCastUIOp(ir.IndexType.get(), loops.extract(mask, [number])).result
        return [loops.add(count, is_true), written]

    def rest(number: ir.Value, carried: Values) -> Sequence[ir.Value]:
        return [loops.insert(arith.ConstantOp(element, length).result, carried[0], [number])]

    start = [zero, loops.empty([length], element)]
    count, result = loops.loop(zero, end, one, start, position)
    return loops.loop(count, end, one, [result], rest)


def _mask(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """The booleans whose positions the sort `op` of one vector gives."""
    if len(op.operands) != 1 or len(hlo.shape(op.operands[0])) != 1:
        return None
    keys = op.operands[0]
    key = Key.of(op.regions[0].blocks[0])
    chosen = producer(keys, "select")
    if key is None or key.descends or not isinstance(key.value, ir.BlockArgument):
        return None
    if chosen is None or hlo.dtype(keys).kind != "i":
        return None
    mask, numbers, others = chosen.operands
    is_position = is_positions(numbers, 0, weights) and splat(others) == hlo.shape(keys)[0]
    return mask if is_position and hlo.shape(mask) == hlo.shape(keys) else None
