"""Sorting for machines of many threads: stable, and parallel in all elements.

A short row is sorted by counting: the rank of an element is how many come before it, and the
element of rank r is the one that comes r-th.

    rank[i] = number of j with x[j] before x[i];   source[r] = the i with rank[i] == r

A long row goes through a bitonic network (K. Batcher, "Sorting networks and their applications",
1968): in each stage every element keeps the lesser or the greater of itself and its partner, whose
position differs in one bit. Places decide between equal elements, so that both are stable.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.mlir import ir
from stepwell.passes.linalg import _loops as loops
from stepwell.passes.stablehlo._values import i64s
from stepwell.weights import WeightTable

MOST_COUNTED = 2048
"""Longest row that is sorted by counting, which takes the square of its length."""

_INDEX = np.int32


def sort_in_parallel(
    op: ir.Operation, dimension: int, few: int, weights: WeightTable
) -> list[ir.Value]:
    """The results of a sort along `dimension`, of which the first `few` elements are read."""
    operands = list(op.operands)
    shape = hlo.shape(operands[0])
    order = [d for d in range(len(shape)) if d != dimension] + [dimension]
    length = shape[dimension]
    flat = -1 if 0 in shape else int(np.prod(shape)) // length
    if length < 2 or flat < 0:
        return operands
    rows = [hlo.reshape(hlo.transpose(o, order), (flat, length)) for o in operands]
    less = op.regions[0].blocks[0]
    if length <= MOST_COUNTED:
        ordered = _by_counting(less, rows, few)
    else:
        ordered = _bitonic(less, rows, weights)
    moved = tuple(shape[d] for d in order)
    back = [order.index(d) for d in range(len(shape))]
    return [hlo.transpose(hlo.reshape(o, moved), back) for o in ordered]


def _comes_first(
    less: ir.Block, lefts: Sequence[ir.Value], rights: Sequence[ir.Value], length: int
) -> ir.Value:
    """Whether, element by element, `lefts` come before `rights`. The last of both are places: they
    decide between equals, and those from `length` on hold nothing and come last. One operation, so
    that it is never in memory."""
    pairs = [value for pair in zip(lefts, rights, strict=True) for value in pair]
    shape = hlo.shape(pairs[0])
    made = ir.Operation.create(
        "stablehlo.map",
        results=[ir.RankedTensorType.get(list(shape), ir.IntegerType.get_signless(1))],
        operands=pairs,
        attributes={"dimensions": i64s(range(len(shape)))},
        regions=1,
    )
    kinds = [ir.RankedTensorType.get([], hlo.element_type(value)) for value in pairs]
    body = made.regions[0].blocks.append(*kinds)
    with ir.InsertionPoint(body):
        *elements, left, right = body.arguments
        turned = [elements[i ^ 1] for i in range(len(elements))]
        earlier = hlo.compare(left, right, "LT")
        (verdict,), (other,) = loops.inline(less, elements), loops.inline(less, turned)
        first = hlo.or_(verdict, hlo.and_(hlo.not_(other), earlier))
        limit = hlo.full(length, (), _INDEX)
        missing = hlo.compare(hlo.maximum(left, right), limit, "GE")
        verdict = hlo.select(missing, earlier, first)
        ir.Operation.create("stablehlo.return", operands=[verdict])
    return made.results[0]


def _by_counting(less: ir.Block, rows: list[ir.Value], few: int) -> list[ir.Value]:
    count, length = hlo.shape(rows[0])
    cube, wanted = (count, length, length), (count, few, length)
    places = hlo.iota((length,), 0, _INDEX)
    first = [hlo.broadcast_in_dim(row, cube, (0, 2)) for row in rows]
    second = [hlo.broadcast_in_dim(row, cube, (0, 1)) for row in rows]
    first.append(hlo.broadcast_in_dim(places, cube, (2,)))
    second.append(hlo.broadcast_in_dim(places, cube, (1,)))
    rank = _count(hlo.convert(_comes_first(less, first, second, length), _INDEX))
    ranks = hlo.broadcast_in_dim(hlo.iota((few,), 0, _INDEX), wanted, (1,))
    here = hlo.compare(hlo.broadcast_in_dim(rank, wanted, (0, 2)), ranks, "EQ")
    place = hlo.broadcast_in_dim(places, wanted, (2,))
    source = _count(hlo.select(here, place, hlo.full(0, wanted, _INDEX)))
    start = hlo.multiply(hlo.iota((count, few), 0, _INDEX), hlo.full(length, (count, few), _INDEX))
    indices = hlo.reshape(hlo.add(source, start), (count * few, 1))
    dimensions = hlo.GatherDimensions((), (0,), (0,), 1)
    found = []
    for row in rows:
        taken = hlo.gather(hlo.reshape(row, (count * length,)), indices, dimensions, (1,))
        zero = hlo.full(0, (), hlo.dtype(row))
        found.append(hlo.pad(hlo.reshape(taken, (count, few)), zero, (0, 0), (0, length - few)))
    return found


def _count(values: ir.Value) -> ir.Value:
    """Sums over the last dimension."""
    zero = hlo.full(0, (), _INDEX)
    return hlo.reduce(values, zero, [len(hlo.shape(values)) - 1], "add")


def _bitonic(less: ir.Block, rows: list[ir.Value], weights: WeightTable) -> list[ir.Value]:
    count, length = hlo.shape(rows[0])
    size = 1 << (length - 1).bit_length()
    values = [
        hlo.pad(row, hlo.full(0, (), hlo.dtype(row)), (0, 0), (0, size - length)) for row in rows
    ]
    values.append(hlo.iota((count, size), 1, _INDEX))
    run = 2
    while run <= size:
        distance = run // 2
        while distance:
            values = _stage(less, values, (run, distance), length, weights)
            distance //= 2
        run *= 2
    return [hlo.slice(value, (0, 0), (count, length)) for value in values[:-1]]


def _stage(
    less: ir.Block,
    values: list[ir.Value],
    steps: tuple[int, int],
    length: int,
    weights: WeightTable,
) -> list[ir.Value]:
    """One stage of the network: partners are `distance` apart, runs of `run` elements are sorted
    upwards and downwards in turn. The last of `values` are the places; those beyond `length` hold
    nothing and go to the end."""
    run, distance = steps
    count, size = hlo.shape(values[0])
    blocks = size // (2 * distance)
    whole = (count, blocks, 2, distance)
    own = [hlo.reshape(value, whole) for value in values]
    partners = [hlo.reverse(value, (2,)) for value in own]
    first = _comes_first(less, own, partners, length)
    upwards = np.arange(blocks) * 2 * distance // run % 2 == 0
    low = upwards[:, None] == (np.arange(2) == 0)
    wants_first = hlo.broadcast_in_dim(hlo.constant(low, weights), whole, (1, 2))
    stays = hlo.compare(first, wants_first, "EQ")
    chosen = [hlo.select(stays, o, p) for o, p in zip(own, partners, strict=True)]
    return [hlo.reshape(value, (count, size)) for value in chosen]
