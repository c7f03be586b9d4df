"""Cumulative reductions for machines of many threads: blocks first, then what stands before them.

    x -> [blocks, 32];  inner = cumulative within a block (a window of 32)
    carry = cumulative over the blocks' last elements, moved by one block
    result = carry (+) inner

Every step is parallel in all elements. The cumulative reduction over blocks is one of the same
kind, 32 times shorter.
"""

from __future__ import annotations

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.mlir import ir
from stepwell.passes.stablehlo._values import splat

BLOCK = 32
"""The longest window whose elements a thread combines by itself."""

_IDENTITIES = {"stablehlo.add": 0, "stablehlo.multiply": 1}
_IDEMPOTENT = ("stablehlo.maximum", "stablehlo.minimum", "stablehlo.and", "stablehlo.or")
_WIDER = {"f32": np.float64, "f16": np.float32, "bf16": np.float32}


def scan_in_blocks(op: ir.Operation, dimension: int, backward: bool) -> list[ir.Value] | None:
    """The result of a cumulative `reduce_window` along `dimension`; None for bodies of more than
    one operation, several operands, and initial values that may not be combined twice."""
    operations = [child.operation for child in op.regions[0].blocks[0].operations]
    if len(op.results) != 1 or len(operations) != 2:
        return None
    name, start = operations[0].name, splat(op.operands[1])
    if list(operations[0].operands) != list(op.regions[0].blocks[0].arguments):
        return None
    if start is None or (name not in _IDEMPOTENT and start != _IDENTITIES.get(name)):
        return None
    x = op.operands[0]
    kind = hlo.dtype(x)
    if name == "stablehlo.add":
        x = hlo.convert(x, _WIDER.get(str(hlo.element_type(x)), kind))
    initial = hlo.full(start, (), hlo.dtype(x))
    scan = _Scan(name.removeprefix("stablehlo."), initial, dimension, backward)
    return [hlo.convert(scan.along(x), kind)]


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
