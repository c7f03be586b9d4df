"""Codes of a few bits, one a byte, and the bits of wider elements that several of them make up.

The first code of a group has the lowest bits, as the first byte of a wider element has.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stepwell.dialects import stablehlo as hlo
from stepwell.mlir import ir

_BYTE = np.dtype(np.uint8)


def regrouped(value: ir.Value, before: int, after: int, shape: Sequence[int]) -> ir.Value:
    """`value`, elements of `before` bits, in groups of `after` bits: elements of `shape`.

    Elements of fewer than 8 bits are codes in the low bits of bytes. One of the two has at most 8;
    groups of more stay bytes, with one dimension more than `shape`.
    """
    lead = list(hlo.shape(value))
    if before > 8:
        bytes_of_one = before // 8
        value = hlo.bitcast_convert(value, _BYTE, [*lead, bytes_of_one])
        return hlo.reshape(_split(value, 8, after), shape)
    value = value if hlo.dtype(value) == _BYTE else hlo.bitcast_convert(value, _BYTE)
    if before > after:
        return _split(value, before, after)
    if after > 8:
        value = hlo.reshape(value, [*shape, after // 8, 8 // before])
    return _joined(value, before)


def _split(codes: ir.Value, before: int, after: int) -> ir.Value:
    """[.., before / after] codes of fewer bits."""
    if before == after:
        return codes
    lead = hlo.shape(codes)
    shape = [*lead, before // after]
    spread = hlo.broadcast_in_dim(codes, shape, list(range(len(lead))))
    shifted = hlo.shift_right_logical(spread, _positions(shape, after))
    return hlo.and_(shifted, hlo.full((1 << after) - 1, shape, _BYTE))


def _joined(codes: ir.Value, bits: int) -> ir.Value:
    """The last dimension as one code."""
    *lead, count = hlo.shape(codes)
    if count == 1:
        return hlo.reshape(codes, lead)
    placed = hlo.shift_left(codes, _positions([*lead, count], bits))
    return hlo.reduce(placed, hlo.full(0, (), _BYTE), [len(lead)], "add")


def _positions(shape: Sequence[int], bits: int) -> ir.Value:
    """The lowest bit of each code of the last dimension."""
    last = hlo.iota(shape, len(shape) - 1, _BYTE)
    return hlo.multiply(last, hlo.full(bits, shape, _BYTE))
