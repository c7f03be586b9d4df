"""Cumulative reductions for machines of many threads: blocks first, then what stands before them.

    x -> [blocks, 32];  inner = cumulative within a block
    carry = cumulative over the blocks' last elements, moved by one block
    result = carry (+) inner

Every step is parallel in all elements. The cumulative reduction over blocks is one of the same
kind, 32 times shorter. Within a block, each element is a window of up to 32; where the body is more
than one operation, or of several operands, five steps combine each element with the one 1, 2, 4, 8
and 16 before it (Hillis and Steele, Data parallel algorithms, 1986), in their order.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.mlir import ir
from stepwell.passes.linalg._loops import Values
from stepwell.passes.linalg._mapped import mapped_region
from stepwell.passes.stablehlo._values import splat

BLOCK = 32
"""The longest window whose elements a thread combines by itself."""

_IDENTITIES = {"stablehlo.add": 0, "stablehlo.multiply": 1}
_IDEMPOTENT = ("stablehlo.maximum", "stablehlo.minimum", "stablehlo.and", "stablehlo.or")
_WIDER = {"f32": np.float64, "f16": np.float32, "bf16": np.float32}


def scan_in_blocks(op: ir.Operation, dimension: int, backward: bool) -> Values | None:
    """The results of a cumulative `reduce_window` along `dimension`; None for empty ones."""
    count = len(op.results)
    operands, initial = list(op.operands)[:count], list(op.operands)[count:]
    if 0 in hlo.shape(operands[0]):
        return None
    body = op.regions[0].blocks[0]
    name = _only_operation(body)
    if name in _IDENTITIES or (name in _IDEMPOTENT and splat(initial[0]) is not None):
        return [_scan_of_one(name, operands[0], initial[0], dimension, backward)]
    return _scan_by_body(body, operands, initial, dimension, backward)


def _only_operation(body: ir.Block) -> str:
    """The name of the operation that a body is, of its arguments in their order; else ""."""
    operations = [child.operation for child in body.operations]
    if len(operations) != 2 or list(operations[0].operands) != list(body.arguments):
        return ""
    return operations[0].name


def _scan_of_one(
    name: str, x: ir.Value, start: ir.Value, dimension: int, backward: bool
) -> ir.Value:
    """Of one operand, by an operation that has an identity, or may combine a constant `start` with
    every block."""
    kind, constant = hlo.dtype(x), splat(start)
    if name == "stablehlo.add":
        x = hlo.convert(x, _WIDER.get(str(hlo.element_type(x)), kind))
    wide, combiner = hlo.dtype(x), name.removeprefix("stablehlo.")
    neutral = _IDENTITIES.get(name, constant)
    assert neutral is not None
    result = _Scan(combiner, hlo.full(neutral, (), wide), dimension, backward).along(x)
    if constant != neutral:
        first = hlo.broadcast_in_dim(hlo.convert(start, wide), hlo.shape(x), ())
        result = hlo.binary(combiner, first, result)
    return hlo.convert(result, kind)


def _scan_by_body(
    body: ir.Block, operands: Values, initial: Values, dimension: int, backward: bool
) -> Values:
    """By any body, with earlier elements as its first operands. Backwards, the elements are turned
    round, and so are the operands."""

    def combine(before: Values, here: Values) -> Values:
        return mapped_region(body, [*here, *before] if backward else [*before, *here])

    def turned(values: Values) -> Values:
        return [hlo.reverse(value, [dimension]) for value in values] if backward else values

    shape = hlo.shape(operands[0])
    starts = [hlo.broadcast_in_dim(value, shape, ()) for value in initial]
    return turned(combine(starts, _along(combine, turned(operands), dimension)))


Combine = Callable[[Values, Values], Values]
"""The body of a reduction, of elements and of those that stand before them."""


def _along(combine: Combine, values: Values, dimension: int) -> Values:
    """The cumulative reductions of `values` along a dimension, in blocks."""
    shape = hlo.shape(values[0])
    length = shape[dimension]
    if length <= BLOCK:
        return _by_steps(combine, values, dimension)
    blocks = -(-length // BLOCK)
    whole = [*shape[:dimension], blocks, BLOCK, *shape[dimension + 1 :]]
    # Nothing comes after the elements that fill the last block: it does not matter what they are.
    padded = [_longer(value, dimension, blocks * BLOCK - length) for value in values]
    padded_shape = hlo.shape(padded[0])
    within = [hlo.reshape(value, whole) for value in padded]
    within = _by_steps(combine, within, dimension + 1)
    sums = [*shape[:dimension], blocks - 1, *shape[dimension + 1 :]]
    totals = [
        hlo.reshape(_part(_part(value, dimension + 1, BLOCK - 1), dimension, 0, -1), sums)
        for value in within
    ]
    others = [_part(value, dimension, 1) for value in within]
    kept = [d for d in range(len(whole)) if d != dimension + 1]
    carried = [
        hlo.broadcast_in_dim(value, hlo.shape(others[0]), kept)
        for value in _along(combine, totals, dimension)
    ]
    return [
        _part(
            hlo.reshape(
                hlo.concatenate([_part(first, dimension, 0, 1), rest], dimension), padded_shape
            ),
            dimension,
            0,
            length,
        )
        for first, rest in zip(within, combine(carried, others), strict=True)
    ]


def _by_steps(combine: Combine, values: Values, dimension: int) -> Values:
    """The cumulative reductions of short rows: in step n, each element is combined with the one
    2^n before it, which stands for as many."""
    length, distance = hlo.shape(values[0])[dimension], 1
    while distance < length:
        before = [_part(value, dimension, 0, length - distance) for value in values]
        here = [_part(value, dimension, distance) for value in values]
        values = [
            hlo.concatenate([_part(value, dimension, 0, distance), new], dimension)
            for value, new in zip(values, combine(before, here), strict=True)
        ]
        distance *= 2
    return values


def _part(value: ir.Value, dimension: int, start: int, end: int | None = None) -> ir.Value:
    """Elements `start` to `end` along a dimension; `end` counts from the last one if negative."""
    limits = list(hlo.shape(value))
    starts = [0] * len(limits)
    starts[dimension], limits[dimension], _ = slice(start, end).indices(limits[dimension])
    return hlo.slice(value, starts, limits)


def _longer(value: ir.Value, dimension: int, count: int) -> ir.Value:
    """`value` with `count` more elements behind it."""
    if count == 0:
        return value
    highs = [count if d == dimension else 0 for d in range(len(hlo.shape(value)))]
    return hlo.pad(value, hlo.full(0, (), hlo.dtype(value)), [0] * len(highs), highs)


class _Scan:
    def __init__(self, name: str, initial: ir.Value, dimension: int, backward: bool) -> None:
        self.name = name
        self.initial = initial
        self.dimension = dimension
        self.backward = backward

    def along(self, x: ir.Value) -> ir.Value:
        """The cumulative reduction of `x` along the dimension."""
        length, axis = hlo.shape(x)[self.dimension], self.dimension
        if length <= BLOCK:
            return self._window(x, axis)
        blocks = -(-length // BLOCK)
        shape = hlo.shape(x)
        outer, inner = shape[:axis], shape[axis + 1 :]
        padded = self._pad(x, 0, blocks * BLOCK - length)
        split = hlo.reshape(padded, (*outer, blocks, BLOCK, *inner))
        within = self._window(split, axis + 1)
        whole = (*outer, blocks, BLOCK, *inner)
        first = 0 if self.backward else BLOCK - 1
        start, limit = [0] * len(whole), list(whole)
        start[axis + 1], limit[axis + 1] = first, first + 1
        totals = hlo.reshape(hlo.slice(within, start, limit), (*outer, blocks, *inner))
        before = self.along(totals)
        carry = self._pad(before, -1, 1) if self.backward else self._pad(before, 1, -1)
        kept = [d for d in range(len(whole)) if d != axis + 1]
        spread = hlo.broadcast_in_dim(carry, whole, kept)
        joined = hlo.reshape(hlo.binary(self.name, spread, within), hlo.shape(padded))
        return self._pad(joined, 0, length - blocks * BLOCK)

    def _pad(self, x: ir.Value, low: int, high: int) -> ir.Value:
        if low == 0 and high == 0:
            return x
        lows, highs = ([0] * len(hlo.shape(x)) for _ in range(2))
        lows[self.dimension], highs[self.dimension] = low, high
        return hlo.pad(x, self.initial, lows, highs)

    def _window(self, x: ir.Value, axis: int) -> ir.Value:
        """The cumulative reduction along `axis`, by a window as long as it."""
        length, rank = hlo.shape(x)[axis], len(hlo.shape(x))
        windows, pads = [1] * rank, [(0, 0)] * rank
        windows[axis] = length
        pads[axis] = (0, length - 1) if self.backward else (length - 1, 0)
        return hlo.reduce_window(
            x, self.initial, self.name, window=windows, strides=[1] * rank, padding=pads
        )
