"""Rules of `simplify-algebra` for slices and concatenations: what is cut or joined twice, and what
is read before or behind it.

    %j = stablehlo.concatenate %a, %b, dim = 0
    %s = stablehlo.slice %j [0:2]                    // lies in %a

becomes a slice of `%a`.
"""

from __future__ import annotations

from stepwell.dialects import stablehlo as hlo
from stepwell.kernels.structured import MOST_ALTERNATING
from stepwell.mlir import ir
from stepwell.passes.stablehlo._rules import fused
from stepwell.passes.stablehlo._values import (
    ELEMENTWISE,
    has_one_use,
    integer,
    integers,
    producer,
    rebuild,
)
from stepwell.weights import WeightTable


def nested_concatenate(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """concatenate of a concatenate along the same dimension that nothing else uses; no empties."""
    dimension = integer(op, "dimension")
    flat: list[ir.Value] = []
    for value in op.operands:
        inner = producer(value, "concatenate")
        if inner and integer(inner, "dimension") == dimension and len(list(value.uses)) == 1:
            flat += inner.operands
        elif hlo.shape(value)[dimension] or len(op.operands) == 1:
            flat.append(value)
    if len(flat) == len(op.operands) or not flat:
        return None
    return hlo.concatenate(flat, dimension)


def neighbouring_slices(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """concatenate of slices of one value that lie side by side in it."""
    dimension, parts = integer(op, "dimension"), [producer(v, "slice") for v in op.operands]
    first = parts[0]
    if first is None or len(parts) == 1:
        return None
    begin, end = integers(first, "start_indices"), integers(first, "start_indices")
    for part in parts:
        if part is None or part.operands[0] != first.operands[0]:
            return None
        expected = [*begin[:dimension], end[dimension], *begin[dimension + 1 :]]
        if integers(part, "start_indices") != expected or set(integers(part, "strides")) != {1}:
            return None
        end = integers(part, "limit_indices")
    return hlo.slice(first.operands[0], begin, end)


def slice_of_concatenate(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """A slice that lies within one operand of a concatenate."""
    inner = producer(op.operands[0], "concatenate")
    if inner is None:
        return None
    start, limit = integers(op, "start_indices"), integers(op, "limit_indices")
    dimension, offset = integer(inner, "dimension"), 0
    for value in inner.operands:
        end = offset + hlo.shape(value)[dimension]
        if offset <= start[dimension] and limit[dimension] <= end:
            start[dimension] -= offset
            limit[dimension] -= offset
            return hlo.slice(value, start, limit, integers(op, "strides"))
        offset = end
    return None


def transpose_of_stack(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """A transpose of a few values of one row each, joined to rows, that makes them columns: their
    elements alternate, which kernels write as they compute them."""
    inner = producer(op.operands[0], "concatenate")
    if inner is None or not has_one_use(op.operands[0]) or len(inner.operands) > MOST_ALTERNATING:
        return None
    order, dimension = integers(op, "permutation"), integer(inner, "dimension")
    if order[-1] != dimension:
        return None
    columns = []
    for part in inner.operands:
        sizes = hlo.shape(part)
        moved = [d for d in order if sizes[d] != 1]
        if sizes[dimension] != 1 or moved != sorted(moved):
            return None
        columns.append([sizes[d] for d in order])
    parts = [hlo.reshape(v, c) for v, c in zip(inner.operands, columns, strict=True)]
    with fused(op, inner):
        return hlo.concatenate(parts, len(order) - 1)


MOST_PARTS = 4
"""Parts of a concatenation that arithmetic is repeated for."""


def join_after_arithmetic(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """f(concatenate(a, b), y) as concatenate(f(a, y0), f(b, y1)): one kernel writes the result, or
    those that make a and b."""
    shape = hlo.shape(op.results[0])
    joined = [value for value in op.operands if producer(value, "concatenate")]
    if not joined or not all(has_one_use(value) for value in joined):
        return None
    inner = producer(joined[0], "concatenate")
    assert inner is not None
    dimension = integer(inner, "dimension")
    sizes = [hlo.shape(part)[dimension] for part in inner.operands]
    if len(sizes) > MOST_PARTS or not all(
        hlo.shape(value) == () or value in joined or _is_cut_freely(value) for value in op.operands
    ):
        return None
    parts = []
    for number, size in enumerate(sizes):
        begin = sum(sizes[:number])
        start = [begin if d == dimension else 0 for d in range(len(shape))]
        limit = [begin + size if d == dimension else n for d, n in enumerate(shape)]
        operands = [
            value if hlo.shape(value) == () else hlo.slice(value, start, limit)
            for value in op.operands
        ]
        part_shape = [b - a for a, b in zip(start, limit, strict=True)]
        parts.append(rebuild(op, operands, part_shape))
    return hlo.concatenate(parts, dimension)


def _is_cut_freely(value: ir.Value, depth: int = 8) -> bool:
    """Whether reading a slice of `value` costs no more than reading a part of an array that is
    written anyway: not where the array would be an intermediate result of a product."""
    if not isinstance(value, ir.OpResult) or not has_one_use(value):
        return True
    if producer(value, "constant", "iota", "broadcast_in_dim"):
        return True
    op = producer(value, *ELEMENTWISE, "slice", "reshape") if depth else None
    return op is not None and all(_is_cut_freely(operand, depth - 1) for operand in op.operands)


def slice_chain(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """slice of slice."""
    inner = producer(op.operands[0], "slice")
    if inner is None:
        return None
    if 0 in hlo.shape(op.results[0]):
        return None
    origin = list(zip(integers(inner, "start_indices"), integers(inner, "strides"), strict=True))
    starts, limits = integers(op, "start_indices"), integers(op, "limit_indices")
    start = [base + step * s for (base, step), s in zip(origin, starts, strict=True)]
    limit = [base + step * (s - 1) + 1 for (base, step), s in zip(origin, limits, strict=True)]
    strides = [step * s for (_, step), s in zip(origin, integers(op, "strides"), strict=True)]
    with fused(op, inner):
        return hlo.slice(inner.operands[0], start, limit, strides)


def slice_of_reverse(op: ir.Operation, weights: WeightTable) -> ir.Value | None:
    """What is cut from something reversed is cut first: the edges of a reflected image are few."""
    inner = producer(op.operands[0], "reverse")
    if inner is None or 0 in hlo.shape(op.results[0]):
        return None
    reversed_ones = integers(inner, "dimensions")
    starts, limits, strides = (
        integers(op, name) for name in ("start_indices", "limit_indices", "strides")
    )
    for d in reversed_ones:
        size, count = hlo.shape(inner.operands[0])[d], hlo.shape(op.results[0])[d]
        first, last = starts[d], starts[d] + (count - 1) * strides[d]
        starts[d], limits[d] = size - 1 - last, size - first
    with fused(op, inner):
        return hlo.reverse(hlo.slice(inner.operands[0], starts, limits, strides), reversed_ones)
