"""Reshapes that split dimensions into runs which are no whole vectors, moved down.

    %g = stablehlo.reshape %x                                     // [N, H, W, 320] to [.., 32, 10]
    %s = stablehlo.reduce(%g) ... across dimensions = [1, 2]
    %c = stablehlo.subtract %g, broadcast(%m)                     // a number for each group
    %y = stablehlo.reshape %c                                     // and back

A group normalisation of groups of 10 channels computes on vectors of all 320 channels so, with the
groups' numbers spread over their channels first.
"""

from __future__ import annotations

from math import prod

from stepwell.dialects import stablehlo as hlo
from stepwell.mlir import ir
from stepwell.passes.stablehlo._reshapes import groups_of
from stepwell.passes.stablehlo._values import i64s, integers, producer, rebuild, splat
from stepwell.weights import WeightTable

_VECTOR = 8
_TIMES_READ = 16
"""What is spread over the channels is read so often at least."""

_Parts = list[tuple[int, ...]]
"""For each dimension of the source, those of the result that it is split into."""


def _split(value: ir.Value) -> tuple[ir.Value, _Parts] | None:
    """The source of the reshape that makes `value`, and how it splits dimensions, the last one into
    runs that are no whole vectors."""
    op = producer(value, "reshape")
    if op is None or 0 in hlo.shape(value):
        return None
    groups = groups_of(hlo.shape(op.operands[0]), hlo.shape(value))
    if not groups or any(len(group.operands) != 1 or not group.results for group in groups):
        return None
    parts = [group.results for group in groups]
    run = hlo.shape(value)[-1]
    if len(parts[-1]) < 2 or run == 1 or run % _VECTOR == 0:
        return None
    return op.operands[0], parts


def through_reduce(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """Reductions over dimensions that are not split; sums also over parts of those that are, which
    are summed after that."""
    found = _split(op.operands[0]) if len(op.operands) == 2 else None
    if found is None:
        return None
    source, parts = found
    reduced = integers(op, "dimensions")
    first = [d for d, part in enumerate(parts) if len(part) == 1 and part[0] in reduced]
    rest = [d for d in reduced if (d,) not in parts]
    if not first or (rest and not _is_sum(op)):
        return None
    kept = [n for d, n in enumerate(hlo.shape(source)) if d not in first]
    result = rebuild(op, [source, op.operands[1]], kept, {"dimensions": i64s(first)})
    if not rest:
        return hlo.reshape(result, hlo.shape(op.results[0]))
    shape, gone = hlo.shape(op.operands[0]), [parts[d][0] for d in first]
    dimensions = [d for d in range(len(shape)) if d not in gone]
    apart = hlo.reshape(result, [shape[d] for d in dimensions])
    return hlo.reduce(apart, op.operands[1], [dimensions.index(d) for d in rest], "add")


def _is_sum(op: ir.Operation) -> bool:
    """Whether numbers are added to 0."""
    body = [child.operation for child in op.regions[0].blocks[0].operations]
    return len(body) == 2 and body[0].name == "stablehlo.add" and splat(op.operands[1]) == 0


def through_elementwise(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """Elementwise ops of split values, and of others that cost little to merge."""
    splits = [_split(value) for value in op.operands]
    found = next((split for split in splits if split is not None), None)
    if found is None:
        return None
    source, parts = found
    shape = hlo.shape(source)
    for value, split in zip(op.operands, splits, strict=True):
        alike = split is not None and (hlo.shape(split[0]), split[1]) == (shape, parts)
        if hlo.shape(value) and not alike and not _is_merged_freely(value, shape, parts):
            return None
    operands = [
        split[0]
        if split is not None
        else _merged(value, shape, parts)
        if hlo.shape(value)
        else value
        for value, split in zip(op.operands, splits, strict=True)
    ]
    return hlo.reshape(rebuild(op, operands, shape), hlo.shape(op.results[0]))


def _touched(broadcast: ir.Operation, parts: _Parts) -> list[int]:
    """The dimensions of the source that the operand of a broadcast varies along."""
    sizes = hlo.shape(broadcast.operands[0])
    moving = {
        d
        for d, size in zip(integers(broadcast, "broadcast_dimensions"), sizes, strict=True)
        if size != 1
    }
    return [d for d, part in enumerate(parts) if moving & set(part)]


def _is_merged_freely(value: ir.Value, shape: tuple[int, ...], parts: _Parts) -> bool:
    if splat(value) is not None:
        return True
    op = producer(value, "broadcast_in_dim")
    if op is None:
        return False
    stored = prod(shape[d] for d in _touched(op, parts))
    return stored * _TIMES_READ <= prod(shape)


def _merged(value: ir.Value, shape: tuple[int, ...], parts: _Parts) -> ir.Value:
    if not hlo.shape(value):
        return value
    number = splat(value)
    if number is not None:
        return hlo.full(number, shape, hlo.dtype(value))
    op = producer(value, "broadcast_in_dim")
    assert op is not None
    touched = _touched(op, parts)
    inner = [d for dimension in touched for d in parts[dimension]]
    whole = hlo.shape(value)
    kept = [
        (d, size)
        for d, size in zip(
            integers(op, "broadcast_dimensions"), hlo.shape(op.operands[0]), strict=True
        )
        if size != 1
    ]
    flat = hlo.reshape(op.operands[0], [size for _, size in kept])
    spread = hlo.broadcast_in_dim(
        flat, [whole[d] for d in inner], [inner.index(d) for d, _ in kept]
    )
    merged = hlo.reshape(spread, [shape[d] for d in touched])
    return hlo.broadcast_in_dim(merged, shape, touched)
