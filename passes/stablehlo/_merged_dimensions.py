"""Reshapes that merge dimensions which a transpose has brought together, moved down.

    %t = stablehlo.transpose %x, dims = [0, 3, 1, 2]              // NHWC to NCHW
    %m = stablehlo.reshape %t                                     // [N, C, H, W] to [N, G, L]
    %s = stablehlo.reduce(%m) ... across dimensions = [2]
    %c = stablehlo.subtract %m, broadcast(%s)
    %y = stablehlo.reshape %c                                     // and back

No transpose passes such a reshape, since the channels would stand last. So the sums are taken over
what was merged, the arithmetic is done on it, and the reshapes meet and cancel: a group
normalisation, as it is exported to ONNX, works on images in NHWC.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, pairwise
from operator import mul

from stepwell.dialects import stablehlo as hlo
from stepwell.mlir import ir
from stepwell.passes.stablehlo._joined_results import joins_results
from stepwell.passes.stablehlo._reshapes import groups_of, regroup
from stepwell.passes.stablehlo._values import i64s, integers, producer, rebuild, splat
from stepwell.weights import WeightTable


@dataclass(frozen=True)
class _Merge:
    """A reshape of `source` that merges the dimensions of `apart`, the finest shape that both are
    reshapes of: result dimension d is `parts[d]` of it."""

    source: ir.Value
    apart: tuple[int, ...]
    parts: tuple[tuple[int, ...], ...]


def _merge(value: ir.Value) -> _Merge | None:
    """The merge that makes `value`, if a transpose stands before it that cannot pass it, or results
    are joined before it, along one of its dimensions."""
    reshape = producer(value, "reshape")
    if reshape is None or 0 in hlo.shape(value):
        return None
    source, shape = reshape.operands[0], hlo.shape(value)
    transpose = producer(source, "transpose")
    if transpose is not None:
        known = regroup(hlo.shape(source), shape, integers(transpose, "permutation"))
        if known is not None and known.in_order:
            return None
    elif joins_results(source) is None:
        return None
    apart: list[int] = []
    parts: list[tuple[int, ...]] = []
    for group in groups_of(hlo.shape(source), shape):
        before = [hlo.shape(source)[d] for d in group.operands]
        after = [shape[d] for d in group.results]
        cuts = sorted({1, *accumulate(before, mul), *accumulate(after, mul)})
        if any(b % a for a, b in pairwise(cuts)):
            return None
        first = len(apart)
        if before == [1] and after == [1]:  # a batch of one keeps its place
            apart, parts = [*apart, 1], [*parts, (first,)]
            continue
        apart += [b // a for a, b in pairwise(cuts)]
        places = {cut: first + number for number, cut in enumerate(cuts)}
        ends = [1, *accumulate(after, mul)]
        parts += [tuple(range(places[a], places[b])) for a, b in pairwise(ends)]
    if tuple(apart) == tuple(shape):  # it merges nothing
        return None
    return _Merge(source, tuple(apart), tuple(parts))


def through_elementwise(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """Elementwise ops of merged values, and of others that cost nothing to take apart."""
    merges = [_merge(value) for value in op.operands]
    found = next((merge for merge in merges if merge is not None), None)
    if found is None:
        return None
    for value, merge in zip(op.operands, merges, strict=True):
        alike = merge is not None and (merge.apart, merge.parts) == (found.apart, found.parts)
        if hlo.shape(value) and not alike and not _is_taken_apart_freely(value, found):
            return None
    operands = [
        value if not hlo.shape(value) else _taken_apart(value, merge, found)
        for value, merge in zip(op.operands, merges, strict=True)
    ]
    return hlo.reshape(rebuild(op, operands, found.apart), hlo.shape(op.results[0]))


def _is_taken_apart_freely(value: ir.Value, merge: _Merge) -> bool:
    if splat(value) is not None:
        return True
    op = producer(value, "broadcast_in_dim")
    if op is None:
        return False
    targets = integers(op, "broadcast_dimensions")
    sizes = zip(targets, hlo.shape(op.operands[0]), strict=True)
    return all(size == 1 or len(merge.parts[d]) == 1 for d, size in sizes)


def _taken_apart(value: ir.Value, merge: _Merge | None, like: _Merge) -> ir.Value:
    if merge is not None:
        return hlo.reshape(merge.source, like.apart)
    number = splat(value)
    if number is not None:
        return hlo.full(number, like.apart, hlo.dtype(value))
    op = producer(value, "broadcast_in_dim")
    assert op is not None
    source = op.operands[0]
    sizes = zip(integers(op, "broadcast_dimensions"), hlo.shape(source), strict=True)
    kept = [(d, size) for d, size in sizes if size != 1]
    flat = hlo.reshape(source, [size for _, size in kept])
    return hlo.broadcast_in_dim(flat, like.apart, [like.parts[d][0] for d, _ in kept])


def through_reduce(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """Reductions over merged dimensions, or beside them."""
    merge = _merge(op.operands[0]) if len(op.operands) == 2 else None
    if merge is None:
        return None
    reduced = [part for d in integers(op, "dimensions") for part in merge.parts[d]]
    shape = [n for d, n in enumerate(merge.apart) if d not in reduced]
    operands = [hlo.reshape(merge.source, merge.apart), op.operands[1]]
    result = rebuild(op, operands, shape, {"dimensions": i64s(sorted(reduced))})
    return hlo.reshape(result, hlo.shape(op.results[0]))
